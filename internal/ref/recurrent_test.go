package ref_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
)

// TestShortConv compares steps of any size, of two sequences that write a state in place or into another,
// with the sum over the whole text; a third sequence goes on from a state that the first has left.
func TestShortConv(t *testing.T) {
	const width, taps, block, length = 3, 3, 4, 19
	f := parse(t, `
  v9 = weight {name="embd"} : f32[40,3]
  v10 = embed v1 v9 : f32[T,3]
  v11 = weight {name="taps"} : f32[3,3]
  v12 = state {name="conv"} : state<2,3,4>
  v13 = short_conv v10 v11 v12 v4 v90 : (f32[T,3], state<2,3,4>)
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
					require.InDelta(t, whole(texts[p.State.Write%2], p.Start+i, e), out.Tensors["y"].Data[row*width+e], 1e-9)
				}
				row++
			}
		}
	}
	piece := func(sequence, start, n int, read, write int32) batch.Piece {
		return batch.Piece{Tokens: texts[sequence][start:][:n], Start: start, Blocks: batch.Contiguous(block, length), State: batch.State{Read: read, Write: write}}
	}
	run(piece(0, 0, 3, 7, 4), piece(1, 0, 9, 9, 1))
	run(piece(1, 9, 1, 1, 1), piece(0, 3, 2, 4, 2))
	run(piece(0, 5, 1, 2, 2))
	run(piece(0, 6, 9, 2, 6), piece(1, 10, 1, 1, 3))
	run(piece(0, 15, 4, 6, 6), piece(1, 11, 8, 3, 3))
	for start, read := range map[int]int32{3: 4, 6: 2} {
		run(piece(0, start, length-start, read, 8))
	}
}

// TestMamba2InPieces compares steps of any size with the form in pieces (Dao and Gu, "Transformers are
// SSMs", 2024, section 6): what each token reads of the state before the piece, and of the tokens before
// it in the piece.
func TestMamba2InPieces(t *testing.T) {
	const heads, groups, head, states, block, length = 4, 2, 3, 5, 4, 19
	const row, inner, shared = heads*head + 2*groups*states + heads, heads * head, groups * states
	f := parse(t, `
  v9 = weight {name="embd"} : f32[19,36]
  v10 = embed v1 v9 : f32[T,36]
  v11 = slice v10 {end=32} : f32[T,32]
  v12 = slice v10 {start=32 end=36} : f32[T,4]
  v13 = weight {name="decay"} : f32[4,1]
  v14 = weight {name="bias"} : f32[4]
  v15 = weight {name="skip"} : f32[4]
  v16 = state {name="ssm"} : state<20,3,4>
  v17 = mamba2 v11 v12 v13 v14 v15 v16 v4 v90 {groups=2} : (f32[T,4,3], state<20,3,4>)
  v18 = select v17 {} : f32[T,4,3]
  v19 = select v17 {index=1} : state<20,3,4>
  return "y" v18
  return "state" v19`)
	rng := rand.New(rand.NewPCG(1, 2))
	weights := map[string][]float32{"decay": {-0.1, -0.5, -1, -2}}
	for name, n := range map[string]int{"embd": length * row, "bias": heads, "skip": heads} {
		for range n {
			weights[name] = append(weights[name], float32(rng.NormFloat64()))
		}
	}
	at := func(t, column int) float64 { return float64(weights["embd"][t*row+column]) }
	// pieces returns y by pieces of n tokens.
	pieces := func(n int) []float64 {
		y, s := make([]float64, length*inner), make([]float64, heads*states*head)
		for first := 0; first < length; first += n {
			end := min(first+n, length)
			for h := range heads {
				b := inner + h/(heads/groups)*states
				own := s[h*states*head:][:states*head]
				sums, steps := make([]float64, end-first), make([]float64, end-first)
				sum := 0.0
				for i := range sums {
					steps[i] = math.Log1p(math.Exp(at(first+i, row-heads+h) + float64(weights["bias"][h])))
					sum += float64(weights["decay"][h]) * steps[i]
					sums[i] = sum
				}
				for j := range head {
					for i, sum := range sums {
						out := &y[(first+i)*inner+h*head+j]
						*out = float64(weights["skip"][h]) * at(first+i, h*head+j)
						for e := range states {
							*out += math.Exp(sum) * at(first+i, b+shared+e) * own[e*head+j]
							for k := range i + 1 {
								*out += math.Exp(sum-sums[k]) * at(first+i, b+shared+e) * at(first+k, b+e) * steps[k] * at(first+k, h*head+j)
							}
						}
					}
					for e := range states {
						own[e*head+j] *= math.Exp(sum)
						for k := range sums {
							own[e*head+j] += math.Exp(sum-sums[k]) * at(first+k, b+e) * steps[k] * at(first+k, h*head+j)
						}
					}
				}
			}
		}
		return y
	}
	ids := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}
	for _, cuts := range [][]int{{length}, {3, 1, 1, 9, 5}, {8, 11}} {
		caches, y, start := ref.CachesFor(f, 8), []float64{}, 0
		for _, n := range cuts {
			in := batch.Pack(block, length, batch.Piece{Tokens: ids[start:][:n], Start: start, Blocks: []int32{6, 2, 4, 0, 1}, State: batch.State{Read: 3, Write: 3}}).Inputs
			out, err := ref.Run(f, ref.Env{Sizes: ref.SizesFor(in, length), Inputs: in, Weight: ref.Of(weights), Caches: caches})
			require.NoError(t, err)
			y = append(y, out.Tensors["y"].Data...)
			start += n
		}
		for _, n := range []int{1, 4, 7, length} {
			for i, want := range pieces(n) {
				require.InDelta(t, want, y[i], 1e-12, "element %d by pieces of %d", i, n)
			}
		}
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
