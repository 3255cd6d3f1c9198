package lower

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// routedStep compiles one layer of a mixture for a target.
func routedStep(t *testing.T, change func(c *models.Config), target *Target, tokens int64) (*plan.Plan, *plan.Phase) {
	t.Helper()
	shape, err := checkpoint.Arch("qwen3-30b-a3b", "q4_0")
	require.NoError(t, err)
	c := shape.Config
	c.Layers = 1
	if change != nil {
		change(&c)
	}
	m, err := checkpoint.Synthetic(c, "q4_0")
	require.NoError(t, err)
	f, err := m.Build(ir.Options{KV: dtype.F16, Block: 512})
	require.NoError(t, err)
	_, err = passes.Compile(f, &target.Target, ir.StepsOf(tokens), passes.Options{Level: 1})
	require.NoError(t, err)
	ranges := []Range{{Name: "step", Func: f, MinT: 1, MaxT: tokens}}
	plan, err := Lower("mixture", ranges, target, Options{Context: 512})
	require.NoError(t, err)
	return plan, &plan.Phases[0]
}

// routedKernels returns the families of the dispatches that use experts.
func routedKernels(t *testing.T, ph *plan.Phase) (names []string) {
	for i := range ph.Dispatches {
		k, ok := kernels.Lookup(ph.Dispatches[i].Kernel)
		require.True(t, ok)
		experts, ok := k.Constant("fc_experts")
		is := ok && slices.ContainsFunc(ph.Dispatches[i].Constants, func(c plan.Constant) bool { return int(c.Index) == experts.Index })
		if is || k.Family == "group_by_expert" || k.Family == "weighted_sum" {
			names = append(names, k.Family)
		}
	}
	return names
}

// TestExpertsShareWeights checks that steps read the weights of an expert once for all of its tokens
// only where they have more than a few tokens and that is predicted to be faster.
func TestExpertsShareWeights(t *testing.T) {
	apart := []string{"linear_vec", "linear_vec"}
	grouped := []string{"group_by_expert", "linear_mat", "linear_mat", "weighted_sum"}
	tiny := func(c *models.Config) {
		c.Width, c.Experts = 256, models.Experts{Count: 4, Chosen: 1, FFN: 32}
	}
	for _, c := range []struct {
		machine, chip string
		tokens        int64
		same          bool
		change        func(*models.Config)
		want          []string
	}{
		{machine: "metal", tokens: 1, want: apart},
		{machine: "metal", tokens: 8, want: apart},
		{machine: "metal", tokens: 9, want: grouped},
		{machine: "metal", tokens: 512, want: grouped},
		{machine: "metal", chip: "m1", tokens: 9, want: grouped},
		{machine: "metal", chip: "m3-ultra", tokens: 512, want: grouped},
		{machine: "metal", chip: "m3-ultra", tokens: 9, change: tiny, want: apart},
		{machine: "metal", tokens: 512, same: true, want: apart},
		{machine: "cpu", tokens: 512, want: apart},
	} {
		t.Run(fmt.Sprintf("%s %s %d %t", c.machine, c.chip, c.tokens, c.same), func(t *testing.T) {
			target, err := NewTarget(c.machine)
			require.NoError(t, err)
			target.Tune(chipNamed(t, c.chip))
			if c.same {
				target.UseSameBits()
			}
			_, ph := routedStep(t, c.change, target, c.tokens)
			require.Equal(t, c.want, routedKernels(t, ph))
		})
	}
}

// TestGroupedExpertsByHand derives from the shapes alone the bytes that the products of a mixture
// read and write in a step, their threadgroups, and their dependencies.
func TestGroupedExpertsByHand(t *testing.T) {
	const (
		width, ffn, experts, top = 2048, 768, 128, 8
		one                      = ffn * width * 18 / 32 // bytes of an expert's matrix in Q4_0
	)
	target, err := NewTarget("metal")
	require.NoError(t, err)
	plan, ph := routedStep(t, nil, target, 512)
	for _, tokens := range []int64{9, 512} {
		rows := tokens * top
		used := min(rows, experts)
		sizes := sym.Sizes{sym.T: tokens, sym.B: 1, sym.R: tokens, sym.NB: 1, sym.Smax: 512} // all rows are wanted
		var costs []predict.Cost
		var grids [][3]int64
		var barriers []bool
		for i := range ph.Dispatches {
			d := &ph.Dispatches[i]
			if k, _ := kernels.Lookup(d.Kernel); k.Family != "group_by_expert" && (k.Family != "linear_mat" || len(d.Constants) < 7) && k.Family != "weighted_sum" {
				continue
			}
			costs = append(costs, predict.CostOf(plan, d, &sizes))
			grids = append(grids, [3]int64{d.Grid[0].Eval(&sizes), d.Grid[1].Eval(&sizes), d.Grid[2].Eval(&sizes)})
			barriers = append(barriers, d.Barrier)
		}
		starts := int64(4 * (experts + 2))
		require.Equal(t, []predict.Cost{
			{Read: 4 * rows, Written: 4*rows + starts},
			{Read: 2*tokens*width + 2*used*one + 4*rows + starts, Written: 2 * rows * ffn, Ops: 2*2*rows*width*ffn + predict.ActivationWork(ir.OpGate, uint32(ir.SiLU))*rows*ffn},
			{Read: 2*rows*ffn + used*one + 4*rows + starts, Written: 4 * rows * width, Ops: 2 * rows * width * ffn},
			{Read: 4*rows*width + 4*rows, Written: 4 * tokens * width, Ops: 2 * rows * width},
		}, costs, "%d tokens", tokens)
		more := ceilDiv(rows, 32) + experts + 1
		require.Equal(t, [][3]int64{{experts + 1, 1, 1}, {more, ffn / 32, 1}, {more, width / 64, 1}, {width / 256, tokens, 1}}, grids)
		require.Equal(t, []bool{true, true, true, true}, barriers)
	}
}
