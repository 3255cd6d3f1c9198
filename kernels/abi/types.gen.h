// clang-format off
// Code generated from ir/dtype by go test ./kernels -run Types -update. DO NOT EDIT.
//
// Types of weights: their numbers, which function constants have, and their blocks, for native
// kernels; and the numbers that codes name, of models/quant.
#ifndef SMELT_KERNELS_TYPES_GEN_H
#define SMELT_KERNELS_TYPES_GEN_H

#define SMELT_NONE 0
#define SMELT_F32 1
#define SMELT_F16 2
#define SMELT_BF16 3
#define SMELT_Q8_0 6
#define SMELT_Q4_0 7
#define SMELT_Q4_1 8
#define SMELT_Q5_0 9
#define SMELT_Q5_1 10
#define SMELT_Q2_K 11
#define SMELT_Q3_K 12
#define SMELT_Q4_K 13
#define SMELT_Q5_K 14
#define SMELT_Q6_K 15
#define SMELT_MXFP4 16
#define SMELT_IQ4_NL 17
#define SMELT_IQ4_XS 18
#define SMELT_MLX4 19
#define SMELT_MLX8 20

#define SMELT_LINES 128 // is added to a type

// X(name, elements of a block, bytes of one)
#define SMELT_TYPES(X) \
    X(F32, 1, 4) \
    X(F16, 1, 2) \
    X(BF16, 1, 2) \
    X(Q8_0, 32, 34) \
    X(Q4_0, 32, 18) \
    X(Q4_1, 32, 20) \
    X(Q5_0, 32, 22) \
    X(Q5_1, 32, 24) \
    X(Q2_K, 256, 84) \
    X(Q3_K, 256, 110) \
    X(Q4_K, 256, 144) \
    X(Q5_K, 256, 176) \
    X(Q6_K, 256, 210) \
    X(MXFP4, 32, 17) \
    X(IQ4_NL, 32, 18) \
    X(IQ4_XS, 256, 136) \
    X(MLX4, 64, 36) \
    X(MLX8, 64, 68)

#define SMELT_IQ4_VALUES \
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define SMELT_E2M1_VALUES \
    0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12

#endif
