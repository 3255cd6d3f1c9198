package native

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// TestLinearSameBits: a token has the bits of linear_vec with that token alone, whoever
// stands beside it, in either kernel, whichever way a weight lies, on any threads.
func TestLinearSameBits(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for _, w := range weightTypes {
			const k, n = 768, 96
			most := linear{tokens: 40, k: k, rows: []int{n}, types: []ir.DType{w}, bias: true, activation: ir.GELU, residual: true}.build(t, true)
			moved := l.Interleave(uint32(w), n, k, most.args["w0"])
			some := func(first, tokens int, name string, interleaved bool, o Options) []byte {
				d := most.clone()
				d.kernel = name
				for name, width := range map[string]int{"x": 4 * k, "residual": 4 * n, "out": 4 * n} {
					d.args[name] = d.args[name][first*width:][:tokens*width]
				}
				d.params = kernels.LinearParams{Tokens: uint32(tokens), K: k, N0: n, XStride: k, OutStride: n}
				if interleaved {
					d.args["w0"], d.interleaved = moved, []string{"w0"}
				}
				return d.runWith(t, l, o)[0]
			}
			var want []byte
			for i := range 40 {
				want = append(want, some(i, 1, "linear_vec_f32_f32", false, Options{})...)
			}
			for i, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 9, 13, 40} {
				for _, first := range []int{0, (40 - tokens) / 2, 40 - tokens} {
					for _, interleaved := range []bool{false, true} {
						if interleaved && moved == nil {
							continue
						}
						name := []string{"linear_vec_f32_f32", "linear_mat_f32_f32"}[(i+first)%2]
						got := some(first, tokens, name, interleaved, Options{Threads: 1 + i%8, Cut: uint64(first % 3)})
						require.True(t, bytes.Equal(want[4*n*first:][:len(got)], got), "%v: %d tokens from %d in %s, interleaved: %t", w, tokens, first, name, interleaved)
					}
				}
			}
		}
	})
}
