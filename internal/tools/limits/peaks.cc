#include "peaks.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

// A multiply-add has a latency of four or five cycles and there are two a cycle, so ten
// chains or more keep the units busy.
constexpr int CHAINS = 12;
// Unrolled wherever chains are touched: an array that some loop indexes lies in memory, and each
// step would be stored.
#define EACH_CHAIN _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; c++)

// Makes the compiler take a register for unknown, so that it neither moves a product out
// of the loop nor uses one for two chains. It emits nothing.
#if defined(__x86_64__)
#define UNKNOWN(v) asm volatile("" : "+v"(v))
#elif defined(__aarch64__)
#define UNKNOWN(v) asm volatile("" : "+w"(v))
#endif

// Defines a function that runs n rounds of STEP on each of the chains and returns the
// operations done, OPS in a step.
#define DEFINE_CHAINS(NAME, TARGET, VECTOR, ZERO, ONE, OPS, STEP)                                                      \
    TARGET int64_t NAME(int64_t n) {                                                                                   \
        VECTOR a[CHAINS], x = ONE, y = ONE;                                                                            \
        EACH_CHAIN a[c] = ZERO;                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            EACH_CHAIN {                                                                                               \
                UNKNOWN(x);                                                                                            \
                STEP;                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
        EACH_CHAIN UNKNOWN(a[c]);                                                                                      \
        return n * CHAINS * (OPS);                                                                                     \
    }

#if defined(__x86_64__)

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define AVXVNNI __attribute__((target("avx2,avxvnni")))
#define AVX2 __attribute__((target("avx2,fma")))

DEFINE_CHAINS(avx512_f32, AVX512, __m512, _mm512_setzero_ps(), _mm512_set1_ps(0.5f), 16 * 2,
              a[c] = _mm512_fmadd_ps(x, y, a[c]))
DEFINE_CHAINS(avx512_int8, AVX512, __m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1), 64 * 2,
              a[c] = _mm512_dpbusd_epi32(a[c], x, y))
DEFINE_CHAINS(avxvnni_int8, AVXVNNI, __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1), 32 * 2,
              a[c] = _mm256_dpbusd_avx_epi32(a[c], x, y))
DEFINE_CHAINS(avx2_f32, AVX2, __m256, _mm256_setzero_ps(), _mm256_set1_ps(0.5f), 8 * 2,
              a[c] = _mm256_fmadd_ps(x, y, a[c]))
// Without dot products: pairs of products in 16 bits, pairs of those in 32, and a sum.
DEFINE_CHAINS(avx2_int8, AVX2, __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1), 32 * 2,
              a[c] = _mm256_add_epi32(a[c], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1))))
// Of nibbles, 16 bits hold eight pairs.
DEFINE_CHAINS(
    avx2_nibbles, AVX2, __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1), 8 * 32 * 2,
    __m256i pairs = _mm256_maddubs_epi16(x, y);
    for (int i = 1; i < 8; i++) {
        UNKNOWN(x);
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(x, y));
    } a[c] = _mm256_add_epi32(a[c], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))

#elif defined(__aarch64__)

#define NEON
#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define I8MM __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))

DEFINE_CHAINS(neon_f32, NEON, float32x4_t, vdupq_n_f32(0), vdupq_n_f32(0.5f), 4 * 2, a[c] = vfmaq_f32(a[c], x, y))
// Without dot products: products in 16 bits, and sums of their pairs in 32.
DEFINE_CHAINS(neon_int8, NEON, int32x4_t, vdupq_n_s32(0), vdupq_n_s32(0x01010101), 16 * 2,
              int8x16_t p = vreinterpretq_s8_s32(x);
              int8x16_t q = vreinterpretq_s8_s32(y); int16x8_t low = vmull_s8(vget_low_s8(p), vget_low_s8(q));
              a[c] = vpadalq_s16(a[c], vmlal_s8(low, vget_high_s8(p), vget_high_s8(q))))
DEFINE_CHAINS(dotprod_int8, DOTPROD, int32x4_t, vdupq_n_s32(0), vdupq_n_s32(0x01010101), 16 * 2,
              a[c] = vdotq_s32(a[c], vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y)))
DEFINE_CHAINS(i8mm_int8, I8MM, int32x4_t, vdupq_n_s32(0), vdupq_n_s32(0x01010101), 32 * 2,
              a[c] = vmmlaq_s32(a[c], vreinterpretq_s8_s32(x), vreinterpretq_s8_s32(y)))

#endif

struct set {
    const char *isa;
    int64_t (*chains[3])(int64_t); // the last null where nibbles are multiplied as bytes are
};

const set sets[] = {
#if defined(__x86_64__)
    {"avx512", {avx512_f32, avx512_int8, nullptr}},
    {"avxvnni", {avx2_f32, avxvnni_int8, nullptr}},
    {"avx2", {avx2_f32, avx2_int8, avx2_nibbles}},
#elif defined(__aarch64__)
    {"i8mm", {neon_f32, i8mm_int8, nullptr}},
    {"dotprod", {neon_f32, dotprod_int8, nullptr}},
    {"neon", {neon_f32, neon_int8, nullptr}},
#endif
    {"", {nullptr, nullptr, nullptr}},
};

} // namespace

int64_t limits_chains(const char *isa, int of, int64_t n) {
    for (const set &s : sets)
        if (s.chains[of] != nullptr && strcmp(s.isa, isa) == 0)
            return s.chains[of](n);
    return 0;
}
