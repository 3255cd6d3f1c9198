// KV heads copied for each of their query heads.

template <uint32_t AT> static uint64_t repeat_units(const smelt_launch *l) {
    return params<RepeatParams>(l, AT).tokens;
}
// N tensors in, as many out, then the parameters.
template <uint32_t N> static int repeat_supports(const smelt_launch *l) {
    if (!holds(l, 2 * N, sizeof(RepeatParams)))
        return 0;
    const RepeatParams &p = params<RepeatParams>(l, 2 * N);
    uint64_t bytes = uint64_t{p.tokens} * p.kv_heads * p.head * 4;
    for (uint32_t i = 0; i < N; i++)
        if (!holds(l, i, bytes) || !holds(l, N + i, bytes * p.repeats))
            return 0;
    return 1;
}
template <uint32_t N> static void repeat(const smelt_launch *l, void *, uint64_t begin, uint64_t end) {
    const RepeatParams &p = params<RepeatParams>(l, 2 * N);
    for (uint32_t n = 0; n < N; n++) {
        const float *x = buffer<const float>(l, n) + begin * p.kv_heads * p.head;
        float *out = buffer<float>(l, N + n) + begin * p.kv_heads * p.repeats * p.head;
        for (uint64_t i = 0; i < (end - begin) * p.kv_heads; i++, x += p.head)
            for (uint32_t r = 0; r < p.repeats; r++, out += p.head)
                memcpy(out, x, p.head * 4);
    }
}
