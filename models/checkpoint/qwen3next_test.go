package checkpoint_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
)

// TestDeltaForms: a GGUF file with one product for Q, K, V and the gate gives the logits of one that
// has two, and of a folder. Three heads of V share a head of K.
func TestDeltaForms(t *testing.T) {
	family, err := families.ByName("family", "qwen3next")
	require.NoError(t, err)
	c := small(family.Name)
	c.Delta.Heads = 6
	_, apart := requireForms(t, c, family, nil)
	require.False(t, apart.Config.Delta.Joined)

	weights := randomWeights(synthetic(t, c, "f32"))
	d, width := c.Delta, c.Width
	share, size := d.Heads/d.KeyHeads, d.Head*width // elements of a head's rows
	qkv, gate := weights["blk.0.attn_qkv.weight"], weights["blk.0.attn_gate.weight"]
	var joined []float32
	for k := range d.KeyHeads {
		joined = slices.Concat(joined, qkv[k*size:][:size], qkv[(d.KeyHeads+k)*size:][:size],
			qkv[(2*d.KeyHeads+k*share)*size:][:share*size], gate[k*share*size:][:share*size])
	}
	weights["blk.0.ssm_in.weight"] = joined
	c.Delta.Joined = true
	f := fileOf(synthetic(t, c, "f32"))
	for i, w := range f.tensors {
		f.tensors[i].Write = writer(weights[w.Name])
	}
	older := open(t, f.write(t))
	require.True(t, older.Config.Delta.Joined)
	require.True(t, slices.ContainsFunc(older.Tensors(), func(w checkpoint.Tensor) bool { return w.Name == "blk.0.ssm_in.weight" }))
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	requireSame(t, prefill(t, apart, ids), prefill(t, older, ids))
}
