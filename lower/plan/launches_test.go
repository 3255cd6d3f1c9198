package plan_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// scaling returns a valid Plan whose one dispatch scales T rows of four elements.
func scaling(t *testing.T, k *kernels.Kernel) *plan.Plan {
	num, bytes := plan.Number, plan.Size(sym.T).Times(16)
	d := plan.Dispatch{Kernel: k.Name, Value: 1, Layer: -1, Params: make([]plan.Expr, k.ParamWords), ParamsAt: uint32(k.ParamsIndex),
		Grid: [3]plan.Expr{num(1), plan.Size(sym.T), num(1)}, Group: [3]uint32{256, 1, 1}}
	for name, e := range map[string]plan.Expr{"rows": plan.Size(sym.T), "width": num(4), "a_stride": num(4)} {
		d.Params[param(t, k, name)] = e
	}
	for i, name := range []string{"a", "out"} {
		arg, ok := k.Named(name)
		require.True(t, ok)
		d.Bindings = append(d.Bindings, plan.Binding{Index: uint32(arg.Index), Buffer: int32(i), Bytes: bytes, Read: i == 0, Write: i == 1})
	}
	return &plan.Plan{
		Model: "scaling", Target: "cpu", Act: dtype.F32, Context: 64,
		Buffers: []plan.Buffer{{Kind: plan.Input, Name: "x", DType: dtype.F32, Bytes: bytes}, {Kind: plan.Output, Name: "out", DType: dtype.F32, Bytes: bytes}},
		Phases: []plan.Phase{{Name: "all", Least: sym.Sizes{sym.T: 1}, Longest: plan.Interval{Min: 1, Max: 8},
			Bounds: sym.Sizes{sym.T: 8, sym.B: 4, sym.R: 8, sym.NB: 4, sym.Smax: 64}, Dispatches: []plan.Dispatch{d}}},
	}
}

func param(t *testing.T, k *kernels.Kernel, name string) int {
	i, ok := k.Param(name)
	require.True(t, ok, name)
	return i
}

// TestLaunches checks that a Plan is refused whose launches a kernel does not cover at some sizes.
func TestLaunches(t *testing.T) {
	num := plan.Number
	k, ok := kernels.Lookup("scale_f32")
	require.True(t, ok)
	require.NoError(t, scaling(t, k).Validate())
	a, _ := k.Named("a")
	for want, change := range map[string]func(*plan.Dispatch){
		fmt.Sprintf("phase 0 (all): dispatch 0 (scale_f32 v1): sizes [8 4 8 4 64 0]: invalid launch: kernel scale_f32: a: buffer %d has 128 bytes, the sizes ask for 156", a.Index): func(d *plan.Dispatch) {
			d.Params[param(t, k, "a_stride")] = num(5)
		},
		"grid: [2 8 1] threadgroups, the sizes ask for [1 8 1]":                          func(d *plan.Dispatch) { d.Grid[0] = num(2) },
		"sizes [1 1 1 1 1 0]: invalid launch: kernel scale_f32: grid: [1 8 1]":           func(d *plan.Dispatch) { d.Grid[1] = num(8) },
		"threadgroup: [128 1 1] threads, the kernel takes 256":                           func(d *plan.Dispatch) { d.Group[0] = 128 },
		"threadgroup: [512 1 1] threads, at most 256":                                    func(d *plan.Dispatch) { d.Group[0] = 512 },
		fmt.Sprintf("parameters at buffer 3; scale_f32 takes them at %d", k.ParamsIndex): func(d *plan.Dispatch) { d.ParamsAt = 3 },
		"width: 0: nothing to do":                                                        func(d *plan.Dispatch) { d.Params[param(t, k, "width")] = num(0) },
		"parameter 0 is 8589934592, which does not fit 32 bits":                          func(d *plan.Dispatch) { d.Params[0] = plan.Size(sym.T).Times(1 << 30) },
		"sizes [1 1 1 1 1 0]: a grid of -6 threadgroups on axis 1":                       func(d *plan.Dispatch) { d.Grid[1] = plan.Size(sym.T).Times(2).Plus(num(-8)) },
		"is too large at [8 4 8 4 64 0]":                                                 func(d *plan.Dispatch) { d.Params[0] = huge() },
	} {
		p := scaling(t, k)
		change(&p.Phases[0].Dispatches[0])
		err := p.Validate()
		require.ErrorIs(t, err, plan.ErrPlan)
		require.ErrorContains(t, err, want)
	}
	p := scaling(t, k)
	p.Buffers = append(p.Buffers, plan.Buffer{Kind: plan.Output, Name: "more", DType: dtype.F32, Bytes: huge()})
	require.ErrorContains(t, p.Validate(), `phase 0 (all): buffer 2 (output "more"): the expression`)
}

// huge returns an expression that passes at small bounds only.
func huge() plan.Expr {
	e := plan.Size(sym.Smax).Times(1 << 46)
	e.Terms[0].Pow[sym.Smax] = 2
	return e
}

// TestValid checks that a Plan is valid once Validate has accepted it, and that its copies are not.
func TestValid(t *testing.T) {
	k, _ := kernels.Lookup("scale_f32")
	p := scaling(t, k)
	require.False(t, p.Valid())
	require.NoError(t, p.Validate())
	require.True(t, p.Valid())
	other := *p
	require.False(t, other.Valid())
	p.Context = 0
	require.Error(t, p.Validate())
	require.False(t, p.Valid())
}

func BenchmarkValidate(b *testing.B) {
	model, err := smelt.Open("arch:qwen3-8b", "")
	require.NoError(b, err)
	defer model.Close()
	program, err := model.Compile(smelt.Options{Target: "cpu"})
	require.NoError(b, err)
	for b.Loop() {
		require.NoError(b, program.Plan.Validate())
	}
}
