// Package limits measures what this machine could do at most: how fast all threads
// together read memory, and how many operations a second they do when they only
// multiply and add in registers. A kernel's rates mean something beside these.
//
//   - Read bandwidth: every thread sums its share of a buffer that is larger than
//     the usual caches, in every [Way] that there is: loads of each width that the
//     processor has, one stream or several, with prefetches or without, on huge pages
//     or small ones. The best of the ways counts, whichever instruction set the kernels
//     use: it is the machine's limit and not a kernel's. A [Reader] keeps the buffers
//     for measuring it beside other things.
//   - Peaks of f32, int8 and nibbles: every thread runs twelve independent chains of the
//     multiply-add that the native kernels of an instruction set are made of. A
//     multiply-add counts as two operations.
//
// Each is the best of a few short trials, since neighbours on a shared machine only
// make it lower. A probe takes about a second and, for its time, the memory of its
// buffers.
package limits
