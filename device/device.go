package device

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/smelt-ml/smelt/kernels"
)

// Order is the order in which the emulator runs the threads of a threadgroup
// between barriers. A right kernel gives the same result in each.
type Order uint32

// The orders.
const (
	Ascending Order = iota
	Descending
	Shuffled // by Options.Seed
)

// Options configure a device. The zero value is right for production.
type Options struct {
	Threads int    // DefaultThreads if 0
	nodes   []node // those of this machine if nil

	// Order, Seed and Poison are for tests of kernels on "emu". Poison fills
	// threadgroup memory before each threadgroup, and the arena and the outputs
	// before each step, with NaN.
	Order  Order
	Seed   uint32
	Poison bool
	// ShuffleDispatches runs the dispatches between two barriers one by one, in an
	// order that Seed and the number of the step decide, and the threadgroups of
	// each from one end or the other, so that a missing barrier shows.
	ShuffleDispatches bool

	// Rearrange says when the matrices that the Plan marks take the order that the CPU's
	// kernels read fastest. Results do not depend on it. Mapped promises that weights are
	// mappings of files to which nobody writes, so that pages of rearranged ones may be
	// dropped: what is read again comes from the file. Of others a GPU gets a copy: it sees
	// whole pages, which in Go's heap hold more than a weight.
	Rearrange Rearrange
	Mapped    bool

	// MemoryLimit bounds in bytes what executables and instances may allocate; 0 takes
	// what the machine has free at the time.
	MemoryLimit int64

	// Library is the path of a compiled Metal library that takes the place of the
	// kernels' sources. Capture is the number, from 1 on, of the step that Metal
	// captures into CaptureFile, for Xcode. Timeout bounds a command buffer; 0 means a
	// minute. NoBLAS lets native kernels compute what the Plan places on the CPU and the
	// system's BLAS would. Debug has a fault of the GPU name its dispatch, and not only
	// those of its command buffer, at the cost of a mark for each. Archives is the folder
	// below which compiled kernels are kept: in none for "off", in the user's cache folder
	// for "". The six are for "metal".
	Library     string
	Capture     int
	CaptureFile string
	Timeout     time.Duration
	NoBLAS      bool
	Debug       bool
	Archives    string
}

// Rearrange is a time.
type Rearrange uint32

// Times to rearrange weights. The first leaves the first step its speed, and those after it
// half of theirs until it is done.
const (
	RearrangeLater Rearrange = iota // between steps, once one has run
	RearrangeNow                    // when the executable is loaded
	RearrangeNever
)

// maxThreads keeps slips from starting as many threads as there is memory.
const maxThreads = 1024

// Info describes an open device.
type Info struct {
	Name      string // "cpu", "emu" or "metal"
	Processor string // what the system calls it; "" where it does not
	ISA       string // instruction set of the native kernels; empty on "emu"
	Threads   int
	Nodes     int    // memory nodes that they are spread over; at least 1
	MaxBuffer uint64 // bytes of the largest buffer

	// HalfIntegers says that native kernels round half weights, and what is multiplied with
	// them, to integers of 16 bits with a scale for 64 of them.
	HalfIntegers bool

	// Of a GPU.
	GPU         string // its name; empty on the host
	Family      int    // Apple's number of its family: 7 for M1
	Cores       int    // 0 where the system does not tell
	Threadgroup int    // bytes of memory that a threadgroup may have
	Page        int    // bytes: borders of memory that is used without a copy
	Samples     bool   // its clock can be read around each dispatch
	WorkingSet  uint64 // bytes that it keeps resident without paging
}

// Names lists what Open takes.
func Names() []string { return []string{auto, "metal", "cpu", "emu"} }

const auto = "auto"

// targets holds, for each device, the target of the Plans that are made for it. Load
// takes others as well, so that tests can run one Plan on several devices.
var targets = map[string]string{"metal": "metal", "cpu": "cpu", "emu": "metal"}

// Resolve returns the device that a name of any case stands for here: for "auto" that
// is "metal" where there is one, else "cpu". Any other stands for itself, whether there
// is such a device or not. It returns ErrDevice for an unknown name.
func Resolve(name string) (string, error) {
	name, _, err := resolve(name)
	return name, err
}

// Fallback returns why the GPU of this machine is not what a name of any case stands for:
// nil for other names than "auto", where "auto" is "metal", and where the build knows of
// no GPU. Who resolves "auto" for a person tells it.
func Fallback(name string) error {
	_, why, err := resolve(name)
	if err != nil || errors.Is(why, errNoBridge) {
		return nil
	}
	return why
}

// resolve is Resolve, and why "auto" is not "metal".
func resolve(name string) (is string, why, err error) {
	name = strings.ToLower(name)
	if !slices.Contains(Names(), name) {
		return "", nil, fmt.Errorf("device: %w: %q is none of %s", ErrDevice, name, strings.Join(Names(), ", "))
	}
	if name != auto {
		return name, nil, nil
	}
	d, err := openMetal(Options{Threads: 1})
	if errors.Is(err, ErrNoMetal) {
		return "cpu", err, nil
	}
	if err == nil {
		_ = d.Close()
	}
	return "metal", nil, nil // what else is wrong with it, opening it will tell
}

// TargetOf returns the target of the Plans that are made for a device: "metal" or
// "cpu". It returns ErrDevice for an unknown name.
func TargetOf(name string) (string, error) {
	name, err := Resolve(name)
	return targets[name], err
}

// Device executes Plans.
type Device struct {
	driver driver
	info   Info
	opts   Options

	// turn is held by who uses the device: a channel, so that waiting for it can be
	// cancelled. It guards the fields below and those of executables and instances.
	turn        chan struct{}
	closed      bool
	executables map[*Executable]struct{}
	reserved    int64 // bytes that executables and instances hold, touched or not
	inPlace     int64 // bytes of weights that a GPU reads where they are mapped
}

// Open opens a device by name, as [Resolve] reads it. It returns ErrUnavailable where
// the build cannot execute anything, ErrNoMetal where "metal" was asked for and there
// is none, and ErrDevice for an unknown name.
func Open(name string, opts Options) (*Device, error) {
	name, err := Resolve(name)
	switch {
	case err != nil:
		return nil, err
	case name == "metal":
		return openMetal(opts)
	}
	return openHost(name, opts, standardSuppliers)
}

// Describe tells what a device is that runs so many threads, 0 for DefaultThreads, without
// using it. Errors are Open's.
func Describe(name string, threads int) (Info, error) {
	name, err := Resolve(name)
	if err != nil {
		return Info{}, err
	}
	var d *Device
	if name == "metal" {
		d, err = startMetal(Options{Threads: threads})
	} else {
		d, err = openHost(name, Options{Threads: threads}, standardSuppliers)
	}
	if err != nil {
		return Info{}, err
	}
	return d.info, d.Close()
}

func openMetal(opts Options) (*Device, error) {
	d, err := startMetal(opts)
	if err != nil {
		return nil, err
	}
	if err := d.try(); err != nil {
		d.Close()
		return nil, fmt.Errorf("device: opening %s: %w", d.info.GPU, err)
	}
	return d, nil
}

func startMetal(opts Options) (*Device, error) {
	return start("metal", opts, func(opts Options) (driver, error) { return newAppleDriver(opts, standardSuppliers) })
}

// try runs a first kernel. A GPU that fails at it is none; one that the kernel was not
// compiled for may be.
func (d *Device) try() error {
	t := kernels.NewTrial()
	err := d.launch(Launch{Kernel: t.Kernel, Buffers: t.Buffers, Grid: t.Grid, Group: t.Group})
	if errors.Is(err, ErrKernel) {
		return err
	}
	if err == nil {
		err = t.Verify()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoMetal, err)
	}
	return nil
}

// suppliers gives the tables of kernels for the host, as pointers to the structs of
// kernels/abi/abi.h; nil where there are none.
type suppliers func() (emulator, native unsafe.Pointer)

func openHost(name string, opts Options, from suppliers) (*Device, error) {
	return start(name, opts, func(opts Options) (driver, error) { return newHostDriver(name == "cpu", opts, from) })
}

func start(name string, opts Options, with func(Options) (driver, error)) (*Device, error) {
	if opts.Threads < 0 || opts.Threads > maxThreads {
		return nil, fmt.Errorf("device: %d threads; 1 to %d are possible", opts.Threads, maxThreads)
	}
	if opts.Order > Shuffled {
		return nil, fmt.Errorf("device: no order has the number %d", opts.Order)
	}
	if opts.Threads == 0 {
		opts.Threads = DefaultThreads()
	}
	d, err := with(opts)
	if err != nil {
		return nil, fmt.Errorf("device: opening %s: %w", name, err)
	}
	info := d.info()
	info.Name, info.Processor = name, processor()
	return &Device{driver: d, info: info, opts: opts, turn: make(chan struct{}, 1), executables: map[*Executable]struct{}{}}, nil
}

// Info describes the device.
func (d *Device) Info() Info { return d.info }

// Close closes the device with its executables and their instances, once the step
// under way has ended.
func (d *Device) Close() error {
	d.lock()
	defer d.unlock()
	if d.closed {
		return nil
	}
	for p := range d.executables {
		p.release()
	}
	d.driver.close()
	d.closed = true
	return nil
}

func (d *Device) lock()   { d.turn <- struct{}{} }
func (d *Device) unlock() { <-d.turn }

// reserve takes memory out of what is free and, of a GPU, out of what it keeps resident,
// or returns a *MemoryError.
func (d *Device) reserve(what string, m Memory) error {
	need, have := m.allocated(), d.available()
	if need > have {
		return &MemoryError{What: what, Need: need, Available: have, Parts: m}
	}
	if set := int64(min(d.info.WorkingSet, math.MaxInt64)); set > 0 {
		if left := max(0, set-d.reserved-d.inPlace); need+m.InPlace > left {
			return &MemoryError{What: what, Need: need + m.InPlace, Available: left, WorkingSet: set, Parts: m}
		}
	}
	d.reserved += need
	d.inPlace += m.InPlace
	return nil
}

// restore gives back what reserve took.
func (d *Device) restore(m Memory) {
	d.reserved -= m.allocated()
	d.inPlace -= m.InPlace
}

// available returns how many bytes may still be allocated. The system counts
// pages as free until they are touched, so what others hold and have not touched
// is subtracted.
func (d *Device) available() int64 {
	if d.opts.MemoryLimit > 0 {
		return max(0, d.opts.MemoryLimit-d.reserved)
	}
	return max(0, availableMemory()-max(0, d.reserved-touchedMemory()))
}

// driver is the C interface of package provider as Go sees it. Handles are C pointers.
type driver interface {
	info() Info
	close()
	create(bytes int64, use purpose) (handle, error)
	wrap(memory []byte) (handle, error)
	slice(whole handle, offset, bytes int64) (handle, error)
	contents(buffer handle, bytes int64) []byte
	free(buffer handle)
	rearranged(m *matrix) int64 // bytes of a matrix in the order that the CPU's kernels like
	load(t *tables, buffers []handle) (handle, error)
	natives(executable handle, kernels int) []bool
	compiled(executable handle) Compiled
	unload(executable handle)
	begin(executable handle, buffers []handle, ringStrides []uint64) (handle, error)
	end(instance handle)
	run(instance handle, s *stepRecord, c *counters, nanoseconds []uint64) error
	cancel(instance handle, yes bool)
}

type handle = unsafe.Pointer

// purpose mirrors SMELT_SHARED and what follows it.
type purpose uint32

const (
	shared purpose = iota
	dense
	sparse
)

// driverError is an error as C reports it, before it has the names of a Plan.
type driverError struct {
	code     code
	dispatch int // index in the phase, or -1
	argument int // index in the bindings, or -1
	message  string
}

func (e *driverError) Error() string { return e.message }

// code mirrors smelt_code.
type code int

const (
	codeSystem code = iota + 1
	codeMemory
	codeKernel
	codeBounds
	codeExecution
	codeCancelled
	codeLost
)

// ErrKernel is wrapped by errors about kernels that nothing provides.
var ErrKernel = errors.New("no such kernel")

// sentinel returns the error value that callers test for, if the code has one.
func (c code) sentinel() error {
	switch c {
	case codeMemory:
		return ErrMemory
	case codeKernel:
		return ErrKernel
	case codeBounds:
		return ErrStep
	case codeLost:
		return ErrLost
	}
	return nil
}
