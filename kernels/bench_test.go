package kernels_test

import (
	"testing"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/models/quant"
)

// BenchmarkEmulated measures one dispatch of the kernels that dominate a step, in the
// shapes of Qwen3-0.6B, on one core.
func BenchmarkEmulated(b *testing.B) {
	rng := newRand(b.Name())
	const k, n = 1024, 512
	matrix := make([]byte, dtype.Q4_0.Bytes(k*n))
	values := make([]float32, k*n)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	if err := quant.Quantize(matrix, values, dtype.Q4_0); err != nil {
		b.Fatal(err)
	}
	linear := func(name string, tokens int, grid [3]uint32, group uint32) emulated.Launch {
		x := random(rng, typesOf(name[len("linear_vec"):])[0], tokens*k)
		return bound(b, emulated.Launch{Kernel: name, Grid: grid, Group: [3]uint32{group}},
			map[string][]byte{"x": x.bytes, "w0": matrix, "out": result(kernels.Float, tokens*n).bytes},
			kernels.LinearParams{Tokens: uint32(tokens), K: k, N0: n, XStride: k, OutStride: n}, map[string]uint32{"fc_type0": uint32(dtype.Q4_0)})
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
		return bound(b, emulated.Launch{Kernel: name, Grid: grid, Group: [3]uint32{group}},
			map[string][]byte{"q": q.bytes, "k_cache": p.cache(rng, types[1], 1, s.head).bytes, "v_cache": p.cache(rng, types[1], 1, s.head).bytes,
				"positions": ints(p.positions).bytes, "cu_seqlens": ints(p.cu).bytes, "context_lens": ints(p.contextLens).bytes,
				"block_table": ints(p.table).bytes, "out": result(types[0], q.length).bytes},
			kernels.AttentionParams{Tokens: uint32(tokens), Seqs: 1, Heads: 2, KvHeads: 1, Head: 128,
				Block: 1024, TableStride: uint32(p.stride), BlockStride: 1024 * 128, HeadStride: 1024 * 128, RowStride: 128,
				Scale: 0.1}, nil)
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

// bound returns a launch with arguments, parameters and constants bound by name.
func bound(b *testing.B, l emulated.Launch, args map[string][]byte, params kernels.Params, constants map[string]uint32) emulated.Launch {
	var err error
	if l.Buffers, l.Constants, err = kernels.Bind(l.Kernel, args, params, constants); err != nil {
		b.Fatal(err)
	}
	return l
}
