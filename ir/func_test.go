package ir_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dominikbraun/graph"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// randomDAG makes a graph of additions over two inputs: each value adds two
// earlier ones, and results are drawn from all.
func randomDAG(rng *rand.Rand, n int) *ir.Func {
	f := ir.NewFunc("random", ir.Source)
	for i := range 2 {
		f.Append(ir.OpInput, ir.TensorOf(dtype.F32, ir.Var(sym.T)), ir.NameAttr{Name: fmt.Sprint("x", i)}, ir.NoLayer)
	}
	any := func() *ir.Value { return f.Values[rng.IntN(len(f.Values))] }
	for range n {
		a, b := any(), any()
		if _, err := f.Emit(ir.OpAdd, nil, ir.NoLayer, a, b); err != nil {
			panic(err)
		}
	}
	for i := range 1 + rng.IntN(3) {
		f.Results = append(f.Results, ir.Result{Name: fmt.Sprint("r", i), Value: any()})
	}
	return f
}

// TestSort shuffles random graphs and drops values that others need: Sort brings
// back a legal order of the same values, and leaves a legal order alone.
func TestSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		f := randomDAG(rng, 30)
		before := f.String()
		require.NoError(t, f.Sort())
		require.Equal(t, before, f.String(), "a legal order stays")

		count := len(f.Values)
		rng.Shuffle(count, func(i, j int) { f.Values[i], f.Values[j] = f.Values[j], f.Values[i] })
		require.NoError(t, f.Sort())
		require.NoError(t, f.Verify())
		require.Len(t, f.Values, count)

		f.Sweep() // all that is left is used: whatever is dropped comes back
		count = len(f.Values)
		used := make(map[*ir.Value]bool)
		for _, v := range f.Values {
			for _, a := range v.Args {
				used[a] = true
			}
		}
		kept := f.Values[:0:0]
		for _, v := range f.Values {
			if !used[v] || rng.IntN(2) == 0 {
				kept = append(kept, v)
			}
		}
		f.Values = kept
		require.NoError(t, f.Sort())
		require.NoError(t, f.Verify())
		require.Len(t, f.Values, count)
	}
}

func TestSortDeep(t *testing.T) {
	f := randomDAG(rand.New(rand.NewPCG(1, 1)), 0)
	last := f.Values[0]
	for range 100_000 {
		last, _ = f.Emit(ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, ir.NoLayer, last)
	}
	f.Results = []ir.Result{{Name: "x", Value: last}}
	f.Values = []*ir.Value{last, f.Values[1]}
	require.NoError(t, f.Sort())
	require.NoError(t, f.Verify())
	require.Len(t, f.Values, 100_002)
}

// TestCycles makes cycles of several lengths; Sort and Verify name exactly the
// members.
func TestCycles(t *testing.T) {
	f := randomDAG(rand.New(rand.NewPCG(1, 1)), 0)
	x := f.Values[0]
	a, _ := f.Emit(ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, ir.NoLayer, x)
	b, _ := f.Emit(ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, ir.NoLayer, a)
	c, _ := f.Emit(ir.OpAdd, nil, ir.NoLayer, b, x)
	d, _ := f.Emit(ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, ir.NoLayer, c)
	f.Results = []ir.Result{{Name: "x", Value: d}}
	require.NoError(t, f.Verify())

	a.Args[0] = c
	const members = "these values form a cycle: v3 = activate v5 {activation=silu} : f32[T]; v4 = activate v3 {activation=silu} : f32[T]; v5 = add v4 v1 : f32[T]"
	require.ErrorContains(t, f.Verify(), members)
	require.NotContains(t, f.Verify().Error(), "v6 =", "it only hangs from the cycle")
	require.ErrorContains(t, f.Sort(), members)

	a.Args[0], b.Args[0] = x, b
	require.ErrorContains(t, f.Verify(), "v4 = activate v4 {activation=silu} : f32[T] uses itself")
	require.ErrorContains(t, f.Sort(), "v4 = activate v4 {activation=silu} : f32[T] uses itself")

	f.Values = []*ir.Value{d} // the cycle lies outside the list
	require.ErrorContains(t, f.Sort(), "v4 = activate v4 {activation=silu} : f32[T] depends on itself")
}

func TestSweep(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		f := randomDAG(rng, 30)
		needed := make(map[*ir.Value]bool)
		var need func(v *ir.Value)
		need = func(v *ir.Value) {
			needed[v] = true
			for _, a := range v.Args {
				need(a)
			}
		}
		for _, r := range f.Results {
			need(r.Value)
		}
		before := len(f.Values)
		require.Equal(t, before-len(needed), f.Sweep())
		require.Len(t, f.Values, len(needed))
		require.NoError(t, f.Verify())
		require.Zero(t, f.Sweep())
		for id, n := range f.Uses() {
			if n > 0 {
				require.True(t, needed[valueByID(f, ir.ID(id))])
			}
		}
	}
}

func valueByID(f *ir.Func, id ir.ID) *ir.Value {
	for _, v := range f.Values {
		if v.ID == id {
			return v
		}
	}
	return nil
}

func TestClone(t *testing.T) {
	f := buildTiny(t)
	before := f.String()
	c := f.Clone()
	require.Equal(t, f, c)
	for i, v := range c.Values {
		require.NotSame(t, f.Values[i], v)
	}
	c.Values[3].Layer, c.Values[4].Args[0], c.Results[0].Name = 7, c.Values[0], "other"
	c.Append(ir.OpActivate, c.Values[2].Type, ir.ActivationAttr{Activation: ir.SiLU}, ir.NoLayer, c.Values[2])
	require.Equal(t, before, f.String(), "the copy shares nothing")

	rng := rand.New(rand.NewPCG(7, 8))
	rng.Shuffle(len(f.Values), func(i, j int) { f.Values[i], f.Values[j] = f.Values[j], f.Values[i] })
	c = f.Clone()
	require.NoError(t, c.Sort())
	require.NoError(t, c.Verify(), "order does not matter")
}

func TestReplace(t *testing.T) {
	f := buildTiny(t)
	old := f.Result("logits").Args[0] // the last add
	twice, err := f.Emit(ir.OpScale, ir.ScaleAttr{Value: 2}, ir.NoLayer, old)
	require.NoError(t, err)
	f.Replace(map[*ir.Value]*ir.Value{old: twice})
	require.Same(t, twice, f.Result("logits").Args[0])
	require.Same(t, old, twice.Args[0], "the new value keeps what it uses")
	require.ErrorContains(t, f.Verify(), "before it is defined")
	require.NoError(t, f.Sort())
	require.NoError(t, f.Verify())

	cache := f.Result("cache.0")
	f.Replace(map[*ir.Value]*ir.Value{cache: cache.Args[0]})
	require.Same(t, cache.Args[0], f.Result("cache.0"), "results are replaced as well")
	require.Positive(t, f.Sweep())
	require.NoError(t, f.Verify())
}

// TestGraphView lets the graph library look at a Func, and not change it.
func TestGraphView(t *testing.T) {
	f := randomDAG(rand.New(rand.NewPCG(9, 10)), 50)
	g := f.Graph()
	order, err := graph.TopologicalSort(g)
	require.NoError(t, err)
	require.Len(t, order, len(f.Values))
	position := make(map[ir.ID]int)
	for i, id := range order {
		position[id] = i
	}
	for _, v := range f.Values {
		for _, a := range v.Args {
			require.Less(t, position[a.ID], position[v.ID])
		}
	}
	require.Error(t, g.AddVertex(f.Values[0]))
	require.Error(t, g.AddEdge(f.Values[0].ID, f.Values[1].ID))
	require.Error(t, g.RemoveVertex(f.Values[0].ID))
	_, err = g.Vertex(999)
	require.ErrorIs(t, err, graph.ErrVertexNotFound)
	_, err = g.Edge(1, 1)
	require.ErrorIs(t, err, graph.ErrEdgeNotFound)
}

func TestOps(t *testing.T) {
	for op := ir.OpInput; int(op) < ir.NumOps; op++ {
		back, ok := ir.ParseOp(op.String())
		require.True(t, ok)
		require.Equal(t, op, back)
		require.NotEmpty(t, op.Doc(), op)
		require.Contains(t, []ir.Stage{ir.Source, ir.Fused}, op.Stage(), op)
	}
	require.Equal(t, "op(0)", ir.OpInvalid.String())
	require.Equal(t, 0, ir.OpCacheWrite.Writes())
	require.Equal(t, 1, ir.OpRopeQKVWrite.Writes())
	require.Equal(t, -1, ir.OpAdd.Writes())
	require.True(t, ir.OpCache.IsLeaf())
	_, err := ir.OpReshape.Infer(nil, nil)
	require.EqualError(t, err, "reshape: the type must be given")
}

func BenchmarkVerify(b *testing.B) {
	f := randomDAG(rand.New(rand.NewPCG(1, 2)), 2000)
	for b.Loop() {
		if err := f.Verify(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSort(b *testing.B) {
	f := randomDAG(rand.New(rand.NewPCG(1, 2)), 2000)
	for b.Loop() {
		if err := f.Sort(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMatrices: what an op does with a weight tells whether it is read as it is stored, not what
// the weight is called, nor its shape.
func TestMatrices(t *testing.T) {
	f, err := ir.Parse("func t fused {" + `
  v1 = input {name="tokens"} : i32[T]
  v2 = weight {name="table.bias"} : q8_0[8,32]
  v3 = weight {name="norms"} : f16[4,8]
  v4 = weight {name="stack"} : q4_0[3,16,32]
  v5 = weight {name="stack.shift"} : f16[3,16]
  v6 = weight {name="router"} : f32[3,32]
  v7 = embed v1 v2 : f32[T,32]
  v8 = linear v7 v6 : f32[T,3]
  v9 = router v8 {score=softmax chosen=2} : (f32[T,2], i32[T,2])
  v10 = select v9 {index=1} : i32[T,2]
  v11 = expert_linear v7 v4 v10 v5 : f32[T,2,16]
  v12 = reshape v7 : f32[T,4,8]
  v13 = gain v12 v3 : f32[T,4,8]
  return "a" v11
  return "b" v13
}`)
	require.NoError(t, err)
	var names []string
	for v := range f.Matrices() {
		names = append(names, v.Name())
	}
	require.ElementsMatch(t, []string{"table.bias", "stack", "router"}, names)
}
