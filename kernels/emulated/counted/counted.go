// Package counted runs the emulated kernels and counts what they ask of a GPU's memory:
// traffic, coalescing, conflicts of threadgroup memory's banks, barriers and divergent
// branches. Nothing is timed, and no GPU is at work: the counts are those of the
// sources, behind the models that are stated here.
//
// The kernels are the generated files of package emulated, compiled a further time with
// the hooks that race detectors use, so that every load and store arrives with its
// address; trace.c takes them apart, package meter adds them up.
//
//	memory, err := counted.NewMemory(bytes)
//	x, out := memory.Alloc(4*n), memory.Alloc(4*n)
//	c, err := counted.Run(memory, counted.Launch{
//		Kernel: "silu_f32", Buffers: [][]byte{x, out, params}, Grid: …, Group: …,
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
//   - Parameters (buffers outside the Memory) are constant memory, and not counted.
package counted

import "github.com/smelt-ml/smelt/kernels/emulated/internal/meter"

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

// ErrNotCounted is returned by Run in a build for another sanitizer.
var ErrNotCounted = meter.ErrNotCounted

// NewMemory reserves memory for the buffers of a launch. Pages that nobody touches take
// no space.
func NewMemory(bytes int64) (*Memory, error) { return meter.NewMemory(bytes) }

// Run executes a launch, or as much of it as the machine's budget asks for, and counts.
func Run(m *Memory, l Launch, on Machine) (*Counts, error) { return library.Count(m, l, on) }
