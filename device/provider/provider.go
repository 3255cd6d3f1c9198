// Package provider is the C interface between Go and whatever executes a Plan: device.h.
//
// A provider is a table of functions, so that one process can hold several: package host
// runs a Plan on the CPU, package metal/apple on an Apple GPU with the host as its other
// half. [Open] makes a device.Driver of one: it flattens a Plan into tables (tables.go) and
// calls C once a step (calls.go), all through the same structs. Packages that only Go links
// cannot see each other's symbols, so a table travels as an address, which each side
// takes for the same type of C:
//
//	driver, err := provider.Open(host.Provider(), provider.Options{Threads: 4, Emulator: emulated.Provider()})
//
// A header in one package that C of another includes is nothing the go command knows of.
// So every package with such C imports this one, which embeds the header: when a struct
// changes, all of them are compiled anew.
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

// Options are smelt_device_options. Pointers are to tables of C, of the types that stand
// there, and outlive the device.
type Options struct {
	Threads   int
	Places    []Place // by thread; nil: anywhere
	UseNative bool
	Shuffle   bool
	Rearrange device.Rearrange
	Mapped    bool
	Order     int // of the emulator's lanes
	Seed      uint32
	Poison    bool

	Emulator, Native, BLAS unsafe.Pointer

	// Of a GPU.
	Host                       unsafe.Pointer
	Sources, Functions         unsafe.Pointer
	SourceCount, FunctionCount int
	Library, Archives          string
	Timeout                    time.Duration
	Debug                      bool
	Capture                    int
	CaptureFile                string
}

// Place is where a thread works.
type Place struct {
	Node int   // the system's number
	CPUs []int // logical processors; any if nil
}
