// Package apple is the provider that executes Plans on Apple's GPUs, in plain Objective-C.
//
// A step is one Metal command buffer per command buffer of the Plan, up to three in flight, with one
// concurrent pass in each and the Plan's barriers (instance.m). Metal's hazard tracking is off; one
// fence orders the passes, also across command buffers. Both processors use the same memory:
// weights are pages of the mapped file (apple.m).
//
// The device holds a host device, whose functions are among the options, for the dispatches that a
// Plan places on the CPU. Two shared events synchronise them: the GPU signals the end of each
// command buffer, the CPU that of its part; the next command buffer is encoded and committed
// before the CPU begins.
//
// Opening requires a GPU of family Apple7; package metal then checks it with a small kernel. Each
// kernel of a Plan is compiled by itself, several at a time, from a text in which macros replace its
// function constants, and the GPU's code is kept in its own archive for the next process
// (pipelines.m). All memory of a device is in one residency set, since a queue takes 32, and a
// thread requests its residency as long as there is an instance.
//
// A failed command buffer is an error of its first dispatch or, with device.Options.Debug, of the
// dispatch that failed, by the signposts of its passes. Metal may ignore later work on that queue,
// so the next step makes a new one. A command buffer that does not signal is polled every 20 ms and
// abandoned after the timeout: that step and later ones fail until the GPU has finished it.
//
// The sources use neither blocks nor literals nor automatic reference counting, so that gcc compiles
// them too. Under the tag fakemetal they run on Linux over metal/internal/fakemetal, whose
// pipelines are emulated kernels. In other builds [Provider] returns nil.
package apple

import "unsafe"

// Sources are the kernels that Metal compiles, in C memory that is never freed.
type Sources struct {
	Files         unsafe.Pointer // const smelt_source*
	FileCount     int
	Functions     unsafe.Pointer // const smelt_function*
	FunctionCount int
}
