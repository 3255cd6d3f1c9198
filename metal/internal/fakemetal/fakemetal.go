//go:build fakemetal && linux

package fakemetal

/*
#cgo CFLAGS: -std=gnu17 -O1 -g -Iinclude -I../../..
#cgo LDFLAGS: -lobjc -lpthread
#include <stdlib.h>
#include "control.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
)

// Options configure the one fake device. They apply to command buffers that are committed later.
type Options struct {
	Emulator unsafe.Pointer // const smelt_emulator*
	Order    uint32         // of the lanes of a threadgroup: an order of package emulated
	Seed     uint32
	Shuffle  bool
	Poison   bool // new buffers and threadgroup memory hold NaN
	DelayUS  int  // maximum delay before a command buffer is chosen, in µs

	// SkipBarrier leaves out the nth barrier from now on, counted from 1; SkipFence and
	// SkipEvent the nth wait of a command buffer for another, and for an event.
	SkipBarrier, SkipFence, SkipEvent int

	// Unwritten makes results that depend on uninitialised bytes a misuse: a dispatch whose
	// buffers hold poison is run once more with another value in its place. It needs Poison.
	Unwritten bool

	MaxBuffer   int64 // bytes of the largest buffer; 0: 1 TiB
	Memory      int64 // maximum bytes of all buffers; 0: unlimited
	WorkingSet  int64 // the GPU's recommended maximum of bytes; 0: 1 TiB
	NoCounters  bool
	NoResidency bool
	NoDevice    bool
	CompileUS   int    // µs that compiling a library takes
	NoDefault   bool   // the default device is nil; only the list of devices has it
	Family      int    // of the GPU; 0: 9
	Name        string // of the GPU; "": one that no Mac has
	Cores       int    // of the GPU, in the I/O registry; 0: it has no such entry
	GroupNS     int    // made-up time of a threadgroup in sampled passes
	ThreadNS    int    // made-up time of a thread; 0 like GroupNS: the CPU's time
	Zeros       bool   // kernels write nothing, as on the GPU of a virtual machine
	Collect     bool   // misuse sets State.Misuse instead of ending the process
}

// Configure sets the options.
func Configure(o Options) {
	c := C.fake_options{
		emulator:     (*C.smelt_emulator)(o.Emulator),
		emulation:    C.smelt_emulation{order: C.uint32_t(o.Order), seed: C.uint32_t(o.Seed), poison: flag(o.Poison)},
		shuffle:      flag(o.Shuffle),
		seed:         C.uint32_t(o.Seed),
		delay_us:     C.uint32_t(o.DelayUS),
		poison:       flag(o.Poison),
		skip_barrier: C.uint32_t(o.SkipBarrier),
		skip_fence:   C.uint32_t(o.SkipFence),
		skip_event:   C.uint32_t(o.SkipEvent),
		unwritten:    flag(o.Unwritten),
		max_buffer:   C.uint64_t(o.MaxBuffer),
		memory:       C.uint64_t(o.Memory),
		working_set:  C.uint64_t(o.WorkingSet),
		heap:         C.uint64_t(uintptr(unsafe.Pointer(inHeap)) >> 36),
		no_counters:  flag(o.NoCounters),
		no_residency: flag(o.NoResidency),
		no_device:    flag(o.NoDevice),
		compile_us:   C.uint32_t(o.CompileUS),
		no_default:   flag(o.NoDefault),
		family:       C.uint32_t(o.Family),
		cores:        C.uint32_t(o.Cores),
		zeros:        flag(o.Zeros),
		group_ns:     C.uint32_t(o.GroupNS),
		thread_ns:    C.uint32_t(o.ThreadNS),
		collect:      flag(o.Collect),
	}
	if o.Name != "" {
		c.name = C.CString(o.Name) // kept: a device may ask for it at any time
	}
	C.fake_configure(&c)
}

// inHeap is in Go's heap, which the runtime keeps contiguous, far from the system's mappings.
var inHeap = new([1 << 16]byte)

func flag(b bool) C.uint32_t {
	if b {
		return 1
	}
	return 0
}

// Fault is a reason for which a command buffer fails.
type Fault uint32

// The faults.
const (
	Timeout Fault = iota + 1
	PageFault
	OutOfMemory
	Interactivity // the window server wanted the GPU
	DeviceRemoved // and everything after it
	Hang          // completes when Recover is called
	Compile       // of a pipeline
)

// Fail makes a dispatch fail, or with Compile a pipeline: the one that follows `after` others.
func Fail(f Fault, after int) { C.fake_fault(C.uint32_t(f), C.uint64_t(after)) }

// Recover ends a hang and brings a removed device back.
func Recover() { C.fake_recover() }

// State counts the fake's objects and operations.
type State struct {
	Objects        int   // alive
	BufferBytes    int64 // of live buffers that own their memory
	Dispatches     int
	Barriers       int
	Fences         int // waited for, of those that an earlier command buffer updates
	Events         int // waited for
	CommandBuffers int
	MostInFlight   int // command buffers committed and not complete
	Resident       int // allocations in committed residency sets
	MostSets       int // residency sets of a queue
	Requests       int // for residency
	Queues         int // made
	Waits          int // for command buffers to complete
	Timestamps     int // taken of both clocks
	Compiled       int // libraries from source
	CompiledBytes  int // of their sources
	MostCompiling  int // at a time
	Pipelines      int // made
	Archived       int // of Pipelines, those from an archive
	Signposts      int
	Described      int // command buffers with encoder status in their errors
	Captures       int
	Misuses        int
	Misuse         string // the first one collected
}

// Read returns the state.
func Read() State {
	var s C.fake_state
	C.fake_read(&s)
	return State{
		Objects: int(s.objects), BufferBytes: int64(s.buffer_bytes), Dispatches: int(s.dispatches), Barriers: int(s.barriers),
		Fences: int(s.fences), Events: int(s.events),
		CommandBuffers: int(s.command_buffers), MostInFlight: int(s.most_in_flight), Resident: int(s.resident),
		MostSets: int(s.most_sets), Requests: int(s.requests), Queues: int(s.queues), Waits: int(s.waits),
		Compiled: int(s.compiled), CompiledBytes: int(s.compiled_bytes), MostCompiling: int(s.most_compiling),
		Pipelines: int(s.pipelines), Archived: int(s.archived),
		Timestamps: int(s.timestamps), Signposts: int(s.signposts), Described: int(s.described),
		Captures: int(s.captures), Misuses: int(s.misuses), Misuse: C.GoString(&s.misuse[0]),
	}
}

// Library is a source that was compiled.
type Library struct {
	Source string
	Macros []string // NAME=VALUE
}

// Compiled lists the libraries that were compiled since Reset, in no order.
func Compiled() (list []Library) {
	var macros [2048]C.char
	for i := C.uint32_t(0); ; i++ {
		source := C.fake_compiled(i, &macros[0], C.uint32_t(len(macros)))
		if source == nil {
			return list
		}
		list = append(list, Library{C.GoString(source), strings.Fields(C.GoString(&macros[0]))})
	}
}

// Reset clears the counts and the misuse of State.
func Reset() { C.fake_reset() }

// Program runs program i, which uses Metal wrongly in one way, and returns its name, or ""
// after the last. Program 0 is correct.
func Program(i int) string { return C.GoString(C.fake_program(C.uint32_t(i))) }

// AddLibraries registers the sources of package kernels with the fake's compiler. A source that has
// changed since the emulated kernels were generated is left out, and does not compile. It must be
// called once.
func AddLibraries() {
	for _, file := range kernels.Files() {
		if kernels.Hash(file) == emulated.Hash(file) {
			add(file)
		}
	}
}

func add(file string) {
	var pins runtime.Pinner
	defer pins.Unpin()
	var list []C.fake_kernel
	for _, k := range kernels.All() {
		if k.File != file {
			continue
		}
		name := C.CString(k.Name)
		defer C.free(unsafe.Pointer(name))
		var arguments []C.fake_argument
		for _, a := range k.Args {
			arguments = append(arguments, C.fake_argument{
				index: C.uint32_t(a.Index), write: flag(a.Access == kernels.Write), required: flag(!a.Optional),
				integers: flag(a.Element == kernels.Int), align: C.uint32_t(alignments[a.Element]),
			})
		}
		var constants []C.fake_constant
		for _, c := range k.Constants {
			macro := C.CString(c.Macro())
			defer C.free(unsafe.Pointer(macro))
			constants = append(constants, C.fake_constant{index: C.uint32_t(c.Index), macro: macro, boolean: flag(c.Type == "bool"), optional: flag(c.Optional)})
		}
		var instance *C.char
		if m := k.InstanceMacro(); m != "" {
			instance = C.CString(m)
			defer C.free(unsafe.Pointer(instance))
		}
		list = append(list, C.fake_kernel{
			name: name, instance: instance, threadgroup_bytes: C.uint32_t(k.ThreadgroupBytes), max_threads: C.uint32_t(k.MaxThreads),
			params_index: C.uint32_t(k.ParamsIndex), params_bytes: C.uint32_t(4 * k.ParamWords),
			arguments: (*C.fake_argument)(pinned(&pins, arguments)), argument_count: C.uint32_t(len(arguments)),
			constants: (*C.fake_constant)(pinned(&pins, constants)), constant_count: C.uint32_t(len(constants)),
		})
	}
	if len(list) == 0 {
		panic(fmt.Sprintf("%s has no kernel", file))
	}
	source, single := C.CString(kernels.Source(file)), C.CString(kernels.Single(file))
	defer C.free(unsafe.Pointer(source))
	defer C.free(unsafe.Pointer(single))
	C.fake_library_add(source, single, &list[0], C.uint32_t(len(list)))
}

// alignments of elements in bytes. Blocks begin with, or hold, 16-bit scales.
var alignments = map[kernels.Element]int{
	kernels.Float: 4, kernels.Int: 4, kernels.Half: 2, kernels.Bfloat: 2, kernels.Blocks: 2, kernels.Bytes: 2,
}

func pinned[T any](pins *runtime.Pinner, table []T) unsafe.Pointer {
	if len(table) == 0 {
		return nil
	}
	pins.Pin(&table[0])
	return unsafe.Pointer(&table[0])
}
