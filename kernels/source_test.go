package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

func TestCacheWrite(t *testing.T) {
	instances(t, "cache_write", func(t *testing.T, name string, types []kernels.Element) {
		const kvHeads = 3
		head := headFor(types, 24)
		rng := newRand(t.Name())
		p := batch{lens: []int{3, 2}, contexts: []int{5, 9}, block: 4}.page(rng)
		p.slots[2] = -1
		tokens, kStride, vStride := p.tokens(), kvHeads*head+8, kvHeads*head+3
		k, v := random(rng, types[0], tokens*kStride), random(rng, types[0], tokens*vStride)
		k.put(5, math.Inf(-1))
		v.put(vStride+head+7, math.NaN())
		for i := range head {
			k.put(kStride+i, 0)
			v.put(3*vStride+i, v.at(3*vStride+i)*1e-5)
			v.put(3*vStride+head+i, v.at(3*vStride+i)*60000)
			v.put(4*vStride+i, float64(i%16)-7.5) // halves, where d is 1
		}
		v.put(4*vStride, 127)
		if types[0] == kernels.Float {
			k.put(4*kStride+2, 1e7) // its d has no half
		}
		n := p.blocks * kvHeads * p.block * head
		got := launch{
			kernel:  name,
			buffers: map[string]tensor{"k": k, "v": v, "slots": ints(p.slots), "k_cache": result(types[1], n), "v_cache": result(types[1], n)},
			params: kernels.CacheWriteParams{Tokens: uint32(tokens), KvHeads: kvHeads, Head: uint32(head), Block: uint32(p.block),
				KStride: uint32(kStride), VStride: uint32(vStride)},
			grid:  [3]int{ceil(kvHeads*head, 64), tokens, 1},
			group: 64,
		}.run(t)
		for name, in := range map[string]struct {
			x      tensor
			stride int
		}{"k_cache": {k, kStride}, "v_cache": {v, vStride}} {
			values := slices.Repeat([]float64{math.NaN()}, n)
			for token, slot := range p.slots {
				for e := 0; slot >= 0 && e < kvHeads*head; e++ {
					values[p.element(int(slot), e/head, kvHeads, head, e%head)] = in.x.at(token*in.stride + e)
				}
			}
			want := filled(types[1], n, func(i int) float64 { return values[i] })
			compare(t, want.values(), got[name].values(), n, 0)
		}
	})
}

func TestCacheRead(t *testing.T) {
	instances(t, "cache_read", func(t *testing.T, name string, types []kernels.Element) {
		const kvHeads, context = 2, 11
		head := headFor(types, 40)
		rng := newRand(t.Name())
		p := batch{lens: []int{1, 1, 0}, contexts: []int{5, 9, 0}, block: 4}.page(rng)
		cache := p.cache(rng, types[0], kvHeads, head)
		n := len(p.lens) * context * kvHeads * head
		got := launch{
			kernel:  name,
			buffers: map[string]tensor{"cache": cache, "context_lens": ints(p.contextLens), "block_table": ints(p.table), "out": result(kernels.Float, n)},
			params: kernels.CacheReadParams{Seqs: uint32(len(p.lens)), Context: context, KvHeads: kvHeads, Head: uint32(head),
				Block: uint32(p.block), TableStride: uint32(p.stride)},
			grid:  [3]int{ceil(kvHeads*head, 64), len(p.lens) * context, 1},
			group: 64,
		}.run(t)["out"]
		want := make([]float64, n)
		for seq, length := range p.contexts {
			for j := range length {
				for e := range kvHeads * head {
					want[((seq*context+j)*kvHeads)*head+e] = cache.at(p.element(p.slot(seq, j), e/head, kvHeads, head, e%head))
				}
			}
		}
		compare(t, want, got.values(), n, 0)
	})
}

func TestTranspose(t *testing.T) {
	instances(t, "transpose", func(t *testing.T, name string, types []kernels.Element) {
		for _, c := range []struct{ size, stride [3]uint32 }{
			{[3]uint32{3, 5, 70}, [3]uint32{70, 210, 1}}, // [5,3,70] with its first axes exchanged
			{[3]uint32{2, 70, 5}, [3]uint32{350, 1, 70}},
			{[3]uint32{1, 4, 3}, [3]uint32{0, 8, 1}}, // a slice of rows of 8
			{[3]uint32{1, 1, 1}, [3]uint32{0, 0, 0}},
		} {
			t.Run(fmt.Sprint(c), func(t *testing.T) {
				x := random(newRand(t.Name()), types[0], 1050)
				n := int(c.size[0] * c.size[1] * c.size[2])
				got := launch{
					kernel:  name,
					buffers: map[string]tensor{"x": x, "out": result(types[0], n)},
					params:  kernels.TransposeParams{Size: c.size, Stride: c.stride},
					grid:    [3]int{ceil(int(c.size[2]), 64), int(c.size[1]), int(c.size[0])},
					group:   64,
				}.run(t)["out"]
				var want []float64
				for i := range c.size[0] {
					for j := range c.size[1] {
						for k := range c.size[2] {
							want = append(want, x.at(int(i*c.stride[0]+j*c.stride[1]+k*c.stride[2])))
						}
					}
				}
				compare(t, want, got.values(), n, 0)
			})
		}
	})
}

func TestMatmul(t *testing.T) {
	instances(t, "matmul", func(t *testing.T, name string, types []kernels.Element) {
		for _, c := range few([][4]int{{2, 3, 33, 40}, {1, 35, 5, 70}},
			[][4]int{{1, 1, 1, 1}, {2, 3, 33, 40}, {1, 35, 5, 70}, {3, 32, 64, 32}, {2, 7, 300, 8}, {2, 65, 33, 257}}) {
			for transposed := range uint32(2) {
				t.Run(fmt.Sprint(c, transposed), func(t *testing.T) {
					batch, m, n, k := c[0], c[1], c[2], c[3]
					rng := newRand(t.Name())
					a, b := random(rng, types[0], batch*m*k), random(rng, types[0], batch*n*k)
					got := launch{
						kernel:    name,
						constants: map[string]uint32{"fc_transposed": transposed},
						buffers:   map[string]tensor{"a": a, "b": b, "out": result(types[0], batch*m*n)},
						params:    kernels.MatmulParams{Batch: uint32(batch), M: uint32(m), N: uint32(n), K: uint32(k)},
						grid:      [3]int{ceil(n, 32), ceil(m, 32), batch},
						group:     128,
					}.run(t)["out"]
					want := make([]float64, batch*m*n)
					for i := range want {
						z, row, column := i/n/m, i/n%m, i%n
						for j := range k {
							at := (z*k+j)*n + column
							if transposed == 1 {
								at = (z*n+column)*k + j
							}
							want[i] += a.at((z*m+row)*k+j) * b.at(at)
						}
					}
					compare(t, want, got.values(), m*n, worst(types...))
				})
			}
		}
	})
}

func TestMask(t *testing.T) {
	for window, seen := range map[int]int{0: 5 + 6 + 6 + 1 + 2, 1: 1 + 1 + 0 + 1 + 1, 3: 3 + 3 + 2 + 1 + 2, 100: 5 + 6 + 6 + 1 + 2} {
		t.Run(fmt.Sprint(window), func(t *testing.T) { testMask(t, window, seen, nil) })
		t.Run(fmt.Sprint(window, " with slopes"), func(t *testing.T) { testMask(t, window, seen, []float64{0.25, -0.5}) })
	}
}

func testMask(t *testing.T, window, seen int, slopes []float64) {
	instances(t, "mask", func(t *testing.T, name string, types []kernels.Element) {
		const heads, context = 2, 13
		rng := newRand(t.Name())
		p := batch{lens: []int{3, 0, 2}, contexts: []int{7, 4, 2}, block: 4}.page(rng)
		p.contextLens[0] = 6 // the last token's own key is past it
		columns := len(p.lens) * context
		x := random(rng, types[0], heads*p.tokens()*columns)
		l := launch{
			kernel:    name,
			constants: map[string]uint32{},
			buffers: map[string]tensor{"scores": x, "positions": ints(p.positions), "cu_seqlens": ints(p.cu), "context_lens": ints(p.contextLens),
				"out": result(types[0], x.length)},
			params: kernels.MaskParams{Heads: heads, Tokens: uint32(p.tokens()), Seqs: uint32(len(p.lens)), Context: context,
				Window: uint32(window)},
			grid:  [3]int{ceil(columns, 64), p.tokens(), heads},
			group: 64,
		}
		bound := 0.0
		if slopes != nil {
			l.constants["fc_slopes"], bound = 1, worst(types...)
			l.buffers["slopes"] = filled(kernels.Float, heads, func(i int) float64 { return slopes[i] })
		}
		got := l.run(t)["out"]
		kept := 0
		expected := make([]float64, got.length)
		for i := range expected {
			token, seq, key := i/columns%p.tokens(), int32(i%columns/context), int32(i%context)
			want := math.Inf(-1)
			own := p.cu[seq] <= int32(token) && int32(token) < p.cu[seq+1]
			recent := window == 0 || p.positions[token]-key < int32(window)
			if own && recent && key <= p.positions[token] && key < p.contextLens[seq] {
				want = x.at(i)
				if slopes != nil {
					want += slopes[i/columns/p.tokens()] * float64(key-p.positions[token])
				}
				kept++
			}
			expected[i] = want
		}
		compare(t, expected, got.values(), columns, bound)
		require.Equal(t, heads*seen, kept)
	})
}

func TestSoftmax(t *testing.T) {
	instances(t, "softmax", func(t *testing.T, name string, types []kernels.Element) {
		for _, width := range few([]int{5, 700}, []int{1, 5, 31, 256, 257, 700, 5000}) {
			t.Run(fmt.Sprint(width), func(t *testing.T) {
				const rows = 9
				rng := newRand(t.Name())
				stride := width + 3
				x := random(rng, types[0], rows*stride)
				for i := range width {
					x.put(stride+i, 20*rng.NormFloat64()) // a peaked row
					x.put(2*stride+i, math.Inf(-1))       // an empty row
					if i%3 > 0 {
						x.put(3*stride+i, math.Inf(-1))
					}
					x.put(4*stride+i, float64(i)/8)  // the largest so far, again and again
					x.put(5*stride+i, -float64(i)/8) // and never
					x.put(6*stride+i, -3e4)          // equals
				}
				x.put(7*stride+width/2, math.NaN())
				x.put(8*stride+width/2, math.Inf(1))
				got := launch{
					kernel:  name,
					buffers: map[string]tensor{"x": x, "out": result(types[0], rows*width)},
					params:  kernels.ElementParams{Rows: rows, Width: uint32(width), AStride: uint32(stride)},
					grid:    [3]int{rows, 1, 1},
					group:   256,
				}.run(t)["out"]
				var want []float64
				for r := range rows {
					row := x.values()[r*stride:][:width]
					highest, total := slices.Max(row), 0.0 // NaN where one is
					for i, v := range row {
						if row[i] = math.Exp(v - highest); math.IsInf(highest, -1) {
							row[i] = 0
						}
						total += row[i]
					}
					for i := range row {
						if total != 0 {
							row[i] /= total
						}
					}
					want = append(want, row...)
				}
				compare(t, want, got.values(), width, worst(types...))
			})
		}
	})
}

// TestSoftmaxSinks gives pairs of rows a sink: below, among and above their scores, and
// -inf, which is none.
func TestSoftmaxSinks(t *testing.T) {
	instances(t, "softmax", func(t *testing.T, name string, types []kernels.Element) {
		const rows, width, perSink = 8, 300, 2
		rng := newRand(t.Name())
		sinks := []float64{-5, 1, 8, math.Inf(-1)}
		x := random(rng, types[0], rows*width)
		for i := range width { // rows without a score
			x.put(width+i, math.Inf(-1))
			x.put((rows-1)*width+i, math.Inf(-1))
		}
		got := launch{
			kernel:    name,
			constants: map[string]uint32{"fc_sinks": 1},
			buffers: map[string]tensor{"x": x, "out": result(types[0], rows*width),
				"sinks": filled(kernels.Float, len(sinks), func(i int) float64 { return sinks[i] })},
			params: kernels.ElementParams{Rows: rows, Width: width, AStride: width, BStride: perSink},
			grid:   [3]int{rows, 1, 1},
			group:  256,
		}.run(t)["out"]
		want := x.values()
		for r := range rows {
			row, total := want[r*width:][:width], math.Exp(sinks[r/perSink])
			for i, v := range row {
				row[i] = math.Exp(v)
				total += row[i]
			}
			for i := range row {
				if total > 0 {
					row[i] /= total
				}
			}
		}
		compare(t, want, got.values(), width, worst(types...))
	})
}

// TestArgmax has rows of equals, of −∞ and +∞, and with a NaN among either.
func TestArgmax(t *testing.T) {
	inf := math.Inf(1)
	instances(t, "argmax", func(t *testing.T, name string, types []kernels.Element) {
		for _, width := range few([]int{1, 33, 700}, []int{1, 5, 31, 32, 255, 256, 257, 700, 5000, 32003}) {
			t.Run(fmt.Sprint(width), func(t *testing.T) {
				rng := newRand(t.Name())
				stride := width + 3
				cases := []func(row int, i int) float64{
					func(int, int) float64 { return rng.NormFloat64() },
					func(int, int) float64 { return float64(rng.IntN(3)) - 5 }, // many equals
					func(int, int) float64 { return -inf },
					func(_, i int) float64 { return []float64{-inf, -3e38}[i*7%(width+1)%2] },
					func(int, int) float64 { return inf },
					func(_, i int) float64 { return float64(i) }, // the last is the largest
					func(_, i int) float64 { return float64(-i) },
					func(_, i int) float64 { return math.Copysign(0, float64(i%2)-0.5) },
				}
				rows := 2 * len(cases)
				x := filled(types[0], rows*stride, func(i int) float64 {
					if i%stride >= width {
						return inf // between the rows
					}
					return cases[i/stride%len(cases)](i/stride, i%stride)
				})
				for r := len(cases); r < rows; r++ {
					x.put(r*stride+rng.IntN(width), math.NaN())
				}
				got := launch{
					kernel:  name,
					buffers: map[string]tensor{"x": x, "out": result(kernels.Int, rows)},
					params:  kernels.ElementParams{Rows: uint32(rows), Width: uint32(width), AStride: uint32(stride)},
					grid:    [3]int{rows, 1, 1},
					group:   256,
				}.run(t)["out"]
				want := make([]float64, rows)
				for r := range rows {
					row := x.values()[r*stride:][:width]
					for i, v := range row {
						if v > row[int(want[r])] {
							want[r] = float64(i)
						}
					}
					if r >= len(cases) {
						want[r] = -1
					}
				}
				compare(t, want, got.values(), 1, 0)
			})
		}
	})
}

// TestCopyBlocks compares bytes; blocks that no pair names stay, and so do gaps.
func TestCopyBlocks(t *testing.T) {
	instances(t, "copy_blocks", func(t *testing.T, name string, types []kernels.Element) {
		e, rng := types[0], newRand(t.Name())
		unit := 4 // elements that are together
		if e == kernels.Blocks {
			unit = 32
		}
		for _, width := range []int{2 * unit, 1024, 2560 + unit} {
			const blocks = 7
			stride, pairs := width+3*unit, []int32{2, 0, 2, 6, 5, 3}
			k, v := anyBits(rng, e, blocks*stride), anyBits(rng, e, blocks*stride)
			want := []tensor{result(e, blocks*stride), result(e, blocks*stride)}
			for i, from := range []tensor{k, v} {
				for j := 0; j < len(pairs); j += 2 {
					copy(want[i].bytes[sizeOf(e, int(pairs[j+1])*stride):], from.bytes[sizeOf(e, int(pairs[j])*stride):][:sizeOf(e, width)])
				}
			}
			got := launch{
				kernel:  name,
				buffers: map[string]tensor{"k_from": k, "v_from": v, "pairs": ints(pairs), "k_cache": result(e, blocks*stride), "v_cache": result(e, blocks*stride)},
				params:  kernels.CopyBlocksParams{Pairs: uint32(len(pairs) / 2), Width: uint32(width), BlockStride: uint32(stride)},
				grid:    [3]int{ceil(width, 1024), len(pairs) / 2, 1}, group: 256,
			}.run(t)
			require.Equal(t, want[0].bytes, got["k_cache"].bytes)
			require.Equal(t, want[1].bytes, got["v_cache"].bytes)
			exact(t)
		}
	})
}
