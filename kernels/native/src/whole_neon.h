// Whole scales (WHOLE_SCALES in blocks.h), as 32-bit integers for groups of 16, and as bytes for panels.

constexpr bool FOLDED = true, PLACED = false;
constexpr int SCALE_WORDS = 2;

// Bytes of words from FIRST on, to which each word adds its place; 0 where there is none.
template <uint32_t FIRST> INLINE I word_bytes(I bytes) {
    const uint32_t numbers[4] = {FIRST, FIRST + 0x04040404, FIRST + 0x08080808, FIRST + 0x0c0c0c0c};
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(bytes), vreinterpretq_u8_u32(vld1q_u32(numbers))));
}
// Byte G of each word in all its bytes, less a bias, and bytes 2·K and 2·K + 1 in its halves.
template <int G> INLINE I same_scale(I bytes, int bias) {
    const int8x16_t v = vreinterpretq_s8_s32(word_bytes<0x01010101u * G>(bytes));
    return vreinterpretq_s32_s8(vsubq_s8(v, vdupq_n_s8(static_cast<int8_t>(bias))));
}
template <int K> INLINE I pair_scales(I bytes, int) { return word_bytes<0x80018000u + 0x00020002u * K>(bytes); }
template <int K> INLINE void scale_words(I bytes, int bias, int32_t *out) {
    const I c0 = i_and(i_shr<16 * K>(bytes), i_set1(0xff)), c1 = i_and(i_shr<16 * K + 8>(bytes), i_set1(0xff));
    i_store(out, vsubq_s32(c0, i_set1(bias))), i_store(out + ROWS, vsubq_s32(c1, i_set1(bias)));
}

// The sums of both halves' products of words and the word `pair`. Those of minima fit 16 bits.
INLINE I pair_product(I words, uint32_t pair) {
    const int16x8_t x = vreinterpretq_s16_u32(vdupq_n_u32(pair));
    return vpaddlq_s16(vmulq_s16(vreinterpretq_s16_s32(words), x));
}

template <int, class D> INLINE void start_whole(D &dot, uint32_t word) { dot.start(static_cast<int16_t>(word)); }
// The sums of two groups times their scales.
template <int, int, class D> INLINE I weigh(const D (&dot)[2], const int32_t *scales, const uint32_t *words) {
    const I low = dot[0].finish(static_cast<int16_t>(words[0])), high = dot[1].finish(static_cast<int16_t>(words[1]));
    return vmlaq_s32(vmulq_s32(low, i_load(scales)), high, i_load(scales + ROWS));
}

// (u − OFFSET)·c + BIAS of each byte, which it fits.
template <int OFFSET, int BIAS> INLINE Q fold(Q u, I c) {
    int8x16_t v = vsubq_s8(vreinterpretq_s8_u8(u), vdupq_n_s8(OFFSET));
    v = vaddq_s8(vmulq_s8(v, vreinterpretq_s8_s32(c)), vdupq_n_s8(BIAS));
    return vreinterpretq_u8_s8(v);
}
