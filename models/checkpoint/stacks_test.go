package checkpoint_test

import (
	"fmt"
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
	for _, c := range []struct {
		family, gateUp, down string
		parts                []string // of the names of tensors that they replace
	}{
		{"qwen35moe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}},
		{"granitemoe", "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight", []string{".experts.", ".block_sparse_moe.output_linear."}},
		{"cohere2moe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}},
	} {
		t.Run(c.family, func(t *testing.T) {
			family, err := families.ByName("family", c.family)
			require.NoError(t, err)
			config := small(family.Name)
			shape := synthetic(t, config, "f32")
			weights := randomWeights(shape)
			dir := folder(t, config, weights, nil)
			ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			want := prefill(t, open(t, dir), ids)

			e, ffn, width := config.Experts.Count, shape.Config.Experts.FFN, config.Width
			tensors := slices.DeleteFunc(inFolder(shape, family, weights), func(s safetensors.TensorWriter) bool {
				return slices.ContainsFunc(c.parts, func(part string) bool { return strings.Contains(s.Name, part) })
			})
			for i := config.Experts.Dense; i < config.Layers; i++ {
				w := func(role string) []float32 { return weights[fmt.Sprintf("blk.%d.ffn_%s_exps.weight", i, role)] }
				var gateUp []float32
				for i := range e {
					gateUp = slices.Concat(gateUp, w("gate")[i*ffn*width:][:ffn*width], w("up")[i*ffn*width:][:ffn*width])
				}
				of := fmt.Sprintf("model.layers.%d.", i)
				tensors = append(tensors,
					safetensors.TensorWriter{Name: of + c.gateUp, DType: dtype.F32, Shape: wide([]int{e, 2 * ffn, width}), Write: writer(gateUp)},
					safetensors.TensorWriter{Name: of + c.down, DType: dtype.F32, Shape: wide([]int{e, width, ffn}), Write: writer(w("down"))})
			}
			m := open(t, replaceTensors(t, dir, tensors))
			requireSame(t, want, prefill(t, m, ids))
			down, ok := m.Tensor(fmt.Sprintf("blk.%d.ffn_down_exps.weight", config.Layers-1))
			require.True(t, ok)
			require.Equal(t, "stored", string(down.How())) // not a copy
		})
	}
}
