// Package counted runs the emulated kernels and counts what they would cost on a GPU:
// memory traffic, coalescing, bank conflicts of threadgroup memory, barriers, divergent
// branches, shifts and conversions. It measures no time and needs no GPU: the counts follow
// from the sources by the models below.
//
// The kernels are the C++ of package emulated, compiled again with the instrumentation of
// race detectors, which passes the address of every load and store to a hook; trace.h
// records them, package meter adds them up. A source is compiled when the first of its
// kernels is counted, by $CXX or the system's C++ compiler, and kept in the user's cache
// folder (package compile); compiling it takes as long as compiling it to run.
//
//	memory, err := counted.NewMemory(bytes)
//	x, out := memory.Alloc(4*n), memory.Alloc(4*n)
//	c, err := counted.Run(memory, counted.Launch{
//		Kernel: "scale_f32", Buffers: [][]byte{x, out, params}, Grid: …, Group: …,
//	}, counted.Machine{CacheBytes: 8 << 20, Cores: 10})
//
// # The models
//
//   - An interval is the work of a simdgroup between two synchronisations of its lanes
//     (barriers and simdgroup operations), within one iteration of its outermost loop. Loops
//     with a trip count known at pipeline creation do not end intervals.
//   - Coalescing is the number of bytes of device memory that the intervals touch, divided
//     by the bytes of the 128-byte lines that hold them.
//   - Traffic is the lines that pass between memory and an LRU cache of whole lines: one for
//     each read that misses, one for each written line that is evicted. The cache is empty
//     at the start of a launch and written back at its end. Threadgroups start in the order
//     of the grid, one per core, and proceed interval by interval, round robin; the next
//     wave starts when all are done.
//   - Threadgroup memory has 32 banks of 4 bytes. An access by a simdgroup (one
//     instruction, all lanes) takes as many cycles as the most used bank has distinct
//     words to deliver, and would take ⌈words/32⌉ without conflicts; a word is broadcast to
//     any number of lanes at once. A vector of up to 16 bytes is one access, and so is a
//     matrix of 8 × 8.
//   - A branch is an if, ?:, switch or loop condition that is not decided at pipeline
//     creation. It diverges if lanes that reach it in the same interval for the same time
//     take different directions. All branches count, because it is unknown which of them
//     Metal's compiler turns into selects.
//   - A lane's shift, bit extraction, rotation, or conversion between an integer and a
//     float takes 4 cycles of one pipe, which is a quarter as wide as the pipes that
//     multiply, add and mask. Shifts by zero, and operations on constants and the counters
//     of unrolled loops, take none.
//   - Parameters (buffers outside the Memory) are constant memory and not counted.
package counted

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/abi"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/compile"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/meter"
	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
	sources "github.com/smelt-ml/smelt/kernels/emulated/runtime"
)

type (
	// Launch is one dispatch.
	Launch = meter.Launch
	// Machine holds the parameters of the traffic model.
	Machine = meter.Machine
	// Memory is device memory; accesses to it are counted.
	Memory = meter.Memory
	// Counts holds the counts of a launch.
	Counts = meter.Counts
	// Site is a branch in the sources.
	Site = meter.Site
)

// Line is the size of a memory line in bytes.
const Line = meter.Line

// Size returns the bytes of a Memory that a buffer occupies, alignment included.
func Size(bytes int64) int64 { return meter.Size(bytes) }

var (
	// ErrNoCompiler is wrapped by the error for a missing C++ compiler.
	ErrNoCompiler = compile.ErrNoCompiler
	// ErrMeet is wrapped by the error for a threadgroup that accesses memory which another
	// writes, if [Machine].Apart is set.
	ErrMeet = meter.ErrMeet
	// ErrUnknownKernel is wrapped by the error for a launch of an unknown kernel.
	ErrUnknownKernel = meter.ErrUnknownKernel
)

// NewMemory reserves memory for the buffers of a launch. Untouched pages occupy no physical
// memory.
func NewMemory(bytes int64) (*Memory, error) { return meter.NewMemory(bytes) }

// Run executes a launch, or as much of it as the machine's budget allows, and returns its
// counts.
func Run(m *Memory, l Launch, on Machine) (*Counts, error) {
	k, ok := kernels.Lookup(l.Kernel)
	if !ok {
		return nil, fmt.Errorf("kernel %q: %w", l.Kernel, ErrUnknownKernel)
	}
	library, err := open(context.Background(), k.File, nil)
	if err != nil {
		return nil, err
	}
	return library.Count(m, l, on)
}

// Compile compiles .metal files before Run needs them, several at a time; note, if not
// nil, is called for each file that is not in the cache. Names are as in [kernels.Files].
func Compile(ctx context.Context, files []string, note func(file string)) error {
	errs := make([]error, len(files))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(files)) {
		wg.Go(func() {
			for i := range next {
				_, errs[i] = open(ctx, files[i], note)
			}
		})
	}
	for i := range files {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs { // the first error only: the causes are mostly the same
		if err != nil {
			return err
		}
	}
	return nil
}

// opened holds the loaded libraries of this process, by source.
var opened struct {
	sync.Mutex
	units map[string]*unit
}

type unit struct {
	sync.Mutex
	library *meter.Library
}

// open returns the kernels of a .metal file.
func open(ctx context.Context, file string, note func(string)) (*meter.Library, error) {
	opened.Lock()
	u := opened.units[file]
	if u == nil {
		if opened.units == nil {
			opened.units = map[string]*unit{}
		}
		u = &unit{}
		opened.units[file] = u
	}
	opened.Unlock()
	u.Lock()
	defer u.Unlock()
	if u.library != nil {
		return u.library, nil
	}
	if !slices.Contains(kernels.Files(), file) {
		return nil, fmt.Errorf("no source of kernels is called %s", file)
	}
	text, err := translate(file)
	if err != nil {
		return nil, err
	}
	u.library, err = load(ctx, strings.TrimSuffix(path.Base(file), ".metal"), text, func() {
		if note != nil {
			note(file)
		}
	})
	return u.library, err
}

// home is the sources' path in the repository, relative to which they include headers of package
// abi.
const home = "kernels/emulated"

// shim is the path of the stand-in for Metal's standard library, relative to home.
const shim = "runtime/msl/metal_stdlib"

// translate returns the C++ of a .metal file, the same that package emulated is compiled
// from. Generating it takes milliseconds; embedding it would add 0.8 MB to every binary.
func translate(file string) ([]byte, error) {
	unit, err := mslgen.Parse(path.Join("kernels", file), func(name string) ([]byte, error) {
		return kernels.ReadFile(strings.TrimPrefix(name, "kernels/"))
	})
	if err != nil {
		return nil, err
	}
	return unit.CPlusPlus(path.Join(home, strings.TrimSuffix(path.Base(file), ".metal")+".gen.cc"), shim), nil
}

// load compiles one generated unit with instrumentation, and loads it.
func load(ctx context.Context, name string, text []byte, note func()) (*meter.Library, error) {
	common := map[string][]byte{}
	for _, header := range []string{"abi.h", "library.h", "params.gen.h"} {
		text, err := abi.Headers.ReadFile(header)
		if err != nil {
			return nil, err
		}
		common["kernels/abi/"+header] = text
	}
	err := fs.WalkDir(sources.Files, ".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			common[path.Join(home, "runtime", file)], err = fs.ReadFile(sources.Files, file)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	own := map[string][]byte{path.Join(home, name+".gen.cc"): text}
	for file, text := range common {
		own[file] = text
	}
	// The hooks, which trace/ defines, count only the accesses of kernels. Thread-local
	// variables use the initial-exec model, because every access to them would otherwise
	// call a lookup function.
	base := []string{"-fvisibility=hidden", "-ftls-model=initial-exec", "-g0", "-fno-strict-aliasing", "-DMSL_LIBRARY=smelt_emulated_counted"}
	hooked := append(slices.Clone(base), "-std=c++17", "-O1", "-fno-exceptions", "-fno-rtti", "-DMSL_COUNTED", "-DMSL_VARIANT=counted", "-fsanitize=thread")
	table, err := compile.Library{Name: name, Parts: []compile.Part{
		{File: path.Join(home, name+".gen.cc"), Files: own, Flags: hooked},
		{File: path.Join(home, "runtime/trace/unit.cc"), Files: common, Flags: append(slices.Clone(hooked), "-DMSL_UNIT=unit_"+name)},
		{File: path.Join(home, "runtime/runtime.cc"), Files: common, Flags: hooked, Shared: true},
		{File: path.Join(home, "runtime/trace/trace.c"), Files: common, Flags: append(base, "-O2"), Shared: true},
	}}.Load(ctx, meter.Symbol, note)
	if err != nil {
		return nil, err
	}
	library := meter.Open(table)
	return &library, nil
}
