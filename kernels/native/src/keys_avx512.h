// Scores as in keys.h, in vectors of eight elements of two keys each, which leave fewer lanes to
// reduce at the end.

constexpr int LANES = 8;
constexpr int KEY_ORDER[LANES] = {0, 2, 1, 3, 4, 6, 5, 7};
constexpr uint32_t KEYS_AT_ONCE = 8;
// Whether scores have a form, of the same bits, for processors that work on 512 bits in two halves.
// With blocks it gains nothing, and with four heads there are more sums than registers.
template <class C, int H> constexpr bool in_halves = false;
template <int H> constexpr bool in_halves<F16, H> = H <= 2;

INLINE F both(__m256 a, __m256 b) { return _mm512_insertf32x8(_mm512_castps256_ps512(a), b, 1); }

// Elements i to i + 7 of two keys, i a multiple of 8.
template <class C> INLINE F pair_of(const uint8_t *a, const uint8_t *b, uint32_t i);
template <> MEMBER F pair_of<F32>(const uint8_t *a, const uint8_t *b, uint32_t i) {
    const auto of = [=](const uint8_t *p) { return _mm256_loadu_ps(reinterpret_cast<const float *>(p) + i); };
    return both(of(a), of(b));
}
template <> MEMBER F pair_of<F16>(const uint8_t *a, const uint8_t *b, uint32_t i) {
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(q_16(a + 2 * i)), q_16(b + 2 * i), 1));
}

// Adds products of elements i to i + 7 of pairs of keys.
template <int H> INLINE void add_products(const F pairs[4], const float *q, uint32_t head, uint32_t i, F sum[H][4]) {
    UNROLL for (int h = 0; h < H; h++) {
        const F x = _mm512_broadcast_f32x8(_mm256_loadu_ps(q + static_cast<uint32_t>(h) * head + i));
        UNROLL for (int r = 0; r < 4; r++) sum[h][r] = fma(pairs[r], x, sum[h][r]);
    }
}

template <class C, int H, class Ask>
INLINE void score_pairs(const uint8_t *k, size_t stride, const float *q, uint32_t head, float *out, size_t out_stride,
                        Ask ask) {
    F sum[H][4], pairs[4];
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int r = 0; r < 4; r++) sum[h][r] = zero();
    const uint8_t *far = k + 4 * stride;
    if constexpr (is_plain<C>) {
        for (uint32_t i = 0; i < head; i += 8) {
            ask(8);
            UNROLL for (uint32_t r = 0; r < 4; r++) pairs[r] = pair_of<C>(k + r * stride, far + r * stride, i);
            add_products<H>(pairs, q, head, i, sum);
        }
    } else {
        for (uint32_t i = 0; i < head; k += C::BYTES, far += C::BYTES) {
            F scale[4];
            UNROLL for (uint32_t r = 0; r < 4; r++) scale[r] =
                _mm512_cvtph_ps(_mm256_mask_set1_epi16(_mm256_set1_epi16(static_cast<short>(half_bits(k + r * stride))),
                                                       0xff00, static_cast<short>(half_bits(far + r * stride))));
            // Sixteen bytes of a key at once: what loads and puts them together is most of the work.
            for (uint32_t at = 2; at < C::BYTES; at += 16, i += 16) {
                ask(16);
                F second[4];
                UNROLL for (uint32_t r = 0; r < 4; r++) {
                    const __m128i a = q_16(k + r * stride + at), b = q_16(far + r * stride + at);
                    pairs[r] = scale[r] * _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_unpacklo_epi64(a, b)));
                    second[r] = scale[r] * _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_unpackhi_epi64(a, b)));
                }
                add_products<H>(pairs, q, head, i, sum);
                add_products<H>(second, q, head, i + 8, sum);
            }
        }
    }
    UNROLL for (int h = 0; h < H; h++) {
        const F *s = sum[h];
        const F ab = _mm512_unpacklo_ps(s[0], s[1]) + _mm512_unpackhi_ps(s[0], s[1]);
        const F cd = _mm512_unpacklo_ps(s[2], s[3]) + _mm512_unpackhi_ps(s[2], s[3]);
        const F quarters = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))) +
                           _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
        const F halves = quarters + _mm512_shuffle_f32x4(quarters, quarters, 0xb1);
        _mm256_storeu_ps(out + static_cast<size_t>(h) * out_stride,
                         _mm512_castps512_ps256(_mm512_shuffle_f32x4(halves, halves, 0xd8)));
    }
}

// Halves in vectors of one key, which need no shuffles.
template <int H, class Ask>
INLINE void score_each(const uint8_t *k, size_t stride, const float *q, uint32_t head, float *out, size_t out_stride,
                       Ask ask) {
    constexpr int R = KEYS_AT_ONCE;
    __m256 sum[H][R], x[H];
    UNROLL for (auto &row : sum) UNROLL for (__m256 &v : row) v = _mm256_setzero_ps();
    for (uint32_t i = 0; i < head; i += 8) {
        ask(8);
        UNROLL for (int h = 0; h < H; h++) x[h] = _mm256_loadu_ps(q + static_cast<uint32_t>(h) * head + i);
        UNROLL for (int r = 0; r < R; r++) {
            const __m256 v = _mm256_cvtph_ps(q_16(k + static_cast<size_t>(r) * stride + 2 * i));
            UNROLL for (int h = 0; h < H; h++) sum[h][r] = _mm256_fmadd_ps(v, x[h], sum[h][r]);
        }
    }
    UNROLL for (int h = 0; h < H; h++) UNROLL for (int r = 0; r < R; r += 4) {
        const __m256 *s = sum[h] + r;
        const __m256 ab = _mm256_unpacklo_ps(s[0], s[1]) + _mm256_unpackhi_ps(s[0], s[1]);
        const __m256 cd = _mm256_unpacklo_ps(s[2], s[3]) + _mm256_unpackhi_ps(s[2], s[3]);
        const __m256 quarters = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd))) +
                                _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd)));
        _mm_storeu_ps(out + static_cast<size_t>(h) * out_stride + r,
                      _mm256_castps256_ps128(quarters) + _mm256_extractf128_ps(quarters, 1));
    }
}

template <class C, int H, bool HALVES, class Ask>
INLINE void score_keys(const uint8_t *k, size_t stride, const float *q, uint32_t head, float *out, size_t out_stride,
                       Ask ask) {
    if constexpr (HALVES)
        score_each<H>(k, stride, q, head, out, out_stride, ask);
    else
        score_pairs<C, H>(k, stride, q, head, out, out_stride, ask);
}
