package device

import (
	"fmt"
	"math"
)

// Options configure a device. The zero value is right for production.
type Options struct {
	Threads int // DefaultThreads if 0

	// Own holds the device's own options, those of its [Row], by key.
	Own map[string]string

	// Debug makes an error name the dispatch that failed, not only its command buffer. On a
	// GPU it costs a signpost per dispatch.
	Debug bool

	// Poison and Seed are for tests. Poison fills the arena and the outputs before each
	// step with NaN, and in an emulator threadgroup memory too. Seed seeds shuffled orders.
	Poison bool
	Seed   uint32

	// Rearrange is the time at which the matrices that the Plan marks are copied into the order
	// that the CPU's kernels read fastest. Results do not depend on it.
	//
	// Mapped promises that weights are mappings of files that nobody writes to, so that the
	// pages of rearranged weights can be dropped and read from the file again. Without it a GPU
	// gets copies: it maps whole pages, which in Go's heap hold more than a weight.
	Rearrange Rearrange
	Mapped    bool

	// MemoryLimit bounds the bytes that executables and instances allocate; 0 stands for the
	// memory that is free at the time.
	MemoryLimit int64
}

// Rearrange is a time at which weights are rearranged.
type Rearrange uint32

// Times to rearrange weights. RearrangeLater costs the first step nothing, and halves the speed of
// later ones until it is done.
const (
	RearrangeLater Rearrange = iota // between steps, once one has run
	RearrangeNow                    // when the executable is loaded
	RearrangeNever
)

// maxThreads bounds Options.Threads, so that a mistyped number does not exhaust memory.
const maxThreads = 1024

// Info describes an open device.
type Info struct {
	Name      string // of its Row
	Processor string // the system's name of it; "" if unknown
	ISA       string // instruction set of the native kernels; empty on "emu"
	Threads   int
	Nodes     int    // memory nodes that they are spread over; at least 1
	MaxBuffer uint64 // bytes of the largest buffer

	// HalfIntegers reports whether native kernels round F16 weights, and the activations
	// multiplied with them, to 16-bit integers with one scale per 64.
	HalfIntegers bool

	// The following describe a GPU.
	GPU         string // its name; empty on the host
	Family      int    // Apple's number of its family: 7 for M1
	Cores       int    // 0 if unknown
	Threadgroup int    // maximum bytes of threadgroup memory
	Page        int    // alignment in bytes of memory that is wrapped without a copy
	Samples     bool   // its clock can be read around each dispatch
	WorkingSet  uint64 // bytes that it keeps resident without paging
}

// Device executes Plans.
type Device struct {
	driver Driver
	info   Info
	opts   Options

	// turn is a lock over the fields below and those of executables and instances. It is a
	// channel, so that waiting for it can be cancelled.
	turn        chan struct{}
	closed      bool
	executables map[*Executable]struct{}
	reserved    int64 // bytes that executables and instances hold, touched or not
	inPlace     int64 // bytes of weights that a GPU reads where they are mapped
}

// Open opens the registered device that [Resolve] returns for a name. It returns ErrUnavailable
// where the build cannot execute anything, ErrAbsent where the machine has no such device,
// ErrOption for an option that the device does not have, and ErrDevice for an unknown name.
func Open(name string, opts Options) (*Device, error) {
	r, _, err := resolve(name)
	if err != nil {
		return nil, err
	}
	return r.open(opts, r.Check)
}

// Describe returns the Info of a device with that number of threads, 0 for DefaultThreads,
// without running its first check. Errors are Open's.
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
		return nil, fmt.Errorf("device %s: %d threads; the number must be from 1 to %d", r.Name, opts.Threads, maxThreads)
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
		return nil, fmt.Errorf("device %s: %w", r.Name, err)
	}
	info := driver.Info()
	info.Name, info.Processor = r.Name, processor()
	d := &Device{driver: driver, info: info, opts: opts, turn: make(chan struct{}, 1), executables: map[*Executable]struct{}{}}
	if check != nil {
		if err := check(d.launch); err != nil {
			d.Close()
			if info.GPU != "" {
				err = fmt.Errorf("%s: %w", info.GPU, err)
			}
			return nil, d.named(err)
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

// named prefixes an error with the device's name.
func (d *Device) named(err error) error { return fmt.Errorf("device %s: %w", d.info.Name, err) }

// reserve takes memory from the machine's free memory and, on a GPU, from its working set,
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

// restore releases memory taken by reserve.
func (d *Device) restore(m Memory) {
	d.reserved -= m.allocated()
	d.inPlace -= m.InPlace
}

// available returns the number of bytes that can still be allocated. The system counts
// pages as free until they are touched, so memory that is reserved and untouched is subtracted.
func (d *Device) available() int64 {
	if d.opts.MemoryLimit > 0 {
		return max(0, d.opts.MemoryLimit-d.reserved)
	}
	return max(0, availableMemory()-max(0, d.reserved-touchedMemory()))
}
