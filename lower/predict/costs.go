package predict

import (
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Rates are times in µs: of a byte to or from memory, of one out of the cache that all cores
// share, of a floating-point operation, of one in products of tiles, and from the end of a
// dispatch to the start of one that waits for it.
type Rates struct{ Byte, Cached, Op, Tile, Wait float64 }

// Costs is what is predicted of ops before they are dispatches: [ir.Costs] of a target, and what
// lower asks besides. Without Rates, fewer dispatches are better.
type Costs struct {
	Rates
	// Groups is how many threadgroups attention of single tokens should have at least before
	// one takes several of the query heads that read a KV head: Heads at most, of at most
	// Elements elements together. 0 where threadgroups are not the Plan's to choose.
	Groups, Heads, Elements int64
}

// RotationWork is what the cosine and the sine of a rotation cost for an element, in
// operations as [ir.Op.Work] counts them: some forty for either of a pair, whose angle reaches
// the context's length in radians.
const RotationWork = 40

// SharedHeads is how many of the query heads that read a KV head a threadgroup of attention
// takes, where for each of them there are so many threadgroups: tokens, times the parts that
// their keys are cut into. It is a power of two; the last threadgroup of a KV head may have
// fewer heads.
func (c Costs) SharedHeads(heads, kv, head, each int64) int64 {
	n := int64(1)
	for n < heads/kv && c.MayShare(2*n, head) && each*kv*((heads/kv+2*n-1)/(2*n)) >= c.Groups {
		n *= 2
	}
	return n
}

// MayShare reports whether a threadgroup may take so many query heads.
func (c Costs) MayShare(n, head int64) bool {
	return n <= c.Heads && n*head <= c.Elements
}

// WriteRepeats compares what attention takes longer where each threadgroup does for its query
// heads what a fused write of Q, K and V does once, in a step of so many tokens, with what the
// write takes by itself. Attention that waits for memory does it meanwhile.
func (c Costs) WriteRepeats(t *ir.Target, write *ir.Value, tokens int64) (longer, spared float64) {
	a, cache := write.Attr.(ir.RopeWriteAttr), write.Args[1].Type.Cache
	each := ir.OpRope.Work(nil)
	if write.Op == ir.OpHeadNormRopeKVWrite {
		each += ir.OpRMSNorm.Work(nil)
	}
	head, heads, kv := int64(cache.Head), int64(a.Heads), int64(cache.KVHeads)
	shared := c.SharedHeads(heads, kv, head, 1)
	keys := kv * ((heads/kv + shared - 1) / shared) // made anew, each for its threadgroup
	one := float64(2 * cache.DType.Bytes(head))     // a key and its value
	waits := max(one*float64(kv)*c.Byte, one*float64(keys)*c.Cached)
	if float64(heads*(2*ir.OpMatmul.Work(nil)*head+ir.OpScale.Work(nil)+ir.OpSoftmax.Work(nil)))*c.Op > waits {
		longer = float64(tokens*head*((heads+keys)*(each+RotationWork)-(heads+kv)*each)) * c.Op
	}
	moved := t.Act.Bytes(head*(2*heads+2*kv)) + cache.DType.Bytes(head*2*kv)
	return longer, c.Wait + float64(tokens*moved)*c.Byte
}

// NormRepeats compares what a product takes longer where each group of its columns normalises
// the input for itself with what the norm takes by itself, in a step of so many tokens that
// wants so many rows of logits. Few rows share a pass over the weights, whose bytes they wait
// for meanwhile.
func (c Costs) NormRepeats(t *ir.Target, norm, product *ir.Value, tokens, rows int64) (longer, spared float64) {
	width := norm.Type.Shape.Last()
	tokens = product.Type.Shape[0].Eval(&sym.Sizes{sym.T: tokens, sym.R: rows})
	if tokens > t.FewTokens {
		groups := (product.Type.Shape.Last() + t.NormColumns - 1) / t.NormColumns
		if a, ok := product.Attr.(ir.LinearAttr); ok && a.Gated {
			groups *= 2
		}
		longer = float64(tokens*width*(groups-1)*norm.Op.Work(nil)) * c.Tile
	}
	moved := norm.Args[0].Type.DType.Bytes(width) + t.Act.Bytes(width) // read by the norm, and what it leaves
	return longer, c.Wait + float64(tokens*moved)*c.Byte
}

// GroupsExperts reports whether a product of experts in a step of so many tokens runs in tiles,
// each of tokens that go to one expert and read its weights once, in place of every token for
// itself. What is weighted and added up in the product, or normalised on its way into it, has no
// tiles, and what cuts its work itself groups tokens without being told.
func (c Costs) GroupsExperts(t *ir.Target, product *ir.Value, tokens int64) bool {
	a, _ := ir.AsRoutedLinear(product)
	if c.Groups == 0 || t.SameBits || tokens <= t.FewTokens || a.Mixed || a.Linear.Norm != ir.NoNorm {
		return false
	}
	grouped, apart := c.ExpertTimes(product, tokens)
	return grouped <= apart
}

// ExpertTimes compares what a product of experts takes in tiles with what it takes where each
// row of its result reads its expert's weights for itself, in a step of so many tokens whose
// routers choose any expert as often as another. Tiles wait for rows to be put in order, and
// where each expert has an input of its own, as in the last product of a mixture, for their
// results to be added up.
func (c Costs) ExpertTimes(product *ir.Value, tokens int64) (grouped, apart float64) {
	_, o := ir.AsRoutedLinear(product)
	number := func(d ir.Dim) float64 { return float64(d.Eval(&sym.Sizes{})) }
	experts, top := number(o.Weights[0].Type.Shape[0]), number(o.Experts.Type.Shape[1])
	rows := float64(tokens) * top
	used := experts * (1 - math.Pow(1-top/experts, float64(tokens)))
	var bytes, work float64 // of one expert, and of one of its rows
	for _, w := range o.Weights {
		n := number(w.Type.Shape[1]) * number(w.Type.Shape[2])
		bytes += float64(w.Type.DType.Bytes(int64(n)))
		work += float64(ir.OpLinear.Work(nil)) * n
	}
	apart = rows * max(bytes*c.Byte, work*c.Op)
	padded := rows + used*(tileRows-1)/2 // an expert's last rows of matrices are half full
	grouped = c.Wait + max(used*bytes*c.Byte, padded*work*c.Tile)
	if len(o.X.Type.Shape) == 3 {
		sums := rows * number(o.Weights[0].Type.Shape[1]) * float64(dtype.F32.Bytes(1))
		grouped += c.Wait + 2*sums*c.Byte
	}
	return grouped, apart
}

// tileRows are the rows of the matrices that tiles are made of.
const tileRows = 8
