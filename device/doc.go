// Package device executes Plans: it holds devices, their memory and the running of
// steps.
//
// A [Device] is opened by name. Which there are is a table of [Row], to which a device's
// package adds its own when it is initialised: device/cpu "cpu", native SIMD kernels on a
// thread pool; device/emu "emu", every kernel from its .metal source, the referee in tests;
// package metal "metal", Apple's GPUs. "auto" is the first of its choices that there is, as
// [Resolve] tells before anything is compiled.
// [Device.Load] turns a Plan and a model's weights into an [Executable], whose tables
// are flattened into C memory once. An [Instance] is one user of it, with caches, an
// arena and buffers for inputs and outputs of its own. [Instance.Run] executes a
// step in a single call through the one C interface, device/provider/device.h. The call passes sizes; C
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
// which names it, the target of the Plans that are compiled for it, and the options that it
// alone has. These come as keys and values in [Options.Own]; another key is refused, by
// name. A driver may be written in Go (toy_test.go has one), or in C behind device.h, which
// provider.Open makes a driver of: so are package host, in C++, and metal/apple.
//
// Where a build can execute nothing, [Open] returns [ErrUnavailable]; where a machine has no
// such device, [ErrAbsent].
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
