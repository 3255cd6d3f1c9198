// What a launch of a kernel is told, for the .metal sources and the native kernels: types of
// weights by number, and parameter structs.
#ifndef SMELT_KERNELS_PARAMS_H
#define SMELT_KERNELS_PARAMS_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

// Values of the weight-type function constants: the numbers of dtype.Type.
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

#include "params.gen.h"

#endif
