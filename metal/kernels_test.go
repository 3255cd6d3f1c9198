//go:build cgo && linux && (amd64 || arm64)

package metal

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
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
	row := lower.CeilDiv(ir.Var(ir.T), 1).Times(4 * k)
	matrix := func(name string, rows int64) ref {
		s.plan.Tensors = append(s.plan.Tensors, lower.Tensor{Name: name, DType: ir.F32, Shape: []int{int(rows), k}})
		return s.buffer(lower.Buffer{Kind: lower.Weight, Name: name, DType: ir.F32, Bytes: lower.Number(4 * rows * k)})
	}
	table, gate, up := matrix("table", vocab), matrix("gate", n), matrix("up", n)
	ids := s.input("tokens", perToken)
	arena := s.buffer(lower.Buffer{Kind: lower.Arena, Bytes: lower.Number(4 * maxT * k * 4)})
	value := func(i int64) ref { return ref{arena.buffer, i * 4 * maxT * k, row} }
	x, g, u, h := value(0), value(1), value(2), value(3)
	out := s.output("out", row)
	num := lower.Number
	launch := func(d *lower.Dispatch, threads uint32, grid ...lower.Expr) {
		copy(d.Grid[:], grid)
		d.Group[0] = threads
	}
	elementwise := []lower.Expr{tokens, num(k), num(k), num(k), num(0)}
	linear := func(w, to ref) {
		d := s.run("linear_vec_f32_f32", []lower.Expr{tokens, num(k), num(n), num(0), num(0), num(k), num(n), num(0)}, x, w, to)
		d.Bindings[2].Index, d.ParamsAt = 4, 5
		d.Constants = []lower.Constant{{Index: 0, Bits: uint32(ir.F32)}, {Index: 1}, {Index: 2}, {Index: 3}, {Index: 4}, {Index: 5}}
		launch(d, 64, num(n/8), tokens, num(1))
	}
	d := s.run("embed", []lower.Expr{tokens, num(k), num(vocab)}, ids, table, x)
	d.Constants = []lower.Constant{{Index: 0, Bits: uint32(ir.F32)}}
	launch(d, 32, num(1), tokens)
	linear(gate, g)
	linear(up, u)
	ph.Dispatches[2].Barrier = false
	launch(s.run("silu_mul_f32", elementwise, g, u, h), 256, num(1), tokens)
	launch(s.run("add_f32", elementwise, h, x, out), 256, num(1), tokens)

	in := []int32{3, 9, 0, 3, 12} // the last is no token: zeros
	want := make([]float64, len(in)*k)
	tableF, gateF, upF := floats(file["table"]), floats(file["gate"]), floats(file["up"])
	for t, id := range in {
		if id >= vocab {
			continue
		}
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
		opts   Options
	}{
		{"emu", Options{}},
		{"emu", Options{Threads: 3, Order: Descending, Poison: true, ShuffleDispatches: true, Seed: 5}},
		{"emu", Options{Order: Shuffled, Seed: 9}},
		{"cpu", Options{Threads: 1}},
		{"auto", Options{Threads: 4}},
	} {
		device, err := Open(c.device, c.opts)
		require.NoError(t, err)
		p, err := device.Load(&s.plan, func(name string) ([]byte, ir.DType, error) { return file[name], ir.F32, nil })
		require.NoError(t, err)
		require.Equal(t, c.device != "emu", p.Natives()["linear_vec_f32_f32"])
		session, err := p.NewSession(1)
		require.NoError(t, err)
		require.NoError(t, session.Run(t.Context(), &Step{Sizes: sizes(5), Inputs: map[string][]int32{"tokens": in}}))
		got, err := session.Output("out")
		require.NoError(t, err)
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-4*(1+math.Abs(want[i])), "%s: element %d", c.device, i)
		}
		require.NoError(t, device.Close())
	}
}

func TestOpen(t *testing.T) {
	_, err := Open("metal", Options{})
	require.ErrorIs(t, err, ErrNoMetal)
	_, err = Open("gpu", Options{})
	require.ErrorIs(t, err, ErrDevice)
	require.ErrorContains(t, err, "auto, metal, cpu, emu")
	for _, n := range []int{-1, maxThreads + 1} {
		_, err = Open("cpu", Options{Threads: n})
		require.ErrorContains(t, err, "threads")
	}
	d, err := Open("auto", Options{})
	require.NoError(t, err)
	require.Equal(t, "cpu", d.Info().Name)
	require.Equal(t, DefaultThreads(), d.Info().Threads)
	require.NotEmpty(t, d.Info().ISA)
	require.NoError(t, d.Close())
}
