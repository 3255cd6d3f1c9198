// Package host is the provider that executes Plans on the CPU, in C++.
//
// A step is cut into waves: the dispatches between two barriers, which do not depend on
// each other. Each dispatch of a wave is cut into units, a threadgroup or some rows of a
// native kernel, which a pool of threads executes. Threads spin between waves before they sleep
// (pool.cc): a wave of a small model lasts microseconds, less than waking a thread takes. The
// thread that ends a wave prepares the next. A thread that the system preempts yields its
// processor between units from then on, so that no thread waits for units that it holds. With
// several memory nodes, each node's threads begin with units of their own, whose weights are in
// the node's memory (nodes.cc).
//
// The grid, parameters and buffer addresses of each launch are resolved once per step from the
// Plan's tables, and every binding is checked against its buffer before anything runs
// (instance.cc). A kernel runs natively where package kernels/native has one that covers the
// launch, else emulated (executable.cc).
//
// The matrices that a Plan marks are copied into the order that native kernels read fastest, one
// after the other, and the file's pages that they replace are dropped (rearranged.cc): by the pool
// before each step but the first, for as long as the step before took, and by a background thread
// while no step runs. A step uses the copies that are ready when it begins; its results are
// bit-identical with and without them.
//
// Beside a GPU the same code is half a device ([Half]): it resolves launches for both
// processors, and runs the dispatches that the Plan places on the CPU.
//
// Packages cpu and emu are its devices ([Open]), with and without native kernels.
package host
