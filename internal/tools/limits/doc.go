// Package limits measures this machine's limits: the memory bandwidth of all threads together,
// and the operations per second of multiply-adds in registers. Kernel rates are judged against
// them.
//
//   - Read bandwidth: every thread sums its share of a buffer that is larger than the usual
//     caches, in every available [Way]: loads of each width of the processor, one stream or
//     several, with prefetch or without, on huge pages or small ones. The best way counts,
//     whichever instruction set the kernels use, because the limit is the machine's and not a
//     kernel's. A [Reader] keeps the buffers to measure it repeatedly.
//   - Peaks of f32, int8 and nibbles: every thread runs twelve independent chains of the
//     multiply-add instructions of an instruction set's native kernels. A multiply-add counts as
//     two operations.
//
// Each figure is the best of several short trials, since other load on a shared machine only
// lowers it. A probe takes about a second, and the memory of its buffers for that time.
package limits
