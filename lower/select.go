package lower

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower/plan"
)

// selectors give each op its kernel: one row an op. An op without a row has no
// kernel on any target; leaves and aliases need none.
var selectors map[ir.Op]func(*phase, *ir.Value) error

func init() {
	selectors = map[ir.Op]func(*phase, *ir.Value) error{
		ir.OpInput: leaf, ir.OpWeight: leaf, ir.OpConst: leaf, ir.OpCache: leaf, ir.OpState: leaf,
		ir.OpReshape: leaf, ir.OpSelect: leaf,

		ir.OpEmbed:      embed,
		ir.OpLinear:     linear,
		ir.OpRMSNorm:    rmsNorm,
		ir.OpLayerNorm:  layerNorm,
		ir.OpTranspose:  transpose,
		ir.OpSlice:      slice,
		ir.OpRope:       rope,
		ir.OpCacheWrite: cacheWrite,
		ir.OpCacheRead:  cacheRead,
		ir.OpCopyBlocks: copyBlocks,
		ir.OpShortConv:  shortConv,
		ir.OpDeltaNet:   deltaNet,
		ir.OpRepeatKV:   repeatKV,
		ir.OpMatmul:     matmul,
		ir.OpMask:       mask,
		ir.OpSoftmax:    softmax,
		ir.OpCast:       cast,
		ir.OpGain:       gain,
		ir.OpGatherRows: gatherRows,
		ir.OpArgmax:     argmax,
		ir.OpTopK:       topK,

		ir.OpExpertLinear: expertLinear,
		ir.OpWeightedSum:  weightedSum,

		ir.OpFusedLinear:         linear,
		ir.OpRoutedLinear:        expertLinear,
		ir.OpNormResidual:        normResidual,
		ir.OpGatedShortConv:      shortConv,
		ir.OpAttention:           attention,
		ir.OpQKVWrite:            qkvWrite,
		ir.OpRopeQKVWrite:        ropeWrite,
		ir.OpHeadNormRopeKVWrite: ropeWrite,
		ir.OpRepeatKVPair:        repeatKV,

		ir.OpRopeQKVWriteAttention:        attentionWrite,
		ir.OpHeadNormRopeKVWriteAttention: attentionWrite,
	}
	for op := range elementwiseOps {
		selectors[op] = elementwise
	}
}

func leaf(*phase, *ir.Value) error { return nil }

func one() plan.Expr { return plan.Number(1) }

func size(n int64) plan.Expr { return plan.Number(n) }

func float(x float64) plan.Expr { return plan.Number(int64(math.Float32bits(float32(x)))) }

// over returns the number of groups of n that cover the extent.
func over(d ir.Dim, n int64) plan.Expr { return CeilDiv(d, n) }

func last(v *ir.Value) int64 { return v.Type.Shape.Last() }

func lastDim(v *ir.Value) ir.Dim { return v.Type.Shape[len(v.Type.Shape)-1] }

// rowsOf is the product of all extents but the innermost.
func rowsOf(v *ir.Value) (ir.Dim, error) {
	d, ok := v.Type.Shape.Rows()
	if !ok {
		return d, fmt.Errorf("%s: the rows of %s are no simple size", v, v.Type)
	}
	return d, nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// elements are the parameters of kernels on dense rows.
func elements(rows, width ir.Dim) words {
	w := Extent(width)
	return words{"rows": Extent(rows), "width": w, "a_stride": w, "b_stride": w, "value": plan.Number(0)}
}
