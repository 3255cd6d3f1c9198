package native

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/models/quant"
)

// sequence is a sequence of a batch: `tokens` queries at the end of `length` keys.
type sequence struct{ tokens, length int }

type attention struct {
	heads, kvHeads, head, block int
	cache                       dtype.Type
	seqs                        []sequence
}

func (c attention) String() string {
	return fmt.Sprintf("%d/%dx%d/block=%d/%v/%v", c.heads, c.kvHeads, c.head, c.block, c.cache, c.seqs)
}

// featured is a case of attention with the features that function constants enable.
type featured struct {
	attention
	window int       // 0 for none
	cap    float64   // of scores; 0 for none
	sinks  []float32 // by head; nil for none
	bySlot bool      // the cache is [blocks, block, kv_heads, head]
	slopes []float32 // by head; nil for none
	gate   ir.Activation
	byHead bool // the gate has an element for each head
}

func (c featured) String() string {
	return fmt.Sprintf("%v/window=%d/cap=%v/sinks=%v/slots=%t/slopes=%v/gate=%v/heads=%t", c.attention, c.window, c.cap, c.sinks, c.bySlot, c.slopes, c.gate, c.byHead)
}

// constants returns the function constants that enable the features.
func (c featured) constants() map[string]uint32 {
	set := map[string]uint32{}
	for name, wanted := range map[string]bool{"fc_window": c.window != 0, "fc_soft_cap": c.cap != 0, "fc_sinks": c.sinks != nil, "fc_slopes": c.slopes != nil} {
		if wanted {
			set[name] = 1
		}
	}
	if c.gate != ir.NoActivation {
		set["fc_gate"] = uint32(c.gate)
		if c.byHead {
			set["fc_head_gate"] = 1
		}
	}
	return set
}

// gateFrom is the first column of gates, and gateRest the columns behind them.
const gateFrom, gateRest = 8, 4

// gates returns a gate for each token, in rows of stride elements.
func (c featured) gates(tokens int) (gate []float32, stride int) {
	stride = gateFrom + c.heads + gateRest
	if !c.byHead {
		stride += c.heads * (c.head - 1)
	}
	gate = make([]float32, tokens*stride)
	for i := range gate {
		gate[i] = float32(4 * math.Sin(1.7*float64(i)))
	}
	return gate, stride
}

// gated returns element d of a head of a token's result, multiplied by its gate.
func (c featured) gated(x float64, gate []float32, h, d int) float64 {
	switch {
	case c.gate == ir.NoActivation:
		return x
	case c.byHead:
		return x * activation(c.gate, float64(gate[gateFrom+h]))
	}
	return x * activation(c.gate, float64(gate[gateFrom+h*c.head+d]))
}

func (c featured) strides() (block, head, row int) {
	if c.bySlot {
		return c.block * c.kvHeads * c.head, c.head, c.kvHeads * c.head
	}
	return c.kvHeads * c.block * c.head, c.block * c.head, c.head
}

func (c attention) build(t testing.TB, tile bool) (dispatch, []float64) {
	return featured{attention: c}.build(t, tile)
}

// build returns the dispatch and its result in float64 arithmetic. Sequences get blocks of
// the cache in a shuffled order, and one block is unused.
func (c featured) build(t testing.TB, tile bool) (dispatch, []float64) {
	rng := newRand(c.String())
	blockStride, headStride, rowStride := c.strides()
	perSeq, tokens := 0, 0
	for _, s := range c.seqs {
		perSeq = max(perSeq, (s.length+c.block-1)/c.block)
		tokens += s.tokens
	}
	perSeq++
	blocks := perSeq*len(c.seqs) + 1
	order := rng.Perm(blocks)
	n := blocks * c.kvHeads * c.block * c.head
	kBytes, k := stored(t, rng, n, c.cache)
	vBytes, v := stored(t, rng, n, c.cache)
	q := normals(rng, tokens*c.heads*c.head)
	gate, gateStride := c.gates(tokens)
	scale := 1 / math.Sqrt(float64(c.head))
	var positions, lengths, table []int32
	starts := []int32{0}
	var want []float64
	for b, s := range c.seqs {
		row := order[b*perSeq:][:perSeq]
		for _, block := range row {
			table = append(table, int32(block))
		}
		lengths = append(lengths, int32(s.length))
		starts = append(starts, starts[b]+int32(s.tokens))
		for i := range s.tokens {
			position := s.length - s.tokens + i
			positions = append(positions, int32(position))
			for h := range c.heads {
				at := ((int(starts[b])+i)*c.heads + h) * c.head
				out := make([]float64, c.head)
				total := 0.0
				if c.sinks != nil {
					total = math.Exp(float64(c.sinks[h]))
				}
				for j := 0; j <= position && j < s.length; j++ {
					if c.window != 0 && j <= position-c.window {
						continue
					}
					key := row[j/c.block]*blockStride + h*c.kvHeads/c.heads*headStride + j%c.block*rowStride
					dot := 0.0
					for d := range c.head {
						dot += float64(q[at+d]) * float64(k[key+d])
					}
					dot *= scale
					if c.cap != 0 {
						dot = c.cap * math.Tanh(dot/c.cap)
					}
					if c.slopes != nil {
						dot += float64(c.slopes[h]) * float64(j-position)
					}
					w := math.Exp(dot)
					total += w
					for d := range out {
						out[d] += w * float64(v[key+d])
					}
				}
				for d, x := range out {
					if total > 0 {
						x /= total
					}
					want = append(want, c.gated(x, gate[(int(starts[b])+i)*gateStride:], h, d))
				}
			}
		}
	}
	params := kernels.AttentionParams{Tokens: uint32(tokens), Seqs: uint32(len(c.seqs)), Heads: uint32(c.heads),
		KvHeads: uint32(c.kvHeads), Head: uint32(c.head), Block: uint32(c.block), TableStride: uint32(perSeq),
		BlockStride: uint32(blockStride), HeadStride: uint32(headStride), RowStride: uint32(rowStride), Scale: float32(scale),
		Window: uint32(c.window), SoftCap: float32(c.cap)}
	if c.gate != ir.NoActivation {
		params.GateStride, params.GateFrom = uint32(gateStride), gateFrom
	}
	d := dispatch{
		kernel: "attention_vec_f32_" + c.cache.String(),
		args: map[string][]byte{"q": floatBytes(q), "k_cache": kBytes, "v_cache": vBytes, "positions": intBytes(positions...),
			"cu_seqlens": intBytes(starts...), "context_lens": intBytes(lengths...), "block_table": intBytes(table...), "out": nan(len(q))},
		params: params,
		writes: []string{"out"}, grid: [3]uint32{uint32(c.heads), uint32(tokens), 1}, group: [3]uint32{256, 1, 1},
		constants: c.constants(),
	}
	if c.gate != ir.NoActivation {
		d.args["gate"] = floatBytes(gate)
	}
	if c.sinks != nil {
		d.args["sinks"] = floatBytes(c.sinks)
	}
	if c.slopes != nil {
		d.args["slopes"] = floatBytes(c.slopes)
	}
	if tile {
		d.kernel = "attention_tile_f32_" + c.cache.String()
		d.grid, d.group = [3]uint32{ceil(tokens, 32) + uint32(len(c.seqs)), uint32(c.heads), uint32(kernels.AttentionParts(int64(c.head)))}, [3]uint32{128, 1, 1}
	}
	return d, want
}

var attentionCases = []attention{
	{1, 1, 8, 16, dtype.F32, []sequence{{1, 1}}},
	{4, 2, 64, 32, dtype.F16, []sequence{{5, 5}, {1, 37}, {70, 100}}},
	{8, 2, 128, 512, dtype.F16, []sequence{{1, 500}}},
	{6, 1, 40, 7, dtype.F32, []sequence{{33, 33}, {3, 19}}},
	{3, 3, 56, 64, dtype.F16, []sequence{{65, 200}}},
	{14, 2, 256, 100, dtype.F16, []sequence{{2, 700}, {32, 32}}},
	{16, 8, 128, 2048, dtype.F16, []sequence{{1, 1900}}},
	{2, 1, 96, 16, dtype.F32, []sequence{{64, 64}, {0, 0}, {31, 90}, {1, 1}}},
	{2, 2, 16, 16, dtype.F16, nil},
	{8, 2, 64, 48, dtype.Q8_0, []sequence{{3, 3}, {1, 130}, {40, 75}}},
	{6, 1, 256, 512, dtype.Q8_0, []sequence{{1, 900}}},
	{4, 1, 512, 32, dtype.F16, []sequence{{1, 700}, {40, 90}}},
	{16, 1, kernels.MaxLatent, 32, dtype.F16, []sequence{{1, 700}, {40, 90}}},
	{5, 1, kernels.MaxLatent, 64, dtype.Q8_0, []sequence{{1, 600}, {33, 33}}},
	{3, 1, 320, 16, dtype.F32, []sequence{{3, 70}, {1, 33}}},
	{2, 2, 512, 64, dtype.Q8_0, []sequence{{1, 600}, {33, 33}}},
}

func TestAttention(t *testing.T) {
	for _, c := range attentionCases {
		for _, tile := range []bool{false, true} {
			t.Run(fmt.Sprintf("tile=%t/%v", tile, c), func(t *testing.T) {
				d, want := c.build(t, tile)
				for _, l := range Libraries() {
					near(t, want, floats(d.run(t, l)[0]), 1, 5e-6, l.ISA())
				}
			})
		}
	}
}

func TestAttentionHints(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for n, c := range attentionCases {
			d, _ := c.build(t, false)
			want := d.run(t, l)
			for i, h := range hints {
				if (n+i)%len(hints) != 0 && !testfiles.Full("kernels") {
					continue
				}
				d.hints = h
				require.Equal(t, want, d.run(t, l), "%v, hints %v", c, d.hints)
			}
		}
	})
}

func TestAttentionEmulated(t *testing.T) {
	for _, c := range append(attentionCases[:4:4], attentionCases[9]) {
		for _, tile := range []bool{false, true} {
			d, _ := c.build(t, tile)
			near(t, widened(floats(d.emulate(t)[0])), floats(d.run(t, Libraries()[0])[0]), 1, 5e-6, d.kernel, c)
		}
	}
}

var featuredCases = []featured{
	{attention{4, 2, 64, 32, dtype.F16, []sequence{{5, 5}, {1, 37}, {70, 300}}}, 33, 0, nil, true, nil, ir.NoActivation, false},
	{attention{8, 2, 128, 512, dtype.F16, []sequence{{1, 500}}}, 128, 50, nil, false, nil, ir.NoActivation, false},
	{attention{6, 1, 40, 7, dtype.F32, []sequence{{33, 33}, {3, 190}}}, 1, 2, []float32{0, 1, -5, 2, 0.5, -30}, true, nil, ir.NoActivation, false},
	{attention{3, 3, 56, 64, dtype.F16, []sequence{{65, 200}}}, 0, 1, nil, false, nil, ir.NoActivation, false},
	{attention{2, 1, 256, 100, dtype.F32, []sequence{{2, 1700}, {32, 32}}}, 900, 0, []float32{3, 20}, false, nil, ir.NoActivation, false},
	{attention{2, 1, 96, 16, dtype.F32, []sequence{{64, 64}, {0, 0}, {31, 90}, {1, 1}}}, 0, 0, []float32{float32(math.Inf(-1)), -2}, true, nil, ir.NoActivation, false},
	{attention{8, 2, 64, 48, dtype.Q8_0, []sequence{{3, 3}, {1, 130}, {40, 75}}}, 20, 30, []float32{0, 1, 2, 3, 4, 5, 6, 7}, true, nil, ir.NoActivation, false},
	{attention{6, 1, 256, 512, dtype.Q8_0, []sequence{{1, 900}}}, 512, 0, nil, false, nil, ir.NoActivation, false},
	{attention{4, 1, 512, 32, dtype.F16, []sequence{{1, 700}, {40, 90}}}, 100, 0, []float32{0, 1, -2, 3}, true, nil, ir.NoActivation, false},
	{attention{2, 1, 64, 16, dtype.F16, []sequence{{1, 0}, {2, 40}}}, 5, 0, []float32{1, 2}, false, nil, ir.NoActivation, false}, // nothing but its sink
	{attention{4, 2, 64, 32, dtype.F16, []sequence{{5, 5}, {1, 37}, {70, 300}}}, 33, 0, nil, true, []float32{0.5, 0.25, 0.125, 1.0 / 16}, ir.NoActivation, false},
	{attention{6, 1, 40, 7, dtype.F32, []sequence{{33, 33}, {3, 190}}}, 0, 2, []float32{0, 1, -5, 2, 0.5, -30}, true, []float32{0.7, 0, 0.01, -0.02, 0.3, 1}, ir.NoActivation, false},
	{attention{12, 2, 128, 512, dtype.Q8_0, []sequence{{1, 1500}}}, 0, 0, nil, false, slices.Repeat([]float32{0.01, 0.002}, 6), ir.NoActivation, false},
	{attention{3, 1, 64, 16, dtype.F16, []sequence{{1, 0}, {2, 40}}}, 0, 0, nil, false, []float32{1, 0.5, 0.25}, ir.NoActivation, false},
	{attention{4, 2, 64, 32, dtype.F16, []sequence{{5, 5}, {1, 37}, {70, 300}}}, 33, 0, nil, true, nil, ir.Sigmoid, false},
	{attention{6, 1, 40, 7, dtype.F32, []sequence{{33, 33}, {3, 190}}}, 0, 2, nil, false, nil, ir.Softplus, false},
	{attention{6, 2, 72, 512, dtype.F16, []sequence{{1, 1500}}}, 0, 0, []float32{1, 2, 3, 0, -1, 5}, false, nil, ir.Softplus, true},
	{attention{8, 2, 64, 48, dtype.Q8_0, []sequence{{3, 3}, {1, 130}, {40, 75}}}, 0, 0, nil, false, nil, ir.SiLU, true},
	{attention{2, 1, 512, 32, dtype.F16, []sequence{{1, 1500}, {40, 90}}}, 0, 0, nil, false, nil, ir.Sigmoid, false},
}

func TestAttentionFeatures(t *testing.T) {
	for _, c := range featuredCases {
		for _, tile := range []bool{false, true} {
			t.Run(fmt.Sprintf("tile=%t/%v", tile, c), func(t *testing.T) {
				d, want := c.build(t, tile)
				for _, l := range Libraries() {
					near(t, want, floats(d.run(t, l)[0]), 1, 5e-6, l.ISA())
				}
				near(t, widened(floats(d.emulate(t)[0])), floats(d.run(t, Libraries()[0])[0]), 1, 5e-6, d.kernel, c)
			})
		}
	}
}

// inParts returns attention_vec's dispatch over partitions of `keys` keys, the last of which
// is past all contexts.
func (c featured) inParts(d dispatch, keys int) dispatch {
	parts := 1
	for _, s := range c.seqs {
		parts = max(parts, int(ceil(s.length, keys))+1)
	}
	rows := len(d.args["out"]) / 4 / c.head
	d = d.clone()
	delete(d.args, "out")
	delete(d.args, "sinks")
	delete(d.args, "gate")
	delete(d.constants, "fc_gate")
	d.args["part"], d.args["statistics"] = nan(rows*parts*c.head), nan(rows*parts*2)
	d.constants["fc_split"] = uint32(keys)
	d.grid[2] = uint32(parts)
	d.writes = []string{"part", "statistics"}
	return d
}

// reduce returns the dispatch that merges partitions.
func (c featured) reduce(of dispatch, part, statistics []byte) dispatch {
	tokens := of.grid[1]
	d := dispatch{
		kernel: "attention_reduce_f32",
		args:   map[string][]byte{"part": part, "statistics": statistics, "out": nan(int(tokens) * c.heads * c.head)},
		params: kernels.ReduceParams{Tokens: tokens, Heads: uint32(c.heads), Head: uint32(c.head), Partitions: of.grid[2]},
		writes: []string{"out"}, grid: [3]uint32{uint32(c.heads), tokens, 1}, group: [3]uint32{ceil(c.head, 128) * 32, 1, 1},
	}
	d.constants = map[string]uint32{}
	if c.sinks != nil {
		d.args["sinks"], d.constants["fc_sinks"] = floatBytes(c.sinks), 1
	}
	if c.gate != ir.NoActivation {
		gate, stride := c.gates(int(tokens))
		p := d.params.(kernels.ReduceParams)
		p.GateStride, p.GateFrom = uint32(stride), gateFrom
		d.args["gate"], d.constants["fc_gate"], d.constants["fc_head_gate"], d.params = floatBytes(gate), uint32(c.gate), c.constants()["fc_head_gate"], p
	}
	return d
}

// TestAttentionSplit runs attention_vec and attention_reduce, native and emulated, in all
// combinations.
func TestAttentionSplit(t *testing.T) {
	cases := featuredCases
	for _, c := range append(attentionCases[:4:4], attentionCases[9]) {
		cases = append(cases, featured{attention: c})
	}
	for i, c := range cases {
		keys := []int{64, 16, 40}[i%3]
		t.Run(fmt.Sprintf("%d/%v", keys, c), func(t *testing.T) {
			d, want := c.build(t, false)
			d = c.inParts(d, keys)
			twin := d.emulate(t)
			for _, l := range Libraries() {
				parts := d.run(t, l)
				for i := range parts {
					near(t, widened(floats(twin[i])), floats(parts[i]), float64(keys), 5e-6, l.ISA(), i)
				}
				for _, from := range [][][]byte{parts, twin} {
					near(t, want, floats(c.reduce(d, from[0], from[1]).run(t, l)[0]), 1, 5e-6, l.ISA())
				}
				near(t, want, floats(c.reduce(d, parts[0], parts[1]).emulate(t)[0]), 1, 5e-6, l.ISA())
			}
		})
	}
}

// TestAttentionMap compares a map of tokens to sequences with the search, and has tokens that
// the map gives to no sequence; fc_rows, which groups tokens on a GPU, changes nothing.
func TestAttentionMap(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for _, c := range []featured{
			{attention: attention{4, 2, 64, 32, dtype.F16, []sequence{{5, 5}, {1, 37}, {70, 300}}}},
			{attention: attention{2, 1, 64, 32, dtype.F16, []sequence{{1, 300}, {2, 37}}}, window: 20}, // in parts
		} {
			d, _ := c.build(t, false)
			want := d.run(t, l)[0]
			d.constants["fc_rows"] = 4
			require.Equal(t, want, d.run(t, l)[0])
			delete(d.constants, "fc_rows")
			d.constants["fc_map"] = 1
			var owners []int32
			for seq, s := range c.seqs {
				for range s.tokens {
					owners = append(owners, int32(seq))
				}
			}
			d.args["map"] = intBytes(owners...)
			require.Equal(t, want, d.run(t, l)[0])
			owners[1], owners[2] = -1, int32(len(c.seqs))
			d.args["map"] = intBytes(owners...)
			got, row := d.run(t, l)[0], 4*c.heads*c.head
			require.Equal(t, want[:row], got[:row])
			require.Equal(t, d.args["out"][row:3*row], got[row:3*row])
			require.Equal(t, want[3*row:], got[3*row:])
		}
	})
}

// TestAttentionKeepsNaNToItself puts NaN and infinities where only some tokens of a tile
// see them: in a key and value in its middle, before the window of the last, and past the
// context. Tokens that do not see them must give the same bits as without; the others must
// show them. A third of the combinations run, which have every pair of a number, a key and
// a place.
func TestAttentionKeepsNaNToItself(t *testing.T) {
	for _, window := range []int{0, 20} {
		for _, elem := range []dtype.Type{dtype.F32, dtype.F16, dtype.Q8_0} {
			c := featured{attention: attention{4, 2, 32, 128, elem, []sequence{{40, 110}}}, window: window}
			each(t, func(t *testing.T, l Library) {
				for _, kind := range []string{"vec", "tile", "split"} {
					d, _ := c.build(t, kind == "tile")
					run := func(d dispatch) []byte {
						if kind != "split" {
							return d.run(t, l)[0]
						}
						d = c.inParts(d, 16)
						parts := d.run(t, l)
						return c.reduce(d, parts[0], parts[1]).run(t, l)[0]
					}
					clean := run(d)
					block := int(binary.LittleEndian.Uint32(d.args["block_table"])) // holds all keys
					for i, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
						for j, key := range []int{60, 81, 109, 110} {
							for k, of := range []string{"keys", "values", "both"} {
								if (i+j+k)%3 != 0 && !testfiles.Full("kernels") {
									continue
								}
								spoilt := d.clone()
								for cache, name := range map[string]string{"k_cache": "keys", "v_cache": "values"} {
									if of == name || of == "both" {
										spoilt.args[cache] = c.spoil(t, d.args[cache], block, key, bad)
									}
								}
								what := []any{kind, elem, window, bad, key, of}
								c.requireApart(t, clean, run(spoilt), key, of == "values" || math.IsNaN(bad), what...)
							}
						}
					}
				}
			})
		}
	}
}

// spoil returns a copy of a cache in which x replaces a key's row or, in Q8_0 blocks, the
// row's scales.
func (c featured) spoil(t *testing.T, cache []byte, block, key int, x float64) []byte {
	cache = bytes.Clone(cache)
	blockStride, headStride, rowStride := c.strides()
	for h := range c.kvHeads {
		at := c.cache.Bytes(int64(block*blockStride + h*headStride + key*rowStride))
		row := cache[at:][:c.cache.Bytes(int64(c.head))]
		if c.cache == dtype.Q8_0 {
			require.NoError(t, quant.Quantize(row[:2], []float32{float32(x)}, dtype.F16))
			continue
		}
		require.NoError(t, quant.Quantize(row, slices.Repeat([]float32{float32(x)}, c.head), c.cache))
	}
	return cache
}

// requireApart compares the result of the only sequence with the result for a clean cache.
func (c featured) requireApart(t *testing.T, clean, got []byte, key int, shows bool, what ...any) {
	t.Helper()
	s, width := c.seqs[0], c.heads*c.head
	for i := range s.tokens {
		position := s.length - s.tokens + i
		row := func(b []byte) []byte { return b[4*i*width:][:4*width] }
		if key > position || key >= s.length || c.window != 0 && key <= position-c.window {
			require.True(t, bytes.Equal(row(clean), row(got)), "%v: token %d changes", what, i)
			continue
		}
		for _, x := range floats(row(got)) {
			if shows && !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) {
				require.FailNow(t, "hidden", "%v: token %d gives %v", what, i, x)
			}
		}
	}
}

// Large scores must neither overflow nor lose small scores, whichever come first.
func TestAttentionExtremes(t *testing.T) {
	c := attention{2, 1, 32, 256, dtype.F32, []sequence{{3, 150}}}
	each(t, func(t *testing.T, l Library) {
		for _, tile := range []bool{false, true} {
			for _, at := range []int{0, 70, 147} {
				d, _ := c.build(t, tile)
				table := d.args["block_table"]
				block := int(table[0]) // the sequence's first block holds all its keys
				k, v := floats(d.args["k_cache"]), floats(d.args["v_cache"])
				row := (block*256 + at) * 32
				q := floats(d.args["q"])
				for i := range 32 {
					k[row+i] = 1e4
					for r := range 6 {
						q[r*32+i] = float32(math.Abs(float64(q[r*32+i]))) + 0.1
					}
				}
				d.args["q"], d.args["k_cache"] = floatBytes(q), floatBytes(k)
				for i, x := range floats(d.run(t, l)[0]) {
					require.InDelta(t, v[row+i%32], x, 1e-6)
				}
			}
		}
	})
}

// The scales of value blocks, and the elements of queries, differ by factors up to 2^15: small
// values must count as in a cache of floats.
func TestAttentionRanges(t *testing.T) {
	each(t, func(t *testing.T, l Library) {
		for _, c := range []attention{
			{8, 2, 64, 48, dtype.Q8_0, []sequence{{3, 3}, {1, 130}, {40, 75}}},
			{4, 2, 128, 64, dtype.Q8_0, []sequence{{70, 300}, {1, 600}}},
			{6, 1, 256, 512, dtype.Q8_0, []sequence{{1, 900}}},
		} {
			for _, tile := range []bool{false, true} {
				d, _ := c.build(t, tile)
				rng := newRand(c.String())
				q, v := floats(d.args["q"]), d.args["v_cache"]
				for i := range q {
					q[i] = float32(math.Ldexp(float64(q[i]), -rng.IntN(16)))
				}
				d.args["q"] = floatBytes(q)
				for at := 0; at < len(v); at += dtype.Q8_0.BlockBytes() {
					v[at+1] += byte(rng.IntN(16)) << 2 // the exponent of its scale
				}
				wide := d.clone()
				wide.kernel = strings.Replace(d.kernel, "q8_0", "f32", 1)
				wide.args["k_cache"] = floatBytes(elements(d.args["k_cache"], dtype.Q8_0))
				wide.args["v_cache"] = floatBytes(elements(v, dtype.Q8_0))
				want, got := floats(wide.run(t, l)[0]), floats(d.run(t, l)[0])
				for at := 0; at < len(want); at += c.head {
					row := widened(want[at:][:c.head])
					largest := max(-slices.Min(row), slices.Max(row))
					near(t, row, got[at:][:c.head], largest, 5e-6, fmt.Sprintf("%s, %v, from element %d on", d.kernel, c, at))
				}
			}
		}
	})
}

// Out-of-range tables, positions and lengths are ignored.
func TestAttentionOutOfRange(t *testing.T) {
	c := attention{4, 2, 64, 16, dtype.F16, []sequence{{20, 40}, {1, 30}}}
	each(t, func(t *testing.T, l Library) {
		for _, tile := range []bool{false, true} {
			for name, bad := range map[string][]int32{
				"block_table": {-1, 1 << 30, 3, math.MaxInt32, math.MinInt32, 2, 100, 1}, "context_lens": {math.MaxInt32, math.MinInt32}, "cu_seqlens": {-5, 7, math.MaxInt32},
			} {
				d, _ := c.build(t, tile)
				copy(d.args[name], intBytes(bad...))
				d.run(t, l)
				if !tile {
					featured{attention: c}.inParts(d, 16).run(t, l)
				}
			}
			d, _ := c.build(t, tile)
			for i := range 21 {
				copy(d.args["positions"][4*i:], intBytes([]int32{math.MaxInt32, -1, math.MinInt32}[i%3]))
			}
			d.run(t, l)
		}
	})
}

func TestAttentionUnsupported(t *testing.T) {
	good, _ := attentionCases[1].build(t, false)
	p := kernels.AttentionParams{Tokens: 76, Seqs: 3, Heads: 4, KvHeads: 2, Head: 64, Block: 32, TableStride: 5,
		BlockStride: 2 * 32 * 64, HeadStride: 32 * 64, RowStride: 64, Scale: 1}
	for name, change := range map[string]func(p *kernels.AttentionParams){
		"head of 20":       func(p *kernels.AttentionParams) { p.Head = 20 },
		"head of 264":      func(p *kernels.AttentionParams) { p.Head = 264 },
		"no KV heads":      func(p *kernels.AttentionParams) { p.KvHeads = 0 },
		"uneven groups":    func(p *kernels.AttentionParams) { p.KvHeads = 3 },
		"no block":         func(p *kernels.AttentionParams) { p.Block = 0 },
		"too many tokens":  func(p *kernels.AttentionParams) { p.Tokens = 77 },
		"too many tables":  func(p *kernels.AttentionParams) { p.TableStride = 6 },
		"too many batches": func(p *kernels.AttentionParams) { p.Seqs = 4 },
		"one block":        func(p *kernels.AttentionParams) { p.BlockStride = 0 },
		"negative cap":     func(p *kernels.AttentionParams) { p.SoftCap = -1 },
	} {
		bad := p
		change(&bad)
		d := good.clone()
		d.params = p
		require.NoError(t, Run(d.launch(), Options{}), name)
		d.params = bad
		require.ErrorIs(t, Run(d.launch(), Options{}), ErrUnsupported, name)
	}
	tile, _ := attentionCases[1].build(t, true)
	parts := featured{attention: attentionCases[1]}.inParts(good, 64)
	require.NoError(t, Run(parts.launch(), Options{}))
	// with returns a dispatch with other constants, and perhaps a map or another grid.
	with := func(d dispatch, constants map[string]uint32, change func(d *dispatch)) dispatch {
		d = d.clone()
		d.constants = constants
		if change != nil {
			change(&d)
		}
		return d
	}
	mapped := func(d *dispatch) { d.args["map"] = make([]byte, 4*76) } // every token is the first sequence's
	grid := func(x, y, z uint32) func(d *dispatch) { return func(d *dispatch) { d.grid = [3]uint32{x, y, z} } }
	for name, d := range map[string]dispatch{
		"no part":      with(good, map[string]uint32{"fc_split": 64}, grid(4, 76, 2)),
		"no keys":      with(parts, map[string]uint32{"fc_split": 0}, nil),
		"no partition": with(parts, parts.constants, grid(4, 76, 0)),
		"many":         with(parts, parts.constants, grid(4, 76, 4)),
		"no sinks":     with(good, map[string]uint32{"fc_sinks": 1}, nil),
		"no slopes":    with(good, map[string]uint32{"fc_slopes": 1}, nil),
		"few slopes":   with(good, map[string]uint32{"fc_slopes": 1}, func(d *dispatch) { d.args["slopes"] = make([]byte, 4*3) }),
		"no map":       with(good, map[string]uint32{"fc_map": 1}, nil),
		"map of tiles": with(good, map[string]uint32{"fc_map": 1, "fc_rows": 2}, mapped),
		"tiles' map":   with(tile, map[string]uint32{"fc_map": 1}, mapped),
	} {
		require.ErrorIs(t, Run(d.launch(), Options{}), ErrUnsupported, name)
	}
	require.NoError(t, Run(with(good, map[string]uint32{"fc_map": 1}, mapped).launch(), Options{}))
}

func TestReduceUnsupported(t *testing.T) {
	c := featured{attention: attention{heads: 4, head: 64}, sinks: make([]float32, 4)}
	good := c.reduce(dispatch{grid: [3]uint32{4, 5, 3}}, make([]byte, 4*5*4*3*64), make([]byte, 4*5*4*3*2))
	p := kernels.ReduceParams{Tokens: 5, Heads: 4, Head: 64, Partitions: 3}
	require.NoError(t, Run(good.launch(), Options{}))
	for name, change := range map[string]func(p *kernels.ReduceParams){
		"tokens":        func(p *kernels.ReduceParams) { p.Tokens = 6 },
		"heads":         func(p *kernels.ReduceParams) { p.Tokens, p.Heads = 1, 5 },
		"large heads":   func(p *kernels.ReduceParams) { p.Tokens, p.Heads, p.Head = 1, 1, 584 },
		"uneven heads":  func(p *kernels.ReduceParams) { p.Head = 60 },
		"partitions":    func(p *kernels.ReduceParams) { p.Partitions = 4 },
		"no partitions": func(p *kernels.ReduceParams) { p.Partitions = 0 },
		"far too many":  func(p *kernels.ReduceParams) { p.Tokens, p.Heads, p.Partitions = 1<<31, 1<<31, 1<<31 },
	} {
		bad := p
		change(&bad)
		d := good.clone()
		d.params = bad
		require.ErrorIs(t, Run(d.launch(), Options{}), ErrUnsupported, name)
	}
	delete(good.args, "sinks")
	require.ErrorIs(t, Run(good.launch(), Options{}), ErrUnsupported)
}
