// Loops over a thread's arrays. Registers have no addresses: an array stays in registers only
// if every index is a compile-time constant, and spills to memory otherwise. UNROLL before a
// loop whose variable indexes such an array makes the index constant; the lint requires it,
// and a trip count that the compiler knows.
#ifndef SMELT_KERNELS_UNROLL_H
#define SMELT_KERNELS_UNROLL_H

#define UNROLL _Pragma("clang loop unroll(full)")

#endif
