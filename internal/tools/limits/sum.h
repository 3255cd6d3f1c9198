// How the probe of package limits reads memory.
#ifndef SMELT_LIMITS_SUM_H
#define SMELT_LIMITS_SUM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// limits_widths returns the widths of this processor's vectors, in bytes, or'ed together:
// each is a power of two.
int limits_widths(void);

// limits_sum adds the words of memory, whose size is a multiple of 64: in loads of width
// bytes, in 1, 2 or 4 streams, and, where ahead is not 0, with a prefetch of what lies so
// many bytes before each load. Other streams and widths give 0.
uint64_t limits_sum(const uint8_t *p, size_t bytes, int width, int streams, size_t ahead);

#ifdef __cplusplus
}
#endif

#endif
