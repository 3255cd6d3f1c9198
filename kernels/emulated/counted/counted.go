// Package counted runs the emulated kernels and counts what they ask of a GPU's memory:
// traffic, coalescing, conflicts of threadgroup memory's banks, barriers, divergent
// branches, shifts and conversions. Nothing is timed, and no GPU is at work: the counts are
// those of the sources, behind the models that are stated here.
//
// The kernels are the C++ that package emulated is made of, compiled a further time with
// the hooks that race detectors use, so that every load and store arrives with its
// address; trace.c takes them apart, package meter adds them up. Few ask for counters,
// and compiling for them takes as long as compiling to run: a source is compiled when the
// first of its kernels is counted, by $CXX or the system's C++ compiler, and kept in the
// user's cache folder (package compile).
//
//	memory, err := counted.NewMemory(bytes)
//	x, out := memory.Alloc(4*n), memory.Alloc(4*n)
//	c, err := counted.Run(memory, counted.Launch{
//		Kernel: "scale_f32", Buffers: [][]byte{x, out, params}, Grid: …, Group: …,
//	}, counted.Machine{CacheBytes: 8 << 20, Cores: 10})
//
// # The models
//
//   - An interval is what a simdgroup does between two meetings of its lanes (barriers
//     and simdgroup operations) and within one turn of its outermost loop, loops with a
//     number of turns that is known when the pipeline is made not counting.
//   - Coalescing is the bytes of device memory that the intervals touch over the bytes
//     of the 128-byte lines in which they lie.
//   - Traffic is what a cache of whole lines, least recently used first out, lets
//     through: a line that is read and not there, and a line that was written, once it
//     leaves. The cache is empty when the launch begins and written back when it ends.
//     Threadgroups start in the order of the grid, one for each core, and proceed
//     interval by interval in turn; the next wave starts when all are done.
//   - Threadgroup memory has 32 banks of 4 bytes. An access by a simdgroup (one
//     instruction, all lanes) takes as many cycles as the bank that is asked for most
//     has words to give, and would take ⌈words/32⌉ without conflicts; a word is given to
//     any number of lanes at once. A vector of up to 16 bytes is one access, and so is a
//     matrix of 8 × 8.
//   - A branch is if, ?:, switch and the condition of a loop, unless it is decided when
//     the pipeline is made. It diverges where lanes that come to it in one interval for
//     the same time go different ways. Whether Metal's compiler makes a select of one is
//     not known, so that all count.
//   - A lane's shift, extraction or rotation of bits and conversion between an integer and a
//     float take 4 cycles of the one pipe that has them, which is a quarter as wide as those
//     that multiply floats, add and mask. A shift by zero, and what is made of constants and
//     the counters of unrolled loops, takes none.
//   - Parameters (buffers outside the Memory) are constant memory, and not counted.
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
	// Machine is what the model of traffic knows of a GPU.
	Machine = meter.Machine
	// Memory is device memory, whose accesses are counted.
	Memory = meter.Memory
	// Counts is what a launch did.
	Counts = meter.Counts
	// Site is a branch in the sources.
	Site = meter.Site
)

// Line is the bytes of a line of memory.
const Line = meter.Line

// Size returns how much of a Memory a buffer takes.
func Size(bytes int64) int64 { return meter.Size(bytes) }

var (
	// ErrNoCompiler is wrapped where there is no compiler for the kernels.
	ErrNoCompiler = compile.ErrNoCompiler
	// ErrMeet is wrapped where a threadgroup touches what another writes, and
	// [Machine].Apart asks.
	ErrMeet = meter.ErrMeet
	// ErrUnknownKernel is wrapped where no kernel has the launch's name.
	ErrUnknownKernel = meter.ErrUnknownKernel
)

// NewMemory reserves memory for the buffers of a launch. Pages that nobody touches take
// no space.
func NewMemory(bytes int64) (*Memory, error) { return meter.NewMemory(bytes) }

// Run executes a launch, or as much of it as the machine's budget asks for, and counts.
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

// Compile compiles .metal files, several at a time, so that Run need not; note, if not
// nil, is told each that was not kept from before. Names are as in [kernels.Files].
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
	for _, err := range errs { // one line: they mostly fail alike
		if err != nil {
			return err
		}
	}
	return nil
}

// opened are the libraries of this process, by source.
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

// home is where the sources are found, as in the repository: they include headers of package abi.
const home = "kernels/emulated"

// shim is the stand-in for Metal's standard library, from home.
const shim = "runtime/msl/metal_stdlib"

// translate returns the C++ of a .metal file: that which package emulated was compiled
// from. Making it anew takes milliseconds; all of it would be 0.8 MB of every binary.
func translate(file string) ([]byte, error) {
	unit, err := mslgen.Parse(path.Join("kernels", file), func(name string) ([]byte, error) {
		return kernels.ReadFile(strings.TrimPrefix(name, "kernels/"))
	})
	if err != nil {
		return nil, err
	}
	return unit.CPlusPlus(path.Join(home, strings.TrimSuffix(path.Base(file), ".metal")+".gen.cc"), shim), nil
}

// load compiles one generated unit to be counted, and loads it.
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
	// Only the accesses of kernels are counted: trace.c defines the hooks. The libraries
	// are many, so that thread-local variables must not be looked up.
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
