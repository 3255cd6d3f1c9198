// KV heads copied for each of their query heads.

// What is copied: one tensor, or two.
struct RepeatArguments {
    uint32_t params;
    uint32_t count;
    struct {
        uint32_t x, out;
    } tensors[2];
};
constexpr RepeatArguments REPEAT_KV = {SMELT_REPEAT_KV_PARAMS, 1, {{SMELT_REPEAT_KV_X, SMELT_REPEAT_KV_OUT}, {}}};
constexpr RepeatArguments REPEAT_KV_PAIR = {
    SMELT_REPEAT_KV_PAIR_PARAMS,
    2,
    {{SMELT_REPEAT_KV_PAIR_K, SMELT_REPEAT_KV_PAIR_K_OUT}, {SMELT_REPEAT_KV_PAIR_V, SMELT_REPEAT_KV_PAIR_V_OUT}}};

template <const RepeatArguments &OF> static uint64_t repeat_units(const smelt_launch *l) {
    return params<RepeatParams>(l, OF.params).tokens;
}
template <const RepeatArguments &OF> static int repeat_supports(const smelt_launch *l) {
    if (!holds(l, OF.params, sizeof(RepeatParams)))
        return 0;
    const RepeatParams &p = params<RepeatParams>(l, OF.params);
    uint64_t bytes = uint64_t{p.tokens} * p.kv_heads * p.head * 4;
    for (uint32_t i = 0; i < OF.count; i++)
        if (!holds(l, OF.tensors[i].x, bytes) || !holds(l, OF.tensors[i].out, bytes * p.repeats))
            return 0;
    return 1;
}
template <const RepeatArguments &OF> static void repeat(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const RepeatParams &p = params<RepeatParams>(l, OF.params);
    for (uint32_t n = 0; n < OF.count; n++) {
        const float *x = buffer<const float>(l, OF.tensors[n].x) + begin * p.kv_heads * p.head;
        float *out = buffer<float>(l, OF.tensors[n].out) + begin * p.kv_heads * p.repeats * p.head;
        for (uint64_t i = 0; i < (end - begin) * p.kv_heads; i++, x += p.head)
            for (uint32_t r = 0; r < p.repeats; r++, out += p.head)
                memcpy(out, x, p.head * 4);
    }
}
