package lower

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// compiled returns the Plan of a known shape for a GPU, for prefill and decode, without the passes
// of off.
func compiled(t testing.TB, arch, weights string, level, context int, off ...string) *plan.Plan {
	t.Helper()
	return compiledFor(t, "metal", arch, weights, level, context, off...)
}

func compiledFor(t testing.TB, machine, arch, weights string, level, context int, off ...string) *plan.Plan {
	t.Helper()
	return compiledWith(t, machine, arch, weights, level, Options{Context: context}, off...)
}

// compiledWith is compiledFor with options of Lower.
func compiledWith(t testing.TB, machine, arch, weights string, level int, opts Options, off ...string) *plan.Plan {
	t.Helper()
	m, err := checkpoint.Arch(arch, weights)
	require.NoError(t, err)
	source, err := m.Build(ir.Options{KV: dtype.F16, Block: opts.Context})
	require.NoError(t, err)
	ranges := []Range{
		{Name: "prefill", MinT: DecodeTokens + 1, MaxT: 512},
		{Name: "decode", MinT: 1, MaxT: DecodeTokens},
	}
	target, err := NewTarget(machine)
	require.NoError(t, err)
	for i := range ranges {
		r := &ranges[i]
		r.Func = source.Clone()
		_, err = passes.Compile(r.Func, &target.Target, ir.StepsOf(r.MaxT), passes.Options{Level: level, Disabled: off})
		require.NoError(t, err)
	}
	plan, err := Lower(arch, ranges, target, opts)
	require.NoError(t, err)
	return plan
}

// everyPlan calls check for each phase of every known shape, as written and
// optimised.
func everyPlan(t *testing.T, check func(t *testing.T, p *plan.Plan, ph *plan.Phase)) {
	for _, arch := range checkpoint.Archs() {
		for level, name := range []string{"source", "fused"} {
			t.Run(arch+"/"+name, func(t *testing.T) {
				p := compiled(t, arch, "q4_0", level, 512)
				for i := range p.Phases {
					check(t, p, &p.Phases[i])
				}
			})
		}
	}
}

func TestArenaNearBound(t *testing.T) {
	everyPlan(t, func(t *testing.T, _ *plan.Plan, ph *plan.Phase) {
		require.Positive(t, ph.MinArenaBytes)
		require.GreaterOrEqual(t, ph.ArenaBytes, ph.MinArenaBytes, ph.Name)
		require.LessOrEqual(t, float64(ph.ArenaBytes), 1.1*float64(ph.MinArenaBytes), ph.Name)
		require.LessOrEqual(t, ph.ArenaBytes, ph.UnplannedBytes, ph.Name)
	})
}

func TestKnownBarriersMatchHazards(t *testing.T) {
	for _, arch := range []string{"qwen3-0.6b", "llama3.2-1b", "qwen3-30b-a3b"} {
		for level := range 2 {
			plan := compiled(t, arch, "f16", level, 512)
			for _, ph := range plan.Phases {
				ph.Dispatches = ph.Dispatches[:min(len(ph.Dispatches), 80)] // the oracle is cubic
				requireBarriersMatchHazards(t, &phase{tables: &tables{plan: plan}, out: ph})
			}
		}
	}
}
