// What the four bits of a code stand for: those of IQ4_NL and IQ4_XS, and twice the numbers of
// MXFP4, so that they are whole. Tables of ggml-common.h.

constexpr int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t MXFP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
