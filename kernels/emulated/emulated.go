// Package emulated executes the .metal kernels of package kernels on the CPU: the
// referee that a GPU, and every native kernel, has to agree with.
//
// mslgen translates each source into a .gen.cc beside this file; package runtime stands in for
// Metal's standard library and runs the threads. A threadgroup
// belongs to one OS thread, on which its threads are fibres that take turns and meet
// at barriers and simdgroup operations, or plain loop iterations where a kernel has
// neither. The order of the turns can be chosen, and threadgroup memory poisoned,
// because a kernel that lacks a barrier gives different results then:
//
//	err := emulated.Run(emulated.Launch{
//		Kernel:  "rms_norm_f32_f32",
//		Buffers: [][]byte{x, weight, out, params},
//		Grid:    [3]uint32{rows},
//		Group:   [3]uint32{256},
//	}, emulated.Options{Order: emulated.Shuffled, Seed: 1, Poison: true})
//
// Its laws:
//
//   - A launch is pure: function constants, bindings and sizes travel in it, and any
//     number of launches run at the same time.
//   - A result depends neither on the order of lanes nor on how threadgroups are
//     shared out, nor on the instruction set: nothing is contracted or reassociated.
//     (exp and its like are the C library's, which may differ by an ulp elsewhere.)
//   - What Metal leaves undefined is an error that names kernel and line (lanes that
//     meet at different operations, a barrier after threads have returned, too many
//     threads, a missing constant) or shows as NaN.
//
// The kernels are compiled once, for every processor of the architecture. Package
// counted compiles those that it is asked to count once more, over [Runtime]. After a change to a
// source run `go generate`; a test compares.
//
// To find overruns, test with AddressSanitizer; with the symbols that go test would
// strip, it names the .metal line:
//
//	CGO_CXXFLAGS=-fsanitize=address go test -asan -ldflags='-s=false -w=false' ./kernels/emulated
package emulated

//go:generate go run ./mslgen/cmd -sources kernels,kernels/published -output kernels/emulated

/*
#cgo CXXFLAGS: -std=c++17 -O2 -g0 -fno-strict-aliasing -fno-exceptions -fno-asynchronous-unwind-tables -fno-rtti -DMSL_VARIANT=emulated -DMSL_LIBRARY=smelt_emulated_kernels
#cgo asan CXXFLAGS: -g1
#cgo LDFLAGS: -lm
#include "../abi/library.h"
const smelt_emulated_library *smelt_emulated_kernels(void);
*/
import "C"

import (
	"unsafe"

	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
	_ "github.com/smelt-ml/smelt/kernels/emulated/runtime" // what the sources include
)

type (
	// Launch is one dispatch.
	Launch = host.Launch
	// Options change how a launch is executed, never what a right kernel computes.
	Options = host.Options
	// Order is the order in which the threads of a threadgroup take turns.
	Order = host.Order
	// Library is kernels as they were compiled together.
	Library = host.Library
)

const (
	Ascending  = host.Ascending
	Descending = host.Descending
	Shuffled   = host.Shuffled
)

// ErrUnknownKernel is wrapped by Run where no kernel has the launch's name.
var ErrUnknownKernel = host.ErrUnknownKernel

var library = host.Open(unsafe.Pointer(C.smelt_emulated_kernels()))

// Hash returns kernels.Hash of the source that the kernels of a .metal file were made
// from, or "" where there is no such file.
func Hash(file string) string { return hashes[file] }

// Provider returns the kernels as a const smelt_emulator* of kernels/abi/abi.h.
func Provider() unsafe.Pointer { return library.Provider() }

// Names lists the host names of all kernels, in the order of the sources.
func Names() []string { return library.Names() }

// Run executes a launch. Buffers are copied, unless the options say otherwise; an error says what the kernel or the
// launch does wrong.
func Run(l Launch, o Options) error { return library.Run(l, o) }
