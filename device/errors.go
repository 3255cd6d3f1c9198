package device

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that callers test for.
var (
	ErrUnavailable = errors.New("this build of smelt executes nothing: it needs cgo, and Linux on amd64 or arm64, or macOS on arm64")
	ErrAbsent      = errors.New("this machine has no such device")
	ErrLost        = errors.New("the device is lost") // or does not respond
	ErrDevice      = errors.New("no such device")
	ErrOption      = errors.New("bad option")
	ErrKernel      = errors.New("no such kernel") // the device lacks it
	ErrClosed      = errors.New("closed")
	ErrMemory      = errors.New("not enough memory")
	ErrStep        = errors.New("bad step")    // sizes or inputs outside of the Plan's or the cache's bounds
	ErrWeights     = errors.New("bad weights") // tensors are missing, or of another type or size than the Plan's
)

// MemoryError reports that the machine has too little memory for an executable or an instance. It
// matches ErrMemory.
type MemoryError struct {
	What      string // "a session of 64 cache blocks"
	Need      int64  // bytes
	Available int64  // bytes
	Parts     Memory // the parts of Need
	// WorkingSet is the number of bytes that the GPU keeps resident, if that is the limit that
	// was exceeded; else 0.
	WorkingSet int64
}

func (e *MemoryError) Error() string {
	var parts []string
	for _, p := range e.Parts.parts() {
		if p.bytes > 0 {
			parts = append(parts, p.name+" "+FormatBytes(p.bytes))
		}
	}
	of := ""
	if e.WorkingSet > 0 {
		of = fmt.Sprintf(" of the %s that the GPU keeps resident", FormatBytes(e.WorkingSet))
	}
	return fmt.Sprintf("%s: %s needs %s (%s), %s is available%s", ErrMemory, e.What, FormatBytes(e.Need),
		strings.Join(parts, ", "), FormatBytes(e.Available), of)
}

// Is reports whether target is ErrMemory.
func (e *MemoryError) Is(target error) bool { return target == ErrMemory }

// DispatchError reports which dispatch of a step failed, and why. The device and
// the instance stay usable.
type DispatchError struct {
	Phase    string
	Dispatch int // index in the phase
	Label    string
	Kernel   string
	Buffer   string // the argument that Message is about, or ""
	Message  string
}

func (e *DispatchError) Error() string {
	about := ""
	if e.Buffer != "" {
		about = e.Buffer + ": "
	}
	return fmt.Sprintf("%s dispatch %d (%s, kernel %s): %s%s", e.Phase, e.Dispatch, e.Label, e.Kernel, about, e.Message)
}
