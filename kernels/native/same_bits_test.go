package native

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// TestLinearSameBits checks that a token's result has the bits of linear_vec with that token
// alone: in any batch, in either kernel, for either weight layout, on any number of threads.
func TestLinearSameBits(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for _, w := range weightTypes {
			const n, most = 96, 109
			k := 768
			if !w.IsQuantized() {
				k = 1088 // whole runs of the vectors' lanes, and a rest
			}
			whole := linear{tokens: most, k: k, rows: []int{n}, types: []dtype.Type{w}, bias: true, activation: ir.GELU, residual: true}.build(t, true)
			moved := l.Interleave(uint32(w), n, k, whole.args["w0"])
			some := func(first, tokens int, name string, interleaved bool, o Options) []byte {
				d := whole.clone()
				d.kernel = name
				for name, width := range map[string]int{"x": 4 * k, "residual": 4 * n, "out": 4 * n} {
					d.args[name] = d.args[name][first*width:][:tokens*width]
				}
				d.params = kernels.LinearParams{Tokens: uint32(tokens), K: uint32(k), N0: n, XStride: uint32(k), OutStride: n}
				if interleaved {
					d.args["w0"], d.interleaved = moved, []string{"w0"}
				}
				return d.runWith(t, l, o)[0]
			}
			var want []byte
			for i := range most {
				want = append(want, some(i, 1, "linear_vec_f32_f32", false, Options{})...)
			}
			for i, tokens := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 40, most} {
				for _, first := range []int{0, (most - tokens) / 2, most - tokens} {
					for _, interleaved := range []bool{false, true} {
						if interleaved && moved == nil {
							continue
						}
						name := []string{"linear_vec_f32_f32", "linear_mat_f32_f32"}[(i+first)%2]
						got := some(first, tokens, name, interleaved, Options{Threads: 1 + i%8, Cut: uint64(first % 3)})
						require.True(t, bytes.Equal(want[4*n*first:][:len(got)], got), "%v: %d tokens from %d in %s, interleaved: %t", w, tokens, first, name, interleaved)
					}
				}
			}
		}
	})
}

// attended is attention over fixed keys and values, for caches of several layouts.
type attended struct {
	featured
	length       int
	keys, values []byte      // [sequences, kv_heads, length, head]
	queries      [][]float32 // of a sequence: [length, heads, head]
	absent       [2]int      // the keys [absent[0], absent[1]) have no block
}

// span is a range of tokens of a sequence, the last of its context.
type span struct{ sequence, start, tokens int }

func newAttended(t testing.TB, c featured, sequences, length int, absent [2]int) *attended {
	rng := newRand(c.String())
	x := &attended{featured: c, length: length, absent: absent}
	x.keys, _ = stored(t, rng, sequences*c.kvHeads*length*c.head, c.cache)
	x.values, _ = stored(t, rng, sequences*c.kvHeads*length*c.head, c.cache)
	for range sequences {
		x.queries = append(x.queries, normals(rng, length*c.heads*c.head))
	}
	return x
}

// dispatch returns a step over spans, with cache blocks of a size in a shuffled order.
func (x *attended) dispatch(tile bool, block int, spans ...span) dispatch {
	c := x.featured
	c.block = block
	blockStride, headStride, rowStride := c.strides()
	perSeq := int(ceil(x.length, block))
	order := newRand(fmt.Sprint(block, spans)).Perm(perSeq * len(spans))
	row := int(c.cache.Bytes(int64(c.head)))
	k := make([]byte, len(order)*int(c.cache.Bytes(int64(blockStride))))
	v := make([]byte, len(k))
	var q []float32
	var positions, lengths, table []int32
	starts := []int32{0}
	for i, s := range spans {
		for j := range s.start + s.tokens {
			for h := range c.kvHeads {
				from := ((s.sequence*c.kvHeads+h)*x.length + j) * row
				to := int(c.cache.Bytes(int64(order[i*perSeq+j/block]*blockStride + h*headStride + j%block*rowStride)))
				copy(k[to:to+row], x.keys[from:])
				copy(v[to:to+row], x.values[from:])
			}
		}
		for j := range perSeq {
			at := int32(order[i*perSeq+j])
			if x.absent[0] <= j*block && j*block < x.absent[1] {
				at = -1
			}
			table = append(table, at)
		}
		for j := range s.tokens {
			positions = append(positions, int32(s.start+j))
		}
		q = append(q, x.queries[s.sequence][s.start*c.heads*c.head:][:s.tokens*c.heads*c.head]...)
		lengths = append(lengths, int32(s.start+s.tokens))
		starts = append(starts, starts[i]+int32(s.tokens))
	}
	d := dispatch{
		kernel: "attention_vec_f32_" + c.cache.String(),
		args: map[string][]byte{"q": floatBytes(q), "k_cache": k, "v_cache": v, "positions": intBytes(positions...),
			"cu_seqlens": intBytes(starts...), "context_lens": intBytes(lengths...), "block_table": intBytes(table...), "out": nan(len(q))},
		params: kernels.AttentionParams{Tokens: uint32(len(positions)), Seqs: uint32(len(spans)), Heads: uint32(c.heads),
			KvHeads: uint32(c.kvHeads), Head: uint32(c.head), Block: uint32(block), TableStride: uint32(perSeq),
			BlockStride: uint32(blockStride), HeadStride: uint32(headStride), RowStride: uint32(rowStride),
			Scale: float32(1 / math.Sqrt(float64(c.head))), Window: uint32(c.window), SoftCap: float32(c.cap)},
		writes: []string{"out"}, grid: [3]uint32{uint32(c.heads), uint32(len(positions)), 1}, constants: c.constants(),
	}
	if tile {
		d.kernel = "attention_tile_f32_" + c.cache.String()
	}
	if c.sinks != nil {
		d.args["sinks"] = floatBytes(c.sinks)
	}
	if c.slopes != nil {
		d.args["slopes"] = floatBytes(c.slopes)
	}
	return d
}

// attendedCases cover each cache type, one to eight query heads per KV head, windows that begin
// anywhere in a tile and a partition, absent keys, and heads that are not whole vectors.
var attendedCases = []struct {
	featured
	absent [2]int
}{
	{featured{attention: attention{heads: 4, kvHeads: 2, head: 64, cache: dtype.F16}}, [2]int{}},
	{featured{attention: attention{heads: 3, kvHeads: 1, head: 128, cache: dtype.F16}, window: 300}, [2]int{}},
	{featured{attention: attention{heads: 2, kvHeads: 2, head: 80, cache: dtype.F32}, cap: 3, sinks: []float32{0.5, -1}}, [2]int{}},
	{featured{attention: attention{heads: 8, kvHeads: 1, head: 64, cache: dtype.Q8_0}, sinks: []float32{0, 1, 2, 3, 4, 5, 6, 7}, bySlot: true}, [2]int{}},
	{featured{attention: attention{heads: 4, kvHeads: 1, head: 128, cache: dtype.Q8_0}, slopes: []float32{0.5, 0.25, 0.01, 0}}, [2]int{64, 320}},
	{featured{attention: attention{heads: 5, kvHeads: 1, head: 40, cache: dtype.F32}, window: 37, slopes: []float32{0.1, 0.02, 0, -0.01, 0.3}}, [2]int{448, 512}},
	{featured{attention: attention{heads: 6, kvHeads: 1, head: 96, cache: dtype.Q8_0}, window: 65, cap: 20}, [2]int{}},
	{featured{attention: attention{heads: 7, kvHeads: 1, head: 8, cache: dtype.F16}}, [2]int{0, 256}},
}

// TestAttentionSameBits checks that a token's result has the bits of attention_vec with that
// token alone: in any batch, in either kernel, for any chunks of its prompt and blocks of its
// cache, on any number of threads.
func TestAttentionSameBits(t *testing.T) {
	const length, sequences = 1100, 4 // three partitions of keys
	each(t, func(t *testing.T, l Library) {
		for n, c := range attendedCases {
			x := newAttended(t, c.featured, sequences, length, c.absent)
			width := 4 * c.heads * c.head
			alone := map[[2]int][]byte{} // by sequence and position
			want := func(s span) (rows []byte) {
				for i := range s.tokens {
					at := [2]int{s.sequence, s.start + i}
					if alone[at] == nil {
						alone[at] = x.dispatch(false, 64, span{s.sequence, s.start + i, 1}).runWith(t, l, Options{})[0]
					}
					rows = append(rows, alone[at]...)
				}
				return rows
			}
			blocks := []int{64, 16, 32, 64}
			if c.absent == [2]int{} {
				blocks = append(blocks, length, 7, 100)
			}
			for i, step := range [][]span{
				{{0, 0, 70}}, {{0, 70, 1}}, {{0, 71, 2}}, {{0, 73, 9}}, {{0, 490, 40}}, {{0, 300, 33}}, {{0, 1000, 100}}, {{0, 510, 5}},
				{{1, 1099, 1}, {0, 255, 1}, {2, 256, 1}, {3, 0, 1}},
				{{0, 511, 1}, {1, 512, 1}, {2, 513, 1}, {3, 650, 1}, {0, 63, 1}, {1, 64, 1}, {2, 318, 1}, {3, 1024, 1}, {0, 449, 1}},
				{{0, 1050, 4}, {1, 0, 40}, {2, 630, 1}, {3, 505, 17}},
				{{0, 1020, 2}, {1, 10, 1}, {2, 1022, 6}},
			} {
				for _, tile := range []bool{false, true} {
					block := blocks[(i+n)%len(blocks)]
					d := x.dispatch(tile, block, step...)
					got := d.runWith(t, l, Options{Threads: 1 + (i+n)%8, Cut: uint64(i % 4)})[0]
					for _, s := range step {
						require.True(t, bytes.Equal(want(s), got[:s.tokens*width]), "%v: %+v of %+v, tile: %t, blocks of %d", c.featured, s, step, tile, block)
						got = got[s.tokens*width:]
					}
				}
			}
		}
	})
}
