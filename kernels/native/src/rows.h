// Kernels over rows of activations: embedding, norms, elementwise functions, softmax.

static uint64_t embed_units(const smelt_launch *l) { return params<EmbedParams>(l, SMELT_EMBED_PARAMS).tokens; }
static int embed_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_EMBED_PARAMS, sizeof(EmbedParams)))
        return 0;
    const EmbedParams &p = params<EmbedParams>(l, SMELT_EMBED_PARAMS);
    const WeightType *type = find_weight_type(constant(l, SMELT_EMBED_FC_TYPE));
    return type != nullptr && p.width % type->elems == 0 && holds(l, SMELT_EMBED_TOKENS, uint64_t{p.tokens} * 4) &&
           holds(l, SMELT_EMBED_TABLE, uint64_t{p.vocab} * (p.width / type->elems) * type->bytes) &&
           holds(l, SMELT_EMBED_OUT, uint64_t{p.tokens} * p.width * 4);
}
static void embed(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const EmbedParams &p = params<EmbedParams>(l, SMELT_EMBED_PARAMS);
    const WeightType *type = find_weight_type(constant(l, SMELT_EMBED_FC_TYPE));
    uint64_t row = uint64_t{p.width} / type->elems * type->bytes;
    for (uint64_t t = begin; t < end; t++) {
        int32_t id = buffer<const int32_t>(l, SMELT_EMBED_TOKENS)[t];
        float *out = buffer<float>(l, SMELT_EMBED_OUT) + t * p.width;
        if (id < 0 || static_cast<uint32_t>(id) >= p.vocab)
            memset(out, 0, uint64_t{p.width} * 4);
        else if (is_interleaved(l, SMELT_EMBED_TABLE))
            type->widen_interleaved(buffer<const uint8_t>(l, SMELT_EMBED_TABLE),
                                    interleaved_place(static_cast<uint32_t>(id), p.vocab), out, p.width);
        else
            type->widen(buffer<const uint8_t>(l, SMELT_EMBED_TABLE) + static_cast<uint32_t>(id) * row, out, p.width);
    }
}

static uint64_t norm_units(const smelt_launch *l) { return params<NormParams>(l, SMELT_RMS_NORM_PARAMS).rows; }
static int norm_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_RMS_NORM_PARAMS, sizeof(NormParams)))
        return 0;
    const NormParams &p = params<NormParams>(l, SMELT_RMS_NORM_PARAMS);
    return holds(l, SMELT_RMS_NORM_X, span(p.rows, p.x_stride, p.width, 4)) && p.groups > 0 &&
           holds(l, SMELT_RMS_NORM_WEIGHT, uint64_t{p.groups} * p.width * 4) &&
           holds(l, SMELT_RMS_NORM_OUT, uint64_t{p.rows} * p.width * 4);
}
static void norm(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const NormParams &p = params<NormParams>(l, SMELT_RMS_NORM_PARAMS);
    for (uint64_t r = begin; r < end; r++)
        rms_normalise(buffer<const float>(l, SMELT_RMS_NORM_X) + r * p.x_stride,
                      buffer<const float>(l, SMELT_RMS_NORM_WEIGHT) + r % p.groups * p.width,
                      buffer<float>(l, SMELT_RMS_NORM_OUT) + r * p.width, p.width, p.eps);
}

static uint64_t norm_residual_units(const smelt_launch *l) {
    return params<NormParams>(l, SMELT_NORM_RESIDUAL_PARAMS).rows;
}
static int norm_residual_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_NORM_RESIDUAL_PARAMS, sizeof(NormParams)))
        return 0;
    const NormParams &p = params<NormParams>(l, SMELT_NORM_RESIDUAL_PARAMS);
    const uint64_t row = uint64_t{p.width} * 4;
    return holds(l, SMELT_NORM_RESIDUAL_X, span(p.rows, p.x_stride, p.width, 4)) &&
           holds(l, SMELT_NORM_RESIDUAL_WEIGHT, row) && holds(l, SMELT_NORM_RESIDUAL_RESIDUAL, p.rows * row) &&
           (constant(l, SMELT_NORM_RESIDUAL_FC_GAIN) == 0 || holds(l, SMELT_NORM_RESIDUAL_GAIN, 4)) &&
           holds(l, SMELT_NORM_RESIDUAL_OUT, p.rows * row);
}
static void norm_residual(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const NormParams &p = params<NormParams>(l, SMELT_NORM_RESIDUAL_PARAMS);
    const float *residual = buffer<const float>(l, SMELT_NORM_RESIDUAL_RESIDUAL);
    const float *gain = optional<const float>(l, SMELT_NORM_RESIDUAL_FC_GAIN, SMELT_NORM_RESIDUAL_GAIN);
    const F factor = set1(gain != nullptr ? *gain : 1);
    for (uint64_t r = begin; r < end; r++) {
        float *out = buffer<float>(l, SMELT_NORM_RESIDUAL_OUT) + r * p.width;
        rms_normalise(buffer<const float>(l, SMELT_NORM_RESIDUAL_X) + r * p.x_stride,
                      buffer<const float>(l, SMELT_NORM_RESIDUAL_WEIGHT), out, p.width, p.eps);
        map2(residual + r * p.width, out, out, p.width, [=](F a, F b) { return (a + b) * factor; });
    }
}

static uint64_t layer_norm_units(const smelt_launch *l) { return params<NormParams>(l, SMELT_LAYER_NORM_PARAMS).rows; }
static int layer_norm_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_LAYER_NORM_PARAMS, sizeof(NormParams)))
        return 0;
    const NormParams &p = params<NormParams>(l, SMELT_LAYER_NORM_PARAMS);
    const uint64_t row = uint64_t{p.width} * 4;
    return holds(l, SMELT_LAYER_NORM_X, span(p.rows, p.x_stride, p.width, 4)) &&
           (constant(l, SMELT_LAYER_NORM_FC_WEIGHT) == 0 || holds(l, SMELT_LAYER_NORM_WEIGHT, row)) &&
           (constant(l, SMELT_LAYER_NORM_FC_BIAS) == 0 || holds(l, SMELT_LAYER_NORM_BIAS, row)) &&
           holds(l, SMELT_LAYER_NORM_OUT, p.rows * row);
}
static void layer_norm(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const NormParams &p = params<NormParams>(l, SMELT_LAYER_NORM_PARAMS);
    const float *weight = optional<const float>(l, SMELT_LAYER_NORM_FC_WEIGHT, SMELT_LAYER_NORM_WEIGHT);
    const float *bias = optional<const float>(l, SMELT_LAYER_NORM_FC_BIAS, SMELT_LAYER_NORM_BIAS);
    for (uint64_t r = begin; r < end; r++)
        layer_normalise(buffer<const float>(l, SMELT_LAYER_NORM_X) + r * p.x_stride, weight, bias,
                        buffer<float>(l, SMELT_LAYER_NORM_OUT) + r * p.width, p.width, p.eps);
}

// What elementwise kernels take. A unit is a row.
struct ElementArguments {
    uint32_t params, a, b, out;
};
#define UNARY(FAMILY) {FAMILY##_PARAMS, FAMILY##_A, NOT_TAKEN, FAMILY##_OUT}
#define BINARY(FAMILY) {FAMILY##_PARAMS, FAMILY##_A, FAMILY##_B, FAMILY##_OUT}

static int element_supports(const smelt_launch *l, const ElementArguments &of) {
    if (!holds(l, of.params, sizeof(ElementParams)))
        return 0;
    const ElementParams &p = params<ElementParams>(l, of.params);
    return holds(l, of.a, span(p.rows, p.a_stride, p.width, 4)) &&
           (of.b == NOT_TAKEN || holds(l, of.b, span(p.rows, p.b_stride, p.width, 4))) &&
           holds(l, of.out, uint64_t{p.rows} * p.width * 4);
}
struct Scale {
    static constexpr ElementArguments OF = UNARY(SMELT_SCALE);
    MEMBER F operator()(F a, float value) const { return a * set1(value); }
};
struct SoftCap {
    static constexpr ElementArguments OF = UNARY(SMELT_SOFT_CAP);
    MEMBER F operator()(F a, float value) const { return set1(value) * tanh(a / set1(value)); }
};
struct Add {
    static constexpr ElementArguments OF = BINARY(SMELT_ADD);
    MEMBER F operator()(F a, F b) const { return a + b; }
};
struct Mul {
    static constexpr ElementArguments OF = BINARY(SMELT_MUL);
    MEMBER F operator()(F a, F b) const { return a * b; }
};
template <class Fn> static int element_supports(const smelt_launch *l) { return element_supports(l, Fn::OF); }
template <class Fn> static uint64_t element_units(const smelt_launch *l) {
    return params<ElementParams>(l, Fn::OF.params).rows;
}
// Applies f, a function of one or two vectors, to rows.
template <class Fn>
INLINE void each_row1(const smelt_launch *l, const ElementArguments &of, uint64_t begin, uint64_t end, Fn f) {
    const ElementParams &p = params<ElementParams>(l, of.params);
    for (uint64_t r = begin; r < end; r++)
        map1(buffer<const float>(l, of.a) + r * p.a_stride, buffer<float>(l, of.out) + r * p.width, p.width, f);
}
template <class Fn>
INLINE void each_row2(const smelt_launch *l, const ElementArguments &of, uint64_t begin, uint64_t end, Fn f) {
    const ElementParams &p = params<ElementParams>(l, of.params);
    for (uint64_t r = begin; r < end; r++)
        map2(buffer<const float>(l, of.a) + r * p.a_stride, buffer<const float>(l, of.b) + r * p.b_stride,
             buffer<float>(l, of.out) + r * p.width, p.width, f);
}
template <class Fn> static void element1(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const float value = params<ElementParams>(l, Fn::OF.params).value;
    each_row1(l, Fn::OF, begin, end, [=](F a) { return Fn()(a, value); });
}
template <class Fn> static void element2(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    each_row2(l, Fn::OF, begin, end, Fn());
}

// Activations, and gates of them.
struct Activate {
    static constexpr ElementArguments OF = UNARY(SMELT_ACTIVATE);
};
struct Gate {
    static constexpr ElementArguments OF = BINARY(SMELT_GATE);
};
static int activate_supports(const smelt_launch *l) {
    return element_supports(l, Activate::OF) && is_activation(constant(l, SMELT_ACTIVATE_FC_ACTIVATION), false);
}
static int gate_supports(const smelt_launch *l) {
    return element_supports(l, Gate::OF) && is_activation(constant(l, SMELT_GATE_FC_ACTIVATION), true);
}
static void activate(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    with_activation(constant(l, SMELT_ACTIVATE_FC_ACTIVATION),
                    [&](auto f) { each_row1(l, Activate::OF, begin, end, f); });
}
static void gate(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    with_gate(constant(l, SMELT_GATE_FC_ACTIVATION), [&](auto f) { each_row2(l, Gate::OF, begin, end, f); });
}

static uint64_t softmax_units(const smelt_launch *l) { return params<ElementParams>(l, SMELT_SOFTMAX_PARAMS).rows; }
static int softmax_supports(const smelt_launch *l) {
    if (!element_supports(l, {SMELT_SOFTMAX_PARAMS, SMELT_SOFTMAX_X, NOT_TAKEN, SMELT_SOFTMAX_OUT}))
        return 0;
    const ElementParams &p = params<ElementParams>(l, SMELT_SOFTMAX_PARAMS);
    return constant(l, SMELT_SOFTMAX_FC_SINKS) == 0 ||
           (p.b_stride != 0 && holds(l, SMELT_SOFTMAX_SINKS, ceil_div(p.rows, p.b_stride) * 4));
}
// The softmax of n floats, with the sink as a further element; -inf only gives zeros, not NaN.
static void softmax_row(const float *x, float *out, uint32_t n, float sink) {
    float most = sink;
    for (uint32_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    F base = set1(most == -__builtin_inff() ? 0.0f : most), sum = zero();
    map1(x, out, n, [=](F v) { return exp(v - base); });
    uint32_t i = 0;
    for (; i + W <= n; i += W)
        sum = sum + load(out + i);
    if (i < n)
        sum = sum + load_n(out + i, static_cast<int>(n - i));
    float total = reduce_add(sum);
    if (sink != -__builtin_inff())
        total += reduce_max(exp(set1(sink) - base));
    F inverse = set1(total == 0.0f ? 0.0f : 1.0f / total);
    map1(out, out, n, [=](F v) { return v * inverse; });
}
static void softmax(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const ElementParams &p = params<ElementParams>(l, SMELT_SOFTMAX_PARAMS);
    for (uint64_t r = begin; r < end; r++) {
        const float sink = constant(l, SMELT_SOFTMAX_FC_SINKS) != 0
                               ? buffer<const float>(l, SMELT_SOFTMAX_SINKS)[r / p.b_stride]
                               : -__builtin_inff();
        softmax_row(buffer<const float>(l, SMELT_SOFTMAX_X) + r * p.a_stride,
                    buffer<float>(l, SMELT_SOFTMAX_OUT) + r * p.width, p.width, sink);
    }
}

static uint64_t argmax_units(const smelt_launch *l) { return params<ElementParams>(l, SMELT_ARGMAX_PARAMS).rows; }
static int argmax_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_ARGMAX_PARAMS, sizeof(ElementParams)))
        return 0;
    const ElementParams &p = params<ElementParams>(l, SMELT_ARGMAX_PARAMS);
    return p.width != 0 && p.width <= INT32_MAX && holds(l, SMELT_ARGMAX_X, span(p.rows, p.a_stride, p.width, 4)) &&
           holds(l, SMELT_ARGMAX_OUT, uint64_t{p.rows} * 4);
}
// The largest of n floats; sets `bad` where one is NaN.
static float largest(const float *x, uint64_t n, bool &bad) {
    const F lowest = set1(-__builtin_inff());
    F most[4] = {lowest, lowest, lowest, lowest};
    uint64_t i = 0;
    for (; i + 4 * W <= n; i += 4 * W) {
        UNROLL for (int j = 0; j < 4; j++) {
            F v = load(x + i + j * W);
            bad |= any_nan(v);
            most[j] = max(most[j], v);
        }
    }
    float highest = reduce_max(max(max(most[0], most[1]), max(most[2], most[3])));
    for (; i < n; i++) {
        bad |= x[i] != x[i];
        highest = x[i] > highest ? x[i] : highest;
    }
    return highest;
}
// The first of the largest elements of a row lies in the first of the blocks that
// hold one, so only that block is looked through for its place.
static void argmax(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    constexpr uint64_t BLOCK = 4096;
    const ElementParams &p = params<ElementParams>(l, SMELT_ARGMAX_PARAMS);
    for (uint64_t r = begin; r < end; r++) {
        const float *x = buffer<const float>(l, SMELT_ARGMAX_X) + r * p.a_stride;
        bool bad = false;
        float most = 0;
        uint64_t at = 0;
        for (uint64_t i = 0; i < p.width && !bad; i += BLOCK) {
            float highest = largest(x + i, least(BLOCK, p.width - i), bad);
            if (i == 0 || highest > most) {
                most = highest;
                at = i;
            }
        }
        while (!bad && x[at] != most)
            at++;
        buffer<int32_t>(l, SMELT_ARGMAX_OUT)[r] = bad ? -1 : static_cast<int32_t>(at);
    }
}

constexpr uint32_t MAX_EXPERTS = 1024, MAX_CHOSEN = 32;
// Package ir has the formulas.
constexpr uint32_t SOFTMAX_SCORE = 1, SIGMOID_SCORE = 2, CHOSEN_SOFTMAX_SCORE = 3, SQRT_SOFTPLUS_SCORE = 4;

static uint64_t router_units(const smelt_launch *l) { return params<RouterParams>(l, SMELT_ROUTER_PARAMS).rows; }
static int router_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_ROUTER_PARAMS, sizeof(RouterParams)))
        return 0;
    const RouterParams &p = params<RouterParams>(l, SMELT_ROUTER_PARAMS);
    const uint64_t out = uint64_t{p.rows} * p.chosen * 4, row = uint64_t{p.experts} * 4;
    uint32_t from = p.experts;
    if (p.groups > 1) {
        if (p.groups > MAX_CHOSEN || p.experts % p.groups != 0 || p.used_groups > p.groups)
            return 0;
        from = p.experts / p.groups * p.used_groups;
    }
    return p.experts <= MAX_EXPERTS && p.chosen != 0 && p.chosen <= MAX_CHOSEN && p.chosen <= from &&
           constant(l, SMELT_ROUTER_FC_SCORE) >= SOFTMAX_SCORE &&
           constant(l, SMELT_ROUTER_FC_SCORE) <= SQRT_SOFTPLUS_SCORE &&
           holds(l, SMELT_ROUTER_LOGITS, span(p.rows, p.stride, p.experts, 4)) && holds(l, SMELT_ROUTER_WEIGHTS, out) &&
           holds(l, SMELT_ROUTER_EXPERTS, out) &&
           (constant(l, SMELT_ROUTER_FC_BIAS) == 0 || holds(l, SMELT_ROUTER_BIAS, row)) &&
           (constant(l, SMELT_ROUTER_FC_GAINS) == 0 || holds(l, SMELT_ROUTER_GAINS, row));
}
// Writes the indices of the `chosen` largest of n, equals by the smaller index; reports whether one
// is NaN. Few are wanted: each element is put in its place among the best so far, if it has one.
static bool largest_few(const float *x, uint32_t n, uint32_t chosen, int32_t *indices) {
    uint32_t found = 0;
    bool bad = false;
    for (uint32_t i = 0; i < n; i++) {
        const float v = x[i];
        bad |= v != v;
        if (found == chosen && !(v > x[indices[chosen - 1]]))
            continue;
        uint32_t at = found < chosen ? found++ : chosen - 1;
        for (; at > 0 && x[indices[at - 1]] < v; at--)
            indices[at] = indices[at - 1];
        indices[at] = static_cast<int32_t>(i);
    }
    return bad;
}
// Moves the choices of the used groups, those with the largest sums of their two best, to the front,
// in their order. Returns their number; `names` gets the experts that they belong to.
static uint32_t used_groups(const RouterParams &p, float *choice, int32_t *names) {
    const uint32_t each = p.experts / p.groups;
    float sums[MAX_CHOSEN];
    int32_t best[MAX_CHOSEN];
    for (uint32_t g = 0; g < p.groups; g++) {
        largest_few(choice + g * each, each, each < 2 ? 1 : 2, best);
        sums[g] = choice[g * each + best[0]] + (each < 2 ? 0.0f : choice[g * each + best[1]]);
    }
    largest_few(sums, p.groups, p.used_groups, best);
    uint64_t used = 0;
    for (uint32_t i = 0; i < p.used_groups; i++)
        used |= uint64_t{1} << best[i];
    uint32_t n = 0;
    for (uint32_t e = 0; e < p.experts; e++)
        if ((used >> (e / each) & 1) != 0)
            choice[n] = choice[e], names[n++] = static_cast<int32_t>(e);
    return n;
}
// The scores of a row of logits; those of chosen_softmax are the logits.
static void router_scores(uint32_t kind, const float *x, float *scores, uint32_t n) {
    switch (kind) {
    case SOFTMAX_SCORE:
        return softmax_row(x, scores, n, -__builtin_inff());
    case CHOSEN_SOFTMAX_SCORE:
        memcpy(scores, x, uint64_t{n} * 4);
        return;
    case SIGMOID_SCORE:
        return map1(x, scores, n, [](F v) { return sigmoid(v); });
    default:
        for (uint32_t i = 0; i < n; i++)
            scores[i] =
                __builtin_sqrtf((x[i] < 0 ? 0 : x[i]) + __builtin_log1pf(__builtin_expf(-__builtin_fabsf(x[i]))));
    }
}
static void router(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const RouterParams &p = params<RouterParams>(l, SMELT_ROUTER_PARAMS);
    const uint32_t kind = constant(l, SMELT_ROUTER_FC_SCORE);
    const float *bias = optional<const float>(l, SMELT_ROUTER_FC_BIAS, SMELT_ROUTER_BIAS);
    const float *gains = optional<const float>(l, SMELT_ROUTER_FC_GAINS, SMELT_ROUTER_GAINS);
    float logits[MAX_EXPERTS], scores[MAX_EXPERTS], choice[MAX_EXPERTS];
    int32_t names[MAX_EXPERTS];
    for (uint64_t r = begin; r < end; r++) {
        float *weights = buffer<float>(l, SMELT_ROUTER_WEIGHTS) + r * p.chosen;
        int32_t *experts = buffer<int32_t>(l, SMELT_ROUTER_EXPERTS) + r * p.chosen;
        const F sharpness = set1(p.sharpness);
        map1(buffer<const float>(l, SMELT_ROUTER_LOGITS) + r * p.stride, logits, p.experts,
             [=](F x) { return x * sharpness; });
        router_scores(kind, logits, scores, p.experts);
        bool bad = false;
        for (uint32_t e = 0; e < p.experts; e++) {
            choice[e] = bias != nullptr ? scores[e] + bias[e] : scores[e];
            bad |= choice[e] != choice[e];
        }
        if (bad) {
            for (uint32_t j = 0; j < p.chosen; j++)
                weights[j] = __builtin_nanf(""), experts[j] = -1;
            continue;
        }
        if (p.groups > 1) {
            largest_few(choice, used_groups(p, choice, names), p.chosen, experts);
            for (uint32_t j = 0; j < p.chosen; j++)
                experts[j] = names[experts[j]];
        } else {
            largest_few(choice, p.experts, p.chosen, experts);
        }
        for (uint32_t j = 0; j < p.chosen; j++)
            weights[j] = scores[experts[j]];
        if (kind == CHOSEN_SOFTMAX_SCORE)
            softmax_row(weights, weights, p.chosen, -__builtin_inff());
        float factor = p.scale;
        if (constant(l, SMELT_ROUTER_FC_NORMALISED) != 0) {
            float sum = 0;
            for (uint32_t j = 0; j < p.chosen; j++)
                sum += weights[j];
            factor /= sum > p.floor ? sum : p.floor;
        }
        for (uint32_t j = 0; j < p.chosen; j++)
            weights[j] *= gains != nullptr ? factor * gains[experts[j]] : factor;
    }
}

static uint64_t concat_units(const smelt_launch *l) { return params<ConcatParams>(l, SMELT_CONCAT_PARAMS).rows; }
static int concat_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_CONCAT_PARAMS, sizeof(ConcatParams)))
        return 0;
    const ConcatParams &p = params<ConcatParams>(l, SMELT_CONCAT_PARAMS);
    const uint32_t parts = constant(l, SMELT_CONCAT_FC_PARTS), widths[] = {p.n0, p.n1, p.n2, p.n3};
    uint64_t width = 0;
    for (uint32_t i = 0; i < 4; i++) {
        if (widths[i] > 0 && !(i < parts && holds_rows(l, SMELT_CONCAT_X0 + i, p.rows, uint64_t{widths[i]} * 4)))
            return 0;
        width += widths[i];
    }
    return width == p.width && holds(l, SMELT_CONCAT_OUT, uint64_t{p.rows} * p.width * 4);
}
static void concat(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const ConcatParams &p = params<ConcatParams>(l, SMELT_CONCAT_PARAMS);
    const uint32_t widths[] = {p.n0, p.n1, p.n2, p.n3};
    for (uint64_t r = begin; r < end; r++) {
        float *out = buffer<float>(l, SMELT_CONCAT_OUT) + r * p.width;
        for (uint32_t i = 0; i < 4 && widths[i] > 0; out += widths[i++])
            memcpy(out, buffer<const float>(l, SMELT_CONCAT_X0 + i) + r * widths[i], uint64_t{widths[i]} * 4);
    }
}

static uint64_t indices_units(const smelt_launch *l) { return params<IndicesParams>(l, SMELT_INDICES_PARAMS).rows; }
static int indices_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_INDICES_PARAMS, sizeof(IndicesParams)))
        return 0;
    const IndicesParams &p = params<IndicesParams>(l, SMELT_INDICES_PARAMS);
    return holds(l, SMELT_INDICES_POSITIONS, uint64_t{p.rows} * 4) &&
           holds(l, SMELT_INDICES_OUT, uint64_t{p.rows} * p.width * 4);
}
static void indices(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const IndicesParams &p = params<IndicesParams>(l, SMELT_INDICES_PARAMS);
    for (uint64_t r = begin; r < end; r++) {
        int32_t *out = buffer<int32_t>(l, SMELT_INDICES_OUT) + r * p.width;
        const bool placed = buffer<const int32_t>(l, SMELT_INDICES_POSITIONS)[r] >= 0;
        for (uint32_t i = 0; i < p.width; i++)
            out[i] = placed ? static_cast<int32_t>(i) : -1;
    }
}

static uint64_t weighted_sum_units(const smelt_launch *l) {
    return params<WeightedSumParams>(l, SMELT_WEIGHTED_SUM_PARAMS).rows;
}
static int weighted_sum_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_WEIGHTED_SUM_PARAMS, sizeof(WeightedSumParams)))
        return 0;
    const WeightedSumParams &p = params<WeightedSumParams>(l, SMELT_WEIGHTED_SUM_PARAMS);
    const uint64_t rows = uint64_t{p.rows} * p.each;
    return holds_rows(l, SMELT_WEIGHTED_SUM_X, rows, uint64_t{p.width} * 4) &&
           holds(l, SMELT_WEIGHTED_SUM_WEIGHTS, rows * 4) &&
           holds(l, SMELT_WEIGHTED_SUM_OUT, uint64_t{p.rows} * p.width * 4);
}
static void weighted_sum(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const WeightedSumParams &p = params<WeightedSumParams>(l, SMELT_WEIGHTED_SUM_PARAMS);
    for (uint64_t r = begin; r < end; r++) {
        const float *x = buffer<const float>(l, SMELT_WEIGHTED_SUM_X) + r * p.each * p.width;
        const float *weights = buffer<const float>(l, SMELT_WEIGHTED_SUM_WEIGHTS) + r * p.each;
        float *out = buffer<float>(l, SMELT_WEIGHTED_SUM_OUT) + r * p.width;
        memset(out, 0, uint64_t{p.width} * 4);
        for (uint32_t i = 0; i < p.each; i++, x += p.width) {
            const F weight = set1(weights[i]);
            map2(x, out, out, p.width, [=](F v, F sum) { return fma(weight, v, sum); });
        }
    }
}

static uint64_t gather_units(const smelt_launch *l) { return params<ElementParams>(l, SMELT_GATHER_ROWS_PARAMS).rows; }
static int gather_supports(const smelt_launch *l) {
    if (!holds(l, SMELT_GATHER_ROWS_PARAMS, sizeof(ElementParams)))
        return 0;
    const ElementParams &p = params<ElementParams>(l, SMELT_GATHER_ROWS_PARAMS);
    return holds(l, SMELT_GATHER_ROWS_X, uint64_t{p.width} * 4) &&
           holds(l, SMELT_GATHER_ROWS_INDEX, uint64_t{p.rows} * 4) &&
           holds(l, SMELT_GATHER_ROWS_OUT, uint64_t{p.rows} * p.width * 4);
}
// Indices outside x give rows of zeros.
static void gather_rows(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const ElementParams &p = params<ElementParams>(l, SMELT_GATHER_ROWS_PARAMS);
    uint64_t stride = p.a_stride != 0 ? p.a_stride : p.width;
    for (uint64_t r = begin; r < end; r++) {
        int32_t index = buffer<const int32_t>(l, SMELT_GATHER_ROWS_INDEX)[r];
        float *out = buffer<float>(l, SMELT_GATHER_ROWS_OUT) + r * p.width;
        bool inside =
            index >= 0 && holds(l, SMELT_GATHER_ROWS_X, (static_cast<uint32_t>(index) * stride + p.width) * 4);
        if (inside)
            memcpy(out, buffer<const float>(l, SMELT_GATHER_ROWS_X) + static_cast<uint32_t>(index) * stride,
                   uint64_t{p.width} * 4);
        else
            memset(out, 0, uint64_t{p.width} * 4);
    }
}
