// Vectors of AVX-512 (F, BW, VL, DQ) with VNNI. The four simd_*.h headers give
// the same names with the same meaning, which simd_portable.h explains.

constexpr const char *ISA = "avx512";
constexpr int W = 16;
constexpr int ROWS = 32;
constexpr int TILE_VECTORS = 4;
constexpr int DOT_TOKENS = 6;
constexpr int INT_TOKENS = 6;
constexpr int COLUMN_TOKENS = 12;
constexpr uint64_t DISTANCE = 4096; // measured: a Zen 5 reads faster than with 2 KB or 8, a Xeon with AMX as fast
constexpr int SHARING = 4;
constexpr int SUMS = 16;
constexpr int SUM_ORDER[W] = {0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15};
constexpr bool DOTS_DIFFER = false; // by Range
constexpr int SIGNED_BIAS = 128;

using F = __m512;
using I = __m512i;
using Q = __m512i;

INLINE F zero() { return _mm512_setzero_ps(); }
INLINE F set1(float v) { return _mm512_set1_ps(v); }
INLINE __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
INLINE F load(const float *p) { return _mm512_loadu_ps(p); }
INLINE F load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
INLINE void store(float *p, F v) { _mm512_storeu_ps(p, v); }
INLINE void store_n(float *p, F v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }

INLINE F from_bf16(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }
INLINE F load_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
}
INLINE F load_f16_n(const uint8_t *p, int n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p)); }
INLINE F load_bf16(const uint8_t *p) { return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))); }
INLINE F load_bf16_n(const uint8_t *p, int n) { return from_bf16(_mm256_maskz_loadu_epi16(first(n), p)); }
INLINE __m256i half_quads(const uint8_t *p, size_t step) {
    return _mm256_set_epi64x(four_halves(p + 3 * step), four_halves(p + 2 * step), four_halves(p + step),
                             four_halves(p));
}
INLINE F load_f16_quads(const uint8_t *p, size_t step) { return _mm512_cvtph_ps(half_quads(p, step)); }
INLINE F load_bf16_quads(const uint8_t *p, size_t step) { return from_bf16(half_quads(p, step)); }
INLINE void store_f16(uint8_t *p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void store_f16_n(uint8_t *p, F v, int n) {
    _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
INLINE F zero_below(F v, F x, F bound) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), v); }
INLINE F where_below(F x, F bound, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, bound, _CMP_LT_OQ), b, a);
}
INLINE F abs(F a) { return _mm512_abs_ps(a); }
INLINE F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE F scale_exponent(F a, F n) { return _mm512_scalef_ps(a, n); }

INLINE __m128 add_lanes(F v) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
INLINE void reduce4(F a, F b, F c, F d, float *out) {
    F ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
    F cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
    F abcd = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))) +
             _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
    _mm_storeu_ps(out, add_lanes(abcd));
}
INLINE float reduce_add(F v) { return _mm512_reduce_add_ps(v); }
INLINE float reduce_max(F v) { return _mm512_reduce_max_ps(v); }
INLINE bool any_nan(F v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0; }

INLINE I i_set1(int32_t v) { return _mm512_set1_epi32(v); }
INLINE I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
INLINE I i_and(I a, I b) { return _mm512_and_si512(a, b); }
INLINE I i_or(I a, I b) { return _mm512_or_si512(a, b); }
template <int N> INLINE I i_shr(I a) { return _mm512_srli_epi32(a, N); }
template <int N> INLINE I i_sar(I a) { return _mm512_srai_epi32(a, N); }
template <int N> INLINE I i_shl(I a) { return _mm512_slli_epi32(a, N); }
INLINE F to_float(I a) { return _mm512_cvtepi32_ps(a); }
INLINE I to_int(F a) { return _mm512_cvtps_epi32(a); }
INLINE int32_t i_reduce_add(I v) { return _mm512_reduce_add_epi32(v); }
INLINE void store_i8(int8_t *p, I v) { _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm512_cvtsepi32_epi8(v)); }
INLINE F load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
}
INLINE F halves_of(I v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
INLINE F set1_half(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<short>(half_bits(p)))); }

INLINE Q q_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE void q_store(uint8_t *p, Q v) { _mm512_storeu_si512(p, v); }
INLINE __m128i q_16(const uint8_t *p) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p)); }
INLINE Q q_rows(const uint8_t *p, size_t step) {
    Q v = _mm512_castsi128_si512(q_16(p));
    v = _mm512_inserti32x4(v, q_16(p + step), 1);
    v = _mm512_inserti32x4(v, q_16(p + 2 * step), 2);
    return _mm512_inserti32x4(v, q_16(p + 3 * step), 3);
}
INLINE Q q_same16(const int8_t *p) { return _mm512_broadcast_i32x4(q_16(reinterpret_cast<const uint8_t *>(p))); }
INLINE Q q_same4(const int8_t *p) { return _mm512_set1_epi32(word(p)); }
INLINE Q q_and(Q a, uint8_t mask) { return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask))); }
INLINE Q q_xor(Q a, uint8_t mask) { return _mm512_xor_si512(a, _mm512_set1_epi8(static_cast<char>(mask))); }
INLINE Q q_lookup(Q bytes, Q numbers) { return _mm512_shuffle_epi8(bytes, numbers); }
// g++ otherwise folds the load into each instruction that uses its value.
INLINE Q q_once(Q v) {
    asm("" : "+v"(v));
    return v;
}
INLINE Q q_or(Q a, Q b) { return _mm512_or_si512(a, b); }
template <int N> INLINE Q q_shr(Q a) { return _mm512_srli_epi16(a, N); }
template <int N> INLINE Q q_shl(Q a) { return _mm512_slli_epi16(a, N); }
INLINE Q q_shr_by(Q a, int n) { return _mm512_srl_epi16(a, _mm_cvtsi32_si128(n)); }
INLINE I q_words(Q a) { return a; }

// Two integers of 16 bits in each word: the sums of their products, and low ones of a beside high ones of b.
INLINE I i16_set1(int v) { return _mm512_set1_epi16(static_cast<short>(v)); }
INLINE I i16_add(I a, I b) { return _mm512_add_epi16(a, b); }
INLINE I i16_sub(I a, I b) { return _mm512_sub_epi16(a, b); }
INLINE I i16_mul(I a, I b) { return _mm512_mullo_epi16(a, b); }
INLINE I i16_dot(I a, I b) { return _mm512_madd_epi16(a, b); }
INLINE I i16_join(I a, I b) { return _mm512_mask_blend_epi16(0xaaaaaaaa, a, b); }
// The bytes of each word that those of FIRST number in the first one, or 0 for one from 0x80 on.
template <uint32_t FIRST> INLINE I i16_bytes(I words) {
    constexpr int N = static_cast<int>(FIRST), NEXT = 0x00040004;
    return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(_mm_setr_epi32(N, N + NEXT, N + 2 * NEXT, N + 3 * NEXT)));
}

INLINE void transpose4(Q &a, Q &b, Q &c, Q &d) {
    Q ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
    Q cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
    a = _mm512_unpacklo_epi64(ab0, cd0);
    b = _mm512_unpackhi_epi64(ab0, cd0);
    c = _mm512_unpacklo_epi64(ab1, cd1);
    d = _mm512_unpackhi_epi64(ab1, cd1);
}
INLINE F load_quads(const uint8_t *p, size_t step) { return _mm512_castsi512_ps(q_rows(p, step)); }
INLINE void transpose_quads(F &a, F &b, F &c, F &d) {
    F ab0 = _mm512_unpacklo_ps(a, b), ab1 = _mm512_unpackhi_ps(a, b);
    F cd0 = _mm512_unpacklo_ps(c, d), cd1 = _mm512_unpackhi_ps(c, d);
    a = _mm512_shuffle_ps(ab0, cd0, 0x44);
    b = _mm512_shuffle_ps(ab0, cd0, 0xee);
    c = _mm512_shuffle_ps(ab1, cd1, 0x44);
    d = _mm512_shuffle_ps(ab1, cd1, 0xee);
}
INLINE I merge4(I a, I b, I c, I d) {
    I ab = i_add(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    I cd = i_add(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return i_add(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

template <Range R> struct Dot {
    I sum;
    MEMBER void start(int32_t from) { sum = i_set1(from); }
    MEMBER void one(Q w, Q x) { sum = _mm512_dpbusd_epi32(sum, w, x); }
    MEMBER void two(Q w0, Q x0, Q w1, Q x1) {
        one(w0, x0);
        one(w1, x1);
    }
    MEMBER void words(Q w0, Q w1, const int8_t *x) { two(w0, q_same4(x), w1, q_same4(x + 4)); }
    MEMBER I finish(int32_t) const { return sum; }
};

INLINE F half_rows(const uint8_t *p, size_t step) {
    auto eight = [step](const uint8_t *q) __attribute__((always_inline)) {
        __m128i v = _mm_cvtsi32_si128(half_bits(q));
        v = _mm_insert_epi16(v, half_bits(q + step), 1);
        v = _mm_insert_epi16(v, half_bits(q + 2 * step), 2);
        v = _mm_insert_epi16(v, half_bits(q + 3 * step), 3);
        v = _mm_insert_epi16(v, half_bits(q + 4 * step), 4);
        v = _mm_insert_epi16(v, half_bits(q + 5 * step), 5);
        v = _mm_insert_epi16(v, half_bits(q + 6 * step), 6);
        return _mm_insert_epi16(v, half_bits(q + 7 * step), 7);
    };
    return _mm512_cvtph_ps(_mm256_set_m128i(eight(p + 8 * step), eight(p)));
}

#include "lanes.h"
#include "panel.h"
#include "whole_x86.h"
