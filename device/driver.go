package device

import (
	"unsafe"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Driver is what [Device] asks of a device, as device.h of package provider asks it of one
// that is written in C: memory, programs and steps. A device is called by one goroutine at a
// time, but for Cancel. Errors that a driver can place in a Plan are of type *[DriverError].
type Driver interface {
	Info() Info
	Close()

	// Create returns zeroed memory whose pages cost nothing until touched, Wrap a buffer
	// of memory that stays where it is, and Slice one of a part of another.
	Create(bytes int64, use Purpose) (Handle, error)
	Wrap(memory []byte) (Handle, error)
	Slice(whole Handle, offset, bytes int64) (Handle, error)
	Contents(buffer Handle, bytes int64) []byte
	Free(buffer Handle)
	// Rearranged returns the bytes of a matrix in the order that the device's kernels read
	// fastest.
	Rearranged(m *Matrix) int64

	// Load prepares a valid Plan. matrices and buffers are by buffer of the Plan; a buffer
	// is nil where each instance has its own.
	Load(p *plan.Plan, matrices []Matrix, buffers []Handle) (executable Handle, err error)
	// Natives reports for each of [Kernels] whether native code runs all its dispatches.
	Natives(executable Handle, kernels int) []bool
	Compiled(executable Handle) Compiled
	Unload(executable Handle)

	// Begin makes an instance. ringStrides are the bytes between an input's slots, 0 for
	// buffers without slots.
	Begin(executable Handle, buffers []Handle, ringStrides []uint64) (instance Handle, err error)
	End(instance Handle)
	// Run executes a step, counts what it did, and returns when its outputs can be read.
	// nanoseconds has an element for each dispatch of the phase; it is empty without
	// Profile.
	Run(instance Handle, s *Command, c *Counts, nanoseconds []uint64) error
	// Cancel stops the step under way, and later ones at their start, until it is called
	// with false. Any goroutine may call it.
	Cancel(instance Handle, yes bool)
}

// Handle is a driver's own: a pointer, of C or of Go.
type Handle = unsafe.Pointer

// Purpose decides how the pages of a buffer come.
type Purpose uint32

// Purposes, as in device.h.
const (
	Shared Purpose = iota // read or written by the CPU between steps
	Dense                 // used from end to end by every step
	Sparse                // fills up slowly
)

// Symbols is SMELT_SYMBOLS: room for the symbols of a Plan's sizes, and more.
const Symbols = 8

var _ [Symbols - sym.Count]struct{}

// MaxConstants is how many function constants a kernel may have.
const MaxConstants = 32

// The types below mirror structs of device.h, field by field.
type (
	// Matrix is a weight whose rows a driver may rearrange; one of no rows is left alone.
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
	// Totals are what a step executed, and Ran what of one kernel.
	Totals struct{ Dispatches, Barriers, CommandBuffers, Rearranged uint32 }
	Ran    struct{ Dispatches, Native uint32 }
)

// Counts is what a step executed. Kernels is by index in [Kernels].
type Counts struct {
	Totals
	Kernels []Ran
}

// DriverError is an error as a driver reports it, before it has the names of a Plan.
type DriverError struct {
	Code     Code
	Dispatch int // index in the phase, when loading over all phases; or -1
	Argument int // index in the bindings, or -1
	Message  string
}

func (e *DriverError) Error() string { return e.Message }

// Unwrap returns the error that callers test for, if the code has one.
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

// Kernels lists the kernels of a Plan in the order of their first dispatch, which is how
// drivers number them.
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
