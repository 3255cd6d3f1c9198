package ir

import (
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Target is the table of what a machine can do that graphs are compiled for. lower fills it from
// the table of kernels and passes read it, so that a pass knows nothing about kernels. What
// differs by the size of a step is a [Step] beside it.
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
	// NormTokens is the most tokens of a step whose products normalise their input: by a norm of
	// FewNorms in a step of FewTokens or fewer, else by one of ManyNorms. See [Target.Norms].
	NormTokens          int64
	FewNorms, ManyNorms []NormKind
	// NormColumns is the number of columns of a product of many tokens that share a
	// normalised input.
	NormColumns int64
	// NormsApart reports that each threadgroup normalises the input of a product while it waits
	// for weights, so that several products may normalise the same input.
	NormsApart bool
	// SameBits reports that a token's results have the same bits in every step that computes
	// it: kernels of one family serve all rows.
	SameBits bool
	// Costs are what choices between ops go by.
	Costs Costs
	// Gathers reports that fused_linear may take its input's rows by an index where it may
	// normalise them.
	Gathers bool
	// Gated reports that fused_linear may compute a gate of two products.
	Gated bool

	MaxHead int // elements of a head that attention and the fused cache writes take

	// XSplit reports that caches have the layout of vLLM and Aphrodite, keys in pieces of 16
	// bytes, which kernels of its own write and read.
	XSplit bool
}

// Step bounds the steps that a graph is compiled for.
type Step struct {
	Tokens  int64 // the most
	Rows    int64 // of logits that such a step is taken to want
	OneEach bool  // no sequence brings more than one token
}

// StepOf returns the bounds of steps of one sequence that bring up to n tokens and want the
// logits of one.
func StepOf(n int64) Step { return Step{Tokens: n, Rows: 1, OneEach: n == 1} }

// Norms returns the norms that fused_linear may apply to its input in a step.
func (t *Target) Norms(s Step) []NormKind {
	switch {
	case s.Tokens <= t.FewTokens:
		return t.FewNorms
	case s.Tokens <= t.NormTokens:
		return t.ManyNorms
	}
	return nil
}

// Costs predicts whether a rule pays in steps of a number of tokens; see package lower/predict.
// Times are in µs, and 0 where a rate is not known.
type Costs interface {
	// WriteRepeats compares what attention takes longer where each threadgroup does for its
	// query heads what a fused write of Q, K and V does once with what the write takes by itself.
	WriteRepeats(t *Target, write *Value, tokens int64) (longer, spared float64)
	// NormRepeats compares what a product takes longer where each group of its columns
	// normalises the input for itself with what the norm takes by itself, in a step that wants
	// a number of rows of logits.
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
