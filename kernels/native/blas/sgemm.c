//go:build (darwin && arm64) || openblas

#include "sgemm.h"

#ifdef __APPLE__
#include <Accelerate/Accelerate.h>
#else
#include <cblas.h>
#endif

void smelt_sgemm(uint32_t tokens, uint32_t rows, uint32_t k, const float *x, uint64_t x_stride, const float *w,
                 float *out) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)tokens, (int)rows, (int)k, 1, x, (int)x_stride, w, (int)k,
                0, out, (int)rows);
}
