// Package emulated executes the .metal kernels of package kernels on the CPU. It is the
// reference for GPUs and for the native kernels.
//
// mslgen translates each source into a .gen.cc beside this file; package runtime stands in for
// Metal's standard library and schedules the threads. A threadgroup runs on one OS thread.
// Its threads are fibres that yield at barriers and simdgroup operations, or plain loop
// iterations if the kernel has neither. The caller chooses the order of the fibres and
// whether threadgroup memory is poisoned: both change the results of a kernel that lacks a
// barrier.
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
//   - A launch carries all its state (function constants, bindings, sizes), so any
//     number of launches run concurrently.
//   - A result depends neither on the order of lanes, nor on the distribution of
//     threadgroups to OS threads, nor on the instruction set: nothing is contracted or
//     reassociated. (exp and the like are the C library's, which may differ by an ulp.)
//   - Undefined behaviour of Metal is an error that names kernel and line (lanes that
//     synchronise at different operations, a barrier after threads have returned, too
//     many threads, a missing constant) or produces NaN.
//
// The kernels are compiled once, for every processor of the architecture; package
// counted compiles those that it counts again, with instrumentation. After a change to a
// source run `go generate`; a test compares.
//
// AddressSanitizer finds overruns; with the symbols that go test would strip, it names
// the .metal line:
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

	_ "github.com/smelt-ml/smelt/kernels/abi" // what the sources include
	"github.com/smelt-ml/smelt/kernels/emulated/internal/host"
	_ "github.com/smelt-ml/smelt/kernels/emulated/runtime" // likewise
)

type (
	// Launch is one dispatch.
	Launch = host.Launch
	// Options change how a launch is executed, never what a right kernel computes.
	Options = host.Options
	// Order is the order in which the threads of a threadgroup take turns.
	Order = host.Order
	// Library is a set of kernels compiled together.
	Library = host.Library
)

const (
	Ascending  = host.Ascending
	Descending = host.Descending
	Shuffled   = host.Shuffled
)

// ErrUnknownKernel is wrapped by Run's error if no kernel has the launch's name.
var ErrUnknownKernel = host.ErrUnknownKernel

var library = host.Open(unsafe.Pointer(C.smelt_emulated_kernels()))

// Hash returns the kernels.Hash of a .metal file at the time when its kernels were generated,
// or "" if there is no such file.
func Hash(file string) string { return hashes[file] }

// Provider returns the kernels as a const smelt_emulator* of kernels/abi/abi.h.
func Provider() unsafe.Pointer { return library.Provider() }

// Names returns the host names of all kernels, in the order of the sources.
func Names() []string { return library.Names() }

// Run executes a launch. It copies buffers unless Options.InPlace is set; an error names the
// mistake of the kernel or the launch.
func Run(l Launch, o Options) error { return library.Run(l, o) }
