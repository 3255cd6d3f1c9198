// What the probes of package limits run.
#ifndef SMELT_LIMITS_PEAKS_H
#define SMELT_LIMITS_PEAKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What is multiplied: floats, bytes, or bytes below 16 with bytes.
enum { LIMITS_F32 = 0, LIMITS_INT8 = 1, LIMITS_NIBBLES = 2 };

// limits_chains runs n rounds of an instruction set's multiply-adds and returns the
// operations done, or 0 where this build has none, or none of their own for nibbles.
int64_t limits_chains(const char *isa, int of, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
