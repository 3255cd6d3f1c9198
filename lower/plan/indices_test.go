package plan_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// shapes have, between them, every kind of index that a compiled Plan has.
var shapes = []string{"qwen3-30b-a3b", "lfm2-1.2b", "gpt2"}

// compiledPlan returns the Plan of a known shape for a target, for batches over a paged cache.
func compiledPlan(t *testing.T, shape, target string) *plan.Plan {
	model, err := smelt.Open("arch:"+shape, "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, model.Close()) })
	program, err := model.Compile(smelt.Options{Target: target, Context: 1024, Prefill: 64, Sequences: 8, Block: 64})
	require.NoError(t, err)
	return program.Plan
}

// find returns the first dispatch of a family that binds an argument, its phase, and the binding.
func find(t *testing.T, p *plan.Plan, family, arg string) (*plan.Phase, int, *plan.Binding) {
	for i := range p.Phases {
		for j := range p.Phases[i].Dispatches {
			d := &p.Phases[i].Dispatches[j]
			k, ok := kernels.Lookup(d.Kernel)
			require.True(t, ok)
			a, ok := k.Named(arg)
			if !ok || family != "" && k.Family != family {
				continue
			}
			for n := range d.Bindings {
				if int(d.Bindings[n].Index) == a.Index {
					return &p.Phases[i], j, &d.Bindings[n]
				}
			}
		}
	}
	require.FailNow(t, "not in the plan", "%s of %s", arg, family)
	return nil, 0, nil
}

// TestIndicesElsewhere rebinds each index of compiled Plans to a constant, to the arena and to every
// input: what is not listed for the argument is refused by the names of the dispatch and the argument.
func TestIndicesElsewhere(t *testing.T) {
	seen := map[string]bool{} // by target, family and argument
	for _, target := range []string{"cpu", "metal"} {
		for _, shape := range shapes {
			p := compiledPlan(t, shape, target)
			p.Buffers = append(p.Buffers, plan.Buffer{Kind: plan.Const, Name: "evil", DType: dtype.I32, Data: make([]byte, 1<<20), Bytes: plan.Number(1 << 20)})
			for i := range p.Phases {
				for j := range p.Phases[i].Dispatches {
					d := &p.Phases[i].Dispatches[j]
					k, _ := kernels.Lookup(d.Kernel)
					for n := range d.Bindings {
						a, _ := k.Arg(int(d.Bindings[n].Index))
						index, ok := k.Index(&a)
						if name := target + k.Family + " " + a.Name; ok && !index.Checked && !seen[name] {
							seen[name], seen[a.Name] = true, true
							elsewhere(t, p, d, &d.Bindings[n], &a, &index)
						}
					}
				}
			}
			require.NoError(t, p.Validate())
		}
	}
	for _, name := range []string{"rows", "starts", "map", "index", "slots", "cu_seqlens", "context_lens", "block_table", "positions"} {
		require.Contains(t, seen, name)
	}
}

func elsewhere(t *testing.T, p *plan.Plan, d *plan.Dispatch, b *plan.Binding, a *kernels.Arg, index *kernels.Index) {
	kept := *b
	defer func() { *b = kept }()
	arena := false
	for to := range p.Buffers {
		other := &p.Buffers[to]
		listed := slices.Contains(index.Inputs, other.Name) || index.Derived && sym.Derived(other.Name) || index.Owners && other.Owners != nil
		if listed || other.Kind != plan.Const && other.Kind != plan.Input && (other.Kind != plan.Arena || arena) || other.Kind == plan.Const && other.Name != "evil" {
			continue
		}
		arena = arena || other.Kind == plan.Arena
		b.Buffer, b.Offset = int32(to), 0
		if int32(to) == kept.Buffer {
			b.Offset = kept.Offset + 4
		}
		err := p.Validate()
		require.ErrorIs(t, err, plan.ErrPlan, "%s of %s to %s %q", a.Name, d.Kernel, other.Kind, other.Name)
		if other.Name == "evil" {
			require.ErrorContains(t, err, d.Label())
			require.ErrorContains(t, err, "argument "+a.Name+`: const "evil": `)
		}
	}
}

// TestIndicesBesides changes what an index relies on besides its values: the sizes of its input, the
// layout of a cache, the rows that an order is of, and what happens to it before it is read.
func TestIndicesBesides(t *testing.T) {
	set := func(name string, to plan.Expr) func(*testing.T, *plan.Plan, *plan.Phase, int, *plan.Binding) {
		return func(t *testing.T, _ *plan.Plan, ph *plan.Phase, i int, _ *plan.Binding) {
			k, _ := kernels.Lookup(ph.Dispatches[i].Kernel)
			ph.Dispatches[i].Params[param(t, k, name)] = to
		}
	}
	inCommon := func(t *testing.T, p *plan.Plan, _ *plan.Phase, _ int, b *plan.Binding) {
		base, window := sym.Window(p.Buffers[b.Buffer].Name)
		require.Equal(t, 512, window)
		b.Buffer = int32(slices.IndexFunc(p.Buffers, func(b plan.Buffer) bool { return b.Name == base }))
	}
	for _, c := range []struct {
		shape, target, family, arg, want string
		change                           func(*testing.T, *plan.Plan, *plan.Phase, int, *plan.Binding)
	}{
		{"gpt2", "metal", "", "block_table", "argument block_table: input \"block_table\": table_stride is 1, not NB", set("table_stride", plan.Number(1))},
		{"gpt2", "metal", "", "slots", "block is 32, that of its blocks 64", set("block", plan.Number(32))},
		{"gpt2", "metal", "attention_tile", "k_cache", "block_stride is 8, that of its blocks", set("block_stride", plan.Number(8))},
		{"gpt2", "metal", "", "cu_seqlens", "tokens is 1, not T", set("tokens", plan.Number(1))},
		{"gpt2", "metal", "", "k_cache", "the kernel finds blocks of a cache or a state in it", func(_ *testing.T, p *plan.Plan, _ *plan.Phase, _ int, b *plan.Binding) {
			p.Buffers = append(p.Buffers, plan.Buffer{Kind: plan.Output, Name: "more", DType: dtype.F16, Bytes: b.Bytes})
			b.Buffer = int32(len(p.Buffers) - 1)
		}},
		{"gpt2", "cpu", "", "slots", "bytes, want 4*T", func(_ *testing.T, p *plan.Plan, _ *plan.Phase, _ int, b *plan.Binding) {
			p.Buffers[b.Buffer].Bytes = plan.Size(sym.T).Times(8)
		}},
		{"gpt2", "cpu", "embed", "out", "argument out is written, and its binding only reads", func(_ *testing.T, _ *plan.Plan, _ *plan.Phase, _ int, b *plan.Binding) {
			b.Write = false
		}},
		{"lfm2-1.2b", "metal", "short_conv", "cu_seqlens", "a grid of T+ceil(0/64)+ceil(T-1/64)+-1 on axis 1, not tokens", func(_ *testing.T, _ *plan.Plan, ph *plan.Phase, i int, _ *plan.Binding) {
			e := plan.Size(sym.T) // T at the least and the most, more between
			e.Terms = append(e.Terms, plan.Term{Div: ph.Bounds[sym.T]}, plan.Term{Mul: 1, Add: -1, Div: ph.Bounds[sym.T], Pow: e.Terms[0].Pow})
			e.Constant--
			ph.Dispatches[i].Grid[1] = e
		}},
		{"gpt2", "metal", "attention_tile", "out", "the kernel needs a multiple of 8", func(_ *testing.T, _ *plan.Plan, _ *plan.Phase, _ int, b *plan.Binding) {
			b.Offset += 4
		}},
		{"lfm2-1.2b", "metal", "short_conv", "out", "the kernel needs a multiple of 4", func(_ *testing.T, _ *plan.Plan, _ *plan.Phase, _ int, b *plan.Binding) {
			b.Offset += 2
		}},
		{"qwen3-30b-a3b", "metal", "linear_mat", "rows", "it does not hold", func(_ *testing.T, _ *plan.Plan, ph *plan.Phase, i int, b *plan.Binding) {
			for j := range ph.Dispatches[:i] { // what made it is another kernel now
				if ph.Dispatches[j].Kernel == kernels.GroupByExpert {
					ph.Dispatches[j].Kernel = "order"
				}
			}
		}},
		{"qwen3-30b-a3b", "metal", "linear_mat", "rows", "it does not hold", func(_ *testing.T, _ *plan.Plan, ph *plan.Phase, i int, b *plan.Binding) {
			over := plan.Dispatch{Kernel: "any", Layer: -1, Group: [3]uint32{1, 1, 1}, Grid: [3]plan.Expr{plan.Number(1), plan.Number(1), plan.Number(1)},
				Bindings: []plan.Binding{{Buffer: b.Buffer, Offset: b.Offset + 4, Bytes: plan.Number(4), Write: true}}, ParamsAt: 1}
			ph.Dispatches = slices.Insert(ph.Dispatches, i, over)
		}},
		{"qwen3-30b-a3b", "metal", "linear_mat", "rows", "writes over what is read without a barrier between", func(_ *testing.T, _ *plan.Plan, ph *plan.Phase, i int, b *plan.Binding) {
			over := plan.Dispatch{Kernel: "any", Layer: -1, Group: [3]uint32{1, 1, 1}, Grid: [3]plan.Expr{plan.Number(1), plan.Number(1), plan.Number(1)},
				Bindings: []plan.Binding{{Buffer: b.Buffer, Offset: b.Offset + 4, Bytes: plan.Number(4), Write: true}}, ParamsAt: 1}
			ph.Dispatches = slices.Insert(ph.Dispatches, i+1, over)
		}},
		{"qwen3-30b-a3b", "metal", "linear_mat", "rows", "it does not hold", func(_ *testing.T, _ *plan.Plan, ph *plan.Phase, i int, _ *plan.Binding) {
			for j := range ph.Dispatches {
				ph.Dispatches[j].Barrier = false
			}
		}},
		{"gemma3-1b", "metal", "attention_tile", "block_table", `the layer's blocks are in block_table@512`, inCommon},
		{"gemma3-1b", "cpu", "", "slots", `the layer's blocks are in slots@512`, inCommon},
		{"qwen3-30b-a3b", "metal", "group_by_expert", "order", "groups, for 128 experts", set("groups", plan.Number(127))},
	} {
		t.Run(c.family+" "+c.arg+" "+c.want, func(t *testing.T) {
			p := compiledPlan(t, c.shape, c.target)
			ph, i, b := find(t, p, c.family, c.arg)
			require.Equal(t, c.family == "linear_mat" || c.arg == "order" || c.arg == "out", p.Buffers[b.Buffer].Kind == plan.Arena)
			c.change(t, p, ph, i, b)
			if c.family == "group_by_expert" {
				ph.Dispatches[i].Grid[0] = plan.Number(127)
			}
			err := p.Validate()
			require.ErrorIs(t, err, plan.ErrPlan)
			require.ErrorContains(t, err, c.want)
		})
	}
}
