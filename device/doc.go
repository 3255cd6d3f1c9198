// Package device executes Plans: it holds devices, their memory and the running of
// steps.
//
// A [Device] is opened by name. The names are those of a table of [Row], which the package of
// each device extends when it is initialised: device/cpu adds "cpu", native SIMD kernels on a
// thread pool; device/emu adds "emu", every kernel from its .metal source, the reference in tests;
// package metal adds "metal", Apple's GPUs. "auto" stands for the first available of these;
// [Resolve] returns which one, before anything is compiled.
//
// [Device.Load] turns a Plan and a model's weights into an [Executable], whose tables
// are flattened into C memory once. An [Instance] is one user of it, with its own caches,
// arena, and buffers for inputs and outputs. [Instance.Run] executes a step in a single call
// through the one C interface, device/provider/device.h. The call passes sizes; C
// evaluates grids and parameters, checks every binding against its buffer, and
// only then starts to run. Nothing is allocated per dispatch.
//
//	d, err := device.Open("cpu", device.Options{})
//	executable, err := d.Load(plan, file.Tensor)
//	instance, err := executable.NewInstance(1)
//	step := device.Step{Phase: 0, Sizes: sizes, Inputs: map[string][]int32{"tokens": {1, 2}, …}}
//	err = instance.Run(ctx, &step)
//	logits, err := instance.Output("logits")
//
// [Device.Launch] runs one kernel without a Plan: tests of kernels use it to run on a GPU.
//
// # A device
//
// A device is a [Driver], which allocates memory, loads Plans and runs steps, and a row,
// which holds its name, the target of its Plans, and its own options. Those are passed as keys
// and values in [Options.Own]; an unknown key is an error. A driver is written in Go (toy_test.go
// has one), or in C behind device.h and wrapped by provider.Open, as package host, in C++, and
// metal/apple are.
//
// [Open] returns [ErrUnavailable] where the build cannot execute anything, and [ErrAbsent] where
// the machine has no such device.
//
// # Laws
//
// The device keeps the Plan's order: it reorders dispatches only between barriers, and
// executes command buffers one after the other. A step whose sizes or inputs are
// wrong is rejected before it has changed anything; a step that fails or is
// cancelled midway leaves its caches undefined at the slots it was to write, and
// the device usable.
//
// Weights are read in place, without a copy. The pages of a mapped file are prefetched while the
// first step runs, in the order in which it reads them. The memory that the Fetch given to Load
// returns, as a rule a mapped file, must stay readable and unchanged until
// [Executable.Close]. Weights are copied only where the Plan reads another type than the file's.
//
// On "cpu" the matrices that the Plan marks are also rearranged, one after the other, once a
// first step has run: copied into large pages, in the order that the native kernels read fastest.
// The copy replaces the file's pages, which are dropped where [Options.Mapped] allows it; vectors
// between them are copied when the executable is loaded, as reading them would fault the pages in
// again. A step uses the copies that are ready when it begins; its results are bit-identical with
// and without them.
//
// Memory is allocated once, when an executable or an instance is made, after a check that the
// machine has it ([MemoryError]). The system commits pages of caches and arenas when they are
// touched.
//
// Everything is closed explicitly, children with their parents, and closing twice is harmless;
// methods of closed objects return [ErrClosed]. A device runs one step at a time on
// all its threads; several goroutines may use instances of one device, and take turns.
package device
