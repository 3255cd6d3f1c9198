package lower

import (
	"github.com/smelt-ml/smelt/ir"
)

// selectors maps each op to the function that selects its kernel. An op without a row has no kernel
// on any target; leaves and aliases need none.
var selectors map[ir.Op]func(*phase, *ir.Value) error

func init() {
	selectors = map[ir.Op]func(*phase, *ir.Value) error{
		ir.OpInput: leaf, ir.OpWeight: leaf, ir.OpConst: leaf, ir.OpCache: leaf, ir.OpState: leaf,
		ir.OpReshape: leaf, ir.OpSelect: leaf,

		ir.OpEmbed:      embed,
		ir.OpLinear:     linear,
		ir.OpRMSNorm:    rmsNorm,
		ir.OpGroupNorm:  rmsNorm,
		ir.OpLayerNorm:  layerNorm,
		ir.OpTranspose:  transpose,
		ir.OpSlice:      slice,
		ir.OpConcat:     concat,
		ir.OpIndices:    indices,
		ir.OpRope:       rope,
		ir.OpCacheWrite: cacheWrite,
		ir.OpCacheRead:  cacheRead,
		ir.OpCopyBlocks: copyBlocks,
		ir.OpShortConv:  shortConv,
		ir.OpDeltaNet:   deltaNet,
		ir.OpMamba2:     mamba2,
		ir.OpRepeatKV:   repeatKV,
		ir.OpMatmul:     matmul,
		ir.OpMask:       mask,
		ir.OpSoftmax:    softmax,
		ir.OpCast:       cast,
		ir.OpGain:       gain,
		ir.OpShift:      shift,
		ir.OpGatherRows: gatherRows,
		ir.OpArgmax:     argmax,
		ir.OpRouter:     router,

		ir.OpExpertLinear: expertLinear,
		ir.OpWeightedSum:  weightedSum,

		ir.OpFusedLinear:         linear,
		ir.OpRoutedLinear:        expertLinear,
		ir.OpNormResidual:        normResidual,
		ir.OpGatedShortConv:      shortConv,
		ir.OpSiLUShortConv:       shortConv,
		ir.OpGatedDeltaNet:       gatedDeltaNet,
		ir.OpGatedMamba2:         mamba2,
		ir.OpAttention:           attention,
		ir.OpQKVWrite:            qkvWrite,
		ir.OpRopeQKVWrite:        ropeWrite,
		ir.OpHeadNormRopeKVWrite: ropeWrite,
		ir.OpLatentWrite:         latentWrite,
		ir.OpRepeatKVPair:        repeatKV,

		ir.OpRopeQKVWriteAttention:        attentionWrite,
		ir.OpHeadNormRopeKVWriteAttention: attentionWrite,
		ir.OpHeadNormRopeAttention:        attentionWrite,
		ir.OpLatentAttention:              latentAttention,
	}
	for op := range elementwiseOps {
		selectors[op] = elementwise
	}
}

func leaf(*phase, *ir.Value) error { return nil }
