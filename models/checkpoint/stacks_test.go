package checkpoint_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// TestStackedExperts has experts that a folder stacks with the rows of the gate before those of up,
// along the outer axis of a matrix or along the inner one.
func TestStackedExperts(t *testing.T) {
	for _, c := range []struct {
		family, gateUp, down string
		parts                []string // of the names of tensors that they replace
		how                  string   // that the last products of experts are derived
		rows                 bool     // whether rows are outermost where the family's first folders have columns
		ffn                  int      // width of experts; 0: that of small
	}{
		{"qwen35moe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "stored", false, 0},
		{"granitemoe", "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight", []string{".experts.", ".block_sparse_moe.output_linear."}, "stored", false, 0},
		{"cohere2moe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "stored", false, 0},
		{"qwen3vlmoe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "made", false, 0},
		{"qwen3vlmoe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "made", false, 16}, // a square of gate and up
		{"qwen3vlmoe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "made", false, 32}, // a square of down
		{"qwen3vlmoe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "stored", true, 0},
		{"qwen3vlmoe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "stored", true, 16},
		{"qwen3vlmoe", "mlp.experts.gate_up_proj", "mlp.experts.down_proj", []string{".experts."}, "stored", true, 32},
	} {
		t.Run(fmt.Sprint(c.family, c.rows, c.ffn), func(t *testing.T) {
			family, err := families.ByName("family", c.family)
			require.NoError(t, err)
			config := small(family.Name)
			config.Experts.FFN = cmp.Or(c.ffn, config.Experts.FFN)
			shape := synthetic(t, config, "f32")
			weights := randomWeights(shape)
			dir := folder(t, config, weights, nil)
			ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			want := prefill(t, open(t, dir), ids)

			e, ffn, width := config.Experts.Count, shape.Config.Experts.FFN, config.Width
			tensors := slices.DeleteFunc(inFolder(shape, family, weights), func(s safetensors.TensorWriter) bool {
				return slices.ContainsFunc(c.parts, func(part string) bool { return strings.Contains(s.Name, part) })
			})
			add := func(name string, rows, k int, data []float32) {
				shape := []int{e, rows, k}
				if !family.Stacks[0].RowMajor && !c.rows {
					across := make([]float32, len(data))
					for i, x := range data {
						across[i/(rows*k)*rows*k+i%k*rows+i/k%rows] = x
					}
					shape, data = []int{e, k, rows}, across
				}
				tensors = append(tensors, safetensors.TensorWriter{Name: name, DType: dtype.F32, Shape: wide(shape), Write: writer(data)})
			}
			for i := config.Experts.Dense; i < config.Layers; i++ {
				w := func(role string) []float32 { return weights[fmt.Sprintf("blk.%d.ffn_%s_exps.weight", i, role)] }
				var gateUp []float32
				for i := range e {
					gateUp = slices.Concat(gateUp, w("gate")[i*ffn*width:][:ffn*width], w("up")[i*ffn*width:][:ffn*width])
				}
				of := fmt.Sprintf("model.layers.%d.", i)
				add(of+c.gateUp, 2*ffn, width, gateUp)
				add(of+c.down, width, ffn, w("down"))
			}
			m := open(t, replaceTensors(t, dir, tensors))
			requireSame(t, want, prefill(t, m, ids))
			down, ok := m.Tensor(fmt.Sprintf("blk.%d.ffn_down_exps.weight", config.Layers-1))
			require.True(t, ok)
			require.Equal(t, c.how, string(down.How())) // stored: not a copy
		})
	}
}
