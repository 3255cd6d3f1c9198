//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/passes"
)

// TestMissingKernels takes the kernels of an op away from a target, for the types that a
// model has: the op is decomposed, and the result stays. Those of other types are missed by
// nobody.
func TestMissingKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("runs models on the emulator")
	}
	for _, on := range []struct {
		target, device string
		bound          float64
	}{{"cpu", "cpu", halfBound()}, {"metal", "emu", 0.05}} {
		for _, c := range []struct {
			model string
			ops   []ir.Op // what reads the columns of a product goes with it, as no target joins columns
		}{
			{"tiny-qwen3", []ir.Op{ir.OpAttention}},
			{"tiny-qwen3", []ir.Op{ir.OpHeadNormRopeKVWrite}},
			{"tiny-qwen3", []ir.Op{ir.OpHeadNormRopeKVWrite, ir.OpHeadNormRopeKVWriteAttention, ir.OpFusedLinear}},
			{"tiny-llama", []ir.Op{ir.OpRopeQKVWrite}},
			{"tiny-llama", []ir.Op{ir.OpRopeQKVWrite, ir.OpAttention}},
			{"tiny-llama", []ir.Op{ir.OpRopeQKVWriteAttention, ir.OpRopeQKVWrite}},
		} {
			t.Run(fmt.Sprintf("%s %s %v", on.device, c.model, c.ops), func(t *testing.T) {
				model, err := smelt.Open("../testdata/models/"+c.model+"/gguf/"+c.model+"-F16.gguf", "")
				require.NoError(t, err)
				defer model.Close()
				p, err := model.Compile(smelt.Options{Target: on.target, Level: 1, Context: 64, Prefill: 16})
				require.NoError(t, err)
				want := feed(t, p, on.device, device.Options{})
				whole := p.Plan

				// Rows of types that no value of the model has.
				compileWithout(t, p, func(row ir.Types, of []ir.Types) bool { return !slices.Contains(of, row) }, c.ops)
				require.Equal(t, whole, p.Plan)

				// And those that it has, with activations of any type: a step of few tokens whose caches
				// have no kernels with float activations has others.
				compileWithout(t, p, func(row ir.Types, of []ir.Types) bool {
					return slices.ContainsFunc(of, func(has ir.Types) bool { return has.Cache == row.Cache })
				}, c.ops)
				for i := range p.Plan.Phases {
					for j := range p.Plan.Phases[i].Dispatches {
						op, _ := ir.ParseOp(p.Plan.Phases[i].Dispatches[j].Op)
						require.NotContains(t, c.ops, op)
					}
				}
				got := feed(t, p, on.device, device.Options{})
				require.Len(t, got, len(want))
				for i := range want {
					require.InDelta(t, want[i], got[i], on.bound, "%d", i)
				}
			})
		}
	}
}

// compileWithout compiles a program again for a target that lacks the rows of some ops that
// drop chooses, given the types that the ops have in the model.
func compileWithout(t *testing.T, p *smelt.Program, drop func(row ir.Types, of []ir.Types) bool, ops []ir.Op) {
	t.Helper()
	var ranges []lower.Range
	var target *lower.Target
	taken := 0 // in all phases: some ops are in one of them
	for i := range p.Plan.Phases {
		ph := &p.Plan.Phases[i]
		types := map[ir.Op][]ir.Types{}
		for _, v := range p.Stages[i].Fused.Values {
			types[v.Op] = append(types[v.Op], v.Types())
		}
		var err error
		target, err = lower.NewTarget(p.Plan.Target)
		require.NoError(t, err)
		for _, op := range ops {
			n := len(target.Kernels[op])
			target.Kernels[op] = slices.DeleteFunc(target.Kernels[op], func(row ir.Instance) bool { return drop(row.Types, types[op]) })
			taken += n - len(target.Kernels[op])
		}
		f := p.Stages[i].Source.Clone()
		_, err = passes.Compile(f, &target.Target, ir.StepsOf(ph.Bounds[sym.T]), passes.Options{Level: 1})
		require.NoError(t, err)
		ranges = append(ranges, lower.Range{Name: ph.Name, Func: f, MinT: ph.Least[sym.T], MaxT: ph.Bounds[sym.T], Longest: ph.Longest, MaxContext: ph.Bounds[sym.Smax]})
	}
	require.Positive(t, taken)
	plan, err := lower.Lower(p.Plan.Model, ranges, target, lower.Options{Context: p.Plan.Context})
	require.NoError(t, err)
	p.Plan = plan
}
