// AVX2 with AVX-VNNI: the dot products of AVX-512's VNNI in the registers of AVX2.

constexpr const char *ISA = "avxvnni";
constexpr int INT_TOKENS = 4;
constexpr uint64_t DISTANCE = 4096;
constexpr bool DOTS_DIFFER = false; // by Range
constexpr int SIGNED_BIAS = 128;

#include "vectors_avx2.h"

// Four products of unsigned and signed bytes at a time, summed without saturation.
template <Range R> struct Dot {
    I sum;
    MEMBER void start(int32_t from) { sum = i_set1(from); }
    MEMBER void one(Q w, Q x) { sum = _mm256_dpbusd_avx_epi32(sum, w, x); }
    MEMBER void two(Q w0, Q x0, Q w1, Q x1) {
        one(w0, x0);
        one(w1, x1);
    }
    MEMBER void words(Q w0, Q w1, const int8_t *x) { two(w0, q_same4(x), w1, q_same4(x + 4)); }
    MEMBER I finish(int32_t) const { return sum; }
};

#include "panel.h"
#include "whole_x86.h"
