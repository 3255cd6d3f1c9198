// Package plan is what the compiler hands to a device: the [Plan], its file, and what both
// check of it.
//
// A Plan is flat tables of numbers. [Buffer]s say what memory there is, [Dispatch]es which
// kernel runs on which of it, and [Phase]s which of them make a step of given sizes. What
// differs from step to step is an [Expr] of symbols (ir/sym); [Owners] are inputs that follow from
// others, written by the device. Ops are names here, and values of a graph numbers: they label
// dispatches in captures and pictures, and a device needs neither.
//
//	f, err := plan.Read(file)                       // validated
//	phase := f.Plan.PhaseFor(&sizes, longest)       // −1: no phase takes such a step
//	for _, d := range f.Plan.Phases[phase].Dispatches {
//		groups := d.Grid[0].Eval(&sizes)
//	}
//
// Laws: Plans from files are validated once, by [Read]; a device relies on every index, size
// and offset of a valid Plan. The same [File] gives the same bytes. The package imports the
// table of kernels and the leaves below ir, no graphs.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Plan is a compiled model: flat tables that a device executes as they are. It
// holds no weights and no path; Tensors says what the model file must hold.
type Plan struct {
	Model   string     // name of the graph
	Target  string     // "metal" or "cpu"
	Act     dtype.Type // element type of activations between matrix products
	Context int        // slots that a sequence's cache may have: a bound of Smax
	Vocab   int64      // rows of the smallest table that tokens are looked up in; 0: of none
	Caches  []Cache    // by layer; the zero value of a layer without
	Buffers []Buffer
	Phases  []Phase
	Tensors []Tensor
	// Tuned is the hash of the tuning that the Plan was compiled with; "" for none.
	Tuned string `cbor:",omitempty"`
}

// Tensor is one row of the manifest: a tensor that the Plan reads from the model
// file.
type Tensor struct {
	Name  string
	DType dtype.Type
	Shape []int // outermost extent first
}

// Cache is the shape of one layer's KV cache: K and V are each
// [blocks, KVHeads, Block, Head] of DType.
type Cache struct {
	DType   dtype.Type
	KVHeads int
	Head    int // elements of one head
	Block   int // slots of a block
}

// Recurrent is the shape of a recurrent state of one layer: [blocks, Rows, Width] floats, one
// state for each block of the KV cache.
type Recurrent struct {
	Rows, Width int
	Block       int // tokens of a block, those of the KV cache
}

// Kind says what a buffer is for and who provides it.
type Kind uint8

// The kinds of buffer.
const (
	Weight Kind = iota + 1 // a tensor of the model file, read-only
	Const                  // bytes that the Plan holds, read-only
	Arena                  // intermediate values of a step; one buffer, offsets planned
	CacheK                 // keys of one layer, [blocks, KV, block, D]
	CacheV                 // values of one layer
	State                  // a recurrent state of one layer, [blocks, rows, width]
	Input                  // a per-step input, int32
	Output                 // a result that the caller reads
)

var kindNames = map[Kind]string{
	Weight: "weight", Const: "const", Arena: "arena", CacheK: "cache_k", CacheV: "cache_v", State: "state", Input: "input", Output: "output",
}

// Kept reports whether buffers of the kind are kept from step to step, one part for each block
// of the cache.
func (k Kind) Kept() bool { return k == CacheK || k == CacheV || k == State }

// String returns the lower-case name.
func (k Kind) String() string { return kindNames[k] }

// Buffer is one memory object that dispatches bind, at offsets.
type Buffer struct {
	Kind  Kind
	Name  string     // of the tensor, input or output; "k.3" for a cache, "conv.3" for a state
	DType dtype.Type // of the elements as the kernels read them
	Bytes Expr       // Arena: the largest of all phases. Caches and states: of one block
	Layer int        // of a cache or a state
	Data  []byte     // of a Const

	// Recurrent is the shape of a State.
	Recurrent Recurrent `cbor:",omitzero"`
	// Rearrange marks a Weight, a matrix, whose rows the device may put in whatever order its
	// kernels read fastest.
	Rearrange bool
	// Owners marks an Input that the device writes itself.
	Owners *Owners `cbor:",omitempty"`
	// Lines marks a Weight, a matrix, that the device copies when it loads the Plan, with its
	// scales apart from its codes ([kernels.Lines]): what reads it names its type so.
	Lines bool `cbor:",omitempty"`
}

// Block returns how many slots a block of the caches has.
func (p *Plan) Block() int {
	for _, c := range p.Caches {
		if c.Block > 0 {
			return c.Block
		}
	}
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Kind == State {
			return b.Recurrent.Block
		}
	}
	return p.Context
}

// Stateful reports whether layers have recurrent states, from which a sequence goes on only
// where it has stopped, or at the end of a block.
func (p *Plan) Stateful() bool {
	return slices.ContainsFunc(p.Buffers, func(b Buffer) bool { return b.Kind == State })
}

// PhaseFor returns the index of the phase that runs steps of these sizes, of which one
// sequence brings as many tokens as longest and none brings more; −1 where none does.
func (p *Plan) PhaseFor(sizes *sym.Sizes, longest int64) int {
	return slices.IndexFunc(p.Phases, func(ph Phase) bool { return ph.Takes(sizes, longest) })
}

// Phase is the Plan for a range of steps: one sequence's token, a batch of sequences that
// bring one each, and prompts with whatever else there is are phases of one model. All
// buffers but the arena are shared.
type Phase struct {
	Name string
	// Least and Bounds are the sizes of the smallest and the largest step that the phase
	// takes. The arena is planned for the largest. Smax is a bound on the context.
	Least, Bounds sym.Sizes
	// Longest is how many tokens the sequence brings that brings most.
	Longest        Interval
	Dispatches     []Dispatch
	CommandBuffers []int // index of the first dispatch of each; none on targets that have none
	ArenaBytes     int64 // with every size at its bound
	UnplannedBytes int64 // what the arena would be if nothing shared memory
	MinArenaBytes  int64 // largest sum of live bytes at one point: no arena can be smaller
	Choices        []Choice
	// Sites are the choices that may be measured, in the order in which they were made; none
	// in a Plan from a file.
	Sites []Site `cbor:"-"`
}

// Interval is a range of numbers, both ends included.
type Interval struct{ Min, Max int64 }

// Holds reports whether n lies in the range.
func (s Interval) Holds(n int64) bool { return s.Min <= n && n <= s.Max }

// Holds reports whether all sizes of a step lie between the least and the largest.
func (p *Phase) Holds(sizes *sym.Sizes) bool {
	for i, n := range sizes {
		if n < p.Least[i] || n > p.Bounds[i] {
			return false
		}
	}
	return true
}

// Takes reports whether the phase runs steps of these sizes whose longest sequence brings
// so many tokens. Of several phases that do, the first is meant.
func (p *Phase) Takes(sizes *sym.Sizes, longest int64) bool {
	return p.Holds(sizes) && p.Longest.Holds(longest)
}

// Pieces returns what the dispatches are cut into: the index of the first of each, and the end.
func (p *Phase) Pieces() []int {
	pieces := p.CommandBuffers
	if len(pieces) == 0 {
		pieces = []int{0}
	}
	return append(slices.Clone(pieces), len(p.Dispatches))
}

// Dispatch is one kernel launch. Op, Value and Layer say what of the graph it computes,
// alone or with others: attention in partitions is two dispatches of one value.
type Dispatch struct {
	Kernel    string // host name
	Op        string // its name; "" where there was no graph
	Value     int32  // its number in the graph; 0: of none
	Layer     int    // negative outside of the layers
	Constants []Constant
	Bindings  []Binding
	// Params are the words of the parameter struct, bound at ParamsAt: numbers,
	// expressions of the sizes, or the bits of floats.
	Params   []Expr
	ParamsAt uint32
	Grid     [3]Expr // threadgroups
	Group    [3]uint32
	// Barrier makes the dispatch wait for all before it. Between barriers,
	// dispatches are independent and may run in any order or at once.
	Barrier bool
	// Hints tell the CPU's native kernels how to go about it, by their numbers in package
	// kernels; none, or 0, is what the kernel thinks best.
	Hints []uint32 `cbor:",omitempty"`
	// OnCPU gives the dispatch to the CPU of a target whose other dispatches are the
	// GPU's. Both see the same memory.
	OnCPU bool
}

// Label names the dispatch in captures and messages: "layer 3: attention v9".
func (d *Dispatch) Label() string {
	label := cmp.Or(d.Op, d.Kernel)
	if d.Value != 0 {
		label += fmt.Sprintf(" v%d", d.Value)
	}
	if d.Layer >= 0 {
		label = fmt.Sprintf("layer %d: %s", d.Layer, label)
	}
	if d.OnCPU {
		label += " on the CPU"
	}
	return label
}

// Constant gives a function constant its bits.
type Constant struct{ Index, Bits uint32 }

// Binding binds a buffer at an argument index.
type Binding struct {
	Index  uint32
	Buffer int32 // into Plan.Buffers
	Offset int64 // bytes
	Bytes  Expr  // that the kernel may touch
	Write  bool  // the kernel writes it (it may read it too)
	Read   bool
}

// Note counts a choice of a dispatch.
func (p *Phase) Note(c Choice) {
	i := slices.IndexFunc(p.Choices, func(have Choice) bool {
		have.Dispatches = 0
		return have == c
	})
	if i < 0 {
		i = len(p.Choices)
		p.Choices = append(p.Choices, c)
	}
	p.Choices[i].Dispatches++
}

// SiteOf returns the index of a site, which is added where it is new.
func (p *Phase) SiteOf(site Site) int {
	i := slices.IndexFunc(p.Sites, func(have Site) bool {
		return have.Choice == site.Choice && have.Kernel == site.Kernel && have.Shape == site.Shape
	})
	if i < 0 {
		i = len(p.Sites)
		site.values = map[int32]bool{}
		p.Sites = append(p.Sites, site)
	}
	return i
}

// Reads reports whether a dispatch of the site's phase is one of those that it is about.
func (s *Site) Reads(d *Dispatch) bool { return s.values[d.Value] }
