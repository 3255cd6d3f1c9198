package ir

import (
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Target describes the machine that graphs are compiled for: its kernels, limits and costs. Package
// lower fills it from the table of kernels, so that passes need no knowledge of kernels. A [Steps]
// holds what depends on the size of a step.
type Target struct {
	Name string // "metal" or "cpu"
	// Act is the element type of activations between matrix products, in steps of more than
	// FewTokens tokens. The residual stream and all statistics are F32 on every target. See
	// [Target.ActOf].
	Act dtype.Type
	// Kernels holds, for each op, a row for every combination of types that has kernels. Passes
	// decompose values without a row.
	Kernels [NumOps][]Instance
	// FewTokens is the maximum number of tokens of a step whose products run as mat-vec, where
	// the tokens share one pass over the weights.
	FewTokens int64
	// NormTokens is the maximum number of tokens of a step whose products normalise their input:
	// by a norm of FewNorms in steps of up to FewTokens tokens, of ManyNorms in larger ones. See
	// [Target.Norms].
	NormTokens          int64
	FewNorms, ManyNorms []NormKind
	// NormColumns is the number of columns of a product of many tokens that share one
	// normalisation of the input.
	NormColumns int64
	// NormsApart reports whether each threadgroup of a product normalises the input while it waits
	// for weights. Several products may then normalise the same input.
	NormsApart bool
	// SameBits makes a token's results bit-identical in every step that computes them: one family
	// of kernels computes all rows.
	SameBits bool
	// Costs predicts the costs that passes compare to choose between ops.
	Costs Costs
	// Gathers reports whether fused_linear has kernels that gather input rows by index, in steps
	// in which it has kernels that normalise them.
	Gathers bool
	// Gated reports whether fused_linear has kernels that compute a gate of two products.
	Gated bool

	// MaxHead is the maximum number of elements of a head in attention and the fused cache writes,
	// MaxLatent that of a row of a latent cache, HeadStep what either is a multiple of; 0: 1. See
	// [Target.TakesHeads].
	MaxHead, MaxLatent, HeadStep int

	// XSplit reports whether caches have the x-split layout of vLLM and Aphrodite, with keys in
	// pieces of 16 bytes. That layout has its own kernels.
	XSplit bool
}

// TakesHeads reports whether attention over a cache and the fused writes to it have kernels for its
// heads. Others run as source ops.
func (t *Target) TakesHeads(c Cache) bool {
	return c.Head <= t.maxHead(c) && c.Head%max(t.HeadStep, 1) == 0
}

// maxHead is the maximum number of elements of a head of such a cache.
func (t *Target) maxHead(c Cache) int {
	if c.Latent {
		return t.MaxLatent
	}
	return t.MaxHead
}

// Steps bounds the steps that a graph is compiled for.
type Steps struct {
	Tokens  int64 // maximum
	Rows    int64 // assumed rows of logits of such a step
	OneEach bool  // each sequence has one token
}

// StepsOf returns the bounds of steps of one sequence with up to n tokens and one row of logits.
func StepsOf(n int64) Steps { return Steps{Tokens: n, Rows: 1, OneEach: n == 1} }

// Norms returns the norms that fused_linear can apply to its input in a step.
func (t *Target) Norms(s Steps) []NormKind {
	switch {
	case s.Tokens <= t.FewTokens:
		return t.FewNorms
	case s.Tokens <= t.NormTokens:
		return t.ManyNorms
	}
	return nil
}

// ActOf returns the element type of activations in steps of up to tokens tokens: F32 for few, whose
// products are no tiles of Act. Few activations are a small part of the bytes that such a step reads.
func (t *Target) ActOf(tokens int64) dtype.Type {
	if tokens <= t.FewTokens {
		return dtype.F32
	}
	return t.Act
}

// Costs predicts whether a fusion rule saves time in steps of a number of tokens; package
// lower/predict implements it. Times are in µs, and 0 where a rate is unknown.
type Costs interface {
	// WriteRepeats returns the costs of fusing the write of Q, K and V into attention: the time
	// by which attention takes longer because each threadgroup repeats the write's work for its
	// query heads, and the time of the write's own dispatch, which is spared.
	WriteRepeats(t *Target, write *Value, tokens int64) (longer, spared float64)
	// NormRepeats returns the costs of fusing a norm into a product, in a step with rows rows of
	// logits: the time by which the product takes longer because each group of its columns
	// normalises the input, and the time of the norm's own dispatch, which is spared.
	NormRepeats(t *Target, norm, product *Value, tokens, rows int64) (longer, spared float64)
	// GroupsExperts reports whether a product of experts groups tokens by expert, in tiles that
	// read the expert's weights once. Otherwise every token reads its experts' weights.
	GroupsExperts(t *Target, product *Value, tokens int64) bool
}

// Instance describes the kernels of an op for one combination of element types.
type Instance struct {
	Types
	// Weights holds the stored types of the matrices that the kernels read; it is empty where the
	// op reads no matrix.
	Weights dtype.Set
	// Native reports whether the kernels are written for the target's processor. Otherwise they
	// are emulated from their Metal source: same results, far slower.
	Native bool
}

// Types distinguishes the kernels of an op by element types: In of the first operand that is a
// tensor, Out of the first result that is one, Cache of the cache that the op reads or writes.
// Invalid stands for none.
type Types struct{ In, Out, Cache dtype.Type }

// Types returns the element types that a value's kernels must have.
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

// Row returns the kernels with a value's element types, or nil. It ignores the types of weights.
func (t *Target) Row(v *Value) *Instance {
	rows := t.Kernels[v.Op]
	want := v.Types()
	if i := slices.IndexFunc(rows, func(row Instance) bool { return row.Types == want }); i >= 0 {
		return &rows[i]
	}
	return nil
}

// Native reports whether products with activations of type act have kernels written for the
// target's processor.
func (t *Target) Native(act dtype.Type) bool {
	return slices.ContainsFunc(t.Kernels[OpLinear], func(row Instance) bool { return row.In == act && row.Native })
}

// Has reports whether op has kernels for any types.
func (t *Target) Has(op Op) bool { return len(t.Kernels[op]) > 0 }
