// Package plan defines the interface between the compiler and a device: the [Plan], its file
// format, and its validation.
//
// A Plan consists of flat tables of numbers. A [Buffer] describes memory, a [Dispatch] the launch of
// a kernel on buffers, and a [Phase] the dispatches of a step within a range of sizes. Numbers that
// differ from step to step are [Expr]essions of symbols (ir/sym). [Owners] are inputs that the
// device derives from others. Ops appear as names and values of a graph as numbers, to label
// dispatches in captures and pictures; a device needs neither.
//
//	f, err := plan.Read(file)                       // validated
//	phase := f.Plan.PhaseFor(&sizes, longest)       // −1: no phase takes such a step
//	for _, d := range f.Plan.Phases[phase].Dispatches {
//		groups := d.Grid[0].Eval(&sizes)
//	}
//
// Laws: whoever makes a Plan or changes one calls [Plan.Validate]; package lower and [Read] do. A
// device takes a valid Plan only, and relies on every index, size, offset and launch of it. The same
// [File] gives the same bytes. The package imports the table of kernels and the leaves below ir, no
// graphs.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Plan is a compiled model: flat tables that a device executes as they are. It holds no weights and
// no path; Tensors lists the tensors that the model file must hold.
type Plan struct {
	Model   string     // name of the graph
	Target  string     // "metal" or "cpu"
	Act     dtype.Type // element type of activations between matrix products, see ir.Target.Act
	Context int        // maximum slots of a sequence's cache: the bound of Smax
	Vocab   int64      // rows of the smallest embedding table; 0: no table
	Caches  []Cache    // by layer; the zero value for a layer without a cache
	Buffers []Buffer
	Phases  []Phase
	Tensors []Tensor
	// Tuned is the hash of the tuning that the Plan was compiled with; "" for none.
	Tuned string `cbor:",omitempty"`

	valid *Plan // the Plan itself if Validate accepted it, so that its copies are not valid
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
	// Window is the number of keys that a token sees, at most, see ir.Cache; 0: all.
	Window int `cbor:",omitzero"`
	// Latent is set where one buffer, CacheK, holds keys and values, see ir.Cache.
	Latent bool `cbor:",omitzero"`
}

// Recurrent is the shape of the recurrent states of one layer, [states, Rows, Width] floats, of which a
// step names those that its sequences read and write.
type Recurrent struct {
	Rows, Width int
	Block       int // tokens of a block, those of the KV cache
}

// Kind is the purpose of a buffer, which determines its provider and lifetime.
type Kind uint8

// The kinds of buffer.
const (
	Weight Kind = iota + 1 // a tensor of the model file, read-only
	Const                  // bytes that the Plan holds, read-only
	Arena                  // intermediate values of a step; one buffer, offsets planned
	CacheK                 // keys of one layer, [blocks, KV, block, D]
	CacheV                 // values of one layer
	State                  // recurrent states of one layer, [states, rows, width]
	Input                  // a per-step input, int32
	Output                 // a result that the caller reads
)

var kindNames = map[Kind]string{
	Weight: "weight", Const: "const", Arena: "arena", CacheK: "cache_k", CacheV: "cache_v", State: "state", Input: "input", Output: "output",
}

// Kept reports whether buffers of the kind persist from step to step, with one part per block of
// the cache or state.
func (k Kind) Kept() bool { return k == CacheK || k == CacheV || k == State }

// String returns the lower-case name.
func (k Kind) String() string { return kindNames[k] }

// Buffer is one memory object that dispatches bind, at offsets.
type Buffer struct {
	Kind  Kind
	Name  string     // of the tensor, input or output; "k.3" for a cache, "conv.3" for a state
	DType dtype.Type // of the elements as the kernels read them
	Bytes Expr       // Arena: the largest of all phases. Caches: of one block; states: of one
	Layer int        // of a cache or a state
	Data  []byte     // of a Const

	// Recurrent is the shape of a State.
	Recurrent Recurrent `cbor:",omitzero"`
	// Rearrange marks a Weight, a matrix, that the device may store in the layout that its kernels
	// read fastest.
	Rearrange bool
	// Owners is set for an Input that the device writes itself.
	Owners *Owners `cbor:",omitempty"`
	// Lines marks a Weight, a matrix, that the device copies when it loads the Plan, with scales
	// separate from codes. Dispatches that read it pass its type plus [kernels.Lines].
	Lines bool `cbor:",omitempty"`
}

// Block returns the number of slots of a block of the caches, or Context for a Plan without any.
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

// Windows returns the windows of the caches, 0 first, which recurrent states count as, and then the
// largest first. Layers of one window have their keys and values in the same blocks.
func (p *Plan) Windows() []int {
	var list []int
	for _, c := range p.Caches {
		if c.Block > 0 && !slices.Contains(list, c.Window) {
			list = append(list, c.Window)
		}
	}
	if p.Stateful() && !slices.Contains(list, 0) {
		list = append(list, 0)
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Compare(uint(b)-1, uint(a)-1) })
	return list
}

// Stateful reports whether layers have recurrent states. A sequence continues only from a state that
// a step has left where the sequence was then.
func (p *Plan) Stateful() bool {
	return slices.ContainsFunc(p.Buffers, func(b Buffer) bool { return b.Kind == State })
}

// PhaseFor returns the index of the first phase that runs steps of these sizes whose longest
// sequence has longest tokens; −1 if there is none.
func (p *Plan) PhaseFor(sizes *sym.Sizes, longest int64) int {
	return slices.IndexFunc(p.Phases, func(ph Phase) bool { return ph.Takes(sizes, longest) })
}

// Phase is the part of a Plan for a range of steps, such as one token of one sequence, a batch of
// sequences with one token each, or prompts. Phases share all buffers except the arena's contents.
type Phase struct {
	Name string
	// Least and Bounds are the sizes of the smallest and the largest step of the phase. The arena
	// is planned for the largest. Smax is a bound on the context.
	Least, Bounds sym.Sizes
	// Longest is the range of the number of tokens of the longest sequence of a step.
	Longest        Interval
	Dispatches     []Dispatch
	CommandBuffers []int // index of the first dispatch of each; empty on targets without
	ArenaBytes     int64 // with every size at its bound
	UnplannedBytes int64 // size of the arena if no values shared memory
	MinArenaBytes  int64 // largest sum of live bytes at one point: the lower bound of any arena
	Choices        []Decision
	// Sites are the choices that can be measured, in the order in which lower made them; empty in
	// a Plan from a file.
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

// Takes reports whether the phase can run steps of these sizes whose longest sequence has longest
// tokens. [Plan.PhaseFor] chooses the first of several such phases.
func (p *Phase) Takes(sizes *sym.Sizes, longest int64) bool {
	return p.Holds(sizes) && p.Longest.Holds(longest)
}

// Pieces returns the boundaries of the command buffers: the index of the first dispatch of each, and
// the number of dispatches. Without command buffers, all dispatches are one piece.
func (p *Phase) Pieces() []int {
	pieces := p.CommandBuffers
	if len(pieces) == 0 {
		pieces = []int{0}
	}
	return append(slices.Clone(pieces), len(p.Dispatches))
}

// Dispatch is one kernel launch. Op, Value and Layer identify the value of the graph that it
// computes. Several dispatches can compute one value: attention in partitions is two.
type Dispatch struct {
	Kernel    string // host name
	Op        string // name of the op; "" without a graph
	Value     int32  // number of the value in the graph; 0: none
	Layer     int    // negative outside the layers
	Constants []Constant
	Bindings  []Binding
	// Params are the words of the parameter struct, bound at ParamsAt: numbers,
	// expressions of the sizes, or the bits of floats.
	Params   []Expr
	ParamsAt uint32
	Grid     [3]Expr // threadgroups
	Group    [3]uint32
	// Barrier makes the dispatch wait for all dispatches before it. Between barriers, dispatches
	// are independent and may run concurrently in any order.
	Barrier bool
	// Hints are tuning parameters of the CPU's native kernels, indexed by [kernels.Hint]. Where
	// missing or 0, the kernel chooses.
	Hints []uint32 `cbor:",omitempty"`
	// OnCPU makes the CPU run the dispatch, on a target whose other dispatches run on the GPU. Both
	// share memory.
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

// Constant is the value of a function constant, as bits.
type Constant struct{ Index, Bits uint32 }

// Binding binds a range of a buffer to an argument index.
type Binding struct {
	Index  uint32
	Buffer int32 // into Plan.Buffers
	Offset int64 // bytes
	Bytes  Expr  // that the kernel may touch
	Write  bool  // the kernel writes it (it may read it too)
	Read   bool
}

// Note records a decision for one dispatch: it adds c to Choices if new, and counts the dispatch.
func (p *Phase) Note(c Decision) {
	i := slices.IndexFunc(p.Choices, func(have Decision) bool {
		have.Dispatches = 0
		return have == c
	})
	if i < 0 {
		i = len(p.Choices)
		p.Choices = append(p.Choices, c)
	}
	p.Choices[i].Dispatches++
}

// SiteOf returns the index in Sites of the site with the same key, which it adds if new.
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

// Reads reports whether a dispatch of the site's phase computes a value of the site.
func (s *Site) Reads(d *Dispatch) bool { return s.values[d.Value] }
