package profile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/profile"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

func compiled(t *testing.T, path, weights string, opts smelt.Options) *plan.Plan {
	m, err := smelt.Open(path, weights)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	opts.Target = "metal"
	p, err := m.Compile(opts)
	require.NoError(t, err)
	return p.Plan
}

func count(t *testing.T, plan *plan.Plan, tokens int, budget int64, families ...string) []profile.Row {
	chip, err := predict.FindChip("m4-max")
	require.NoError(t, err)
	rows, err := profile.Run(t.Context(), plan, profile.Steps(plan, tokens), func(k *kernels.Kernel) bool {
		if len(families) == 0 {
			return true
		}
		for _, f := range families {
			if k.Family == f {
				return true
			}
		}
		return false
	}, chip, budget, nil)
	require.NoError(t, err)
	return rows
}

// What predict.Cost derives from a dispatch is what its kernel touches, byte for byte.
func TestLeastIsWhatIsTouched(t *testing.T) {
	for _, c := range []struct {
		model   string
		weights string
		opts    smelt.Options
	}{
		{"tiny-qwen3", "F16", smelt.Options{Level: 1}},
		{"tiny-llama", "F16", smelt.Options{Level: 1}},
		{"tiny-qwen3", "Q4_0", smelt.Options{Level: 1, KV: dtype.Q8_0}},
		{"tiny-qwen3", "F16", smelt.Options{Level: smelt.Unoptimised}},
	} {
		t.Run(fmt.Sprintf("%s %s -O%d %v", c.model, c.weights, c.opts.Level, c.opts.KV), func(t *testing.T) {
			c.opts.Context, c.opts.Prefill = 96, 50
			path := fmt.Sprintf("../../testdata/models/%s/gguf/%[1]s-%s.gguf", c.model, c.weights)
			plan := compiled(t, path, "", c.opts)
			for _, r := range count(t, plan, 50, 0) {
				require.Equal(t, r.Threadgroups, r.Counted)
				low, at := unread(r), fmt.Sprintf("%s %s of %s", r.Kernel, r.Shape, r.Step)
				require.LessOrEqual(t, r.TouchedOnce, r.LeastBytes, at)
				require.GreaterOrEqual(t, r.TouchedOnce, r.LeastBytes-low, at)
				require.GreaterOrEqual(t, r.TileBytes, r.TouchedOnce, at)
				require.GreaterOrEqual(t, r.Bytes(), r.TouchedOnce, at)
				require.GreaterOrEqual(t, 2*r.TouchedBytes, r.Bytes(), at) // read and written in place
			}
		})
	}
}

// unread returns the bytes that a kernel may leave unread of those that the derivation counts.
func unread(r profile.Row) int64 {
	switch {
	case strings.HasPrefix(r.Kernel, "attention_vec"), strings.HasPrefix(r.Kernel, "attention_write"):
		return 8 // cu_seqlens, where there is one sequence
	case strings.HasPrefix(r.Kernel, "mask"):
		return r.LeastBytes / 2 // scores that the mask hides
	}
	return 0
}

// Query heads that share a threadgroup read keys and values from the caches once: as many bytes
// as predict.Cost returns.
func TestSharedHeadsReadOnce(t *testing.T) {
	options := smelt.Options{Level: 1, Context: 512, Prefill: 16}
	site := func(compiled *plan.Plan) plan.Site {
		for i := range compiled.Phases {
			for _, s := range compiled.Phases[i].Sites {
				if s.Choice == "shared_heads" {
					return s
				}
			}
		}
		t.Fatal("heads are not chosen")
		return plan.Site{}
	}
	const (
		layer = 2 * 2 * 512 * 8 * 128     // bytes of keys and values
		token = 4 * 128 * (32 + 2*8 + 32) // of Q, K, V and the result
	)
	for heads, times := range map[int64]int64{1: 4, 2: 2, 4: 1} {
		s := site(compiled(t, "arch:llama3.1-8b", "f16", options))
		compiler.KnobsOf(&options).Tuning = &lower.Tuning{Device: "a chip", Version: "1"}
		compiler.KnobsOf(&options).Tuning.Keep(lower.Winner{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape, Setting: plan.Setting{"heads": heads}, Micros: 1, Default: 2})
		rows := count(t, compiled(t, "arch:llama3.1-8b", "f16", options), 16, 1<<19, "attention_write")
		require.Len(t, rows, 1)
		r := &rows[0]
		require.Equal(t, 32/heads, r.Threadgroups)
		require.InEpsilon(t, times*layer+token, r.TileBytes, 0.02)
		require.InEpsilon(t, r.LeastBytes+r.RereadBytes, r.TileBytes, 0.02)
		require.InEpsilon(t, layer+token, r.Bytes(), 0.02)
	}
}

// The bounds on the shapes of two models. All kernels take a minute of processor time, so the
// default run counts one decode step and small products.
func TestBounds(t *testing.T) {
	full := testfiles.Full("kernels")
	quick := []string{"embed", "gather_rows", "linear_vec", "attention_vec", "attention_write", "attention_reduce", "rope_qkv_write", "head_norm_rope_kv_write"}
	for _, c := range []struct {
		model    string
		families []string
	}{
		{"arch:qwen3-0.6b", append(quick, "attention_tile")},
		{"arch:llama3.1-8b", quick},
	} {
		t.Run(c.model, func(t *testing.T) {
			families, budget := c.families, int64(1<<20)
			if full {
				families, budget = nil, profile.Budget
			}
			plan := compiled(t, c.model, "f16", smelt.Options{Level: 1, Context: 4096, Prefill: 512})
			rows := count(t, plan, 512, budget, families...)
			require.NotEmpty(t, rows)
			for i := range rows {
				r := &rows[i]
				require.Empty(t, r.Misses(), "%s %s of %s", r.Kernel, r.Shape, r.Step)
			}
		})
	}
}

// A grid that is counted in part is extrapolated to the whole, where threadgroups are alike.
func TestScaling(t *testing.T) {
	plan := compiled(t, "arch:qwen3-0.6b", "f16", smelt.Options{Level: 1, Context: 512, Prefill: 512})
	whole := count(t, plan, 512, 0, "head_norm_rope_kv_write")
	cut := count(t, plan, 512, 200000, "head_norm_rope_kv_write")
	require.Len(t, cut, len(whole))
	for i := range whole {
		require.InEpsilon(t, whole[i].Bytes(), cut[i].Bytes(), 0.05)
		require.InEpsilon(t, whole[i].TileBytes, cut[i].TileBytes, 0.05)
		require.InDelta(t, whole[i].Coalescing, cut[i].Coalescing, 0.01)
		require.InDelta(t, whole[i].Barriers, cut[i].Barriers, 0.01)
	}
	require.Less(t, cut[0].Counted, cut[0].Threadgroups)
}
