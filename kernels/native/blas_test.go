//go:build (darwin && arm64) || openblas

package native

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// blasCases returns products that the BLAS kernels support: whole and ragged panels and token
// blocks, and ones with a single element left; every epilogue; several weights side by side.
func blasCases() []linear {
	var cases []linear
	for _, w := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16} {
		for _, shape := range [][3]int{{8, 1, 1}, {9, 20, 7}, {33, 172, 128}, {13, 515, 129}, {257, 36, 300}} {
			cases = append(cases, linear{tokens: shape[0], k: shape[1], rows: []int{shape[2]}, types: []dtype.Type{w}})
		}
	}
	for _, tokens := range []int{8, 31, 260} {
		for _, norm := range []bool{false, true} {
			for _, residual := range []bool{false, true} {
				cases = append(cases,
					linear{tokens: tokens, k: 68, rows: []int{24, 137, 5, 40}, types: []dtype.Type{dtype.F16, dtype.F32, dtype.F16, dtype.BF16}, norm: norm, residual: residual, padding: 3},
					linear{tokens: tokens, k: 96, rows: []int{600}, types: []dtype.Type{dtype.F16}, norm: norm, residual: residual, rowGate: ir.Sigmoid},
					linear{tokens: tokens, k: 70, rows: []int{135, 135}, types: []dtype.Type{dtype.F16, dtype.F16}, pair: true, activation: ir.SiLU, norm: norm, residual: residual, padding: 1},
					linear{tokens: tokens, k: 64, rows: []int{18, 18}, types: []dtype.Type{dtype.F32, dtype.F16}, pair: true, activation: ir.SiLU, norm: norm, residual: residual})
			}
		}
	}
	for i, a := range ir.Activations() {
		more := linear{tokens: 31, k: 68, activation: a, bias: true, residual: i%2 == 1}
		gated := more
		gated.pair, gated.rows, gated.types = true, []int{135, 135}, []dtype.Type{dtype.F16, dtype.F32}
		cases = append(cases, gated)
		if !a.OnlyGated() {
			more.rows, more.types, more.padding = []int{137, 24, 5}, []dtype.Type{dtype.F16, dtype.F32, dtype.F16}, 3
			cases = append(cases, more)
		}
	}
	return append(cases, linear{tokens: 9, k: 68, rows: []int{24}, types: []dtype.Type{dtype.F16}, norm: true, layer: true, gain: true, shift: true})
}

// withScratch binds the scratch of a Plan's product.
func (c linear) withScratch(d dispatch, bytes int64) dispatch {
	d.scratch = make([]byte, bytes)
	return d
}

func (c linear) scratch() int64 {
	var rows []int64
	for _, n := range c.rows {
		rows = append(rows, int64(n))
	}
	return kernels.PanelScratch(int64(c.tokens), int64(c.k), rows, c.pair)
}

// compute runs the dispatch and returns its result, ignoring what it leaves in scratch.
func compute(t testing.TB, l Library, d dispatch, o Options) []byte {
	t.Helper()
	args := map[string][]byte{}
	for name, b := range d.args {
		args[name] = copied(t, b)
	}
	d.scratch = copied(t, d.scratch)
	require.NoError(t, l.Run(d.on(args), o))
	for name, b := range d.args {
		if name != "out" {
			require.Equal(t, b, args[name], "%s is written", name)
		}
	}
	return args["out"]
}

// TestBLAS compares the BLAS kernels and the native kernels with float64 on the same products:
// in one lane and in several, on several threads, and in place of the residual. It does not
// compare the two with each other, because results within a bound of the exact one may differ
// by twice the bound, and OpenBLAS chooses its kernel by processor.
func TestBLAS(t *testing.T) {
	l, ok := BLAS()
	require.True(t, ok)
	for _, c := range blasCases() {
		for _, vec := range []bool{true, false} {
			t.Run(fmt.Sprintf("vec=%t/%v", vec, c), func(t *testing.T) {
				b := c.build(t, vec)
				scale := c.scale(b)
				const bound = 1e-5 // of the conformance tests, for floats
				d := c.withScratch(b.dispatch, c.scratch())
				got := compute(t, l, d, Options{Threads: 1})
				exact, _, short := b.expect()
				near(t, exact, floats(got), scale, bound)
				best, want, most := Libraries()[0], exact, bound
				if best.HalfIntegers() {
					if want = short; c.norm { // the norm's rounding can move an activation to the next integer
						most = 1e-3
					}
				}
				near(t, want, floats(compute(t, best, b.dispatch, Options{})), scale, most)

				least := c.withScratch(b.dispatch, c.scratch()/max(1, c.scratch()/int64(4*lane(c))))
				for _, o := range cuts {
					require.Equal(t, got, compute(t, l, d, o), "%+v", o)
					require.Equal(t, got, compute(t, l, least, o), "in one lane, %+v", o)
				}
				if c.residual {
					same := d.clone()
					same.args["out"] = append([]byte(nil), d.args["residual"]...)
					same.args["residual"] = same.args["out"]
					require.NoError(t, l.Run(same.launch(), Options{Threads: 2}))
					// The padding between rows keeps the residual's bytes.
					width := c.rows[0] + c.padding
					if !c.pair {
						width = c.padding
						for _, n := range c.rows {
							width += n
						}
					}
					for at := 0; at < len(got); at += 4 * width {
						end := at + 4*(width-c.padding)
						require.Equal(t, got[at:end], same.args["out"][at:end], "in place: row %d", at/4/width)
					}
				}
			})
		}
	}
}

// lane returns the number of floats of one lane's scratch.
func lane(c linear) int {
	sides := 1
	if c.pair {
		sides = 2
	}
	tallest := 0
	for _, n := range c.rows {
		tallest = max(tallest, n)
	}
	return sides * min(tallest, 128) * (c.k + min(c.tokens, 256))
}

// TestBLASLeaves lists the products that the BLAS kernels do not support.
func TestBLASLeaves(t *testing.T) {
	l, _ := BLAS()
	c := linear{tokens: 8, k: 64, rows: []int{16, 16}, types: []dtype.Type{dtype.F16, dtype.F16}}
	good := c.withScratch(c.build(t, false).dispatch, c.scratch())
	params := kernels.LinearParams{Tokens: 8, K: 64, N0: 16, N1: 16, XStride: 64, OutStride: 32}
	for name, change := range map[string]func(d *dispatch){
		"few tokens":        func(d *dispatch) { p := params; p.Tokens = 7; d.params = p },
		"rows that overlap": func(d *dispatch) { p := params; p.XStride = 63; d.params = p },
		"no scratch":        func(d *dispatch) { d.scratch = nil },
		"little scratch":    func(d *dispatch) { d.scratch = make([]byte, 4*lane(c)-4) },
		"quantized weights": func(d *dispatch) { d.constants["fc_type1"] = uint32(dtype.Q8_0) },
		"short weight":      func(d *dispatch) { d.args["w0"] = d.args["w0"][1:] },
	} {
		d := good.clone()
		require.NoError(t, l.Run(d.launch(), Options{}), name)
		change(&d)
		require.ErrorIs(t, l.Run(d.launch(), Options{}), ErrUnsupported, name)
	}
	require.ErrorIs(t, l.Run(Launch{Kernel: "rope_f32"}, Options{}), ErrUnsupported)
}

// TestBLASConstants compares the constants of gemm.h with those of package kernels.
func TestBLASConstants(t *testing.T) {
	text, err := os.ReadFile("blas/gemm.h")
	require.NoError(t, err)
	require.Regexp(t, regexp.QuoteMeta(fmt.Sprintf("SCRATCH = %d,", kernels.HostScratch)), string(text))
	rows, tokens := int64(1000), int64(1000)
	require.Contains(t, string(text), "PANEL_ROWS = 128, PANEL_TOKENS = 256;")
	require.Equal(t, int64(4*128*(64+256)), kernels.PanelScratch(tokens, 64, []int64{128}, false))
	require.Equal(t, int64(4*4*2*128*(64+256)), kernels.PanelScratch(tokens, 64, []int64{rows, rows}, true))
}
