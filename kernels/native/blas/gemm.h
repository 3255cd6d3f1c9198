// Linear layers by the system's BLAS: products of float weights and several tokens. It is
// included after ../src/linear.h, whose buffers, parameters and epilogues it shares, and
// needs scratch memory at SCRATCH.
//
// A weight is divided into panels of rows: each is converted to floats, multiplied with all
// tokens by sgemm, and written by the epilogue. Units are lanes with their own scratch, which
// process every lanes-th panel. The result of a panel does not depend on the lane or on the
// number of lanes.

// At fewer tokens, reading each weight once as it lies beats widening it first.
constexpr uint32_t GEMM_TOKENS = 8;

// As in kernels/scratch.go.
constexpr uint32_t SCRATCH = 30, PANEL_ROWS = 128, PANEL_TOKENS = 256;

struct Gemm : Linear {
    uint32_t sides;                  // panels that meet in one result: 2 of a pair
    uint64_t widened, lane, lanes;   // floats of a panel, floats of a lane, number of lanes
    uint64_t panels[4], panel_count; // by weight

    Gemm(const smelt_launch *l, const LinearArguments &of, void *shared) : Linear(l, of, shared) {
        sides = pair ? 2 : 1;
        uint32_t rows = 0;
        panel_count = 0;
        for (int i = 0; i < (pair && count > 0 ? 1 : count); i++) {
            panels[i] = ceil_div(weights[i].n, PANEL_ROWS);
            panel_count += panels[i];
            rows = weights[i].n > rows ? weights[i].n : rows;
        }
        rows = static_cast<uint32_t>(least(rows, PANEL_ROWS));
        widened = uint64_t{rows} * p.k;
        lane = sides * (widened + rows * least(p.tokens, PANEL_TOKENS));
        uint64_t have = l->buffer_count > SCRATCH ? l->buffer_bytes[SCRATCH] / 4 : 0;
        lanes = lane == 0 ? 0 : least(panel_count, have / lane);
    }

    // rows of w as floats: where they lie, or in `to`.
    const float *wide(const Weight &w, uint64_t row, uint64_t rows, float *to) const {
        const uint8_t *from = w.bytes + row * w.stride;
        if (w.type->type == SMELT_F32)
            return reinterpret_cast<const float *>(from);
        for (uint64_t r = 0; r < rows; r++)
            w.type->widen(from + r * w.stride, to + r * p.k, p.k);
        return to;
    }

    void panel(const smelt_launch *l, const Weight &w, uint64_t row, float *scratch) const {
        uint32_t rows = static_cast<uint32_t>(least(PANEL_ROWS, w.n - row));
        const float *side[2] = {};
        for (uint32_t s = 0; s < sides; s++)
            side[s] = wide(s == 0 ? w : weights[1], row, rows, scratch + s * widened);
        float *sums = scratch + sides * widened;
        const Epilogue epilogue = Linear::epilogue(pair ? weights[1] : w).from(row);
        for (uint64_t t0 = 0; t0 < p.tokens; t0 += PANEL_TOKENS) {
            uint32_t tokens = static_cast<uint32_t>(least(PANEL_TOKENS, p.tokens - t0));
            for (uint32_t s = 0; s < sides; s++)
                smelt_sgemm(tokens, rows, p.k, x + t0 * x_stride, x_stride, side[s], sums + s * tokens * rows);
            for (uint32_t t = 0; t < tokens; t++) {
                uint64_t place = (t0 + t) * p.out_stride + w.column + row;
                finish(l, sums + t * rows, sums + (tokens + t) * rows, rows, place, epilogue, t0 + t, w.column + row);
            }
        }
    }

    // What multiplies the products of a token.
    float gate_of(uint64_t token) const {
        float by = 1;
        if (gate != nullptr && !column_gate)
            with_activation(row_gate, [&](auto act) { store_n(&by, act(set1(gate[token * p.gate_stride])), 1); });
        return by;
    }

    // A row of results; `up` is of a gate.
    void finish(const smelt_launch *l, const float *sum, const float *up, uint32_t rows, uint64_t place,
                const Epilogue &epilogue, uint64_t token, uint64_t column) const {
        const float by = gate_of(token);
        const float *columns = column_gate ? gate + token * p.gate_stride + column : nullptr;
        float *out = buffer<float>(l, of.out) + place;
        const float *more = residual ? buffer<const float>(l, of.residual) + place : nullptr;
        for (uint32_t r = 0; r < rows; r += W) {
            int n = static_cast<int>(least(W, rows - r));
            F v = load_n(sum + r, n);
            v = (pair ? epilogue.of(v, load_n(up + r, n), r, n) : epilogue.of(v, r, n)) * set1(by);
            if (columns != nullptr)
                v = v * load_n(columns + r, n);
            if (more != nullptr)
                v = v + load_n(more + r, n);
            store_n(out + r, v, n);
        }
    }
};

template <const LinearArguments &OF> static int gemm_supports(const smelt_launch *l) {
    if (!linear_supports(l, OF) || constant(l, OF.fc_experts) != 0)
        return 0;
    Gemm job(l, OF, nullptr);
    return !job.quantized && job.lanes > 0 && job.p.tokens >= GEMM_TOKENS && job.p.k > 0 && job.p.k <= INT32_MAX &&
           job.x_stride >= job.p.k && job.x_stride <= INT32_MAX;
}

template <const LinearArguments &OF> static size_t gemm_shared(const smelt_launch *l) {
    return Linear(l, OF, nullptr).scratch;
}

template <const LinearArguments &OF> static uint64_t gemm_prepare_units(const smelt_launch *l) {
    return prepare_units(Linear(l, OF, nullptr));
}

template <const LinearArguments &OF>
static void gemm_prepare(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    prepare(l, Linear(l, OF, shared), begin, end);
}

template <const LinearArguments &OF> static uint64_t gemm_units(const smelt_launch *l) {
    return Gemm(l, OF, nullptr).lanes;
}

template <const LinearArguments &OF>
static void gemm(const smelt_launch *l, void *shared, uint64_t begin, uint64_t end) {
    const Gemm job(l, OF, shared);
    for (uint64_t lane = begin; lane < end; lane++) {
        for (uint64_t i = lane; i < job.panel_count; i += job.lanes) {
            uint64_t at = i;
            int w = 0;
            while (at >= job.panels[w])
                at -= job.panels[w++];
            job.panel(l, job.weights[w], at * PANEL_ROWS, buffer<float>(l, SCRATCH) + lane * job.lane);
        }
    }
}
