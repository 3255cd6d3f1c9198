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
	ErrLost        = errors.New("the device is lost") // or does not answer
	ErrDevice      = errors.New("no such device")
	ErrOption      = errors.New("bad option")
	ErrKernel      = errors.New("no such kernel") // nothing provides it
	ErrClosed      = errors.New("closed")
	ErrMemory      = errors.New("not enough memory")
	ErrStep        = errors.New("bad step")                // sizes or inputs that the Plan or the cache cannot take
	ErrPipeline    = errors.New("no pipeline can be made") // a kernel and its launch exceed what an Apple GPU has
	ErrWeights     = errors.New("bad weights")             // the model file does not hold what the Plan reads
)

// MemoryError tells that an executable or instance was refused because the machine has
// too little memory for it. It matches ErrMemory.
type MemoryError struct {
	What      string // "a session of 64 cache blocks"
	Need      int64  // bytes
	Available int64  // bytes
	Parts     Memory // what the need is made of
	// WorkingSet is how many bytes the GPU keeps resident, if it is that of which too little
	// is available.
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

// DispatchError tells which dispatch of a step failed, and how. The device and
// the instance stay usable.
type DispatchError struct {
	Phase    string
	Dispatch int // index in the phase
	Label    string
	Kernel   string
	Buffer   string // that the message is about, or ""
	Message  string
}

func (e *DispatchError) Error() string {
	about := ""
	if e.Buffer != "" {
		about = e.Buffer + ": "
	}
	return fmt.Sprintf("%s dispatch %d (%s, kernel %s): %s%s", e.Phase, e.Dispatch, e.Label, e.Kernel, about, e.Message)
}
