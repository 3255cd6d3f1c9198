// Package host is the provider that executes Plans on the CPU, in C++.
//
// A step is cut into waves: the dispatches between two barriers, which do not depend on
// each other. Each dispatch of a wave is cut into units, a threadgroup or some rows of a
// native kernel, and the units are handed to a pool of threads that spin a little between
// waves and then sleep (pool.cc): a wave of a small model lasts microseconds, less than
// waking a thread takes. The thread that ends a wave prepares the next. A thread whose
// processor a neighbour wants gives it up between two units, so that nobody waits for units
// that it holds. Where memory has several nodes, each node's threads begin with units of
// their own, and the weights that these read lie there (nodes.cc).
//
// What a launch is, its grid, parameters and the addresses of its buffers, is resolved
// once a step from the Plan's tables, and every binding is checked against its buffer
// before anything runs (instance.cc). A kernel is native where the table of package
// kernels/native has it and covers the launch, else emulated (executable.cc).
//
// The matrices that a Plan marks are copied into the order that native kernels read
// fastest, one after the other, and the pages of the file that they take the place of are
// given back (rearranged.cc): by the pool before each step but the first, for as long as
// the step before took, and by a thread of its own while no step comes. A step takes the
// copies that are ready when it begins; no bit of its results depends on which.
//
// Beside a GPU the same code is half a device ([Half]): it resolves launches for both
// processors, and runs the dispatches that are the CPU's.
//
// Packages cpu and emu are devices of it ([Open]), with native kernels and without.
package host
