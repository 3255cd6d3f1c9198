package passes_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/passes"
)

// leak makes some values results besides, so that matches that hold them would
// escape.
func leak(f *ir.Func, r *rand.Rand, n int) {
	for i := range n {
		v := f.Values[r.IntN(len(f.Values))]
		if v.Type.Kind == ir.Tensor && !v.Op.IsLeaf() {
			f.Results = append(f.Results, ir.Result{Name: fmt.Sprintf("leak.%d", i), Value: v})
		}
	}
}

// random returns a source graph with leaks, the steps to run it and their outcome.
func random(t *testing.T, seed uint64) (*ir.Func, []map[string][]int32, outcome) {
	r := rand.New(rand.NewPCG(seed, 2))
	s := randomSample(r)
	f := s.build(t)
	leak(f, r, r.IntN(4))
	require.NoError(t, f.Verify())
	in := steps(s.vocab)
	return f, in, execute(t, f, in)
}

func optional() (names []string) {
	for _, p := range passes.Passes() {
		if !p.Required {
			names = append(names, p.Name)
		}
	}
	return names
}

const graphs = 40

// TestRulesKeepMeaning applies each rule on its own to random graphs.
func TestRulesKeepMeaning(t *testing.T) {
	matched := make(map[string]int)
	for seed := range uint64(graphs) {
		source, in, want := random(t, seed)
		source.Stage = ir.Fused
		for _, rule := range fusion.All() {
			f := source.Clone()
			for _, first := range map[string][]*fusion.Rule{
				"gather_prologue":  {fusion.NormPrologue()},
				"gate_up":          {fusion.GatedActivation()},
				"column_gate":      {fusion.GatedActivation()},
				"routed_gate_up":   {fusion.GatedActivation()},
				"routed_norm":      {fusion.GatedActivation(), fusion.RoutedGateUp()},
				"routed_residual":  {fusion.RoutedSum()},
				"residual_gain":    {fusion.NormResidual()},
				"router_gate":      {fusion.RowGate()},
				"attention_gate":   {fusion.KVReplicationElimination()},
				"qkv_gate":         {fusion.KVReplicationElimination(), fusion.HeadNormRopeKVWrite(), fusion.RopeQKVWrite(), fusion.QKVWrite(), fusion.AttentionGate()},
				"query_attention":  {fusion.KVReplicationElimination()},
				"latent_attention": {fusion.KVReplicationElimination(), fusion.LatentWrite()},
				"attention_write":  {fusion.KVReplicationElimination(), fusion.HeadNormRopeKVWrite(), fusion.RopeQKVWrite()},
			}[rule.Name] {
				_, err := fusion.Apply(f, first)
				require.NoError(t, err)
			}
			n, err := fusion.Apply(f, rule)
			require.NoError(t, err)
			require.NoError(t, f.Verify())
			matched[rule.Name] += n[0]
			requireSame(t, want, execute(t, f, in), func() string { return rule.Name + "\n" + f.String() })
		}
	}
	for _, rule := range fusion.All() {
		require.Positive(t, matched[rule.Name], rule.Name)
	}
}

// TestPassesKeepMeaning stops after every pass of the whole pipeline.
func TestPassesKeepMeaning(t *testing.T) {
	moved := make(map[int64]int) // by tokens of a step
	for seed := range uint64(graphs) {
		source, in, want := random(t, seed)
		for _, step := range []ir.Steps{decoding, prompts} {
			f := source.Clone()
			report, err := passes.Compile(f, target(t, dtype.F16), step, passes.Options{Level: 1, Observer: func(pass string, f *ir.Func) {
				requireSame(t, want, execute(t, f.Clone(), in), func() string { return pass + "\n" + f.String() })
			}})
			require.NoError(t, err)
			for _, row := range report.Rows {
				if row.Name == "wanted_rows" {
					moved[step.Tokens] += row.Changes
				}
			}
		}
	}
	require.Zero(t, moved[lower.DecodeTokens])
	require.Positive(t, moved[512])
}

// TestSubsetsKeepMeaning leaves out subsets of passes. Those of up to two are executed, and
// a few of the others, of which only some are compiled unless all are asked for.
func TestSubsetsKeepMeaning(t *testing.T) {
	// Rules that only take what others made are left out by chance, and so is what only long
	// prompts have; of mixtures, gates, recurrent states, factors, latent vectors and shared caches these models have none.
	names := slices.DeleteFunc(optional(), func(name string) bool {
		return slices.Contains([]string{"attention_write", "gather_prologue", "shared_norm", "wanted_rows", "gated_mamba2", "gated_short_conv", "gated_delta_net", "residual_gain", "query_attention", "leading_columns"}, name) ||
			strings.HasPrefix(name, "latent_") || strings.HasPrefix(name, "routed_") || strings.HasSuffix(name, "_gate")
	})
	for _, s := range []sample{tinyQwen, tinyLlama} {
		source := s.build(t)
		in := steps(s.vocab)
		want := execute(t, source, in)
		r := rand.New(rand.NewPCG(3, 4))
		for set := range 1 << len(names) {
			var off []string
			for i, name := range names {
				if set&(1<<i) != 0 {
					off = append(off, name)
				}
			}
			few := len(off) <= 2
			if !few && len(off) < len(names)-1 && !testfiles.Full("models") && r.IntN(8) != 0 {
				continue
			}
			tgt, step := target(t, []dtype.Type{dtype.F32, dtype.F16}[set%2]), decoding
			if r.IntN(2) == 0 {
				step.Tokens = 512
			}
			for _, name := range []string{"attention_write", "gather_prologue", "shared_norm", "wanted_rows"} {
				if r.IntN(2) == 0 {
					off = append(off, name)
				}
			}
			f := source.Clone()
			report, err := passes.Compile(f, tgt, step, passes.Options{Level: 1, Disabled: off})
			require.NoError(t, err, "without %v", off)
			requireKernels(t, f)
			for _, name := range off {
				require.NotContains(t, report.Fusions, name)
			}
			if few || r.IntN(8) == 0 {
				requireSame(t, want, execute(t, f, in), func() string { return fmt.Sprint(off) })
			}
		}
	}
}

// TestDecompositionsKeepMeaning takes fused ops apart, each kind alone and all
// together, in both precisions, with and without attention.
func TestDecompositionsKeepMeaning(t *testing.T) {
	taken := make(map[ir.Op]int)
	for seed := range uint64(graphs) {
		f, in, want := random(t, seed)
		tgt, step := target(t, []dtype.Type{dtype.F32, dtype.F16}[seed%2]), []ir.Steps{decoding, crowd}[seed%2]
		tgt.Gated = seed%5 != 0
		if seed%3 == 0 {
			tgt.FewNorms = nil
		}
		var off []string
		if seed%4 == 3 {
			off = []string{"kv_replication_elimination"}
		}
		_, err := passes.Compile(f, tgt, step, passes.Options{Level: 1, Disabled: off})
		require.NoError(t, err)
		for op := range ir.Op(ir.NumOps) {
			if op != 0 && !op.CanDecompose() {
				continue
			}
			g := f.Clone()
			n, err := fusion.Decompose(g, func(v *ir.Value) bool { return v.Op.CanDecompose() && (op == 0 || v.Op == op) })
			require.NoError(t, err)
			require.NoError(t, g.Verify())
			taken[op] += n
			if op == 0 {
				require.Positive(t, n)
				g.Stage = ir.Source
				require.NoError(t, g.Verify(), "all of it is source now")
			}
			requireSame(t, want, execute(t, g, in), func() string { return op.String() + "\n" + g.String() })
		}
	}
	for op, n := range taken {
		require.Positive(t, n, op)
	}
}

// TestLegaliseKeepsMeaning compiles for targets that lack fused ops.
func TestLegaliseKeepsMeaning(t *testing.T) {
	fused := []ir.Op{ir.OpFusedLinear, ir.OpNormResidual, ir.OpAttention, ir.OpQKVWrite, ir.OpRopeQKVWrite, ir.OpHeadNormRopeKVWrite, ir.OpRepeatKVPair,
		ir.OpRopeQKVWriteAttention, ir.OpHeadNormRopeKVWriteAttention, ir.OpHeadNormRopeAttention, ir.OpSiLUShortConv, ir.OpGatedDeltaNet, ir.OpGatedMamba2, ir.OpLatentWrite, ir.OpLatentAttention}
	for seed := range uint64(graphs) {
		f, in, want := random(t, seed)
		r := rand.New(rand.NewPCG(seed, 5))
		tgt := target(t, []dtype.Type{dtype.F32, dtype.F16}[seed%2])
		lacks := sourceTarget(t, tgt.Act)
		for _, op := range fused {
			if op == ir.OpFusedLinear && r.IntN(2) == 0 { // what reads its columns goes with it, as no target joins columns
				for _, reader := range []ir.Op{ir.OpFusedLinear, ir.OpQKVWrite, ir.OpRopeQKVWrite, ir.OpHeadNormRopeKVWrite, ir.OpRopeQKVWriteAttention, ir.OpHeadNormRopeKVWriteAttention,
					ir.OpAttention, ir.OpSiLUShortConv, ir.OpGatedDeltaNet, ir.OpGatedMamba2} {
					tgt.Kernels[reader] = nil
				}
			} else if op != ir.OpFusedLinear && r.IntN(2) != 0 {
				tgt.Kernels[op] = nil
			}
		}
		if seed%4 == 0 {
			tgt = lacks
		}
		_, err := passes.Compile(f, tgt, decoding, passes.Options{Level: 1})
		require.NoError(t, err)
		for _, v := range f.Values {
			require.True(t, v.Op.IsLeaf() || v.Op.IsAlias() || tgt.Row(v) != nil, v.LongString())
		}
		requireKernels(t, f)
		requireSame(t, want, execute(t, f, in), f.String)
	}
}
