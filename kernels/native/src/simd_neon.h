// NEON without dot products, as every arm64 processor has it.

constexpr const char *ISA = "neon";
constexpr int INT_TOKENS = 4;
constexpr bool DOTS_DIFFER = false; // by Range

#include "vectors_neon.h"

// Two products of 128·127 still fit 16 bits.
template <Range R> struct Dot {
    I sum;
    MEMBER void start(int32_t) { sum = vdupq_n_s32(0); }
    MEMBER void one(Q w, Q x) {
        int8x16_t a = vreinterpretq_s8_u8(w), b = vreinterpretq_s8_u8(x);
        int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
        sum = vpadalq_s16(sum, vpaddq_s16(low, high));
    }
    MEMBER void two(Q w0, Q x0, Q w1, Q x1) {
        one(w0, x0);
        one(w1, x1);
    }
    MEMBER void words(Q w0, Q w1, const int8_t *x) { two(w0, q_same4(x), w1, q_same4(x + 4)); }
    MEMBER I finish(int32_t from) const { return i_add(sum, i_set1(from)); }
};

#include "panel.h"
#include "whole_neon.h"
