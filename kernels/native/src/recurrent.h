// Kernels of recurrent states.

// Where a sequence's tokens lie in a step, and its states: in pairs of the one that it reads, negative
// where it begins, and the one that it writes.
struct Steps {
    const int32_t *starts, *states;
    uint64_t elements; // of a state
    uint64_t count;    // of states in the buffer

    MEMBER int64_t at(int32_t state) const {
        return state < 0 || static_cast<uint64_t>(state) >= count ? -1 : state * static_cast<int64_t>(elements);
    }
    // read_by and written_by return where a sequence's state begins, or -1 where the buffer has none.
    MEMBER int64_t read_by(uint64_t seq) const { return at(states[2 * seq]); }
    MEMBER int64_t written_by(uint64_t seq) const { return at(states[2 * seq + 1]); }
};

// A unit is CHANNELS elements of one sequence. It reads the state before it writes, because
// both may be the same memory.
constexpr uint32_t CHANNELS = 64, TAPS = 8;

static uint64_t short_conv_units(const smelt_launch *l) {
    const ShortConvParams &p = params<ShortConvParams>(l, SMELT_SHORT_CONV_PARAMS);
    return p.seqs * ceil_div(p.width, CHANNELS);
}
static int short_conv_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_SHORT_CONV_PARAMS, sizeof(ShortConvParams)))
        return 0;
    const ShortConvParams &p = params<ShortConvParams>(l, SMELT_SHORT_CONV_PARAMS);
    if (p.taps < 2 || p.taps > TAPS)
        return 0;
    uint64_t rows = span(p.tokens, p.x_stride, p.width, 4), state = uint64_t{p.taps - 1} * p.width * 4;
    return holds(l, SMELT_SHORT_CONV_X, rows) && holds(l, SMELT_SHORT_CONV_W, uint64_t{p.width} * p.taps * 4) &&
           holds(l, SMELT_SHORT_CONV_STATE, state) && holds(l, SMELT_SHORT_CONV_STATE_OUT, state) &&
           holds(l, SMELT_SHORT_CONV_CU_SEQLENS, (uint64_t{p.seqs} + 1) * 4) &&
           holds(l, SMELT_SHORT_CONV_STATES, uint64_t{p.seqs} * 8) &&
           holds(l, SMELT_SHORT_CONV_OUT, uint64_t{p.tokens} * p.width * 4) &&
           (constant(l, SMELT_SHORT_CONV_FC_BIAS) == 0 || holds(l, SMELT_SHORT_CONV_BIAS, uint64_t{p.width} * 4)) &&
           (constant(l, SMELT_SHORT_CONV_FC_GATED) == 0 ||
            (holds(l, SMELT_SHORT_CONV_IN_GATE, rows) && holds(l, SMELT_SHORT_CONV_OUT_GATE, rows)));
}
static void short_conv(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const ShortConvParams &p = params<ShortConvParams>(l, SMELT_SHORT_CONV_PARAMS);
    const float *in_gate = optional<const float>(l, SMELT_SHORT_CONV_FC_GATED, SMELT_SHORT_CONV_IN_GATE);
    const float *out_gate = optional<const float>(l, SMELT_SHORT_CONV_FC_GATED, SMELT_SHORT_CONV_OUT_GATE);
    const float *bias = optional<const float>(l, SMELT_SHORT_CONV_FC_BIAS, SMELT_SHORT_CONV_BIAS);
    const bool has_silu = constant(l, SMELT_SHORT_CONV_FC_SILU) == 1;
    const uint32_t past = p.taps - 1;
    const uint64_t elements = uint64_t{past} * p.width;
    const Steps steps = {buffer<const int32_t>(l, SMELT_SHORT_CONV_CU_SEQLENS),
                         buffer<const int32_t>(l, SMELT_SHORT_CONV_STATES), elements,
                         l->buffer_bytes[SMELT_SHORT_CONV_STATE_OUT] / (elements * 4)};
    const uint64_t across = ceil_div(p.width, CHANNELS);
    for (uint64_t unit = begin; unit < end; unit++) {
        uint64_t seq = unit / across, e0 = unit % across * CHANNELS;
        int64_t first = steps.starts[seq], count = steps.starts[seq + 1] - first;
        if (count <= 0)
            continue;
        const uint64_t n = least(CHANNELS, p.width - e0);
        float w[TAPS][CHANNELS], last[TAPS][CHANNELS]; // the latest x, the oldest first
        for (uint32_t j = 0; j < p.taps; j++)
            for (uint64_t e = 0; e < n; e++)
                w[j][e] = buffer<const float>(l, SMELT_SHORT_CONV_W)[(e0 + e) * p.taps + j];
        memset(last, 0, sizeof last);
        const int64_t from = steps.read_by(seq), to = steps.written_by(seq);
        for (uint32_t r = 0; from >= 0 && r < past; r++)
            memcpy(last[r], buffer<const float>(l, SMELT_SHORT_CONV_STATE) + from + uint64_t{r} * p.width + e0, n * 4);
        for (int64_t t = 0; t < count; t++) {
            uint64_t at = static_cast<uint64_t>(first + t);
            const float *x = buffer<const float>(l, SMELT_SHORT_CONV_X) + at * p.x_stride + e0;
            for (uint64_t e = 0; e < n; e++)
                last[past][e] = in_gate != nullptr ? in_gate[at * p.x_stride + e0 + e] * x[e] : x[e];
            float sum[CHANNELS] = {};
            for (uint32_t j = 0; j < p.taps; j++)
                for (uint64_t e = 0; e < n; e++)
                    sum[e] += w[j][e] * last[j][e];
            if (out_gate != nullptr)
                for (uint64_t e = 0; e < n; e++)
                    sum[e] *= out_gate[at * p.x_stride + e0 + e];
            if (bias != nullptr)
                map2(sum, bias + e0, sum, static_cast<uint32_t>(n), [](F v, F own) { return v + own; });
            if (has_silu)
                map1(sum, sum, static_cast<uint32_t>(n), [](F v) { return silu(v); });
            memcpy(buffer<float>(l, SMELT_SHORT_CONV_OUT) + at * p.width + e0, sum, n * 4);
            memmove(last[0], last[1], uint64_t{past} * sizeof last[0]);
        }
        for (uint32_t r = 0; to >= 0 && r < past; r++)
            memcpy(buffer<float>(l, SMELT_SHORT_CONV_STATE_OUT) + to + uint64_t{r} * p.width + e0, last[r], n * 4);
    }
}

static float softplus_of(float x) { return x > 20.0f ? x : __builtin_log1pf(__builtin_expf(x)); }

// The gated delta rule. A unit is a head of one sequence, whose columns of its matrix do not
// know of each other: it reads an element before it writes it, which may be the same state. Some
// columns take several tokens while they are in the first cache; sums are the same as token by token.
constexpr uint32_t DELTA_TOKENS = 16;

static uint64_t delta_net_units(const smelt_launch *l) {
    const DeltaNetParams &p = params<DeltaNetParams>(l, SMELT_DELTA_NET_PARAMS);
    return uint64_t{p.seqs} * p.heads;
}
static int delta_net_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_DELTA_NET_PARAMS, sizeof(DeltaNetParams)))
        return 0;
    const DeltaNetParams &p = params<DeltaNetParams>(l, SMELT_DELTA_NET_PARAMS);
    if (p.head == 0 || p.head > MAX_SMALL_HEAD || p.key_heads == 0 || p.key_heads > p.heads || p.share == 0)
        return 0;
    const uint64_t row = uint64_t{p.head} * 4, gates = uint64_t{p.heads} * 4, state = p.heads * row * p.head;
    return holds_rows(l, SMELT_DELTA_NET_QKV, p.tokens, (2 * uint64_t{p.key_heads} + p.heads) * row) &&
           holds(l, SMELT_DELTA_NET_ALPHA, span(p.tokens, p.gate_stride, p.heads, 4)) &&
           holds(l, SMELT_DELTA_NET_BETA, span(p.tokens, p.gate_stride, uint64_t{p.beta_from} + p.heads, 4)) &&
           (constant(l, SMELT_DELTA_NET_FC_GATED) == 0 ||
            (holds(l, SMELT_DELTA_NET_GAIN, row) &&
             holds(l, SMELT_DELTA_NET_Z, span(p.tokens, p.z_stride, p.z_from + uint64_t{p.heads} * p.head, 4)))) &&
           holds(l, SMELT_DELTA_NET_DECAY, gates) && holds(l, SMELT_DELTA_NET_BIAS, gates) &&
           holds(l, SMELT_DELTA_NET_STATE, state) && holds(l, SMELT_DELTA_NET_STATE_OUT, state) &&
           holds(l, SMELT_DELTA_NET_CU_SEQLENS, (uint64_t{p.seqs} + 1) * 4) &&
           holds(l, SMELT_DELTA_NET_STATES, uint64_t{p.seqs} * 8) &&
           holds_rows(l, SMELT_DELTA_NET_OUT, p.tokens, p.heads * row);
}

// A token of a head: its vectors, and what it keeps and learns.
struct DeltaToken {
    const float *q, *k, *v;
    float *out;
    float keep, learn;
};

// A head's matrix, [head][head], before and after some tokens.
struct DeltaMatrix {
    const float *from;
    float *to;
    const DeltaToken *tokens;
    uint32_t count, head;

    // N vectors of columns from `at` on, or the `lanes` columns of one. The pass over a token's
    // rows adds up what the next token will find there.
    template <int N> MEMBER void columns(uint32_t at, int lanes) const {
        const auto get = [&](const float *p, int n) __attribute__((always_inline)) {
            return N == 1 ? load_n(p + at, lanes) : load(p + at + n * W);
        };
        const auto put = [&](float *p, int n, F x) __attribute__((always_inline)) {
            return N == 1 ? store_n(p + at, x, lanes) : store(p + at + n * W, x);
        };
        const float *before = from;
        const uint32_t rows = head;
        F known[N], more[N], sum[N];
        UNROLL for (int n = 0; n < N; n++) known[n] = zero();
        for (uint32_t i = 0; i < rows; i++)
            UNROLL for (int n = 0; n < N; n++) known[n] = fma(set1(tokens->k[i]), get(before + i * rows, n), known[n]);
        for (uint32_t t = 0; t < count; t++) {
            const DeltaToken token = tokens[t];
            const F keep = set1(token.keep);
            UNROLL for (int n = 0; n < N; n++) {
                more[n] = set1(token.learn) * (get(token.v, n) - keep * known[n]);
                sum[n] = known[n] = zero();
            }
            const float *next = t + 1 < count ? tokens[t + 1].k : nullptr;
            const auto pass = [&](bool last) __attribute__((always_inline)) {
                for (uint32_t i = 0; i < rows; i++)
                    UNROLL for (int n = 0; n < N; n++) {
                        const F s = fma(set1(token.k[i]), more[n], keep * get(before + i * rows, n));
                        put(to + i * rows, n, s);
                        sum[n] = fma(set1(token.q[i]), s, sum[n]);
                        if (!last)
                            known[n] = fma(set1(next[i]), s, known[n]);
                    }
            };
            if (next == nullptr)
                pass(true);
            else
                pass(false);
            UNROLL for (int n = 0; n < N; n++) put(token.out, n, sum[n]);
            before = to;
        }
    }
};

static void delta_net(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const DeltaNetParams &p = params<DeltaNetParams>(l, SMELT_DELTA_NET_PARAMS);
    const uint64_t matrix = uint64_t{p.head} * p.head, elements = p.heads * matrix;
    const uint64_t width = (2 * uint64_t{p.key_heads} + p.heads) * p.head;
    const Steps steps = {buffer<const int32_t>(l, SMELT_DELTA_NET_CU_SEQLENS),
                         buffer<const int32_t>(l, SMELT_DELTA_NET_STATES), elements,
                         l->buffer_bytes[SMELT_DELTA_NET_STATE_OUT] / (elements * 4)};
    const float *state = buffer<const float>(l, SMELT_DELTA_NET_STATE),
                *qkv = buffer<const float>(l, SMELT_DELTA_NET_QKV);
    const float *z = optional<const float>(l, SMELT_DELTA_NET_FC_GATED, SMELT_DELTA_NET_Z);
    const float root = 1.0f / __builtin_sqrtf(static_cast<float>(p.head));
    DeltaToken tokens[DELTA_TOKENS];
    float q[DELTA_TOKENS][MAX_SMALL_HEAD], k[DELTA_TOKENS][MAX_SMALL_HEAD];
    const auto unit_length = [&](const float *x, float *out, float by) {
        const F scale = set1(by / __builtin_sqrtf(sum_of_squares(x, p.head) + p.eps));
        map1(x, out, p.head, [=](F v) { return v * scale; });
    };
    for (uint64_t unit = begin; unit < end; unit++) {
        const uint64_t seq = unit / p.heads, h = unit % p.heads, of = h / p.share % p.key_heads;
        const int64_t begins = steps.starts[seq], last = steps.starts[seq + 1], to = steps.written_by(seq);
        uint32_t n = 0;
        for (int64_t t = begins; t < last && to >= 0; t += n) {
            const uint64_t first = static_cast<uint64_t>(t);
            const int64_t from = t == begins ? steps.read_by(seq) : to;
            n = static_cast<uint32_t>(least(DELTA_TOKENS, static_cast<uint64_t>(last - t)));
            float *into = buffer<float>(l, SMELT_DELTA_NET_STATE_OUT) + to + h * matrix;
            if (from < 0)
                memset(into, 0, matrix * 4);
            for (uint32_t i = 0; i < n; i++) {
                const uint64_t at = first + i, gate = at * p.gate_stride + h;
                const float *row = qkv + at * width;
                unit_length(row + of * p.head, q[i], root);
                unit_length(row + (p.key_heads + of) * p.head, k[i], 1.0f);
                const float x = buffer<const float>(l, SMELT_DELTA_NET_ALPHA)[gate] +
                                buffer<const float>(l, SMELT_DELTA_NET_BIAS)[h];
                tokens[i] = {
                    q[i],
                    k[i],
                    row + (2 * uint64_t{p.key_heads} + h) * p.head,
                    buffer<float>(l, SMELT_DELTA_NET_OUT) + (at * p.heads + h) * p.head,
                    __builtin_expf(buffer<const float>(l, SMELT_DELTA_NET_DECAY)[h] * softplus_of(x)),
                    1.0f / (1.0f + __builtin_expf(-buffer<const float>(l, SMELT_DELTA_NET_BETA)[gate + p.beta_from])),
                };
            }
            const DeltaMatrix run = {from < 0 ? into : state + from + h * matrix, into, tokens, n, p.head};
            uint32_t column = 0;
            for (; column + 4 * W <= p.head; column += 4 * W)
                run.columns<4>(column, W);
            for (; column < p.head; column += W)
                run.columns<1>(column, static_cast<int>(least(W, p.head - column)));
            for (uint32_t i = 0; z != nullptr && i < n; i++) {
                float *out = tokens[i].out;
                scale_weighted(out, rms_scale(out, p.head, p.norm_eps), buffer<const float>(l, SMELT_DELTA_NET_GAIN),
                               out, p.head);
                map2(out, z + (first + i) * p.z_stride + p.z_from + h * p.head, out, p.head,
                     [](F y, F gate) { return y * silu(gate); });
            }
        }
    }
}

// The state space of Mamba-2. A unit is a head of one sequence. A row of its matrix passes through
// registers once for some tokens, of which each updates it and adds it up; sums are the same as token by
// token, as no token's update depends on what another one reads.
constexpr uint32_t MAMBA_TOKENS = 16, MAMBA_TOGETHER = 4;

static uint64_t mamba2_units(const smelt_launch *l) {
    const Mamba2Params &p = params<Mamba2Params>(l, SMELT_MAMBA2_PARAMS);
    return uint64_t{p.seqs} * p.heads;
}
static int mamba2_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_MAMBA2_PARAMS, sizeof(Mamba2Params)))
        return 0;
    const Mamba2Params &p = params<Mamba2Params>(l, SMELT_MAMBA2_PARAMS);
    if (p.head == 0 || p.head > MAX_SMALL_HEAD || p.states == 0 || p.groups == 0 || p.heads % p.groups != 0)
        return 0;
    const uint64_t row = uint64_t{p.heads} * p.head * 4, heads = uint64_t{p.heads} * 4, state = row * p.states;
    return holds_rows(l, SMELT_MAMBA2_XBC, p.tokens, row + 8 * uint64_t{p.groups} * p.states) &&
           holds(l, SMELT_MAMBA2_DT, span(p.tokens, p.dt_stride, uint64_t{p.dt_from} + p.heads, 4)) &&
           (constant(l, SMELT_MAMBA2_FC_GATED) == 0 ||
            holds(l, SMELT_MAMBA2_Z, span(p.tokens, p.z_stride, uint64_t{p.heads} * p.head, 4))) &&
           holds(l, SMELT_MAMBA2_DECAY, heads) && holds(l, SMELT_MAMBA2_BIAS, heads) &&
           holds(l, SMELT_MAMBA2_SKIP, heads) && holds(l, SMELT_MAMBA2_STATE, state) &&
           holds(l, SMELT_MAMBA2_STATE_OUT, state) && holds(l, SMELT_MAMBA2_CU_SEQLENS, (uint64_t{p.seqs} + 1) * 4) &&
           holds(l, SMELT_MAMBA2_STATES, uint64_t{p.seqs} * 8) && holds_rows(l, SMELT_MAMBA2_OUT, p.tokens, row);
}

// A token of a head: what it is made of, and how much of the matrix it keeps.
struct MambaToken {
    const float *x, *b, *c; // x times the step
    float *out;
    float keep;
};

// T tokens over the head's matrix, [states][head]: N vectors of columns from `at` on, or the `lanes`
// columns of one.
template <int T, int N>
static void state_space(const float *from, float *to, const MambaToken *tokens, uint32_t states, uint32_t head,
                        uint32_t at, int lanes) {
    const auto get = [&](const float *p, int n) __attribute__((always_inline)) {
        return N == 1 ? load_n(p + at, lanes) : load(p + at + n * W);
    };
    const auto put = [&](float *p, int n, F x) __attribute__((always_inline)) {
        return N == 1 ? store_n(p + at, x, lanes) : store(p + at + n * W, x);
    };
    F x[T][N], y[T][N], keep[T];
    const float *b[T], *c[T];
    UNROLL for (int t = 0; t < T; t++) {
        keep[t] = set1(tokens[t].keep);
        b[t] = tokens[t].b;
        c[t] = tokens[t].c;
        UNROLL for (int n = 0; n < N; n++) {
            x[t][n] = get(tokens[t].x, n);
            y[t][n] = zero();
        }
    }
    for (uint32_t i = 0; i < states; i++, from += head, to += head)
        UNROLL for (int n = 0; n < N; n++) {
            F s = get(from, n);
            UNROLL for (int t = 0; t < T; t++) {
                s = fma(set1(b[t][i]), x[t][n], keep[t] * s);
                y[t][n] = fma(set1(c[t][i]), s, y[t][n]);
            }
            put(to, n, s);
        }
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < N; n++) put(tokens[t].out, n, y[t][n]);
}

// T tokens over all columns: as many vectors of them at a time as there are registers for.
template <int T>
static void state_space_of(const float *from, float *to, const MambaToken *tokens, uint32_t states, uint32_t head) {
    constexpr int N = T == 1 ? 4 : W == 16 ? 2 : 1;
    uint32_t column = 0;
    for (; N > 1 && column + N * W <= head; column += N * W)
        state_space<T, N>(from, to, tokens, states, head, column, W);
    for (; column < head; column += W)
        state_space<T, 1>(from, to, tokens, states, head, column, static_cast<int>(least(W, head - column)));
}

static void mamba2(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const Mamba2Params &p = params<Mamba2Params>(l, SMELT_MAMBA2_PARAMS);
    const uint64_t matrix = uint64_t{p.states} * p.head, elements = p.heads * matrix;
    const uint64_t inner = uint64_t{p.heads} * p.head, shared = uint64_t{p.groups} * p.states;
    const Steps steps = {buffer<const int32_t>(l, SMELT_MAMBA2_CU_SEQLENS),
                         buffer<const int32_t>(l, SMELT_MAMBA2_STATES), elements,
                         l->buffer_bytes[SMELT_MAMBA2_STATE_OUT] / (elements * 4)};
    const float *state = buffer<const float>(l, SMELT_MAMBA2_STATE), *xbc = buffer<const float>(l, SMELT_MAMBA2_XBC);
    const float *z = optional<const float>(l, SMELT_MAMBA2_FC_GATED, SMELT_MAMBA2_Z);
    MambaToken tokens[MAMBA_TOKENS];
    float x[MAMBA_TOKENS][MAX_SMALL_HEAD];
    for (uint64_t unit = begin; unit < end; unit++) {
        const uint64_t seq = unit / p.heads, h = unit % p.heads, group = h / (p.heads / p.groups);
        const F skip = set1(buffer<const float>(l, SMELT_MAMBA2_SKIP)[h]);
        const int64_t begins = steps.starts[seq], last = steps.starts[seq + 1], to = steps.written_by(seq);
        uint32_t n = 0;
        for (int64_t t = begins; t < last && to >= 0; t += n) {
            const uint64_t first = static_cast<uint64_t>(t);
            const int64_t from = t == begins ? steps.read_by(seq) : to;
            n = static_cast<uint32_t>(least(MAMBA_TOKENS, static_cast<uint64_t>(last - t)));
            float *into = buffer<float>(l, SMELT_MAMBA2_STATE_OUT) + to + h * matrix;
            if (from < 0)
                memset(into, 0, matrix * 4);
            for (uint32_t i = 0; i < n; i++) {
                const uint64_t at = first + i;
                const float *row = xbc + at * (inner + 2 * shared), *b = row + inner + group * p.states;
                const float step =
                    softplus_of(buffer<const float>(l, SMELT_MAMBA2_DT)[at * p.dt_stride + p.dt_from + h] +
                                buffer<const float>(l, SMELT_MAMBA2_BIAS)[h]);
                map1(row + h * p.head, x[i], p.head, [=](F v) { return v * set1(step); });
                tokens[i] = {x[i], b, b + shared, buffer<float>(l, SMELT_MAMBA2_OUT) + at * inner + h * p.head,
                             __builtin_expf(buffer<const float>(l, SMELT_MAMBA2_DECAY)[h] * step)};
            }
            const float *before = from < 0 ? into : state + from + h * matrix;
            uint32_t i = 0;
            for (; i + MAMBA_TOGETHER <= n; i += MAMBA_TOGETHER, before = into)
                state_space_of<MAMBA_TOGETHER>(before, into, tokens + i, p.states, p.head);
            for (; i < n; i++, before = into)
                state_space_of<1>(before, into, tokens + i, p.states, p.head);
            for (i = 0; i < n; i++) {
                const uint64_t at = first + i;
                float *out = tokens[i].out;
                map2(out, xbc + at * (inner + 2 * shared) + h * p.head, out, p.head,
                     [=](F y, F own) { return fma(skip, own, y); });
                if (z != nullptr)
                    map2(out, z + at * p.z_stride + h * p.head, out, p.head,
                         [](F y, F gate) { return y * silu(gate); });
            }
        }
    }
}
