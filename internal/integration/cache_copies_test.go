package integration_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/passes"
)

// TestCopies: a sequence that goes on from copies of another's blocks has the bits of the one
// that computed them, and writes where nobody else reads. Copies are steps of their own, of one
// dispatch a layer, and other steps have none.
func TestCopies(t *testing.T) {
	const block, context = 16, 64
	xsplit, err := passes.ParseDebug("layout/xsplit")
	require.NoError(t, err)
	for name, opts := range map[string]smelt.Options{
		"f16": {Level: 1}, "f32": {Level: 1, KV: dtype.F32}, "q8_0": {Level: 1, KV: dtype.Q8_0}, "O0": {Level: smelt.Unoptimised}, "xsplit": fixture.With(smelt.Options{Level: 1}, compiler.Knobs{Debug: xsplit}),
	} {
		for device := range fixture.Bounds {
			t.Run(name+"/"+device, func(t *testing.T) {
				opts := opts
				opts.Target, opts.Context, opts.Block, opts.Sequences = fixture.Options(t, device, dtype.F16).Target, context, block, 2
				if name == "xsplit" && device == "cpu" {
					opts.KV = dtype.F32 // of the activations' type
				}
				l := fixture.Load(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), opts, smelt.Device{Name: device, Threads: 2})
				r, err := engine.NewRunner(l.Program().Plan, l.OnDevice(), 8)
				require.NoError(t, err)
				defer func() { require.NoError(t, r.Close()) }()

				prompt := make([]int32, block+4)
				for i := range prompt {
					prompt[i] = int32(1 + 31*i)
				}
				goOn := func(ids []int32, blocks ...int32) (rows [][]float32) {
					for i, id := range ids {
						require.NoError(t, r.Run(t.Context(), batch.Piece{Tokens: []int32{id}, Start: len(prompt) + i, Blocks: blocks}))
						for _, k := range r.Instance().Counters().Kernels {
							require.NotContains(t, k.Kernel, "copy")
						}
						logits, err := r.Logits()
						require.NoError(t, err)
						rows = append(rows, slices.Clone(logits))
					}
					return rows
				}
				require.NoError(t, r.Run(t.Context(), batch.Piece{Tokens: prompt, Blocks: []int32{1, 6}}))
				want := goOn([]int32{70, 71, 72}, 1, 6)
				require.NoError(t, r.Run(t.Context(), batch.Piece{Tokens: prompt, Blocks: []int32{5, 2}}))
				require.NoError(t, r.Copy(t.Context()), "nothing")
				require.NoError(t, r.Copy(t.Context(), batch.Copy{From: 2, To: 7}, batch.Copy{From: 5, To: 0}, batch.Copy{From: 2, To: 3}))
				e, err := l.Program().Explain("copy")
				require.NoError(t, err)
				require.Equal(t, []int{e.Layers, 1, 0, 0}, []int{e.Dispatches, e.DispatchesPerLayer, e.DispatchesOutsideLayers, e.Barriers})
				c := r.Instance().Counters()
				require.Equal(t, []int{e.Dispatches, e.Barriers, e.CommandBuffers}, []int{c.Dispatches, c.Barriers, c.CommandBuffers})
				for _, k := range c.Kernels {
					require.Regexp(t, "^copy_blocks_", k.Kernel)
					require.Equal(t, device == "cpu", k.Native > 0)
				}

				require.NotEqual(t, want, goOn([]int32{170, 171, 172}, 0, 7))
				require.Equal(t, want, goOn([]int32{70, 71, 72}, 5, 2))
				require.Equal(t, want, goOn([]int32{70, 71, 72}, 0, 3))
			})
		}
	}
}
