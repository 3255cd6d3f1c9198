// Whole scales (WHOLE_SCALES in blocks.h) in words of two 16-bit integers each.

// Dots that take any byte and sum in 32 bits: weights may stand above their place, scales are
// pairs, and panels hold products of weights and scales. Others scale two partial sums alike.
constexpr bool FOLDED = !DOTS_DIFFER, PLACED = FOLDED;
constexpr int SCALE_WORDS = FOLDED ? 1 : 2; // of a sub-block

// Twice byte G of each word, or bytes 2·K and 2·K + 1, each less a bias.
template <int G> INLINE I same_scale(I bytes, int bias) {
    return i16_sub(i16_bytes<0x80008000u + 0x00010001u * G>(bytes), i16_set1(bias));
}
template <int K> INLINE I pair_scales(I bytes, int bias) {
    return i16_sub(i16_bytes<0x80018000u + 0x00020002u * K>(bytes), i16_set1(bias));
}
template <int K> INLINE void scale_words(I bytes, int bias, int32_t *out) {
    if (FOLDED)
        return i_store(out, pair_scales<K>(bytes, bias));
    i_store(out, same_scale<2 * K>(bytes, bias)), i_store(out + ROWS, same_scale<2 * K + 1>(bytes, bias));
}

// The sums of both halves' products of words and the word `pair`.
INLINE I pair_product(I words, uint32_t pair) { return i16_dot(words, i_set1(static_cast<int32_t>(pair))); }

// Starts a sum of weights that are 2^PLACE times too large from the low half of a word.
template <int PLACE, class D> INLINE void start_whole(D &dot, uint32_t word) {
    dot.sum = i_set1(static_cast<int32_t>(word));
    if constexpr (PLACE != 0)
        dot.sum = i_shl<PLACE>(dot.sum);
}
// The sum of a group times its scale, of two partial sums that a word holds.
template <class D> INLINE I weigh(const D &dot, const int32_t *scale) { return i16_dot(dot.sum, i_load(scale)); }
// The sums of two groups times their scales.
template <int LOW, int HIGH, class D> INLINE I weigh(const D (&dot)[2], const int32_t *scales, const uint32_t *) {
    if constexpr (!FOLDED)
        return i_add(weigh(dot[0], scales), weigh(dot[1], scales + ROWS));
    I low = dot[0].sum;
    if constexpr (LOW != 0)
        low = i_shr<LOW>(low);
    return i16_dot(i16_join(low, i_shl<16 - HIGH>(dot[1].sum)), i_load(scales));
}

// (u − OFFSET)·c + BIAS of each byte, which it fits.
template <int OFFSET, int BIAS> INLINE Q fold(Q u, I c) {
    if constexpr (OFFSET != 0)
        u = i16_sub(u, i16_set1(257 * OFFSET));
    u = i16_mul(u, c);
    if constexpr (BIAS != 0)
        u = i16_add(u, i16_set1(257 * BIAS));
    return u;
}
