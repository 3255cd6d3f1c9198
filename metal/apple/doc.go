// Package apple is the provider that executes Plans on Apple's GPUs, in plain Objective-C.
//
// A step becomes a command buffer for each of the Plan's, up to three in flight, with one
// concurrent pass in each and barriers where the Plan has them (instance.m). Metal tracks no
// resource of ours; one fence orders the passes, also across command buffers. Both
// processors see the same memory: weights are pages of the mapped file (apple.m).
//
// The device holds a host device for the dispatches that a Plan gives to the CPU, whose
// functions come with the options. Two shared events join them: the GPU signals the end of
// each command buffer, the CPU that of its part; the command buffer behind it is encoded
// and committed before the CPU begins.
//
// Opening asks for a GPU of family Apple7; package metal then asks it for the known answer of
// a small kernel. Each kernel that a Plan names is compiled by itself, from a text in which
// macros stand for its function constants, several at a time, and the GPU's code is kept in
// an archive of its own for the next process (pipelines.m). All memory of a device is in one
// residency set, since a queue takes 32, and a thread asks for its residency as long as
// there is an instance.
//
// A command buffer that fails is an error of its first dispatch, or, with the option debug,
// of the one it was at, by the signposts of its passes. Metal may ignore what its queue is
// given afterwards, so the next step makes a new one. A command buffer that signals nothing
// is looked at every 20 ms, and given up after the timeout of the options: that step and
// those after it fail, until the GPU has let go.
//
// The sources use neither blocks nor literals nor automatic counting, so that gcc compiles
// them too. Under the tag fakemetal they run on Linux over metal/internal/fakemetal, whose
// pipelines are emulated kernels. Other builds have no provider here, and [Provider]
// returns nil.
package apple

import "unsafe"

// Sources are kernels to be compiled by Metal, in memory of C that is never freed.
type Sources struct {
	Files         unsafe.Pointer // const smelt_source*
	FileCount     int
	Functions     unsafe.Pointer // const smelt_function*
	FunctionCount int
}
