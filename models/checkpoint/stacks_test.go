package checkpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// TestStackedExperts has experts that a folder stacks with the rows of the gate before those of up.
func TestStackedExperts(t *testing.T) {
	family, err := families.ByName("family", "qwen35moe")
	require.NoError(t, err)
	c := small(family.Name)
	shape := synthetic(t, c, "f32")
	weights := randomWeights(shape)
	dir := folder(t, c, weights, nil)
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	want := prefill(t, open(t, dir), ids)

	e, ffn, width := c.Experts.Count, c.Experts.FFN, c.Width
	tensors := slices.DeleteFunc(inFolder(shape, family, weights), func(s safetensors.TensorWriter) bool { return strings.Contains(s.Name, ".experts.") })
	for _, layer := range []string{"0", "1"} {
		w := func(role string) []float32 { return weights["blk."+layer+".ffn_"+role+"_exps.weight"] }
		var gateUp []float32
		for i := range e {
			gateUp = slices.Concat(gateUp, w("gate")[i*ffn*width:][:ffn*width], w("up")[i*ffn*width:][:ffn*width])
		}
		of := "model.layers." + layer + ".mlp.experts."
		tensors = append(tensors,
			safetensors.TensorWriter{Name: of + "gate_up_proj", DType: dtype.F32, Shape: wide([]int{e, 2 * ffn, width}), Write: writer(gateUp)},
			safetensors.TensorWriter{Name: of + "down_proj", DType: dtype.F32, Shape: wide([]int{e, width, ffn}), Write: writer(w("down"))})
	}
	m := open(t, replaceTensors(t, dir, tensors))
	requireSame(t, want, prefill(t, m, ids))
	down, ok := m.Tensor("blk.0.ffn_down_exps.weight")
	require.True(t, ok)
	require.Equal(t, "stored", string(down.How())) // not a copy
}
