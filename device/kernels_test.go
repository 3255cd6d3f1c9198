//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

func randomFloats(r *rand.Rand, n int) []byte {
	data := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(r.NormFloat64())))
	}
	return data
}

// The project's own kernels in a Plan written by hand: a gated unit, from the
// embedding to silu(W0·x)·(W1·x) + x·ones.
func TestGatedUnit(t *testing.T) {
	const k, n, vocab, maxT = 48, 48, 10, 5
	r := rand.New(rand.NewPCG(1, 2))
	file := map[string][]byte{"table": randomFloats(r, vocab*k), "gate": randomFloats(r, n*k), "up": randomFloats(r, n*k)}

	s := newSketch(maxT)
	ph := &s.plan.Phases[0]
	row := lower.CeilDiv(ir.Var(sym.T), 1).Times(4 * k)
	matrix := func(name string, rows int64) stretch {
		s.plan.Tensors = append(s.plan.Tensors, plan.Tensor{Name: name, DType: dtype.F32, Shape: []int{int(rows), k}})
		return s.buffer(plan.Buffer{Kind: plan.Weight, Name: name, DType: dtype.F32, Bytes: plan.Number(4 * rows * k)})
	}
	table, gate, up := matrix("table", vocab), matrix("gate", n), matrix("up", n)
	ids := s.input("tokens", perToken)
	arena := s.buffer(plan.Buffer{Kind: plan.Arena, Bytes: plan.Number(4 * maxT * k * 4)})
	value := func(i int64) stretch { return stretch{arena.buffer, i * 4 * maxT * k, row} }
	x, g, u, h := value(0), value(1), value(2), value(3)
	out := s.output("out", row)
	num := plan.Number
	launch := func(d *plan.Dispatch, threads uint32, grid ...plan.Expr) {
		copy(d.Grid[:], grid)
		d.Group[0] = threads
	}
	elementwise := words{"rows": tokens, "width": num(k), "a_stride": num(k), "b_stride": num(k), "value": num(0)}
	linear := func(w, to stretch) {
		d := s.launch("linear_vec_f32_f32", words{"tokens": tokens, "k": num(k), "n0": num(n), "n1": num(0), "n2": num(0), "n3": num(0),
			"x_stride": num(k), "out_stride": num(n), "eps": num(0), "gate_stride": num(0), "gate_from": num(0)}, args{"x": x, "w0": w, "out": to})
		d.Constants = set(d.Kernel, map[string]uint32{"fc_type0": uint32(dtype.F32)})
		launch(d, 64, num(n/8), tokens, num(1))
	}
	d := s.launch("embed", words{"tokens": tokens, "width": num(k), "vocab": num(vocab)}, args{"tokens": ids, "table": table, "out": x})
	d.Constants = set(d.Kernel, map[string]uint32{"fc_type": uint32(dtype.F32)})
	launch(d, 32, num(1), tokens)
	linear(gate, g)
	linear(up, u)
	ph.Dispatches[2].Barrier = false
	d = s.launch("gate_f32", elementwise, args{"a": g, "b": u, "out": h})
	d.Constants = set(d.Kernel, map[string]uint32{"fc_activation": uint32(ir.SiLU)})
	launch(d, 256, num(1), tokens)
	launch(s.launch("add_f32", elementwise, args{"a": h, "b": x, "out": out}), 256, num(1), tokens)

	in := []int32{3, 9, 0, 3, 7}
	want := make([]float64, len(in)*k)
	tableF, gateF, upF := floats(file["table"]), floats(file["gate"]), floats(file["up"])
	for t, id := range in {
		x := tableF[id*k : id*k+k]
		for o := range n {
			var g, u float64
			for i := range k {
				g += float64(gateF[o*k+i]) * float64(x[i])
				u += float64(upF[o*k+i]) * float64(x[i])
			}
			want[t*k+o] = g/(1+math.Exp(-g))*u + float64(x[o])
		}
	}
	for _, c := range []struct {
		device string
		opts   device.Options
	}{
		{"emu", device.Options{}},
		{"emu", device.Options{Threads: 3, Poison: true, Seed: 5, Own: map[string]string{"order": "descending", "shuffle": "on"}}},
		{"emu", device.Options{Seed: 9, Own: map[string]string{"order": "shuffled"}}},
		{"cpu", device.Options{Threads: 1}},
		{"auto", device.Options{Threads: 4}},
	} {
		on, err := device.Open(c.device, c.opts)
		require.NoError(t, err)
		p, err := load(on, &s.plan, func(name string) ([]byte, dtype.Type, error) { return file[name], dtype.F32, nil })
		require.NoError(t, err)
		require.Equal(t, on.Info().Name == "cpu", p.Natives()["linear_vec_f32_f32"])
		instance, err := p.NewInstance(1)
		require.NoError(t, err)
		require.NoError(t, instance.Run(t.Context(), &device.Step{Sizes: sizes(5), Inputs: map[string][]int32{"tokens": in}}))
		got, err := instance.Output("out")
		require.NoError(t, err)
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-4*(1+math.Abs(want[i])), "%s: element %d", c.device, i)
		}
		require.NoError(t, on.Close())
	}
}

// Inputs that a kernel would use to leave the cache, the vocabulary or the step are
// refused, and the caches keep every byte.
func TestBadInputsLeaveCaches(t *testing.T) {
	const vocab, head, block, blocks = 10, 32, 4, 3
	s := newSketch(8)
	s.plan.Caches = []plan.Cache{{DType: dtype.F32, KVHeads: 1, Head: head, Block: block}}
	num := plan.Number
	perSeq := lower.Extent(ir.Var(sym.B)).Times(4)
	ids, slots := s.input("tokens", perToken), s.input("slots", perToken)
	s.input("positions", perToken)
	s.input("cu_seqlens", perSeq.Plus(num(4)))
	lens := s.input("context_lens", perSeq)
	pages, _ := ir.Var(sym.B).Times(ir.Var(sym.NB))
	table := s.input("block_table", lower.Extent(pages).Times(4))
	s.plan.Tensors = []plan.Tensor{{Name: "rows", DType: dtype.F32, Shape: []int{vocab, head}}}
	rows := s.buffer(plan.Buffer{Kind: plan.Weight, Name: "rows", DType: dtype.F32, Bytes: num(4 * vocab * head)})
	arena := s.buffer(plan.Buffer{Kind: plan.Arena, Bytes: num(4 * 8 * head)})
	arena.bytes = lower.Extent(ir.Var(sym.T)).Times(4 * head)
	var caches [2]stretch
	for i, kind := range []plan.Kind{plan.CacheK, plan.CacheV} {
		caches[i] = s.buffer(plan.Buffer{Kind: kind, Name: []string{"k.0", "v.0"}[i], DType: dtype.F32, Bytes: num(4 * block * head)})
	}
	s.plan.Vocab = vocab
	d := s.launch("embed", words{"tokens": tokens, "width": num(head), "vocab": num(vocab)}, args{"tokens": ids, "table": rows, "out": arena})
	d.Constants = set(d.Kernel, map[string]uint32{"fc_type": uint32(dtype.F32)})
	d.Grid[0], d.Grid[1] = num(1), tokens
	d = s.launch("cache_write_f32_f32", words{"tokens": tokens, "kv_heads": num(1), "head": num(head), "block": num(block),
		"k_stride": num(head), "v_stride": num(head)}, args{"k": arena, "v": arena, "slots": slots, "k_cache": caches[0], "v_cache": caches[1]})
	d.Grid, d.Group[0] = [3]plan.Expr{num(1), tokens, num(1)}, 64
	context, _ := ir.Var(sym.B).Times(ir.Var(sym.Smax))
	d = s.launch("cache_read_f32", words{"seqs": lower.Extent(ir.Var(sym.B)), "context": lower.Extent(ir.Var(sym.Smax)), "kv_heads": num(1),
		"head": num(head), "block": num(block), "table_stride": lower.Extent(ir.Var(sym.NB))},
		args{"cache": caches[0], "context_lens": lens, "block_table": table, "out": s.output("out", lower.Extent(context).Times(4*head))})
	d.Grid, d.Group[0] = [3]plan.Expr{num(1), lower.Extent(context), num(1)}, 64

	on, err := device.Open("cpu", device.Options{Threads: 1})
	require.NoError(t, err)
	defer on.Close()
	stored := randomFloats(rand.New(rand.NewPCG(3, 4)), vocab*head)
	p, err := load(on, &s.plan, func(string) ([]byte, dtype.Type, error) { return stored, dtype.F32, nil })
	require.NoError(t, err)
	instance, err := p.NewInstance(blocks)
	require.NoError(t, err)
	contents := func() (all [2][]byte) {
		for i, c := range caches {
			all[i] = slices.Clone(instance.Contents(c.buffer, 4*blocks*block*head))
		}
		return all
	}
	good := func() *device.Step {
		return &device.Step{Sizes: sym.Sizes{sym.T: 3, sym.B: 2, sym.R: 1, sym.NB: 2, sym.Smax: 8}, Inputs: map[string][]int32{
			"tokens": {9, 0, 4}, "positions": {0, 1, 0}, "slots": {4, 5, 8}, "cu_seqlens": {0, 2, 3}, "context_lens": {2, 1}, "block_table": {1, 0, 2, 0},
		}}
	}
	empty := contents()
	require.NoError(t, instance.Run(t.Context(), good()))
	before := contents()
	require.NotEqual(t, empty, before)
	for want, bad := range map[string]struct {
		input  string
		values []int32
	}{
		"token 1 has the id 10; the vocabulary has 10":            {"tokens", []int32{1, 10, 2}},
		"token 2 has the id -1":                                   {"tokens", []int32{1, 2, -1}},
		"token 0 is at position -1":                               {"positions", []int32{-1, 1, 2}},
		"token 2 is at position 2147483647":                       {"positions", []int32{1, 2, math.MaxInt32}},
		"token 1 is written to slot 12 of 12":                     {"slots", []int32{0, 12, 1}},
		"element 2 is 1; a running sum from 0 is needed":          {"cu_seqlens", []int32{0, 2, 1}},
		"element 0 is 1; a running sum from 0 is needed":          {"cu_seqlens", []int32{1, 2, 3}},
		"the last element is 4; the step has 3 tokens":            {"cu_seqlens", []int32{0, 2, 4}},
		"sequence 0 has 9 keys; Smax is 8, and its 2 blocks hold": {"context_lens", []int32{9, 1}},
		"sequence 1 has -2 keys":                                  {"context_lens", []int32{2, -2}},
		"block 0 of sequence 1 is number 3 of 3":                  {"block_table", []int32{1, 0, 3, 0}},
		"block 0 of sequence 0 is number -1 of 3":                 {"block_table", []int32{-1, 0, 2, 0}},
	} {
		step := good()
		step.Inputs[bad.input] = bad.values
		err := instance.Run(t.Context(), step)
		require.ErrorIs(t, err, device.ErrStep, want)
		require.ErrorContains(t, err, `input "`+bad.input+`": `+want)
		require.Equal(t, before, contents(), want)
	}
}

func TestOpen(t *testing.T) {
	best := "metal"
	if gpu, err := device.Open("metal", device.Options{}); err == nil {
		require.NoError(t, gpu.Close())
	} else {
		require.ErrorIs(t, err, device.ErrAbsent)
		best = "cpu"
	}
	_, err := device.Open("gpu", device.Options{})
	require.ErrorIs(t, err, device.ErrDevice)
	require.ErrorContains(t, err, "auto, metal, cpu, emu")
	for _, n := range []int{-1, device.MaxThreads + 1} {
		_, err = device.Open("cpu", device.Options{Threads: n})
		require.ErrorContains(t, err, "threads")
	}
	d, err := device.Open("auto", device.Options{})
	require.NoError(t, err)
	require.Equal(t, best, d.Info().Name)
	require.Equal(t, device.DefaultThreads(), d.Info().Threads)
	require.NotEmpty(t, d.Info().ISA)
	require.NoError(t, d.Close())
}
