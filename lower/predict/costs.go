package predict

import (
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Rates are times in µs: per byte to or from memory, per byte from the cache that all cores share,
// per floating-point operation, per operation in tiled products, and from the end of a dispatch to
// the start of one that waits for it.
type Rates struct{ Byte, Cached, Op, Tile, Wait float64 }

// Costs predicts the costs of ops before they are dispatches. It implements [ir.Costs] for passes,
// and has further methods for lower. Without Rates, the option with fewer dispatches wins.
type Costs struct {
	Rates
	// Groups is the minimum number of threadgroups of attention of single tokens at which one
	// processes several query heads of a KV head: at most Heads heads, with at most Elements
	// elements together. All are 0 where the Plan does not choose threadgroups.
	Groups, Heads, Elements int64
}

// SharedHeads returns the number of query heads of a KV head per threadgroup of attention, of heads
// query heads and kv KV heads with head elements each; each is the number of tokens times
// partitions. It is a power of two; the last threadgroup of a KV head may have fewer heads.
func (c Costs) SharedHeads(heads, kv, head, each int64) int64 {
	n := int64(1)
	for n < heads/kv && c.MayShare(2*n, head) && each*kv*((heads/kv+2*n-1)/(2*n)) >= c.Groups {
		n *= 2
	}
	return n
}

// MayShare reports whether one threadgroup can process n query heads of head elements each.
func (c Costs) MayShare(n, head int64) bool {
	return n <= c.Heads && n*head <= c.Elements
}

// WriteRepeats implements [ir.Costs]. Attention that is memory-bound hides the repeated work of the
// write, so that longer is 0.
func (c Costs) WriteRepeats(t *ir.Target, write *ir.Value, tokens int64) (longer, spared float64) {
	cache := write.Type.Elems[1].Cache
	each := ir.OpRope.Work(nil)
	if write.Op != ir.OpRopeQKVWrite {
		each += ir.OpRMSNorm.Work(nil)
	}
	head, heads, kv := int64(cache.Head), write.Type.Elems[0].Shape[1].Eval(&sym.Sizes{}), int64(cache.KVHeads)
	shared := c.SharedHeads(heads, kv, head, 1)
	keys := kv * ((heads/kv + shared - 1) / shared) // made anew, each for its threadgroup
	one := float64(2 * cache.DType.Bytes(head))     // a key and its value
	waits := max(one*float64(kv)*c.Byte, one*float64(keys)*c.Cached)
	if float64(heads*(2*ir.OpMatmul.Work(nil)*head+ir.OpScale.Work(nil)+ir.OpSoftmax.Work(nil)))*c.Op > waits {
		longer = float64(tokens*head*((heads+keys)*(each+rotationWork)-(heads+kv)*each)) * c.Op
	}
	moved := t.ActOf(tokens).Bytes(head*(2*heads+2*kv)) + cache.DType.Bytes(head*2*kv)
	return longer, c.Wait + float64(tokens*moved)*c.Byte
}

// NormRepeats implements [ir.Costs]. In products of up to FewTokens rows, reading the weights hides
// the repeated norm, so that longer is 0.
func (c Costs) NormRepeats(t *ir.Target, norm, product *ir.Value, tokens, rows int64) (longer, spared float64) {
	width, act := norm.Type.Shape.Last(), t.ActOf(tokens)
	tokens = product.Type.Shape[0].Eval(&sym.Sizes{sym.T: tokens, sym.R: rows})
	if tokens > t.FewTokens {
		groups := (product.Type.Shape.Last() + t.NormColumns - 1) / t.NormColumns
		if a, ok := product.Attr.(ir.LinearAttr); ok && a.Gated {
			groups *= 2
		}
		longer = float64(tokens*width*(groups-1)*norm.Op.Work(nil)) * c.Tile
	}
	moved := norm.Args[0].Type.DType.Bytes(width) + act.Bytes(width) // the norm reads and writes, per row
	return longer, c.Wait + float64(tokens*moved)*c.Byte
}

// GroupsExperts implements [ir.Costs]. Products that mix the experts' results or normalise their
// input have no kernel with tiles. It returns false on targets whose kernels partition their own
// work, since these group tokens anyway.
func (c Costs) GroupsExperts(t *ir.Target, product *ir.Value, tokens int64) bool {
	a, _ := ir.AsRoutedLinear(product)
	if c.Groups == 0 || t.SameBits || tokens <= t.FewTokens || a.Mixed || a.Linear.Norm != ir.NoNorm {
		return false
	}
	grouped, apart := c.ExpertTimes(product, tokens)
	return grouped <= apart
}

// ExpertTimes returns the predicted times of a product of experts in a step of tokens tokens:
// grouped in tiles, and with every row reading its expert's weights. It assumes that routers choose
// all experts equally often. The tiles' time includes ordering the rows and, where each expert has
// its own input, as in the last product of a mixture, adding up the experts' results.
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

// tileRows is the number of rows of the matrices that tiles consist of.
const tileRows = 8
