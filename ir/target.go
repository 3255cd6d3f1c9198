package ir

import (
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
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
	// Rates are what choices between ops go by; without any, fewer dispatches are better.
	Rates Rates
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
	// AttentionGroups is how many threadgroups attention of single tokens should have at
	// least before one takes several of the query heads that read a KV head: AttentionHeads at
	// most, of at most AttentionElements elements together. 0 where threadgroups are not the
	// Plan's to choose.
	AttentionGroups, AttentionHeads, AttentionElements int64
	// Chip is what choices by size are made for: "m4-max", or "" for no chip in
	// particular. Family is Apple's number of its GPU's, and Cores how many it has.
	Chip          string
	Family, Cores int
}

// Rates are times in µs: of a byte to or from memory, of one out of the cache that all cores
// share, of a floating-point operation, of one in products of tiles, and from the end of a
// dispatch to the start of one that waits for it.
type Rates struct{ Byte, Cached, Op, Tile, Wait float64 }

// RotationWork is what the cosine and the sine of a rotation cost for an element, in
// operations as [Op.Work] counts them: some forty for either of a pair, whose angle reaches
// the context's length in radians.
const RotationWork = 40

// SharedHeads is how many of the query heads that read a KV head a threadgroup of attention
// takes, where for each of them there are so many threadgroups: tokens, times the parts that
// their keys are cut into. It is a power of two; the last threadgroup of a KV head may have
// fewer heads.
func (t *Target) SharedHeads(heads, kv, head, each int64) int64 {
	n := int64(1)
	for n < heads/kv && t.MayShare(2*n, head) && each*kv*((heads/kv+2*n-1)/(2*n)) >= t.AttentionGroups {
		n *= 2
	}
	return n
}

// MayShare tells whether a threadgroup may take so many query heads.
func (t *Target) MayShare(n, head int64) bool {
	return n <= t.AttentionHeads && n*head <= t.AttentionElements
}

// WriteRepeats compares what attention takes longer where each threadgroup does for its query
// heads what a fused write of Q, K and V does once, in a step of so many tokens, with what the
// write takes by itself. Attention that waits for memory does it meanwhile.
func (t *Target) WriteRepeats(write *Value, tokens int64) (longer, spared float64) {
	a, c := write.Attr.(RopeWriteAttr), write.Args[1].Type.Cache
	each := OpRope.Work(nil)
	if write.Op == OpHeadNormRopeKVWrite {
		each += OpRMSNorm.Work(nil)
	}
	head, heads, kv := int64(c.Head), int64(a.Heads), int64(c.KVHeads)
	shared := t.SharedHeads(heads, kv, head, 1)
	keys := kv * ((heads/kv + shared - 1) / shared) // made anew, each for its threadgroup
	one := float64(2 * c.DType.Bytes(head))         // a key and its value
	waits := max(one*float64(kv)*t.Rates.Byte, one*float64(keys)*t.Rates.Cached)
	if float64(heads*(2*OpMatmul.Work(nil)*head+OpScale.Work(nil)+OpSoftmax.Work(nil)))*t.Rates.Op > waits {
		longer = float64(tokens*head*((heads+keys)*(each+RotationWork)-(heads+kv)*each)) * t.Rates.Op
	}
	moved := t.Act.Bytes(head*(2*heads+2*kv)) + c.DType.Bytes(head*2*kv)
	return longer, t.Rates.Wait + float64(tokens*moved)*t.Rates.Byte
}

// NormRepeats compares what a product takes longer where each group of its columns normalises
// the input for itself with what the norm takes by itself, in a step of so many tokens that
// wants so many rows of logits. Few rows share a pass over the weights, whose bytes they wait
// for meanwhile.
func (t *Target) NormRepeats(norm, product *Value, tokens, rows int64) (longer, spared float64) {
	width := norm.Type.Shape.Last()
	tokens = product.Type.Shape[0].Eval(&sym.Sizes{sym.T: tokens, sym.R: rows})
	if tokens > t.FewTokens {
		groups := (product.Type.Shape.Last() + t.NormColumns - 1) / t.NormColumns
		if a, ok := product.Attr.(LinearAttr); ok && a.Gated {
			groups *= 2
		}
		longer = float64(tokens*width*(groups-1)*norm.Op.Work(nil)) * t.Rates.Tile
	}
	moved := norm.Args[0].Type.DType.Bytes(width) + t.Act.Bytes(width) // read by the norm, and what it leaves
	return longer, t.Rates.Wait + float64(tokens*moved)*t.Rates.Byte
}

// GroupsExperts tells whether a product of experts in a step of so many tokens runs in tiles,
// each of tokens that go to one expert and read its weights once, in place of every token for
// itself. What is weighted and added up in the product, or normalised on its way into it, has no
// tiles, and what cuts its work itself groups tokens without being told.
func (t *Target) GroupsExperts(product *Value, tokens int64) bool {
	a, _ := AsRoutedLinear(product)
	if !t.Launches || t.SameBits || tokens <= t.FewTokens || a.Mixed || a.Linear.Norm != NoNorm {
		return false
	}
	grouped, apart := t.ExpertTimes(product, tokens)
	return grouped <= apart
}

// ExpertTimes compares what a product of experts takes in tiles with what it takes where each
// row of its result reads its expert's weights for itself, in a step of so many tokens whose
// routers choose any expert as often as another. Tiles wait for rows to be put in order, and
// where each expert has an input of its own, as in the last product of a mixture, for their
// results to be added up.
func (t *Target) ExpertTimes(product *Value, tokens int64) (grouped, apart float64) {
	_, o := AsRoutedLinear(product)
	number := func(d Dim) float64 { return float64(d.Eval(&sym.Sizes{})) }
	experts, top := number(o.Weights[0].Type.Shape[0]), number(o.Experts.Type.Shape[1])
	rows := float64(tokens) * top
	used := experts * (1 - math.Pow(1-top/experts, float64(tokens)))
	var bytes, work float64 // of one expert, and of one of its rows
	for _, w := range o.Weights {
		n := number(w.Type.Shape[1]) * number(w.Type.Shape[2])
		bytes += float64(w.Type.DType.Bytes(int64(n)))
		work += float64(OpLinear.Work(nil)) * n
	}
	apart = rows * max(bytes*t.Rates.Byte, work*t.Rates.Op)
	padded := rows + used*(tileRows-1)/2 // an expert's last rows of matrices are half full
	grouped = t.Rates.Wait + max(used*bytes*t.Rates.Byte, padded*work*t.Rates.Tile)
	if len(o.X.Type.Shape) == 3 {
		sums := rows * number(o.Weights[0].Type.Shape[1]) * float64(dtype.F32.Bytes(1))
		grouped += t.Rates.Wait + 2*sums*t.Rates.Byte
	}
	return grouped, apart
}

// tileRows are the rows of the matrices that tiles are made of.
const tileRows = 8

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
