// Four products of signed bytes at a time, by SDOT.
template <Range R> struct Dot {
    I sum;
    MEMBER void start(int32_t from) { sum = i_set1(from); }
    MEMBER void one(Q w, Q x) { sum = vdotq_s32(sum, vreinterpretq_s8_u8(w), vreinterpretq_s8_u8(x)); }
    MEMBER void two(Q w0, Q x0, Q w1, Q x1) {
        one(w0, x0);
        one(w1, x1);
    }
    MEMBER void words(Q w0, Q w1, const int8_t *x) {
        int8x8_t v = vld1_s8(x);
        sum = vdotq_lane_s32(sum, vreinterpretq_s8_u8(w0), v, 0);
        sum = vdotq_lane_s32(sum, vreinterpretq_s8_u8(w1), v, 1);
    }
    MEMBER I finish(int32_t) const { return sum; }
};
