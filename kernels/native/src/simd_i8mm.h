// NEON with products of matrices of bytes (FEAT_I8MM): SMMLA multiplies eight elements of
// two rows with those of two tokens, twice the products of SDOT. Rows as they lie in the
// file, and single tokens, stay with SDOT. USDOT has no use here, since every weight fits a
// signed byte.

constexpr const char *ISA = "i8mm";
constexpr int INT_TOKENS = 4;
constexpr bool DOTS_DIFFER = false; // by Range

#include "vectors_neon.h"

#include "dot_neon.h"
#include "whole_neon.h"

// A panel as panel.h has it, but with eight elements of a row side by side, so that two
// words of W rows, 2·W words in all, are rows 0 and 1, then rows 2 and 3.
INLINE void panel_order(Q &a, Q &b, Q &c, Q &d) {
    uint64x2_t r0 = vreinterpretq_u64_u8(a), r1 = vreinterpretq_u64_u8(b);
    uint64x2_t r2 = vreinterpretq_u64_u8(c), r3 = vreinterpretq_u64_u8(d);
    a = vreinterpretq_u8_u64(vzip1q_u64(r0, r1));
    b = vreinterpretq_u8_u64(vzip1q_u64(r2, r3));
    c = vreinterpretq_u8_u64(vzip2q_u64(r0, r1));
    d = vreinterpretq_u8_u64(vzip2q_u64(r2, r3));
}
INLINE void panel_words(Q &a, Q &b, Q &c, Q &d) {
    transpose4(a, b, c, d); // back into rows
    panel_order(a, b, c, d);
}
INLINE int panel_place(int i, int row) { return i / 2 * 2 * ROWS + 2 * row + i % 2 * W; }

template <Range R, int T> struct Products {
    static_assert(T % 2 == 0, "tokens go in pairs");
    static constexpr int STEPS = T / 2;
    I sum[STEPS][2]; // [row][token] of a pair of tokens: rows 0 and 1, rows 2 and 3
    MEMBER void start(const int32_t from[T]) {
        UNROLL for (int p = 0; p < STEPS; p++) {
            int32x2_t both = vset_lane_s32(from[2 * p + 1], vdup_n_s32(from[2 * p]), 1);
            sum[p][0] = sum[p][1] = vcombine_s32(both, both);
        }
    }
    MEMBER void add(int p, Q w0, Q w1, const int8_t *x, const uint64_t place[T]) {
        int8x16_t v = vcombine_s8(vld1_s8(x + 32 * place[2 * p]), vld1_s8(x + 32 * place[2 * p + 1]));
        sum[p][0] = vmmlaq_s32(sum[p][0], vreinterpretq_s8_u8(w0), v);
        sum[p][1] = vmmlaq_s32(sum[p][1], vreinterpretq_s8_u8(w1), v);
    }
    MEMBER I finish(int t, int32_t) const {
        const I(&s)[2] = sum[t / 2];
        return t % 2 == 0 ? vuzp1q_s32(s[0], s[1]) : vuzp2q_s32(s[0], s[1]);
    }
};
