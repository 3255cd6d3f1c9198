// linear_vec and linear_mat: out = W·x for up to four weights side by side, or a gate of two.
//
// Both names run the same code, in groups of ROWS rows of a weight, so a token gives
// the same bits alone and among others. Two stages: `prepare` normalises and
// quantizes the activations, once for all rows; `multiply` does the rows.
//
// Float weights: a row times a row, in W partial sums (lane i takes elements
// i, i+W, …) that are added up at the end. A register tile of rows × tokens uses each
// loaded vector several times. Prompts go in blocks of such tiles and in pieces of k,
// which caches hold.
//
// Quantized weights: activations become int8 with one scale for 32 elements (as in
// llama.cpp's Q8_0, but the scale is a float). Products of a sub-block are summed
// exactly in integers; then sum += (weight scale · activation scale) · integer, from
// the first sub-block to the last, or as WHOLE_SCALES in blocks.h says. With few tokens
// the rows are taken as they lie in the file (multiply_few); with more, a panel of ROWS
// rows is first unpacked so that a vector holds four consecutive elements of each row
// (panel_tile).

// Experts of a token, at most.
constexpr uint64_t MOST_CHOSEN = 256;

// What the kernels take.
struct LinearArguments {
    const char *kernel;
    uint32_t params, x, w[4], bias[4], out, residual, gate, gain, shift;
    uint32_t fc_type[4], fc_residual, fc_bias, fc_activation, fc_gated, fc_row_gate, fc_column_gate, fc_norm, fc_gain,
        fc_shift;
    uint32_t refused[2];                                           // constants that are left to the emulation
    uint32_t expert, share, fc_experts, fc_top, fc_each, fc_mixed; // see routed.h

    // Weights may be interleaved.
    constexpr uint32_t interleaved() const { return 1u << w[0] | 1u << w[1] | 1u << w[2] | 1u << w[3]; }
};
#define LINEAR_ARGUMENTS(KERNEL, FAMILY, GAIN, SHIFT, FC_NORM, FC_GAIN, FC_SHIFT, REFUSED, ...)                        \
    {KERNEL,                                                                                                           \
     FAMILY##_PARAMS,                                                                                                  \
     FAMILY##_X,                                                                                                       \
     {FAMILY##_W0, FAMILY##_W1, FAMILY##_W2, FAMILY##_W3},                                                             \
     {FAMILY##_BIAS0, FAMILY##_BIAS1, FAMILY##_BIAS2, FAMILY##_BIAS3},                                                 \
     FAMILY##_OUT,                                                                                                     \
     FAMILY##_RESIDUAL,                                                                                                \
     FAMILY##_GATE,                                                                                                    \
     GAIN,                                                                                                             \
     SHIFT,                                                                                                            \
     {FAMILY##_FC_TYPE0, FAMILY##_FC_TYPE1, FAMILY##_FC_TYPE2, FAMILY##_FC_TYPE3},                                     \
     FAMILY##_FC_RESIDUAL,                                                                                             \
     FAMILY##_FC_BIAS,                                                                                                 \
     FAMILY##_FC_ACTIVATION,                                                                                           \
     FAMILY##_FC_GATED,                                                                                                \
     FAMILY##_FC_ROW_GATE,                                                                                             \
     FAMILY##_FC_COLUMN_GATE,                                                                                          \
     FC_NORM,                                                                                                          \
     FC_GAIN,                                                                                                          \
     FC_SHIFT,                                                                                                         \
     {FAMILY##_FC_GATHER, REFUSED},                                                                                    \
     __VA_ARGS__}
constexpr LinearArguments LINEAR_VEC = LINEAR_ARGUMENTS(
    "linear_vec_f32_f32", SMELT_LINEAR_VEC, SMELT_LINEAR_VEC_GAIN, SMELT_LINEAR_VEC_SHIFT, SMELT_LINEAR_VEC_FC_NORM,
    SMELT_LINEAR_VEC_FC_GAIN, SMELT_LINEAR_VEC_FC_SHIFT, NOT_TAKEN, SMELT_LINEAR_VEC_EXPERT, SMELT_LINEAR_VEC_SHARE,
    SMELT_LINEAR_VEC_FC_EXPERTS, SMELT_LINEAR_VEC_FC_TOP, SMELT_LINEAR_VEC_FC_EACH, SMELT_LINEAR_VEC_FC_MIXED);
constexpr LinearArguments LINEAR_MAT =
    LINEAR_ARGUMENTS("linear_mat_f32_f32", SMELT_LINEAR_MAT, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN,
                     SMELT_LINEAR_MAT_FC_EXPERTS, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN, NOT_TAKEN);

// What becomes of sums besides silu(gate) · sum: biases, and the other activations.
struct Epilogue {
    uint32_t activation;
    const float *bias, *gate_bias; // by row of the weight; null for none

    // The results of `count` rows from `row` on.
    F of(F sum, uint64_t row, int count) const {
        sum = biased(sum, bias, row, count);
        with_activation(activation, [&](auto f) { sum = f(sum); });
        return sum;
    }
    F of(F gate, F sum, uint64_t row, int count) const {
        gate = biased(gate, gate_bias, row, count), sum = biased(sum, bias, row, count);
        with_gate(activation, [&](auto f) { sum = f(gate, sum); });
        return sum;
    }

    // For rows that are counted from another one on.
    Epilogue from(uint64_t row) const {
        return {activation, bias == nullptr ? nullptr : bias + row, gate_bias == nullptr ? nullptr : gate_bias + row};
    }

private:
    MEMBER static F biased(F v, const float *bias, uint64_t row, int count) {
        return bias == nullptr ? v : v + load_n(bias + row, count);
    }
};

// Memory that all units of a launch see, laid out as it is taken. Without any, only its size
// is found.
struct Scratch {
    uint8_t *memory; // or null
    uint64_t end;

    MEMBER void *take(uint64_t bytes) {
        uint8_t *at = memory == nullptr ? nullptr : memory + end;
        end += align64(bytes);
        return at;
    }
};

// Rows of x that a launch with experts puts in their order: those of pairs of a token and an
// expert, or the one that all experts of a single token share.
static uint64_t mixture_rows(const smelt_launch *l, const LinearArguments &of, uint64_t rows) {
    const uint64_t top = constant(l, of.fc_top, 1), pairs = constant(l, of.fc_mixed) != 0 ? rows * top : rows;
    return constant(l, of.fc_each) == 0 && pairs == top ? 1 : pairs;
}

struct Linear {
    struct Weight {
        const uint8_t *bytes;
        const float *bias; // or null
        const WeightType *type;
        uint32_t n, column; // rows, and the first one's place in a row of out
        size_t stride;
        uint64_t groups;
        int extra; // index into Quantized::extra
        bool interleaved;
        size_t ahead; // prefetch distance in bytes
        bool pairs;   // RowGroup::pairs
    };
    const LinearArguments &of;
    LinearParams p;
    Weight weights[4] = {};
    int count;        // weights bound
    uint32_t streams; // of a token, at most
    uint64_t piece;
    bool residual, pair, quantized, any_columns, any_shorts;
    uint32_t activation, norm, row_gate;
    const float *gate; // that of the first row, or null
    bool column_gate;  // it has an element for each column
    Correction corrections[4];
    int correction_count;
    uint64_t scratch;
    float *normalised; // [tokens][k], or null; of experts also where they are only put in order
    const float *x;    // activations [tokens][x_stride]
    uint64_t x_stride;
    Quantized act;
    Columns columns;
    Shorts shorts;
    uint32_t few; // tokens that are multiplied as they lie

    // Lays out `shared`, which may be null when only sizes are wanted.
    NOINLINE Linear(const smelt_launch *l, const LinearArguments &of, void *shared)
        : of(of), p(params<LinearParams>(l, of.params)) {
        residual = constant(l, of.fc_residual) != 0, pair = constant(l, of.fc_gated) != 0;
        activation = constant(l, of.fc_activation), norm = constant(l, of.fc_norm);
        row_gate = constant(l, of.fc_row_gate), column_gate = constant(l, of.fc_column_gate) != 0;
        gate = optional<const float>(l, column_gate ? of.fc_column_gate : of.fc_row_gate, of.gate);
        gate = gate == nullptr ? nullptr : gate + p.gate_from;
        count = 0, quantized = false, correction_count = 0;
        const uint32_t n[4] = {p.n0, p.n1, p.n2, p.n3};
        uint32_t column = 0;
        bool rows = false, any_float = false, any_half = false; // rows of a file
        uint64_t panel = PANEL;
        for (uint32_t i = 0; i < 4; i++) {
            const WeightType *type = find_weight_type(constant(l, of.fc_type[i]));
            if (type == nullptr || n[i] == 0)
                continue;
            const bool interleaved = is_interleaved(l, of.w[i]);
            Weight &w = weights[count++];
            w = {buffer<const uint8_t>(l, of.w[i]),
                 optional<const float>(l, of.fc_bias, of.bias[i]),
                 type,
                 n[i],
                 column,
                 type->row_bytes(p.k, interleaved),
                 ceil_div(n[i], ROWS),
                 0,
                 interleaved,
                 least(hint(l, SMELT_HINT_AHEAD, interleaved ? ahead_of(*type) : DISTANCE), FARTHEST),
                 hint(l, SMELT_HINT_PAIRS, processor().pairs ? 2 : 1) > 1};
            column += n[i];
            any_float |= !type->quantized && !type->by_shorts(), any_half |= type->is_half();
            if (!type->quantized)
                continue;
            quantized = true, rows |= !w.interleaved;
            if (p.tokens >= SPLIT_FROM)
                panel = least(panel, type->panel);
            for (w.extra = 0; w.extra < correction_count; w.extra++)
                if (corrections[w.extra] == type->correction)
                    break;
            if (w.extra == correction_count)
                corrections[correction_count++] = type->correction;
        }
        Scratch room = {static_cast<uint8_t *>(shared), 0};
        auto take = [&](uint64_t bytes) { return room.take(bytes); };
        const uint64_t tokens = constant(l, of.fc_experts) == 0 ? p.tokens : mixture_rows(l, of, p.tokens);
        const uint64_t elements = tokens * p.k;
        const bool plain = norm == SMELT_NORM_NONE && !(tokens > 1 && constant(l, of.fc_experts) != 0 && any_float);
        normalised = plain ? nullptr : static_cast<float *>(take(elements * 4));
        x = plain ? buffer<const float>(l, of.x) : normalised;
        x_stride = plain ? p.x_stride : p.k;
        streams = static_cast<uint32_t>(least(hint(l, SMELT_HINT_STREAMS, STREAMS), STREAMS));
        piece = ceil_div(hint(l, SMELT_HINT_PIECE, PIECE), PIECES_OF) * PIECES_OF;
        act = {};
        few = rows ? FEW_ROWS : FEW;
        act.k = p.k, act.tokens = p.tokens, act.few = p.tokens <= few;
        act.panel = least(ceil_div(hint(l, SMELT_HINT_PIECE, PANEL), LARGEST_BLOCK) * LARGEST_BLOCK, panel);
        if (quantized) {
            act.q = static_cast<int8_t *>(take(elements));
            act.scale = static_cast<float *>(take(elements / 8));
            for (int i = 0; i < correction_count; i++)
                act.extra[i] =
                    static_cast<uint32_t *>(take(elements / 8 * static_cast<uint64_t>(corrections[i].groups)));
        }
        columns = {nullptr, p.k, p.tokens};
        any_columns = any_half && !SHORT_DOTS && constant(l, of.fc_experts) == 0 && columns_pay(p.k, p.tokens);
        if (any_columns)
            columns.x = static_cast<float *>(take(columns.elements() * 4));
        shorts = {nullptr, nullptr, p.k, p.tokens};
        if (any_shorts = any_half && SHORT_DOTS; any_shorts) {
            shorts.q = static_cast<int16_t *>(take(tokens * shorts.length() * 2));
            shorts.scale = static_cast<float *>(take(tokens * shorts.length() / Shorts::BLOCK * 4));
        }
        scratch = room.end;
    }

    // Returns the prefetch distance of interleaved weights. Weights that must be unpacked, or few
    // registers, make the work per line long, and hardware does not prefetch meanwhile.
    MEMBER uint64_t ahead_of(const WeightType &type) const {
        const bool long_work = p.tokens > 1 && (type.elems > type.bytes || !MANY_REGISTERS);
        return long_work ? processor().together : processor().interleaved;
    }
    // Floats that are as wide in memory as in a vector gain nothing.
    MEMBER bool by_columns(const Weight &w) const { return any_columns && w.type->is_half(); }

    // Whether anything else than silu(gate) · sum becomes of sums.
    MEMBER bool has_epilogue() const {
        return weights[0].bias != nullptr || activation != (pair ? SMELT_ACTIVATION_SILU : SMELT_ACTIVATION_NONE);
    }
    // That of a weight, or of a gate whose second one it is.
    MEMBER Epilogue epilogue(const Weight &w) const { return {activation, w.bias, weights[0].bias}; }
    // Groups of a weight that are multiplied at once, of a token alone if they are not interleaved.
    MEMBER uint64_t together(const Weight &w) const {
        const bool few = w.type->quantized ? act.few : w.type->by_shorts() && p.tokens <= FEW;
        if (few || by_columns(w))
            return 1;
        return least(w.type->together, room() / least(p.tokens, HELD));
    }
    // Sums of a weight that there is room for.
    MEMBER uint32_t room() const { return pair ? ROOM / 2 : ROOM; }
    MEMBER uint64_t groups() const {
        uint64_t sum = 0;
        for (int i = 0; i < (pair ? 1 : count); i++)
            sum += weights[i].groups;
        return sum;
    }
};

static int mixture_supports(const smelt_launch *l, const LinearArguments &of, const LinearParams &p) {
    const uint64_t top = constant(l, of.fc_top), each = constant(l, of.fc_each), mixed = constant(l, of.fc_mixed);
    if (top == 0 || top > MOST_CHOSEN || constant(l, of.fc_row_gate) != 0 || constant(l, of.fc_column_gate) != 0 ||
        p.n2 != 0 || p.n3 != 0 || (p.n1 != 0 && constant(l, of.fc_gated) == 0) ||
        (mixed == 0 && (p.tokens % top != 0 || constant(l, of.fc_residual) != 0)))
        return 0;
    const uint64_t pairs = mixed != 0 ? p.tokens * top : p.tokens, rows = each != 0 ? pairs : pairs / top;
    return pairs <= UINT32_MAX && holds(l, of.expert, pairs * 4) && (mixed == 0 || holds(l, of.share, pairs * 4)) &&
           holds(l, of.x, span(rows, p.x_stride, p.k, 4));
}

static int linear_supports(const smelt_launch *l, const LinearArguments &of) {
    if (!holds(l, of.params, sizeof(LinearParams)) || constant(l, of.refused[0]) != 0 ||
        constant(l, of.refused[1]) != 0)
        return 0;
    const LinearParams &p = params<LinearParams>(l, of.params);
    const uint32_t n[4] = {p.n0, p.n1, p.n2, p.n3};
    uint64_t columns = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t number = constant(l, of.fc_type[i]);
        if (number == SMELT_NONE) {
            if (n[i] != 0)
                return 0;
            continue;
        }
        const WeightType *type = find_weight_type(number);
        if (type == nullptr || p.k % type->elems != 0)
            return 0;
        const uint64_t rows = uint64_t{n[i]} * constant(l, of.fc_experts, 1);
        if (!holds_rows(l, of.w[i], rows, type->row_bytes(p.k, false)))
            return 0;
        if (constant(l, of.fc_bias) != 0 && !holds(l, of.bias[i], rows * 4))
            return 0;
        columns += n[i];
    }
    const bool gated = constant(l, of.fc_gated) != 0;
    if (!is_activation(constant(l, of.fc_activation), gated))
        return 0;
    if (gated) {
        if (p.n0 != p.n1 || p.n2 != 0 || p.n3 != 0)
            return 0;
        columns = p.n0;
    }
    const uint32_t norm = constant(l, of.fc_norm);
    if (norm > SMELT_NORM_LAYER)
        return 0;
    if ((norm == SMELT_NORM_RMS || constant(l, of.fc_gain) != 0) && !holds(l, of.gain, uint64_t{p.k} * 4))
        return 0;
    if (constant(l, of.fc_shift) != 0 && !holds(l, of.shift, uint64_t{p.k} * 4))
        return 0;
    uint64_t out = span(p.tokens, p.out_stride, columns, 4);
    const uint32_t row_gate = constant(l, of.fc_row_gate);
    if (row_gate != 0 && (!is_activation(row_gate, false) ||
                          !holds(l, of.gate, uint64_t{p.gate_from} * 4 + span(p.tokens, p.gate_stride, 1, 4))))
        return 0;
    if (constant(l, of.fc_column_gate) != 0 &&
        !holds(l, of.gate, uint64_t{p.gate_from} * 4 + span(p.tokens, p.gate_stride, columns, 4)))
        return 0;
    if (constant(l, of.fc_residual) != 0 && !holds(l, of.residual, out))
        return 0;
    if (constant(l, of.fc_experts) != 0)
        return holds(l, of.out, out) && mixture_supports(l, of, p);
    return holds(l, of.x, span(p.tokens, p.x_stride, p.k, 4)) && holds(l, of.out, out);
}

static uint64_t prepare_units(const Linear &job) {
    return job.norm != SMELT_NORM_NONE || job.quantized || job.any_columns || job.any_shorts ? job.p.tokens : 0;
}

// Quantizes a block: q = round(x · 127 / max|x|). Returns the scale, and in sums those of the
// halves' integers.
static float quantize_block(const float *x, int8_t *q, int32_t sums[2]) {
    F top = zero();
    bool bad = false;
    for (int i = 0; i < 32; i += W) {
        F v = load(x + i);
        bad |= any_nan(v);
        top = max(top, abs(v));
    }
    float most = reduce_max(top);
    F inverse = set1(most > 1e-30f ? 127.0f / most : 0.0f);
    for (int half = 0; half < 2; half++) {
        I sum = i_set1(0);
        for (int i = 16 * half; i < 16 * half + 16; i += W) {
            I v = to_int(load(x + i) * inverse);
            sum = i_add(sum, v);
            store_i8(q + i, v);
        }
        sums[half] = i_reduce_add(sum);
    }
    return bad ? __builtin_nanf("") : most / 127.0f;
}

// Quantizes a token's slice from element `at` on, with its corrections, and returns where the
// next one begins.
static uint64_t quantize(const Linear &job, const float *x, uint64_t token, uint64_t at) {
    const uint64_t end = at + job.act.slice(at), step = 32 * job.act.width(token);
    for (uint64_t place = job.act.place(token, at); at < end; at += 32, place += step) {
        int32_t sums[2];
        float scale = job.act.scale[place / 32] = quantize_block(x + at, job.act.q + place, sums);
        for (int i = 0; i < job.correction_count; i++) {
            const Correction &c = job.corrections[i];
            uint32_t *out = job.act.extra[i] + place / 32 * static_cast<uint64_t>(c.groups);
            if (c.whole) {
                if (!c.min && FOLDED && !job.act.few) {
                    out[0] = static_cast<uint32_t>((c.offset - SIGNED_BIAS) * (sums[0] + sums[1]));
                    continue;
                }
                const int factor = c.min ? 1 : -c.offset;
                const uint32_t low = static_cast<uint16_t>(factor * sums[0]),
                               high = static_cast<uint16_t>(factor * sums[1]);
                if (c.min)
                    out[0] = low | high << 16;
                else
                    out[0] = low, out[1] = high;
                continue;
            }
            for (int group = 0; group < c.groups; group++) {
                int32_t sum = c.groups == 1 ? sums[0] + sums[1] : sums[group], integer = -c.offset * sum;
                float total = scale * static_cast<float>(sum);
                memcpy(out + group, c.offset == 0 ? static_cast<void *>(&total) : &integer, 4);
            }
        }
    }
    return end;
}

// Normalises and quantizes a row of x, which becomes token t.
NOINLINE static void prepare_row(const smelt_launch *l, const Linear &job, const float *x, uint64_t t) {
    const uint64_t k = job.p.k;
    if (job.normalised != nullptr) {
        float *row = job.normalised + t * k;
        if (job.norm == SMELT_NORM_RMS)
            rms_normalise(x, buffer<const float>(l, job.of.gain), row, job.p.k, job.p.eps);
        else if (job.norm == SMELT_NORM_LAYER)
            layer_normalise(x, optional<const float>(l, job.of.fc_gain, job.of.gain),
                            optional<const float>(l, job.of.fc_shift, job.of.shift), row, job.p.k, job.p.eps);
        else
            memcpy(row, x, k * 4);
        x = row;
    }
    if (job.any_columns)
        put_column(job.columns, x, t);
    if constexpr (SHORT_DOTS)
        if (job.any_shorts)
            put_short(job.shorts, x, t);
    if (job.quantized)
        for (uint64_t at = 0; at < k;)
            at = quantize(job, x, t, at);
}

static void prepare(const smelt_launch *l, const Linear &job, uint64_t begin, uint64_t end) {
    for (uint64_t t = begin; t < end; t++)
        prepare_row(l, job, buffer<const float>(l, job.of.x) + t * job.p.x_stride, t);
}

static uint64_t multiply_units(const Linear &job) { return job.p.tokens == 0 ? 0 : job.groups(); }

// Groups of a weight's rows that are worked on together: every `apart`th from `first` on.
struct Bundle {
    uint64_t first;
    uint32_t groups;
    uint64_t apart;
};

// The rows of out for the results of an expert's tokens (null: in order), and their factors
// (null: 1): of a token, and of its columns, which lie `stride` elements apart.
struct Scatter {
    const uint32_t *places;
    const float *shares, *columns = nullptr;
    uint64_t stride = 0;
};

// Writes the results of a bundle whose sums are [groups][tokens]. After all of them, and
// apart from the code that every weight type has: an epilogue in there costs the products of
// launches without one a part of their registers.
static void write_epilogue(const Results &to, const Epilogue &epilogue, uint32_t groups, const float (*sum)[ROWS],
                           uint32_t tokens, Scatter scatter) {
    to.each<W>(groups, 0, tokens, [&](uint64_t token, uint64_t place, uint64_t group, uint64_t r, int count) {
        const uint64_t from = group * tokens + token, row = place - token * to.stride;
        if (scatter.places != nullptr)
            place = scatter.places[token] * to.stride + row;
        F v = load_n(sum[from] + to.shift + r, count);
        v = to.gate == nullptr ? epilogue.of(v, row, count)
                               : epilogue.of(load_n(to.gate[from] + to.shift + r, count), v, row, count);
        if (scatter.shares != nullptr)
            v = v * set1(scatter.shares[token]);
        if (scatter.columns != nullptr)
            v = v * load_n(scatter.columns + token * scatter.stride + row, count);
        if (to.residual != nullptr)
            v = v + load_n(to.residual + place, count);
        store_n(to.out + place, v, count);
    });
}

// Multiplies a bundle of w's rows with `tokens` tokens from `token` on. Their results are
// written where there is a place for them, at once or by whoever calls.
static void multiply_bundle(const Linear &job, const Linear::Weight &w, Bundle bundle, uint32_t token, uint32_t tokens,
                            float (*sum)[ROWS], Results *to, bool at_once) {
    const Results *now = at_once ? to : nullptr;
    uint64_t k = job.p.k;
    RowGroup g = {};
    g.stride = w.stride, g.interleaved = w.interleaved, g.k = k, g.tokens = tokens, g.sum = sum, g.results = now;
    g.piece = job.piece, g.ahead = w.ahead, g.pairs = w.pairs;
    g.groups = bundle.groups, g.apart = bundle.apart * ROWS * w.stride;
    g.x = job.x + token * job.x_stride, g.x_stride = job.x_stride;
    g.first = token;
    if (w.type->quantized)
        g.act = &job.act, g.extra = job.act.extra[w.extra];
    else if (job.by_columns(w))
        g.columns = &job.columns;
    else if (w.type->by_shorts())
        g.shorts = &job.shorts;
    uint64_t row = bundle.first * ROWS;
    if (w.n >= ROWS) {
        // The last group of a weight starts early enough to be a whole one, interleaved, too.
        uint64_t start = least(row, w.n - ROWS);
        if (to != nullptr)
            to->shift = static_cast<uint32_t>(row - start);
        g.rows = w.bytes + (w.interleaved ? row : start) * w.stride;
        w.type->multiply(g);
        return;
    }
    // Fewer than ROWS rows in all: each in turn takes every place of a group.
    float all[HELD][ROWS];
    g.stride = 0, g.sum = all, g.results = nullptr;
    for (uint32_t r = 0; r < w.n; r++) {
        g.rows = w.bytes + r * w.stride;
        w.type->multiply(g);
        for (uint32_t t = 0; t < tokens; t++)
            sum[t][r] = all[t][r];
    }
    g.sum = sum, g.results = now;
    g.complete(0, tokens);
}

// Cuts a run of neighbouring groups of w's rows into bundles, in an order of its own.
template <class Fn>
static void each_bundle(const Linear &job, const Linear::Weight &w, uint64_t group, uint64_t run, Fn f) {
    const bool interleaved = w.interleaved && (!job.pair || job.weights[1].interleaved);
    uint64_t streams = least(job.streams, w.type->streams), together = job.together(w);
    if (job.pair) {
        streams = least(streams, job.weights[1].type->streams);
        // With one token, a pair of which only one is interleaved is multiplied group by group,
        // because the number of streams is a power of two.
        together = job.p.tokens == 1 ? 1 : least(together, job.together(job.weights[1]));
    }
    while (run > 0) {
        uint64_t groups = 1, apart = 1;
        if (job.p.tokens == 1 && interleaved) {
            const uint64_t whole = group < w.n / ROWS ? least(run, w.n / ROWS - group) : 1;
            for (groups = streams; groups > whole;)
                groups /= 2;
            apart = whole / groups;
        } else if (group < w.n / ROWS) {
            groups = least(least(together, run), w.n / ROWS - group);
        }
        for (uint64_t i = 0; i < apart; i++)
            f(Bundle{group + i, static_cast<uint32_t>(groups), apart});
        group += groups * apart, run -= groups * apart;
    }
}

// Multiplies a run of neighbouring groups of weight i, or of a gate, with all tokens. What is
// scattered is always written here.
NOINLINE static void multiply_run(const Linear &job, int i, uint64_t group, uint64_t run, float *out,
                                  const float *residual, Scatter scatter) {
    const Linear::Weight &w = job.weights[i], &second = job.pair ? job.weights[1] : w;
    const Epilogue whole = job.epilogue(second);
    const bool scattered = scatter.places != nullptr, gated = job.gate != nullptr;
    const bool apart = scattered || gated || job.has_epilogue();
    alignas(64) float sum[ROOM][ROWS];
    float gates[HELD];
    float(*const gate)[ROWS] = sum + ROOM / 2;
    each_bundle(job, w, group, run, [&](Bundle bundle) {
        const uint64_t row = bundle.first * ROWS;
        // Whole tiles of tokens where several groups share the room.
        const uint32_t most = static_cast<uint32_t>(least(HELD, job.room() / bundle.groups / WHOLE * WHOLE));
        for (uint32_t token = 0; token < job.p.tokens; token += most) {
            const uint32_t tokens = static_cast<uint32_t>(least(most, job.p.tokens - token));
            const uint64_t place = (scattered ? 0 : token * uint64_t{job.p.out_stride}) + w.column + row;
            Results to = {out + place,
                          residual == nullptr ? nullptr : residual + place,
                          job.p.out_stride,
                          bundle.apart * ROWS,
                          w.n - row,
                          0,
                          job.pair ? gate : nullptr};
            if (job.pair)
                multiply_bundle(job, w, bundle, token, tokens, gate, nullptr, false);
            multiply_bundle(job, second, bundle, token, tokens, sum, &to, !apart);
            if (!apart)
                continue;
            Scatter here = {scattered ? scatter.places + token : nullptr,
                            scatter.shares == nullptr ? nullptr : scatter.shares + token, nullptr, job.p.gate_stride};
            if (gated && job.column_gate) {
                here.columns = job.gate + token * here.stride + w.column + row;
            } else if (gated) {
                with_activation(job.row_gate, [&](auto act) {
                    for (uint32_t t = 0; t < tokens; t++)
                        store_n(gates + t, act(set1(job.gate[(token + t) * uint64_t{job.p.gate_stride}])), 1);
                });
                here.shares = gates;
            }
            write_epilogue(to, whole.from(row), bundle.groups, sum, tokens, here);
        }
    });
}

static void multiply(const smelt_launch *l, const Linear &job, uint64_t begin, uint64_t end) {
    float *out = buffer<float>(l, job.of.out);
    const float *residual = job.residual ? buffer<const float>(l, job.of.residual) : nullptr;
    for (uint64_t unit = begin; unit < end;) {
        int i = 0;
        uint64_t group = unit;
        while (group >= job.weights[i].groups)
            group -= job.weights[i++].groups;
        const uint64_t run = least(end - unit, job.weights[i].groups - group);
        unit += run;
        multiply_run(job, i, group, run, out, residual, {});
    }
}
