package device

import (
	"unsafe"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Driver implements a device: memory, executables and steps. It is the Go form of device.h in
// package provider. One goroutine at a time calls a driver, except for Cancel. Errors that a
// driver can locate in a Plan are of type *[DriverError].
type Driver interface {
	Info() Info
	Close()

	// Create returns a buffer of zeroed memory whose pages are committed when touched. Wrap
	// returns a buffer over existing memory without a copy, and Slice one over part of another.
	Create(bytes int64, use Purpose) (Handle, error)
	Wrap(memory []byte) (Handle, error)
	Slice(whole Handle, offset, bytes int64) (Handle, error)
	Contents(buffer Handle, bytes int64) []byte
	Free(buffer Handle)
	// Rearranged returns the size in bytes of a matrix in the order that the device's kernels
	// read fastest.
	Rearranged(m *Matrix) int64

	// Load prepares a valid Plan. matrices and buffers are indexed by buffer of the Plan; a
	// buffer is nil where each instance has its own.
	Load(p *plan.Plan, matrices []Matrix, buffers []Handle) (executable Handle, err error)
	// Natives reports, for each of [Kernels], whether native code runs all its dispatches.
	Natives(executable Handle, kernels int) []bool
	Compiled(executable Handle) Compiled
	Unload(executable Handle)

	// Begin makes an instance. ringStrides are the bytes between the slots of an input, 0 for
	// buffers without slots.
	Begin(executable Handle, buffers []Handle, ringStrides []uint64) (instance Handle, err error)
	End(instance Handle)
	// Run executes a step, fills in c, and returns when its outputs can be read.
	// nanoseconds has an element for each dispatch of the phase; it is empty without
	// Profile.
	Run(instance Handle, s *Command, c *Counts, nanoseconds []uint64) error
	// Cancel stops the step under way, and later ones at their start, until it is called
	// with false. Any goroutine may call it.
	Cancel(instance Handle, yes bool)
}

// Handle is an opaque pointer that belongs to a driver, to memory of C or of Go.
type Handle = unsafe.Pointer

// Purpose is how a buffer is used, by which a driver chooses its pages.
type Purpose uint32

// Purposes, as in device.h.
const (
	Shared Purpose = iota // read or written by the CPU between steps
	Dense                 // used from end to end by every step
	Sparse                // fills up slowly
)

// Symbols is SMELT_SYMBOLS, the capacity of Command.Sizes; at least sym.Count.
const Symbols = 8

var _ [Symbols - sym.Count]struct{}

// MaxConstants is the maximum number of function constants of a kernel.
const MaxConstants = 32

// The types below mirror structs of device.h, field by field.
type (
	// Matrix is a weight whose rows a driver may rearrange; one with 0 rows stays as it is.
	Matrix struct {
		Rows, Columns uint64
		Type          uint32 // dtype.Type
		Stack         uint32 // matrices that lie one after the other
	}
	// Command is a step.
	Command struct {
		Phase   uint32
		Slot    uint32 // of the ring of inputs
		Profile uint32 // 1: time each dispatch by itself
		Seed    uint32 // of the order of dispatches, where that is shuffled
		Sizes   [Symbols]int64
	}
	// Totals counts what a step executed, and Ran the dispatches of one kernel.
	Totals struct{ Dispatches, Barriers, CommandBuffers, Rearranged uint32 }
	Ran    struct{ Dispatches, Native uint32 }
)

// Counts holds the totals of a step and, indexed as in [Kernels], those of each kernel.
type Counts struct {
	Totals
	Kernels []Ran
}

// DriverError is a driver's error, which has indices where a [DispatchError] has names.
type DriverError struct {
	Code     Code
	Dispatch int // index in the phase, or over all phases when loading; -1: none
	Argument int // index in the bindings; -1: none
	Message  string
}

func (e *DriverError) Error() string { return e.Message }

// Unwrap returns the exported error of the code, if there is one.
func (e *DriverError) Unwrap() error { return sentinels[e.Code] }

// Code is an smelt_code.
type Code int

// Codes, as in device.h.
const (
	CodeSystem Code = iota + 1
	CodeMemory
	CodeKernel
	CodeBounds
	CodeExecution
	CodeCancelled
	CodeLost
)

var sentinels = map[Code]error{CodeMemory: ErrMemory, CodeKernel: ErrKernel, CodeBounds: ErrStep, CodeLost: ErrLost}

// Kernels returns the host names of a Plan's kernels in the order of their first dispatch, by
// which drivers number them.
func Kernels(p *plan.Plan) []string {
	var names []string
	seen := map[string]bool{}
	for i := range p.Phases {
		for j := range p.Phases[i].Dispatches {
			if k := p.Phases[i].Dispatches[j].Kernel; !seen[k] {
				seen[k] = true
				names = append(names, k)
			}
		}
	}
	return names
}
