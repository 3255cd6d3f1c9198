// Package metal executes Plans: it holds devices, their memory and the running of
// steps.
//
// A [Device] is opened by name: "cpu" runs native SIMD kernels on a thread pool
// and falls back to the emulation of a kernel it has no native version of; "emu"
// runs every kernel from its .metal source on the CPU, and is the referee in
// tests; "metal" is Apple's GPU; "auto" is the best of those at hand.
// [Device.Load] turns a Plan and a model's weights into a [Program], whose tables
// are flattened into C memory once. A [Session] is one user of it, with caches, an
// arena and buffers for inputs and outputs of its own. [Session.Run] executes a
// step in a single call through the C interface in device.h, which every provider
// of kernels implements: here that of the host, in C++. The call passes sizes; C
// evaluates grids and parameters, checks every binding against its buffer, and
// only then starts to run. Nothing is allocated per dispatch.
//
//	device, err := metal.Open("auto", metal.Options{})
//	program, err := device.Load(plan, file.Tensor)
//	session, err := program.NewSession(1)
//	step := metal.Step{Phase: 0, Sizes: sizes, Inputs: map[string][]int32{"tokens": {1, 2}, …}}
//	err = session.Run(ctx, &step)
//	logits, err := session.Output("logits")
//
// # Laws
//
// The Plan decides: the device reorders dispatches only between barriers, and
// orders command buffers one after the other. A step whose sizes or inputs are
// wrong is refused before it has changed anything; a step that fails or is
// cancelled midway leaves its caches undefined at the slots it was to write, and
// the device usable.
//
// Weights are used where they lie. What the function given to Load returns, as a
// rule a mapped file, must stay readable and unchanged until [Program.Close]. Only
// what the Plan wants in another type than the file's is copied.
//
// Memory is asked for once, when a program or a session is made, and after
// checking that the machine has it ([MemoryError]). Pages of caches and arenas are
// given out by the system as they are touched.
//
// Everything is closed explicitly, children with their parents, and twice does no
// harm; what is closed returns [ErrClosed]. A device runs one step at a time and
// uses all its threads for it; sessions of one device may be used from several
// goroutines, and take turns.
package metal
