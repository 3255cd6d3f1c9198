// Loops over a thread's arrays. Registers have no addresses: an array is kept in them only
// where every index is known when the kernel is compiled, and else lies in memory. UNROLL
// before a loop whose variable indexes such an array makes its index known; the lint asks
// for it, and for a number of turns that the compiler knows.
#ifndef SMELT_KERNELS_UNROLL_H
#define SMELT_KERNELS_UNROLL_H

#define UNROLL _Pragma("clang loop unroll(full)")

#endif
