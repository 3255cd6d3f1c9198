package passes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// TestKnownModels compiles the families as they are defined, in their real shapes.
func TestKnownModels(t *testing.T) {
	for name, c := range map[string]struct {
		layers int
		write  string
	}{
		"qwen3-0.6b":  {28, "head_norm_rope_kv_write"},
		"qwen3-8b":    {36, "head_norm_rope_kv_write"},
		"llama3.2-1b": {16, "rope_qkv_write"},
		"llama3.1-8b": {32, "rope_qkv_write"},
	} {
		m, err := checkpoint.Arch(name, "f16")
		require.NoError(t, err)
		source, err := m.Build(ir.Options{Block: 512})
		require.NoError(t, err)
		require.Equal(t, 2*c.layers, source.OpCounts()[ir.OpRepeatKV], name)
		for _, decode := range []bool{false, true} {
			tgt := target(t, dtype.F16)
			step := decoding
			if step.OneEach = decode; !decode {
				tgt.FewNorms = nil
			}
			f := source.Clone()
			report, err := passes.Compile(f, tgt, step, passes.Options{Level: 1})
			require.NoError(t, err)
			requireKernels(t, f)
			require.Zero(t, f.OpCounts()[ir.OpRepeatKV])
			want := map[string]int{
				"kv_replication_elimination": c.layers, c.write: c.layers, "gated_activation": c.layers, "gate_up": c.layers,
				"linear_residual": 2 * c.layers,
			}
			dispatches := 8
			if decode {
				want["norm_prologue"], want["attention_write"], want["gather_prologue"], dispatches = 2*c.layers+1, c.layers, 1, 5
			}
			for _, p := range passes.Passes() {
				if p.Rule {
					require.Equal(t, want[p.Name], report.Fusions[p.Name], "%s: %s", name, p.Name)
				}
			}
			perLayer := make(map[int]int)
			for _, v := range f.Values {
				if !v.Op.IsLeaf() && v.Op != ir.OpReshape && v.Op != ir.OpSelect {
					perLayer[v.Layer]++
				}
			}
			for layer := range c.layers {
				require.Equal(t, dispatches, perLayer[layer], "%s layer %d", name, layer)
			}
			require.Equal(t, map[bool]int{true: 2, false: 4}[decode], perLayer[ir.NoLayer], name)
		}
	}
}
