package kernels_test

import (
	"testing"

	"github.com/smelt-ml/smelt/internal/quant"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
)

// BenchmarkEmulated measures one dispatch of the kernels that a step spends its time
// in, at the shapes of Qwen3-0.6B, on one core.
func BenchmarkEmulated(b *testing.B) {
	rng := newRand(b.Name())
	const k, n = 1024, 512
	matrix := make([]byte, ir.Q4_0.Bytes(k*n))
	values := make([]float32, k*n)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	if err := quant.Quantise(matrix, values, ir.Q4_0); err != nil {
		b.Fatal(err)
	}
	linear := func(name string, tokens int, grid [3]uint32, group uint32) emulated.Launch {
		x := random(rng, typesOf(name[len("linear_vec"):])[0], tokens*k)
		return emulated.Launch{
			Kernel: name,
			Buffers: [][]byte{x.bytes, matrix, nil, nil, result(kernels.Float, tokens*n).bytes,
				kernels.Encode(kernels.LinearParams{Tokens: uint32(tokens), K: k, N0: n, XStride: k, OutStride: n})},
			Constants: map[uint32]uint32{0: uint32(ir.Q4_0)},
			Grid:      grid,
			Group:     [3]uint32{group},
		}
	}
	attend := func(name string, tokens, context int, group uint32) emulated.Launch {
		s := attentionShape{2, 1, 128}
		p := batch{lens: []int{tokens}, contexts: []int{context}, block: 1024}.page(rng)
		types := typesOf(name[len(name)-8:])
		q := random(rng, types[0], tokens*s.heads*s.head)
		grid := [3]uint32{uint32(s.heads), uint32(tokens), 1}
		if group == 128 {
			grid = [3]uint32{uint32(ceil(tokens, 32) + 1), uint32(s.heads), 1}
		}
		return emulated.Launch{
			Kernel: name,
			Buffers: [][]byte{q.bytes, p.cache(rng, types[1], 1, s.head).bytes, p.cache(rng, types[1], 1, s.head).bytes,
				ints(p.positions).bytes, ints(p.cu).bytes, ints(p.contextLens).bytes, ints(p.table).bytes,
				result(types[0], q.length).bytes,
				kernels.Encode(kernels.AttentionParams{Tokens: uint32(tokens), Seqs: 1, Heads: 2, KvHeads: 1, Head: 128,
					Block: 1024, TableStride: uint32(p.stride), BlockStride: 1024 * 128, HeadStride: 1024 * 128, RowStride: 128,
					Scale: 0.1})},
			Grid:  grid,
			Group: [3]uint32{group},
		}
	}
	for _, l := range []emulated.Launch{
		linear("linear_vec_f16_f32", 1, [3]uint32{n / 8, 1, 1}, 64),
		linear("linear_vec_f32_f32", 1, [3]uint32{n / 8, 1, 1}, 64),
		linear("linear_mat_f16_f32", 32, [3]uint32{1, n / 64, 1}, 128),
		linear("linear_mat_f32_f32", 32, [3]uint32{1, n / 64, 1}, 128),
		attend("attention_vec_f16_f16", 1, 512, 256),
		attend("attention_vec_f32_f32", 1, 512, 256),
		attend("attention_tile_f16_f16", 32, 512, 128),
		attend("attention_tile_f32_f32", 32, 512, 128),
	} {
		b.Run(l.Kernel, func(b *testing.B) {
			for b.Loop() {
				if err := emulated.Run(l, emulated.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
