package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// TestNaNWeights spoils one weight of a model: whatever the type and the tensor, the
// NaN reaches the logits and ends the text, on the device's own choice and on a
// sampler's. Were it lost on the way, the model would talk nonsense.
func TestNaNWeights(t *testing.T) {
	for _, format := range []string{"F16", "Q8_0", "Q4_0", "Q4_K_M"} {
		for _, tensor := range []string{"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight", "blk.0.ffn_gate.weight", "blk.2.ffn_down.weight", "output.weight"} {
			path := tiny.Patched(t, "tiny-llama/gguf/tiny-llama-"+format+".gguf", tensor, 3, func(row []byte) {
				at := 0 // an element, or the scale of the first block
				if len(row)%dtype.Q6_K.BlockBytes() == 0 {
					at = dtype.Q6_K.BlockBytes() - 2
				}
				row[at], row[at+1] = 0, 0x7e
			})
			for _, device := range []string{"cpu", "emu"} {
				if device == "emu" && format != "F16" && format != "Q4_K_M" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", format, tensor, device), func(t *testing.T) {
					l := fixture.Load(t, path, fixture.Options(t, device, dtype.F16), smelt.Device{Name: device})
					for _, sampling := range []smelt.Sampling{{}, {Temperature: 1, Seed: 1}} {
						for _, prompt := range []string{"Once", "Once upon a time there was a little fox who lived in the wood."} {
							s, err := l.NewSession()
							require.NoError(t, err)
							ids, err := s.Encode(prompt)
							require.NoError(t, err)
							out, err := fixture.Generate(t.Context(), s, prompt, smelt.Generation{N: 8, Sampling: sampling})
							require.ErrorIs(t, err, smelt.ErrNaN, "%+v %q", sampling, prompt)
							require.ErrorContains(t, err, fmt.Sprintf("after %d tokens", len(ids)))
							require.Empty(t, out.Text)
						}
					}
				})
			}
		}
	}
}
