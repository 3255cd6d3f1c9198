// Vectors of AVX2 with FMA and F16C; simd_portable.h documents each name.
// A set that includes them adds Dot.

constexpr int W = 8;
constexpr int ROWS = 16;
constexpr int TILE_VECTORS = 2;
constexpr int DOT_TOKENS = 3;
constexpr int COLUMN_TOKENS = 6;
constexpr int SHARING = 4;
constexpr int SUMS = 8;
constexpr int SUM_ORDER[W] = {0, 2, 1, 3, 4, 6, 5, 7};

using F = __m256;
using I = __m256i;
using Q = __m256i;

INLINE F zero() { return _mm256_setzero_ps(); }
INLINE F set1(float v) { return _mm256_set1_ps(v); }
INLINE __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE F load(const float *p) { return _mm256_loadu_ps(p); }
INLINE F load_n(const float *p, int n) { return _mm256_maskload_ps(p, first(n)); }
INLINE void store(float *p, F v) { _mm256_storeu_ps(p, v); }
INLINE void store_n(float *p, F v, int n) { _mm256_maskstore_ps(p, first(n), v); }

INLINE __m128i q_16(const uint8_t *p) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p)); }
INLINE __m128i load_16_n(const uint8_t *p, int n) {
    alignas(16) uint8_t part[16] = {};
    memcpy(part, p, 2 * static_cast<size_t>(n));
    return q_16(part);
}
INLINE F from_bf16(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }
INLINE F load_f16(const uint8_t *p) { return _mm256_cvtph_ps(q_16(p)); }
INLINE F load_f16_n(const uint8_t *p, int n) { return _mm256_cvtph_ps(load_16_n(p, n)); }
INLINE F load_bf16(const uint8_t *p) { return from_bf16(q_16(p)); }
INLINE F load_bf16_n(const uint8_t *p, int n) { return from_bf16(load_16_n(p, n)); }
INLINE __m128i half_quads(const uint8_t *p, size_t step) {
    return _mm_set_epi64x(four_halves(p + step), four_halves(p));
}
INLINE F load_f16_quads(const uint8_t *p, size_t step) { return _mm256_cvtph_ps(half_quads(p, step)); }
INLINE F load_bf16_quads(const uint8_t *p, size_t step) { return from_bf16(half_quads(p, step)); }
INLINE void store_f16(uint8_t *p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void store_f16_n(uint8_t *p, F v, int n) {
    alignas(16) uint8_t part[16];
    store_f16(part, v);
    memcpy(p, part, 2 * static_cast<size_t>(n));
}

INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
INLINE F zero_below(F v, F x, F bound) { return _mm256_andnot_ps(_mm256_cmp_ps(x, bound, _CMP_LT_OQ), v); }
INLINE F where_below(F x, F bound, F a, F b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, bound, _CMP_LT_OQ)); }
INLINE F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

INLINE void reduce4(F a, F b, F c, F d, float *out) {
    F ab = _mm256_unpacklo_ps(a, b) + _mm256_unpackhi_ps(a, b);
    F cd = _mm256_unpacklo_ps(c, d) + _mm256_unpackhi_ps(c, d);
    F abcd = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd))) +
             _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1)));
}
INLINE float reduce_add(F v) {
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
INLINE float reduce_max(F v) {
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
INLINE bool any_nan(F v) { return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0; }

INLINE I i_set1(int32_t v) { return _mm256_set1_epi32(v); }
INLINE I i_add(I a, I b) { return _mm256_add_epi32(a, b); }
INLINE I i_and(I a, I b) { return _mm256_and_si256(a, b); }
INLINE I i_or(I a, I b) { return _mm256_or_si256(a, b); }
template <int N> INLINE I i_shr(I a) { return _mm256_srli_epi32(a, N); }
template <int N> INLINE I i_sar(I a) { return _mm256_srai_epi32(a, N); }
template <int N> INLINE I i_shl(I a) { return _mm256_slli_epi32(a, N); }
INLINE F to_float(I a) { return _mm256_cvtepi32_ps(a); }
INLINE I to_int(F a) { return _mm256_cvtps_epi32(a); }
INLINE F power_of_two(I n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
INLINE F scale_exponent(F a, F n) {
    I whole = to_int(n), half = i_sar<1>(whole);
    return a * power_of_two(half) * power_of_two(_mm256_sub_epi32(whole, half));
}
INLINE int32_t i_reduce_add(I v) {
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}
INLINE __m128i narrow16(I v) { return _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }
INLINE void store_i8(int8_t *p, I v) {
    __m128i s = narrow16(v);
    _mm_storel_epi64(reinterpret_cast<__m128i *>(p), _mm_packs_epi16(s, s));
}
INLINE F load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
}
INLINE F halves_of(I v) {
    // packus takes the low halves whole once the high halves are cleared.
    v = i_and(v, i_set1(0xffff));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
INLINE F set1_half(const uint8_t *p) { return _mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(half_bits(p)))); }

INLINE Q q_load(const uint8_t *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
INLINE void q_store(uint8_t *p, Q v) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), v); }
INLINE Q q_rows(const uint8_t *p, size_t step) { return _mm256_set_m128i(q_16(p + step), q_16(p)); }
INLINE Q q_same16(const int8_t *p) { return _mm256_broadcastsi128_si256(q_16(reinterpret_cast<const uint8_t *>(p))); }
INLINE Q q_same4(const int8_t *p) { return _mm256_set1_epi32(word(p)); }
INLINE Q q_and(Q a, uint8_t mask) { return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask))); }
INLINE Q q_xor(Q a, uint8_t mask) { return _mm256_xor_si256(a, _mm256_set1_epi8(static_cast<char>(mask))); }
// Bytes of a lane of 16, by numbers below 16.
INLINE Q q_lookup(Q bytes, Q numbers) { return _mm256_shuffle_epi8(bytes, numbers); }
INLINE Q q_once(Q v) { return v; } // a load of its own gains nothing
INLINE Q q_or(Q a, Q b) { return _mm256_or_si256(a, b); }
template <int N> INLINE Q q_shr(Q a) { return _mm256_srli_epi16(a, N); }
template <int N> INLINE Q q_shl(Q a) { return _mm256_slli_epi16(a, N); }
INLINE Q q_shr_by(Q a, int n) { return _mm256_srl_epi16(a, _mm_cvtsi32_si128(n)); }
INLINE I q_words(Q a) { return a; }

// Two integers of 16 bits in each word: the sums of their products, and low ones of a beside high ones of b.
INLINE I i16_set1(int v) { return _mm256_set1_epi16(static_cast<short>(v)); }
INLINE I i16_add(I a, I b) { return _mm256_add_epi16(a, b); }
INLINE I i16_sub(I a, I b) { return _mm256_sub_epi16(a, b); }
INLINE I i16_mul(I a, I b) { return _mm256_mullo_epi16(a, b); }
INLINE I i16_dot(I a, I b) { return _mm256_madd_epi16(a, b); }
INLINE I i16_join(I a, I b) { return _mm256_blend_epi16(a, b, 0xaa); }
// The bytes of each word that those of FIRST number in the first one, or 0 for one from 0x80 on.
template <uint32_t FIRST> INLINE I i16_bytes(I words) {
    constexpr int N = static_cast<int>(FIRST), NEXT = 0x00040004;
    return _mm256_shuffle_epi8(words,
                               _mm256_broadcastsi128_si256(_mm_setr_epi32(N, N + NEXT, N + 2 * NEXT, N + 3 * NEXT)));
}

INLINE void transpose4(Q &a, Q &b, Q &c, Q &d) {
    Q ab0 = _mm256_unpacklo_epi32(a, b), ab1 = _mm256_unpackhi_epi32(a, b);
    Q cd0 = _mm256_unpacklo_epi32(c, d), cd1 = _mm256_unpackhi_epi32(c, d);
    a = _mm256_unpacklo_epi64(ab0, cd0);
    b = _mm256_unpackhi_epi64(ab0, cd0);
    c = _mm256_unpacklo_epi64(ab1, cd1);
    d = _mm256_unpackhi_epi64(ab1, cd1);
}
INLINE F load_quads(const uint8_t *p, size_t step) { return _mm256_castsi256_ps(q_rows(p, step)); }
INLINE void transpose_quads(F &a, F &b, F &c, F &d) {
    F ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
    F cd0 = _mm256_unpacklo_ps(c, d), cd1 = _mm256_unpackhi_ps(c, d);
    a = _mm256_shuffle_ps(ab0, cd0, 0x44);
    b = _mm256_shuffle_ps(ab0, cd0, 0xee);
    c = _mm256_shuffle_ps(ab1, cd1, 0x44);
    d = _mm256_shuffle_ps(ab1, cd1, 0xee);
}
INLINE I merge4(I a, I b, I c, I d) { return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d)); }

INLINE F half_rows(const uint8_t *p, size_t step) {
    __m128i v = _mm_cvtsi32_si128(half_bits(p));
    v = _mm_insert_epi16(v, half_bits(p + step), 1);
    v = _mm_insert_epi16(v, half_bits(p + 2 * step), 2);
    v = _mm_insert_epi16(v, half_bits(p + 3 * step), 3);
    v = _mm_insert_epi16(v, half_bits(p + 4 * step), 4);
    v = _mm_insert_epi16(v, half_bits(p + 5 * step), 5);
    v = _mm_insert_epi16(v, half_bits(p + 6 * step), 6);
    return _mm256_cvtph_ps(_mm_insert_epi16(v, half_bits(p + 7 * step), 7));
}

#include "lanes.h"
