package passes_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// requireKernels checks every value's element types against the instances that
// kernels come in: x→y reads x and writes y.
func requireKernels(t *testing.T, f *ir.Func) {
	instances := map[ir.Op][]string{
		ir.OpRMSNorm:      {"f32→f32", "f32→f16", "f16→f16"},
		ir.OpGroupNorm:    {"f32→f32", "f16→f16"},
		ir.OpLayerNorm:    {"f32→f32", "f32→f16", "f16→f16"},
		ir.OpRouter:       {"f32→f32"},
		ir.OpSelect:       {"f32→f32", "f16→f16", "f32→i32"},
		ir.OpLinear:       {"f32→f32", "f32→f16", "f16→f32", "f16→f16"},
		ir.OpExpertLinear: {"f32→f32", "f32→f16", "f16→f32", "f16→f16"},
		ir.OpRoutedLinear: {"f32→f32", "f32→f16", "f16→f32", "f16→f16"},
		ir.OpWeightedSum:  {"f32→f32"},
		ir.OpFusedLinear:  {"f32→f32", "f32→f16", "f16→f32", "f16→f16"},
		ir.OpEmbed:        {"→f32"},
		ir.OpCacheRead:    {"→f32"},
		ir.OpArgmax:       {"f32→i32"},
		ir.OpIndices:      {"→i32"},
		ir.OpCast:         {"f32→f16", "f16→f32"},
		ir.OpCacheWrite:   {"f32→", "f16→"},
	}
	same := []string{"f32→f32", "f16→f16"}
	for _, v := range f.Values {
		if v.Op.IsLeaf() || v.Op == ir.OpSelect && v.Type.Kind == ir.State {
			continue
		}
		in, out := "", ""
		for i, a := range v.Args {
			switch {
			case a.Op.IsLeaf() || a.Type.Kind == ir.State:
			case a.Type.DType == dtype.I32 && in != "": // the experts of a token
			case v.Op == ir.OpRoutedLinear && i > 0:
				require.Equal(t, dtype.F32, a.Type.DType, "how %s is mixed, and what is added", v.LongString())
				require.Equal(t, dtype.F32, v.Type.DType, v.LongString())
			case v.Op == ir.OpFusedLinear && v.Attr.(ir.LinearAttr).Residual && i == len(v.Args)-1:
				require.Equal(t, dtype.F32, a.Type.DType, "the residual of %s", v.LongString())
				require.Equal(t, dtype.F32, v.Type.DType, v.LongString())
			case in == "":
				in = floatOf(a.Type).String()
			default:
				require.Equal(t, in, floatOf(a.Type).String(), "operands of %s", v.LongString())
			}
		}
		if v.Type.Kind != ir.State {
			out = floatOf(v.Type).String()
		}
		want, ok := instances[v.Op]
		if !ok {
			want = same
		}
		require.True(t, slices.Contains(want, in+"→"+out), "no kernel for %s→%s: %s\n%s", in, out, v.LongString(), f)
	}
}

func floatOf(t ir.Type) dtype.Type {
	if t.Kind == ir.Tuple {
		return t.Elems[0].DType
	}
	return t.DType
}
