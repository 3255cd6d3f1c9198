package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// batch is the packing of a step, as in the per-step inputs of a graph.
type batch struct {
	lens     []int // tokens of each sequence in this step
	contexts []int // keys of each sequence after the step's cache write
	block    int   // slots of a cache block
}

func (b batch) String() string { return fmt.Sprintf("%v of %v by %d", b.lens, b.contexts, b.block) }

func (b batch) tokens() int {
	n := 0
	for _, l := range b.lens {
		n += l
	}
	return n
}

// paging assigns blocks in random order to every sequence. There are unused blocks, and
// table entries past a sequence's last block.
type paging struct {
	batch
	positions, cu, contextLens, table, slots []int32
	stride                                   int  // entries of the table for a sequence
	blocks                                   int  // of the cache
	bySlot                                   bool // the cache is [blocks, block, kv_heads, head]
}

func (b batch) page(rng *rand.Rand) paging {
	p := paging{batch: b}
	for _, c := range b.contexts {
		p.stride = max(p.stride, ceil(c, b.block)+1)
		p.blocks += ceil(c, b.block)
	}
	p.blocks += 2
	order := rng.Perm(p.blocks)
	p.cu = []int32{0}
	for i, c := range b.contexts {
		for j := range p.stride {
			page := int32(1 << 28) // far outside: reading it faults
			if j < ceil(c, b.block) {
				page, order = int32(order[0]), order[1:]
			}
			p.table = append(p.table, page)
		}
		p.cu = append(p.cu, p.cu[i]+int32(b.lens[i]))
		p.contextLens = append(p.contextLens, int32(c))
		for j := range b.lens[i] {
			position := c - b.lens[i] + j
			p.positions = append(p.positions, int32(position))
			p.slots = append(p.slots, int32(p.slot(i, position)))
		}
	}
	return p
}

// slot returns the slot of key j of a sequence.
func (p paging) slot(seq, j int) int {
	return int(p.table[seq*p.stride+j/p.block])*p.block + j%p.block
}

// strides returns the elements from a block, a KV head and a slot of the cache to the next.
func (p paging) strides(kvHeads, head int) (block, kvHead, slot int) {
	if p.bySlot {
		return p.block * kvHeads * head, head, kvHeads * head
	}
	return kvHeads * p.block * head, p.block * head, head
}

// element returns the index of element d of a slot's row in a cache.
func (p paging) element(slot, kvHead, kvHeads, head, d int) int {
	b, h, s := p.strides(kvHeads, head)
	return slot/p.block*b + kvHead*h + slot%p.block*s + d
}

// cache returns a cache whose slots in use are random and all others NaN.
func (p paging) cache(rng *rand.Rand, e kernels.Element, kvHeads, head int) tensor {
	values := slices.Repeat([]float64{math.NaN()}, p.blocks*kvHeads*p.block*head)
	for seq, context := range p.contexts {
		for j := range context {
			for h := range kvHeads {
				for d := range head {
					values[p.element(p.slot(seq, j), h, kvHeads, head, d)] = rng.NormFloat64()
				}
			}
		}
	}
	return filled(e, len(values), func(i int) float64 { return values[i] })
}

type attentionShape struct {
	heads, kvHeads, head int
}

// features holds the options of attention that function constants enable.
type features struct {
	window  int       // keys that a token sees, its own among them; 0 for all
	softCap float64   // 0 for none
	sinks   []float64 // by head; nil for none
	slopes  []float64 // likewise
	gate    ir.Activation
	byHead  bool // the gate has an element for each head
}

func (f features) String() string {
	return fmt.Sprintf("window %d, cap %v, sinks %v, slopes %v, gate %v by head %v", f.window, f.softCap, f.sinks[:min(4, len(f.sinks))], f.slopes, f.gate, f.byHead)
}

// gateFrom is the first column of gates, and gateRest the columns behind them.
const gateFrom, gateRest = 8, 4

// gates returns a gate for each token, in rows of stride elements.
func (f features) gates(e kernels.Element, tokens, heads, head int) (gate tensor, stride int) {
	width := heads
	if !f.byHead {
		width *= head
	}
	stride = gateFrom + width + gateRest
	if f.byHead {
		stride++ // rows of any length
	}
	return filled(e, tokens*stride, func(i int) float64 { return 4 * math.Sin(1.7*float64(i)) }), stride
}

// moveGate moves the gate from a launch of partitions to attention_reduce.
func moveGate(from, to *launch) {
	gate, ok := from.buffers["gate"]
	if !ok {
		return
	}
	delete(from.buffers, "gate")
	to.buffers["gate"] = gate
	for _, name := range []string{"fc_gate", "fc_head_gate"} {
		to.constants[name] = from.constants[name]
		delete(from.constants, name)
	}
	p := to.params.(kernels.ReduceParams)
	switch a := from.params.(type) {
	case kernels.AttentionParams:
		p.GateStride, p.GateFrom = a.GateStride, a.GateFrom
	case kernels.AttentionWriteParams:
		p.GateStride, p.GateFrom = a.GateStride, a.GateFrom
	}
	to.params = p
}

// ask sets the constants, parameters and buffers of the features in a launch.
func (f features) ask(l *launch) {
	p := l.params.(kernels.AttentionParams)
	if f.window != 0 {
		l.constants["fc_window"], p.Window = 1, uint32(f.window)
	}
	if f.softCap != 0 {
		l.constants["fc_soft_cap"], p.SoftCap = 1, float32(f.softCap)
	}
	if f.sinks != nil {
		l.constants["fc_sinks"] = 1
		l.buffers["sinks"] = filled(kernels.Float, len(f.sinks), func(i int) float64 { return f.sinks[i] })
	}
	if f.slopes != nil {
		l.constants["fc_slopes"] = 1
		l.buffers["slopes"] = filled(kernels.Float, len(f.slopes), func(i int) float64 { return f.slopes[i] })
	}
	if f.gate != ir.NoActivation {
		gate, stride := f.gates(l.buffers["out"].element, int(p.Tokens), int(p.Heads), int(p.Head))
		l.constants["fc_gate"], l.buffers["gate"] = uint32(f.gate), gate
		if f.byHead {
			l.constants["fc_head_gate"] = 1
		}
		p.GateStride, p.GateFrom = uint32(stride), gateFrom
	}
	l.params = p
}

// attentionCall is attention over a batch, with all its operands.
type attentionCall struct {
	attentionShape
	paging
	features
	q, k, v tensor
}

func newAttention(rng *rand.Rand, s attentionShape, p paging, types []kernels.Element) attentionCall {
	return attentionCall{
		attentionShape: s, paging: p,
		q: random(rng, types[0], p.tokens()*s.heads*s.head),
		k: p.cache(rng, types[1], s.kvHeads, s.head),
		v: p.cache(rng, types[1], s.kvHeads, s.head),
	}
}

// specialised returns the head size as a function constant.
func (c attentionCall) specialised() map[string]uint32 {
	return map[string]uint32{"fc_head": uint32(c.head)}
}

// launch returns the dispatch of an attention kernel, with the constants of the
// features and those given.
func (c attentionCall) launch(kernel string, constants map[string]uint32) launch {
	l := attentionLaunch(kernel, c.attentionShape, c.paging, c.q, c.k, c.v)
	c.ask(&l)
	maps.Copy(l.constants, constants)
	return l
}

// run launches an attention kernel and returns its result.
func (c attentionCall) run(t *testing.T, kernel string, constants map[string]uint32) tensor {
	t.Helper()
	return c.launch(kernel, constants).run(t)["out"]
}

func (c attentionCall) want() []product {
	return c.attention(c.attentionShape, c.paging, c.q, c.k, c.v)
}

// attentionLaunch returns the dispatch of an attention kernel without features.
func attentionLaunch(name string, s attentionShape, p paging, q, k, v tensor) launch {
	block, kvHead, slot := p.strides(s.kvHeads, s.head)
	l := launch{
		kernel:    name,
		constants: map[string]uint32{},
		buffers: map[string]tensor{
			"q": q, "k_cache": k, "v_cache": v, "positions": ints(p.positions), "cu_seqlens": ints(p.cu), "context_lens": ints(p.contextLens), "block_table": ints(p.table),
			"out": result(q.element, q.length),
		},
		params: kernels.AttentionParams{
			Tokens: uint32(p.tokens()), Seqs: uint32(len(p.lens)), Heads: uint32(s.heads), KvHeads: uint32(s.kvHeads),
			Head: uint32(s.head), Block: uint32(p.block), TableStride: uint32(p.stride),
			BlockStride: uint32(block), HeadStride: uint32(kvHead), RowStride: uint32(slot),
			Scale: scaleOf(s),
		},
		grid:  [3]int{s.heads, p.tokens(), 1},
		group: 256,
	}
	if k, _ := kernels.Lookup(name); k.Family == "attention_tile" {
		l.grid, l.group = [3]int{ceil(p.tokens(), 32) + len(p.lens), s.heads, int(kernels.AttentionParts(int64(s.head)))}, 128
	}
	return l
}

func scaleOf(s attentionShape) float32 { return float32(1 / math.Sqrt(float64(s.head))) }

// attention computes the formula in float64, key by key.
func (f features) attention(s attentionShape, p paging, q, k, v tensor) []product {
	queries, keys, values := q.values(), k.values(), v.values()
	out := make([]product, len(queries))
	gate, stride := f.gates(q.element, p.tokens(), s.heads, s.head)
	for seq := range p.lens {
		for t := int(p.cu[seq]); t < int(p.cu[seq+1]); t++ {
			next := int(p.positions[t]) + 1
			from, to := 0, max(0, min(next, int(p.contextLens[seq])))
			if f.window != 0 {
				from = min(max(0, next-f.window), to)
			}
			for h := range s.heads {
				at := (t*s.heads + h) * s.head
				row := func(j int) int { return p.element(p.slot(seq, j), h/(s.heads/s.kvHeads), s.kvHeads, s.head, 0) }
				scores := make([]float64, to-from)
				highest, total := math.Inf(-1), 0.0
				if f.sinks != nil {
					highest, total = f.sinks[h], 1
				}
				for j := range scores {
					for d, x := range keys[row(from+j):][:s.head] {
						scores[j] += queries[at+d] * x
					}
					scores[j] *= float64(scaleOf(s))
					if f.softCap != 0 {
						scores[j] = f.softCap * math.Tanh(scores[j]/f.softCap)
					}
					if f.slopes != nil {
						scores[j] += f.slopes[h] * float64(from+j-int(p.positions[t]))
					}
					if scores[j] > highest {
						total *= math.Exp(highest - scores[j])
						highest = scores[j]
					}
				}
				for j := range scores {
					scores[j] = math.Exp(scores[j] - highest)
					total += scores[j]
				}
				for j := range scores {
					for d, x := range values[row(from+j):][:s.head] {
						term := scores[j] / total * x
						out[at+d].value += term
						out[at+d].scale += math.Abs(term)
					}
				}
				if f.gate == ir.NoActivation {
					continue
				}
				for d := range s.head {
					column := h
					if !f.byHead {
						column = h*s.head + d
					}
					g := ref.Activate(f.gate, gate.at(t*stride+gateFrom+column))
					out[at+d].value *= g
					out[at+d].scale *= math.Abs(g)
				}
			}
		}
	}
	return out
}

var headSizes = []int{8, 16, 32, 40, 64, 80, 96, 112, 128, 256, 264, 320, 504, 512}

func attentionCases() (shapes []attentionShape, batches []batch) {
	for i, head := range append(slices.Clone(headSizes), kernels.MaxLatent) {
		if everything() {
			shapes = append(shapes, attentionShape{4, 4, head}, attentionShape{8, 2, head}, attentionShape{5, 1, head})
			continue
		}
		shapes = append(shapes, []attentionShape{{3, 3, head}, {4, 2, head}, {3, 1, head}}[i%3])
	}
	batches = few([]batch{
		{lens: []int{3, 1}, contexts: []int{3, 37}, block: 16},
		{lens: []int{35, 0, 2}, contexts: []int{41, 5, 2}, block: 7},
	}, []batch{
		{lens: []int{1}, contexts: []int{1}, block: 1},
		{lens: []int{1, 1, 1}, contexts: []int{1, 300, 33}, block: 16},
		{lens: []int{3, 1}, contexts: []int{3, 37}, block: 512},
		{lens: []int{35, 0, 2}, contexts: []int{41, 5, 2}, block: 7},
		{lens: []int{32, 64, 1}, contexts: []int{32, 95, 270}, block: 32},
		{lens: []int{5, 18, 29}, contexts: []int{5, 118, 63}, block: 8},
	})
	return shapes, batches
}

func TestAttentionVec(t *testing.T) { testAttention(t, "attention_vec") }

func testAttention(t *testing.T, family string) {
	shapes, batches := attentionCases()
	instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
		for i, s := range shapes {
			for j, b := range batches {
				if headFor(types, s.head) != s.head || !everything() && (i+j)%2 == 1 {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v", s, b), func(t *testing.T) {
					rng := newRand(t.Name())
					p := b.page(rng)
					p.bySlot = (i+j)%4 == 2
					c := newAttention(rng, s, p, types)
					constants := c.specialised()
					if i%2 == 1 {
						constants = nil
					}
					compareProducts(t, c.want(), c.run(t, name, constants), types)
				})
			}
		}
	})
}

// inTurn returns n values that repeat the given ones.
func inTurn(n int, values ...float64) []float64 {
	return slices.Repeat(values, ceil(n, len(values)))[:n]
}

// featuresFor returns the masks, soft caps and sinks of models, alone and combined.
func featuresFor(heads int) []features {
	return []features{
		{window: 1},
		{window: 33},
		{softCap: 2},
		{sinks: inTurn(heads, 0, 2, -5)},
		{window: 16, softCap: 50},
		{window: 4096, sinks: inTurn(heads, 30, -30)},
		{softCap: 1, sinks: inTurn(heads, 1)},
		{window: 7, softCap: 30, sinks: inTurn(heads, 0.5, math.Inf(-1))},
		{slopes: inTurn(heads, 0.25, 0.0625, 0, -0.01)},
		{slopes: inTurn(heads, 0.5, 0.125)},
		{window: 20, softCap: 5, sinks: inTurn(heads, 1, -3), slopes: inTurn(heads, 0.5, 0.25)},
		{window: 40, slopes: inTurn(heads, 2)},
		{gate: ir.Sigmoid, window: 33},
		{gate: ir.Softplus, byHead: true},
		{gate: ir.Sigmoid, byHead: true, sinks: inTurn(heads, 1, -3)},
		{gate: ir.SiLU, softCap: 3},
		{gate: ir.Softplus, slopes: inTurn(heads, 0.5)},
	}
}

// featureBatch has rows that see one key, rows whose window starts inside a block, in a
// later step and in a later iteration of the simdgroups, and ragged tiles.
var featureBatch = batch{lens: []int{2, 37, 1, 0, 1}, contexts: []int{2, 90, 33, 4, 300}, block: 16}

func TestAttentionVecFeatures(t *testing.T) { testFeatures(t, "attention_vec") }

func testFeatures(t *testing.T, family string) {
	instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
		for i, f := range featuresFor(4) {
			if !everything() && len(name)%2 != i%2 {
				continue
			}
			t.Run(f.String(), func(t *testing.T) {
				rng := newRand(t.Name())
				c := newAttention(rng, attentionShape{4, 2, headFor(types, 24)}, featureBatch.page(rng), types)
				c.features = f
				want := c.want()
				compareProducts(t, want, c.run(t, name, c.specialised()), types)
			})
		}
	})
}

// TestAttentionWithoutKeys covers inputs that no scheduler produces: an empty context gives
// zeros, and positions past the context attend to the keys that exist.
func TestAttentionWithoutKeys(t *testing.T) {
	for _, family := range []string{"attention_vec", "attention_tile"} {
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			testWithoutKeys(t, name, types, features{})
			// With a window, positions far past the context see no key, and others in
			// the same tile see some.
			testWithoutKeys(t, name, types, features{window: 3})
		})
	}
}

// A sink does not change that.
func TestAttentionVecWithoutKeys(t *testing.T) {
	instances(t, "attention_vec", func(t *testing.T, name string, types []kernels.Element) {
		testWithoutKeys(t, name, types, features{window: 3, sinks: inTurn(2, -100, 3)})
		testWithoutKeys(t, name, types, features{softCap: 10, sinks: inTurn(2, 3)})
	})
}

func testWithoutKeys(t *testing.T, name string, types []kernels.Element, f features) {
	t.Helper()
	rng := newRand(t.Name())
	p := batch{lens: []int{2, 3}, contexts: []int{2, 9}, block: 4}.page(rng)
	c := newAttention(rng, attentionShape{2, 1, headFor(types, 16)}, p, types)
	c.features = f
	c.contextLens = []int32{0, 5} // positions reach 8
	got := c.run(t, name, c.specialised())
	compareProducts(t, c.want(), got, types)
	for i := range 2 * c.heads * c.head {
		require.Equal(t, 0.0, got.at(i))
	}
}

// TestAttentionKeepsNaNToItself writes NaN and infinities into keys and values that
// only later tokens see: earlier ones must not change by a bit, later ones must show it.
func TestAttentionKeepsNaNToItself(t *testing.T) {
	for _, family := range []string{"attention_vec", "attention_tile"} {
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			rng := newRand(t.Name())
			p := batch{lens: []int{40}, contexts: []int{110}, block: 8}.page(rng)
			c := newAttention(rng, attentionShape{2, 1, headFor(types, 24)}, p, types)
			clean := c.run(t, name, c.specialised()).values()
			const position, first = 81, 11 // the key, and the token that sees it first
			for d := range c.head {
				c.k.put(p.element(p.slot(0, position), 0, 1, c.head, d), math.NaN())
				c.v.put(p.element(p.slot(0, position), 0, 1, c.head, d), []float64{math.NaN(), math.Inf(1), 1}[d%3])
			}
			got := c.run(t, name, c.specialised()).values()
			width := c.heads * c.head
			for i := range first * width {
				if clean[i] != got[i] {
					t.Fatalf("token %d, element %d: %v became %v", i/width, i%width, clean[i], got[i])
				}
			}
			for i := first * width; i < len(got); i++ {
				if !math.IsNaN(got[i]) {
					t.Fatalf("token %d, element %d hides the NaN it sees: %v", i/width, i%width, got[i])
				}
			}
		})
	}
}

// TestAttentionShowsValues does the same with values alone; their keys have finite scores.
func TestAttentionShowsValues(t *testing.T) {
	for _, family := range []string{"attention_vec", "attention_tile"} {
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			rng := newRand(t.Name())
			p := batch{lens: []int{40}, contexts: []int{110}, block: 8}.page(rng)
			c := newAttention(rng, attentionShape{2, 1, headFor(types, 24)}, p, types)
			clean := c.run(t, name, c.specialised()).values()
			const position, first = 81, 11
			bad := func(d int) bool { return types[1] == kernels.Blocks || d%3 == 1 }
			for d := range c.head {
				if bad(d) {
					c.v.put(p.element(p.slot(0, position), 0, 1, c.head, d), []float64{math.NaN(), math.Inf(1)}[d/3%2])
				}
			}
			got := c.run(t, name, c.specialised()).values()
			for i, v := range got {
				token, d := i/(c.heads*c.head), i%c.head
				if token < first && v != clean[i] {
					t.Fatalf("token %d, element %d: %v became %v", token, d, clean[i], v)
				}
				if token >= first && bad(d) && !math.IsNaN(v-v) {
					t.Fatalf("token %d, element %d hides what it sees: %v", token, d, v)
				}
			}
		})
	}
}
