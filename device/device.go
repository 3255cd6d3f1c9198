package device

import (
	"cmp"
	"fmt"
	"math"
)

// Options configure a device. The zero value is right for production.
type Options struct {
	Threads int // DefaultThreads if 0

	// Own are options of the device that is opened, by key: those of its [Row].
	Own map[string]string

	// Debug has a fault name its dispatch, and not only those of its command buffer, at the
	// cost of a mark for each where a GPU runs them.
	Debug bool

	// Poison and Seed are for tests. Poison fills the arena and the outputs before each
	// step with NaN, and in an emulator threadgroup memory too. Seed decides orders that
	// are shuffled.
	Poison bool
	Seed   uint32

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
	Name      string // of its Row
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

// Device executes Plans.
type Device struct {
	driver Driver
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

// Open opens a registered device by name, as [Resolve] reads it. It returns ErrUnavailable
// where the build cannot execute anything, ErrAbsent where the machine has no such device,
// ErrOption where the device has none of that key, and ErrDevice for an unknown name.
func Open(name string, opts Options) (*Device, error) {
	r, _, err := resolve(name)
	if err != nil {
		return nil, err
	}
	return r.open(opts, r.Check)
}

// Describe tells what a device is that runs so many threads, 0 for DefaultThreads, without
// using it. Errors are Open's.
func Describe(name string, threads int) (Info, error) {
	r, _, err := resolve(name)
	if err != nil {
		return Info{}, err
	}
	d, err := r.open(Options{Threads: threads}, nil)
	if err != nil {
		return Info{}, err
	}
	return d.info, d.Close()
}

func (r Row) open(opts Options, check func(launch func(Launch) error) error) (*Device, error) {
	if opts.Threads < 0 || opts.Threads > maxThreads {
		return nil, fmt.Errorf("device: %d threads; 1 to %d are possible", opts.Threads, maxThreads)
	}
	if opts.Threads == 0 {
		opts.Threads = DefaultThreads()
	}
	err := r.accepts(opts.Own)
	var driver Driver
	if err == nil {
		driver, err = r.Open(opts)
	}
	if err != nil {
		return nil, fmt.Errorf("device: opening %s: %w", r.Name, err)
	}
	info := driver.Info()
	info.Name, info.Processor = r.Name, processor()
	d := &Device{driver: driver, info: info, opts: opts, turn: make(chan struct{}, 1), executables: map[*Executable]struct{}{}}
	if check != nil {
		if err := check(d.launch); err != nil {
			d.Close()
			return nil, fmt.Errorf("device: opening %s: %w", cmp.Or(info.GPU, r.Name), err)
		}
	}
	return d, nil
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
	d.driver.Close()
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
