// Package provider is device.h, the C interface between Go and a device, and its Go side.
//
// A provider is a table of C functions, so that one process can hold several: package host
// runs a Plan on the CPU, package metal/apple on an Apple GPU with the host as its other
// half. [Open] returns a device.Driver over one: it flattens a Plan into tables (tables.go) and
// calls C once per step (calls.go). Packages of one Go program cannot see each other's C symbols,
// so a provider is passed as an unsafe.Pointer:
//
//	driver, err := provider.Open(host.Provider(), provider.Options{Threads: 4, Emulator: emulated.Provider()})
//
// The go command does not track a header that C of another package includes. Every package that
// includes device.h therefore imports this one, which embeds the header, and is rebuilt when it
// changes.
package provider

import _ "embed"

import (
	"time"
	"unsafe"

	"github.com/smelt-ml/smelt/device"
)

// Header is device.h.
//
//go:embed device.h
var Header string

// Options are smelt_device_options. Pointers are to C structs of the types in device.h, which
// outlive the device.
type Options struct {
	Threads   int
	Places    []Place // by thread; nil: any
	UseNative bool
	Shuffle   bool
	Rearrange device.Rearrange
	Mapped    bool
	Order     int // of the emulator's lanes
	Seed      uint32
	Poison    bool

	Emulator, Native, BLAS unsafe.Pointer

	// The following are for a GPU.
	Host                       unsafe.Pointer
	Sources, Functions         unsafe.Pointer
	SourceCount, FunctionCount int
	Library, Archives          string
	Timeout                    time.Duration
	Debug                      bool
	Capture                    int
	CaptureFile                string
}

// Place is the memory node and the processors of a thread.
type Place struct {
	Node int   // the system's number
	CPUs []int // logical processors; any if nil
}
