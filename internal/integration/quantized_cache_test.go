package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	files "github.com/smelt-ml/smelt/models/checkpoint"
)

// TestQuantizedCache keeps K and V in Q8_0 and compares with the float64 interpreter,
// which rounds what it writes to the same blocks. An element next to the middle of two
// steps may fall to either side, so the two differ by a part of what the rounding as
// a whole does to the logits: at most a quarter of it is allowed. Tokens one at a time,
// in the decode phase, may differ from all at once by as much.
func TestQuantizedCache(t *testing.T) {
	for _, model := range fixture.Trained {
		ids := fixture.ReadReference(t, model).Logits.IDs
		path := testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf")
		exact, err := npy.ReadFile[float32](testfiles.Model(t, model+"/reference/logits.npy"))
		require.NoError(t, err)
		want := interpreted(t, path, ids, dtype.Q8_0)
		effect := compare.Largest(exact.Data, want)
		for _, device := range []string{"cpu", "emu"} {
			for _, level := range []int{0, 1} {
				t.Run(model+"/"+device+"/O"+fmt.Sprint(level), func(t *testing.T) {
					opts := fixture.Options(t, device, dtype.Q8_0)
					opts.Act, opts.Level = dtype.F32, level
					s := fixture.Session(t, path, device, opts)
					got, bound := fixture.Logits(t, s, ids), effect/4
					if s.Loaded().Info().HalfIntegers { // which rounds on the way into the cache
						bound += fixture.Bounds[device]
					}
					d := compare.Largest(want, got)
					t.Logf("largest difference %.4f; rounding the cache makes %.4f", d, effect)
					require.LessOrEqual(t, d, bound)
					s.Reset()
					var steps []float32
					for _, id := range ids {
						l, err := s.Feed(t.Context(), []int32{id})
						require.NoError(t, err)
						steps = append(steps, l...)
					}
					d = compare.Largest(got, steps)
					t.Logf("one at a time: %.4f", d)
					require.LessOrEqual(t, d, effect/4)
				})
			}
		}
		t.Run(model+"/emu/half", func(t *testing.T) {
			got := fixture.Logits(t, fixture.Session(t, path, "emu", fixture.Options(t, "emu", dtype.Q8_0)), ids)
			d := compare.Largest(want, got)
			t.Logf("largest difference %.4f", d)
			require.LessOrEqual(t, d, fixture.Bounds["emu"]+effect/4)
		})
	}
}

// interpreted returns the logits after each token by the float64 interpreter, with a
// cache that holds rounded keys and values.
func interpreted(t *testing.T, path string, ids []int32, kv dtype.Type) []float32 {
	m, err := files.Open(path)
	require.NoError(t, err)
	defer m.Close()
	f, err := m.Build(ir.Options{KV: kv, Block: len(ids)})
	require.NoError(t, err)
	inputs := batch.Pack(len(ids), len(ids), batch.Piece{Tokens: ids, Blocks: []int32{0}, Rows: batch.All}).Inputs
	out, err := ref.Run(f, ref.Env{
		Sizes: ref.SizesFor(inputs, len(ids)), Inputs: inputs, Weight: ref.NewWeights(m.Data).Load,
		Caches: ref.CachesFor(f, 1), RoundCache: true,
	})
	require.NoError(t, err)
	data := out.Tensors["logits"].Data
	logits := make([]float32, len(data))
	for i, x := range data {
		logits[i] = float32(x)
	}
	return logits
}
