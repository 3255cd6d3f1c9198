// Vectors of arm64's baseline NEON; simd_portable.h documents each name. A set
// that includes them adds Dot. Every weight fits a signed byte here, so none is biased.

constexpr int W = 4;
constexpr int ROWS = 16;
constexpr int TILE_VECTORS = 4;
constexpr int DOT_TOKENS = 6;
constexpr int COLUMN_TOKENS = 6;
constexpr uint64_t DISTANCE = 2048;
constexpr int SHARING = 4;
constexpr int SUMS = 16;
constexpr int SUM_ORDER[W] = {0, 1, 2, 3};
constexpr int SIGNED_BIAS = 0;

using F = float32x4_t;
using I = int32x4_t;
using Q = uint8x16_t;

INLINE F zero() { return vdupq_n_f32(0); }
INLINE F set1(float v) { return vdupq_n_f32(v); }
INLINE F load(const float *p) { return vld1q_f32(p); }
INLINE F load_n(const float *p, int n) {
    float part[4] = {};
    memcpy(part, p, 4 * static_cast<size_t>(n));
    return vld1q_f32(part);
}
INLINE void store(float *p, F v) { vst1q_f32(p, v); }
INLINE void store_n(float *p, F v, int n) {
    float part[4];
    vst1q_f32(part, v);
    memcpy(p, part, 4 * static_cast<size_t>(n));
}

INLINE uint16x4_t load_16(const uint8_t *p) { return vreinterpret_u16_u8(vld1_u8(p)); }
INLINE uint16x4_t load_16_n(const uint8_t *p, int n) {
    uint8_t part[8] = {};
    memcpy(part, p, 2 * static_cast<size_t>(n));
    return load_16(part);
}
INLINE F from_f16(uint16x4_t v) { return vcvt_f32_f16(vreinterpret_f16_u16(v)); }
INLINE F from_bf16(uint16x4_t v) { return vreinterpretq_f32_u32(vshll_n_u16(v, 16)); }
INLINE F load_f16(const uint8_t *p) { return from_f16(load_16(p)); }
INLINE F load_f16_n(const uint8_t *p, int n) { return from_f16(load_16_n(p, n)); }
INLINE F load_bf16(const uint8_t *p) { return from_bf16(load_16(p)); }
INLINE F load_bf16_n(const uint8_t *p, int n) { return from_bf16(load_16_n(p, n)); }
INLINE F load_f16_quads(const uint8_t *p, size_t) { return load_f16(p); }
INLINE F load_bf16_quads(const uint8_t *p, size_t) { return load_bf16(p); }
INLINE void store_f16(uint8_t *p, F v) { vst1_u8(p, vreinterpret_u8_f16(vcvt_f16_f32(v))); }
INLINE void store_f16_n(uint8_t *p, F v, int n) {
    uint8_t part[8];
    store_f16(part, v);
    memcpy(p, part, 2 * static_cast<size_t>(n));
}

INLINE F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
INLINE F max(F a, F b) { return vmaxq_f32(a, b); }
INLINE F min(F a, F b) { return vminq_f32(a, b); }
INLINE F zero_below(F v, F x, F bound) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(x, bound)));
}
INLINE F where_below(F x, F bound, F a, F b) { return vbslq_f32(vcltq_f32(x, bound), a, b); }
INLINE F abs(F a) { return vabsq_f32(a); }
INLINE F round(F a) { return vrndnq_f32(a); }

INLINE void reduce4(F a, F b, F c, F d, float *out) { vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d))); }
INLINE float reduce_add(F v) { return vaddvq_f32(v); }
INLINE float reduce_max(F v) { return vmaxvq_f32(v); }
INLINE bool any_nan(F v) { return vminvq_u32(vceqq_f32(v, v)) == 0; }

INLINE I i_set1(int32_t v) { return vdupq_n_s32(v); }
INLINE I i_add(I a, I b) { return vaddq_s32(a, b); }
INLINE I i_and(I a, I b) { return vandq_s32(a, b); }
INLINE I i_or(I a, I b) { return vorrq_s32(a, b); }
template <int N> INLINE I i_shr(I a) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-N)));
}
template <int N> INLINE I i_sar(I a) { return vshlq_s32(a, vdupq_n_s32(-N)); }
template <int N> INLINE I i_shl(I a) { return vshlq_s32(a, vdupq_n_s32(N)); }
INLINE F to_float(I a) { return vcvtq_f32_s32(a); }
INLINE I to_int(F a) { return vcvtnq_s32_f32(a); }
INLINE F power_of_two(I n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
INLINE F scale_exponent(F a, F n) {
    I whole = to_int(n), half = i_sar<1>(whole);
    return a * power_of_two(half) * power_of_two(vsubq_s32(whole, half));
}
INLINE int32_t i_reduce_add(I v) { return vaddvq_s32(v); }
INLINE void store_i8(int8_t *p, I v) {
    int16x4_t s = vqmovn_s32(v);
    int32_t bytes = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(s, s))), 0);
    memcpy(p, &bytes, 4);
}
INLINE F load_i8(const int8_t *p) {
    int8x8_t v = vreinterpret_s8_s32(vdup_n_s32(word(p)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(v))));
}
INLINE F halves_of(I v) { return from_f16(vmovn_u32(vreinterpretq_u32_s32(v))); }
INLINE F set1_half(const uint8_t *p) { return from_f16(vdup_n_u16(half_bits(p))); }

INLINE Q q_load(const uint8_t *p) { return vld1q_u8(p); }
INLINE void q_store(uint8_t *p, Q v) { vst1q_u8(p, v); }
INLINE Q q_rows(const uint8_t *p, size_t) { return vld1q_u8(p); }
INLINE Q q_same16(const int8_t *p) { return vreinterpretq_u8_s8(vld1q_s8(p)); }
INLINE Q q_same4(const int8_t *p) { return vreinterpretq_u8_s32(vdupq_n_s32(word(p))); }
INLINE Q q_and(Q a, uint8_t mask) { return vandq_u8(a, vdupq_n_u8(mask)); }
INLINE Q q_xor(Q a, uint8_t mask) { return veorq_u8(a, vdupq_n_u8(mask)); }
INLINE Q q_lookup(Q bytes, Q numbers) { return vqtbl1q_u8(bytes, numbers); }
INLINE Q q_once(Q v) { return v; }
INLINE Q q_or(Q a, Q b) { return vorrq_u8(a, b); }
template <int N> INLINE Q q_shr(Q a) {
    return vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(a), vdupq_n_s16(-N)));
}
template <int N> INLINE Q q_shl(Q a) {
    return vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(a), vdupq_n_s16(N)));
}
INLINE Q q_shr_by(Q a, int n) {
    return vreinterpretq_u8_u16(vshlq_u16(vreinterpretq_u16_u8(a), vdupq_n_s16(static_cast<int16_t>(-n))));
}
INLINE I q_words(Q a) { return vreinterpretq_s32_u8(a); }

INLINE void transpose4(Q &a, Q &b, Q &c, Q &d) {
    uint32x4_t wa = vreinterpretq_u32_u8(a), wb = vreinterpretq_u32_u8(b);
    uint32x4_t wc = vreinterpretq_u32_u8(c), wd = vreinterpretq_u32_u8(d);
    uint64x2_t ab0 = vreinterpretq_u64_u32(vzip1q_u32(wa, wb)), ab1 = vreinterpretq_u64_u32(vzip2q_u32(wa, wb));
    uint64x2_t cd0 = vreinterpretq_u64_u32(vzip1q_u32(wc, wd)), cd1 = vreinterpretq_u64_u32(vzip2q_u32(wc, wd));
    a = vreinterpretq_u8_u64(vzip1q_u64(ab0, cd0));
    b = vreinterpretq_u8_u64(vzip2q_u64(ab0, cd0));
    c = vreinterpretq_u8_u64(vzip1q_u64(ab1, cd1));
    d = vreinterpretq_u8_u64(vzip2q_u64(ab1, cd1));
}
INLINE F load_quads(const uint8_t *p, size_t) { return load(reinterpret_cast<const float *>(p)); }
INLINE void transpose_quads(F &a, F &b, F &c, F &d) {
    Q qa = vreinterpretq_u8_f32(a), qb = vreinterpretq_u8_f32(b);
    Q qc = vreinterpretq_u8_f32(c), qd = vreinterpretq_u8_f32(d);
    transpose4(qa, qb, qc, qd);
    a = vreinterpretq_f32_u8(qa), b = vreinterpretq_f32_u8(qb);
    c = vreinterpretq_f32_u8(qc), d = vreinterpretq_f32_u8(qd);
}
INLINE I merge4(I a, I b, I c, I d) { return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)); }

INLINE F half_rows(const uint8_t *p, size_t step) {
    uint16x4_t v = vdup_n_u16(half_bits(p));
    v = vset_lane_u16(half_bits(p + step), v, 1);
    v = vset_lane_u16(half_bits(p + 2 * step), v, 2);
    return from_f16(vset_lane_u16(half_bits(p + 3 * step), v, 3));
}

#include "lanes.h"
