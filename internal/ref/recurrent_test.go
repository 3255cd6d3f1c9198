package ref_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
)

// TestShortConv compares steps of any size, of two sequences whose blocks take turns, with the
// sum over the whole text; a third sequence goes on behind a block of the first.
func TestShortConv(t *testing.T) {
	const width, taps, block, length = 3, 3, 4, 19
	f := parse(t, `
  v9 = weight {name="embd"} : f32[40,3]
  v10 = embed v1 v9 : f32[T,3]
  v11 = weight {name="taps"} : f32[3,3]
  v12 = state {name="conv"} : state<2,3,4>
  v13 = short_conv v10 v11 v12 v2 v4 v6 : (f32[T,3], state<2,3,4>)
  v14 = select v13 {} : f32[T,3]
  v15 = select v13 {index=1} : state<2,3,4>
  return "y" v14
  return "state" v15`)
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) (list []float32) {
		for range n {
			list = append(list, float32(rng.NormFloat64()))
		}
		return list
	}
	weights := map[string][]float32{"embd": random(40 * width), "taps": random(width * taps)}
	texts := [2][]int32{}
	for i := range texts {
		for range length {
			texts[i] = append(texts[i], int32(rng.IntN(40)))
		}
	}
	whole := func(text []int32, at, e int) (sum float64) {
		for j := range min(taps, at+1) {
			sum += float64(weights["taps"][e*taps+taps-1-j]) * float64(weights["embd"][int(text[at-j])*width+e])
		}
		return sum
	}
	caches := ref.CachesFor(f, 16)
	for _, s := range caches[0].States {
		for i := range s.Data {
			s.Data[i] = 1e6 // of whoever had the blocks before
		}
	}
	run := func(pieces ...batch.Piece) {
		in := batch.Pack(block, length, pieces...).Inputs
		out, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(in, length), Inputs: in, Weight: ref.Of(weights), Caches: caches})
		require.NoError(t, err)
		require.Same(t, caches[0].States["conv"], out.States["state"])
		row := 0
		for _, p := range pieces {
			for i := range p.Tokens {
				for e := range width {
					require.InDelta(t, whole(texts[p.Blocks[0]%2], p.Start+i, e), out.Tensors["y"].Data[row*width+e], 1e-9)
				}
				row++
			}
		}
	}
	tables := [2][]int32{{4, 2, 0, 6, 8}, {1, 3, 5, 7, 9}}
	piece := func(sequence, start, n int) batch.Piece {
		return batch.Piece{Tokens: texts[sequence][start:][:n], Start: start, Blocks: tables[sequence]}
	}
	run(piece(0, 0, 3), piece(1, 0, 9))
	run(piece(1, 9, 1), piece(0, 3, 2))
	run(piece(0, 5, 1))
	run(piece(0, 6, 9), piece(1, 10, 1))
	run(piece(0, 15, 4), piece(1, 11, 8))
	for _, shared := range []int{1, 3} {
		other := piece(0, shared*block, length-shared*block)
		other.Blocks = append(append([]int32{}, tables[0][:shared]...), 10, 12, 14, 11)[:5]
		run(other)
	}
}

func TestStateIsNotThere(t *testing.T) {
	f := parse(t, `
  v12 = state {name="conv"} : state<2,3,4>
  return "state" v12`)
	for want, caches := range map[string][]*ref.Cache{
		"the state is not given":          nil,
		"the state given is state<2,3,5>": {{States: map[string]*ref.State{"conv": {Recurrent: ir.Recurrent{Rows: 2, Width: 3, Block: 5}}}}},
	} {
		_, err := ref.Run(f, ref.Env{Inputs: two(), Sizes: ref.SizesFor(two(), 4), Caches: caches})
		require.ErrorContains(t, err, want)
	}
}
