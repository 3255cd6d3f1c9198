package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/plan"
)

// arena returns the bytes that the steps of a plan share for activations, at most.
func arena(p *plan.Plan) (most int64) {
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Kind == plan.Arena {
			for k := range p.Phases {
				most = max(most, b.Bytes.Eval(&p.Phases[k].Bounds))
			}
		}
	}
	return most
}

// TestArenaOfLongContexts: a prompt is fed in steps of at most Options.Prefill tokens,
// so what a step needs for activations depends on these and not on how much context
// there is. The scores of attention are never stored.
func TestArenaOfLongContexts(t *testing.T) {
	m, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	for _, target := range []string{"cpu", "metal"} {
		of := func(context, prefill int) int64 {
			p, err := m.Compile(smelt.Options{Target: target, Level: 1, KV: dtype.F16, Context: context, Prefill: prefill})
			require.NoError(t, err)
			return arena(p.Plan)
		}
		t.Run(target, func(t *testing.T) {
			long := of(32768, 0)
			t.Logf("%d bytes at a context of 32,768", long)
			require.Equal(t, of(32768, compiler.DefaultPrefill), long)
			require.Equal(t, of(4096, 0), long)
			// A token takes its row of the residual stream, the widest activation (the two
			// halves of the feed-forward layer), queries and what attention gives, in float.
			const token = 4 * (1024 + 2*3072 + 2*2048)
			require.LessOrEqual(t, long, int64(compiler.DefaultPrefill*token))
			require.Less(t, of(32768, 128), long/3)
			require.Greater(t, of(32768, 2048), 3*long, "the bound can fail")
		})
	}
}

// TestRowsOfLogits: what steps keep for logits depends on the rows that they may be asked
// for, not on the tokens of a prompt; and whoever scores more tokens gets all rows, in
// several steps, with the logits of one.
func TestRowsOfLogits(t *testing.T) {
	m, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	const vocab = 151936
	for _, c := range []struct{ rows, sequences, want int }{{0, 0, compiler.DefaultRows}, {1, 1, 1}, {1, 8, 8}, {32, 8, 32}, {4096, 1, 512}} {
		p, err := m.Compile(smelt.Options{Target: "cpu", Level: 1, Context: 4096, Rows: c.rows, Sequences: c.sequences})
		require.NoError(t, err)
		var outputs int64
		for i := range p.Plan.Buffers {
			if b := &p.Plan.Buffers[i]; b.Kind == plan.Output {
				outputs += b.Bytes.Eval(&p.Plan.Phases[0].Bounds)
			}
		}
		require.EqualValues(t, c.want*4*(vocab+1), outputs, "%+v: a row of logits and the best of it", c)
		require.LessOrEqual(t, arena(p.Plan), int64(compiler.DefaultPrefill*4*(1024+2*3072+2*2048)), "%+v", c)
	}

	path := testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf")
	ids := fixture.ReadReference(t, "tiny-llama").Logits.IDs
	for device := range fixture.Bounds {
		opts := fixture.Options(t, device, dtype.F16)
		opts.Context = 64
		want := fixture.Logits(t, fixture.Session(t, path, device, opts), ids)
		for _, rows := range []int{1, 5} {
			opts.Rows = rows
			s := fixture.Session(t, path, device, opts)
			got := fixture.Logits(t, s, ids)
			require.Len(t, got, len(ids)*s.Vocab())
			require.LessOrEqual(t, compare.Largest(want, got), fixture.Bounds[device], "%s, %d rows", device, rows)
		}
	}
}

// TestStepsOfLongPrompts: a prompt of many steps gives what smaller steps give.
func TestStepsOfLongPrompts(t *testing.T) {
	c := tiny.Narrow()
	c.Context = 4096
	ids := make([]int32, 2100)
	for i := range ids {
		ids[i] = int32(i * 7 % c.Vocab)
	}
	path := fixture.Random(t, c, "f16")
	logits := map[int][]float32{}
	for _, prefill := range []int{64, 512, 4096} {
		opts := fixture.Options(t, "cpu", dtype.F16)
		opts.Context, opts.Prefill = 4096, prefill
		s := fixture.Session(t, path, "cpu", opts)
		l, err := s.Feed(t.Context(), ids)
		require.NoError(t, err)
		require.Equal(t, len(ids), s.Length())
		logits[prefill] = append([]float32(nil), l...)
	}
	for prefill, l := range logits {
		require.LessOrEqual(t, compare.Largest(logits[512], l), 1e-4, fmt.Sprint(prefill))
	}
}
