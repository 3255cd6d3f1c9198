package ir

import (
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Target says what the machine that a graph is compiled for can do, and how its Plans are
// laid out. lower fills it from the table of kernels; passes read it. It is a plain table,
// so that a pass needs to know nothing about kernels. Targets differ in what stands here:
// nothing else asks for their names.
type Target struct {
	Name string // "metal" or "cpu"
	// Act is the element type of activations between matrix products. The residual
	// stream and all statistics are F32 on every target.
	Act dtype.Type
	// Kernels has, for each op, a row for every combination of types that there are kernels
	// for. What has no row is decomposed.
	Kernels [NumOps][]Instance
	// FewTokens is the most tokens of a step that share one pass over the weights, in
	// products of a matrix and a few vectors.
	FewTokens int64
	// NormPrologue lists the norms that fused_linear may apply to its input in this range
	// of token counts, and NormTokens is the most tokens for which it has any.
	NormPrologue []NormKind
	NormTokens   int64
	// NormColumns is how many columns of such a product of many tokens share a
	// normalised input.
	NormColumns int64
	// SameBits says that a token's results shall have the same bits in every step that computes
	// it: kernels of one family serve all rows.
	SameBits bool
	// Tokens is the most tokens of a step, and OneEach says that no sequence brings more
	// than one of them.
	Tokens  int64
	OneEach bool
	// Rows is how many rows of logits such a step is taken to want.
	Rows int64
	// Costs are what choices between ops go by.
	Costs Costs
	// Gathers says that fused_linear may take its input's rows by an index where it may
	// normalise them.
	Gathers bool
	// Gated says that fused_linear may compute a gate of two products.
	Gated bool

	MaxHead int // elements of a head that attention and the fused cache writes take

	// XSplit says that caches have the layout of vLLM and Aphrodite, keys in pieces of 16
	// bytes, which kernels of its own write and read.
	XSplit bool

	// Emulates says that kernels which are not written for the target's processor run there
	// from their Metal source.
	Emulates bool

	Schedule
}

// Schedule says how lower lays out a Plan for a target.
type Schedule struct {
	// GPU says that dispatches are a GPU's, but for matrix products that are placed on the
	// CPU beside it, which sees the same memory. Otherwise all are a CPU's.
	GPU bool
	// Launches says that kernels run in the threadgroups that the Plan cuts them into. What
	// they are is then chosen by size, and the Plan notes why. Kernels that cut their work
	// themselves take the Plan's only where they are emulated.
	Launches bool
	// Rearranges says that the device may keep a matrix in an order of its own.
	Rearranges bool
	// FirstBuffer is how many dispatches the first command buffer has at most, 0 where there
	// are none: a processor that obeys one step at a time has nothing to be handed early.
	// The next may have BufferGrowth times as many. BufferTime, in µs on the slowest chip,
	// is what none of several dispatches is predicted to exceed.
	FirstBuffer, BufferGrowth int
	BufferTime                float64
	// SplitContext is the context length beyond which the attention of single tokens
	// is cut along the keys, to keep many cores busy; 0 for never. SplitKeys is how many keys
	// a part has. Where the two are equal, no context is cut in one step and whole in another,
	// however long those beside it are.
	SplitContext, SplitKeys int64
	// Chip is what choices by size are made for: "m4-max", or "" for no chip in
	// particular. Family is Apple's number of its GPU's, and Cores how many it has.
	Chip          string
	Family, Cores int
}

// Costs answers what a rule asks to know whether it pays, for steps of so many tokens; see
// package lower/predict. Times are in µs; where a rate is not known, they are 0.
type Costs interface {
	// WriteRepeats compares what attention takes longer where each threadgroup does for its
	// query heads what a fused write of Q, K and V does once with what the write takes by itself.
	WriteRepeats(t *Target, write *Value, tokens int64) (longer, spared float64)
	// NormRepeats compares what a product takes longer where each group of its columns
	// normalises the input for itself with what the norm takes by itself, in a step that wants
	// so many rows of logits.
	NormRepeats(t *Target, norm, product *Value, tokens, rows int64) (longer, spared float64)
	// GroupsExperts reports whether a product of experts runs in tiles, each of tokens that go
	// to one expert and read its weights once, in place of every token for itself.
	GroupsExperts(t *Target, product *Value, tokens int64) bool
}

// Instance is a row of what a target computes: kernels of an op for some element types.
type Instance struct {
	Types
	// Weights holds the stored types of the matrices that the kernels read; none where the
	// op reads no matrix.
	Weights dtype.Set
	// Native says that the kernels are written for the target's processor: where others are
	// emulated, they compute the same, far slower.
	Native bool
}

// Types tell the kernels of an op apart: the element type of what it reads, which is the
// first operand that is a tensor, of what it computes, which is the first result that is
// one, and of the cache that it reads or writes. Invalid stands for none.
type Types struct{ In, Out, Cache dtype.Type }

// Types returns what a value asks of its kernels.
func (v *Value) Types() Types {
	var t Types
	for _, a := range v.Args {
		t.see(a.Type, &t.In)
	}
	if v.Type.Kind != Tuple {
		t.see(v.Type, &t.Out)
	}
	for _, e := range v.Type.Elems {
		t.see(e, &t.Out)
	}
	return t
}

func (t *Types) see(of Type, first *dtype.Type) {
	switch {
	case of.IsRecurrent():
		t.Cache = dtype.F32
	case of.Kind == State:
		t.Cache = of.Cache.DType
	case of.Kind == Tensor && *first == dtype.Invalid:
		*first = of.DType
	}
}

// Row returns the kernels for a value, whatever weights it reads; nil where there are none.
func (t *Target) Row(v *Value) *Instance {
	rows := t.Kernels[v.Op]
	want := v.Types()
	if i := slices.IndexFunc(rows, func(row Instance) bool { return row.Types == want }); i >= 0 {
		return &rows[i]
	}
	return nil
}

// Native reports whether products of activations of a type are written for the target's
// processor.
func (t *Target) Native(act dtype.Type) bool {
	return slices.ContainsFunc(t.Kernels[OpLinear], func(row Instance) bool { return row.In == act && row.Native })
}

// Has reports whether there are kernels for an op, of some types.
func (t *Target) Has(op Op) bool { return len(t.Kernels[op]) > 0 }
