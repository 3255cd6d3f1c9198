// AVX2 with FMA and F16C, as processors from 2013 on have it.

constexpr const char *ISA = "avx2";
constexpr int INT_TOKENS = 4;
constexpr uint64_t DISTANCE = 4096; // measured: a Zen 5 reads faster than with 2 KB, a Xeon no slower
constexpr bool DOTS_DIFFER = true;  // by Range
constexpr int SIGNED_BIAS = 0;

#include "vectors_avx2.h"

// maddubs adds two products in 16 bits: up to 8 × 2 products of a nibble and
// 127, or 2 × 2 of six bits, fit; of eight signed bits only one pair does.
template <Range R> struct Dot {
    I sum;
    MEMBER void start(int32_t) { sum = _mm256_setzero_si256(); }
    INLINE I pairs(Q w, Q x) {
        if (R == Range::SIGNED)
            return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
        return _mm256_maddubs_epi16(w, x);
    }
    INLINE I widen(I v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }
    // Adds pairs of products, after all that were added before: compilers make a tree of a chain
    // of sums, whose leaves find no registers.
    MEMBER void add(I v) {
        sum = R == Range::NIBBLE ? _mm256_add_epi16(sum, v) : i_add(sum, widen(v));
        asm("" : "+x"(sum));
    }
    MEMBER void one(Q w, Q x) { add(pairs(w, x)); }
    MEMBER void two(Q w0, Q x0, Q w1, Q x1) {
        if (R == Range::SIX_BITS) {
            add(_mm256_add_epi16(pairs(w0, x0), pairs(w1, x1)));
            return;
        }
        one(w0, x0);
        one(w1, x1);
    }
    MEMBER void words(Q w0, Q w1, const int8_t *x) { two(w0, q_same4(x), w1, q_same4(x + 4)); }
    // Of absolute values and signs.
    MEMBER void begin(const int32_t *negative) { sum = q_load(reinterpret_cast<const uint8_t *>(negative)); }
    MEMBER void apart(Q w, Q s, Q x) { add(_mm256_maddubs_epi16(w, _mm256_xor_si256(x, s))); }
    MEMBER I finish(int32_t from) const { return i_add(R == Range::NIBBLE ? widen(sum) : sum, i_set1(from)); }
};

// w·x is |w|·(x xor s), where the sign s of w is 0 or −1, and |w| more where it is negative. Two such
// products fit 16 bits, as |w| ≤ 128 and −128 ≤ (x xor s) ≤ 127. A Zen 5 does twice as many xor as
// vpsignb.
template <> struct Signs<Range::SIGNED> {
    static constexpr bool SPLIT = true;

    // Makes vectors of words absolute values, n of them that are `apart` bytes apart, puts their
    // signs in their places, and sums up for each row what is negative, less its sign.
    INLINE void split(uint8_t *words, uint8_t *signs, size_t apart, int n, int32_t *negative) {
        Q pairs = _mm256_setzero_si256(); // of 16 bits, to which each adds up to 256
        for (int i = 0; i < n; i++, words += apart, signs += apart) {
            const Q w = q_load(words), s = _mm256_cmpgt_epi8(_mm256_setzero_si256(), w), size = _mm256_abs_epi8(w);
            q_store(words, size), q_store(signs, s);
            pairs = _mm256_sub_epi16(pairs, _mm256_maddubs_epi16(size, s));
        }
        q_store(reinterpret_cast<uint8_t *>(negative), _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
};

#include "panel.h"
#include "whole_x86.h"
