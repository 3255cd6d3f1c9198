// Package metal executes Plans: it holds devices, their memory and the running of
// steps.
//
// A [Device] is opened by name: "cpu" runs native SIMD kernels on a thread pool
// and falls back to the emulation of a kernel it has no native version of; "emu"
// runs every kernel from its .metal source on the CPU, and is the referee in
// tests; "metal" is Apple's GPU; "auto" is that where there is one, else "cpu", as
// [Resolve] tells before anything is compiled.
// [Device.Load] turns a Plan and a model's weights into an [Executable], whose tables
// are flattened into C memory once. An [Instance] is one user of it, with caches, an
// arena and buffers for inputs and outputs of its own. [Instance.Run] executes a
// step in a single call through the one C interface, device/provider/device.h. The call passes sizes; C
// evaluates grids and parameters, checks every binding against its buffer, and
// only then starts to run. Nothing is allocated per dispatch.
//
//	device, err := metal.Open("cpu", metal.Options{})
//	executable, err := device.Load(plan, file.Tensor)
//	instance, err := executable.NewInstance(1)
//	step := metal.Step{Phase: 0, Sizes: sizes, Inputs: map[string][]int32{"tokens": {1, 2}, …}}
//	err = instance.Run(ctx, &step)
//	logits, err := instance.Output("logits")
//
// [Device.Launch] runs one kernel without a Plan: tests of kernels use it to run on a GPU.
//
// # Providers
//
// The C interface, in package provider, is a table of functions with two providers: that
// of package host, in C++, hands the units of kernels to threads, wave by wave; that of
// package apple, in Objective-C, encodes command buffers, and holds a host beside it for
// the dispatches that a Plan gives to the CPU. There, products of float weights and
// several tokens are the BLAS's (kernels/native/blas), in scratch that the Plan's arena
// holds. A GPU that does not answer within [Options.Timeout] is given up: that step and
// those after it return [ErrLost].
//
// On Linux the same Objective-C runs over internal/fakemetal, under the tag fakemetal,
// whose device "metal" is made of emulated kernels. Elsewhere without cgo, or where a
// build has no bridge, [Open] returns [ErrUnavailable] or [ErrNoMetal].
//
// # Laws
//
// The Plan decides: the device reorders dispatches only between barriers, and
// orders command buffers one after the other. A step whose sizes or inputs are
// wrong is refused before it has changed anything; a step that fails or is
// cancelled midway leaves its caches undefined at the slots it was to write, and
// the device usable.
//
// Weights are used where they lie. The pages of a mapped file are asked for while the
// first step runs, in the order in which it wants them. What the function given to Load
// returns, as a rule a mapped file, must stay readable and unchanged until
// [Executable.Close]. Only what the Plan wants in another type than the file's is
// copied. On "cpu" the matrices that the Plan marks are copied too, one after the other,
// once a first step has run: in the order that the native kernels read fastest, in large
// pages. The copy takes the place of the file's pages, which are dropped where
// [Options.Mapped] allows it; vectors between them are copied at once, as reading them
// would bring the pages back. A step takes the copies that are ready when it begins, and
// no bit of its results depends on which.
//
// Memory is asked for once, when an executable or an instance is made, and after
// checking that the machine has it ([MemoryError]). Pages of caches and arenas are
// given out by the system as they are touched.
//
// Everything is closed explicitly, children with their parents, and twice does no
// harm; what is closed returns [ErrClosed]. A device runs one step at a time and
// uses all its threads for it; instances of one device may be used from several
// goroutines, and take turns.
package device
