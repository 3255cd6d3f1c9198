// The only BLAS function that the kernels use.
#ifndef SMELT_KERNELS_NATIVE_SGEMM_H
#define SMELT_KERNELS_NATIVE_SGEMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// out[tokens, rows] = x[tokens, k] · w[rows, k]ᵀ; rows of x lie x_stride floats apart.
void smelt_sgemm(uint32_t tokens, uint32_t rows, uint32_t k, const float *x, uint64_t x_stride, const float *w,
                 float *out);

#ifdef __cplusplus
}
#endif
#endif
