package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/smelt-ml/smelt/kernels"
)

// batch is the packing of a step: what the per-step inputs of a graph say.
type batch struct {
	lens     []int // tokens of each sequence in this step
	contexts []int // keys that each sequence has once the step is written
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

// paging places every sequence on blocks in random order. Blocks no sequence uses, and
// table entries past a sequence's last block, exist too.
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
			page := int32(1 << 28) // reading it would fault
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

// slot is where key j of a sequence lies.
func (p paging) slot(seq, j int) int {
	return int(p.table[seq*p.stride+j/p.block])*p.block + j%p.block
}

// strides returns the elements of a cache from one block, KV head and slot to the next.
func (p paging) strides(kvHeads, head int) (block, kvHead, slot int) {
	if p.bySlot {
		return p.block * kvHeads * head, head, kvHeads * head
	}
	return kvHeads * p.block * head, p.block * head, head
}

// element is the index of element d of a slot's row in a cache.
func (p paging) element(slot, kvHead, kvHeads, head, d int) int {
	perBlock, perHead, perSlot := p.strides(kvHeads, head)
	return slot/p.block*perBlock + kvHead*perHead + slot%p.block*perSlot + d
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

// features are what kernels of attention do where a function constant asks for it.
type features struct {
	window  int       // keys that a token sees, its own among them; 0 for all
	softCap float64   // 0 for none
	sinks   []float64 // by head; nil for none
}

// ask sets the constants, parameters and buffers of the features.
func (f features) ask(l *launch) {
	p := l.params.(kernels.AttentionParams)
	if f.window != 0 {
		l.constants[2], p.Window = 1, uint32(f.window)
	}
	if f.softCap != 0 {
		l.constants[3], p.SoftCap = 1, float32(f.softCap)
	}
	if f.sinks != nil {
		l.constants[4] = 1
		l.buffers[11] = filled(kernels.Float, len(f.sinks), func(i int) float64 { return f.sinks[i] })
	}
	l.params = p
}

var headSizes = []int{8, 16, 32, 40, 64, 80, 96, 112, 128, 256}

func attentionCases() (shapes []attentionShape, batches []batch) {
	for i, head := range headSizes {
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
					q := random(rng, types[0], b.tokens()*s.heads*s.head)
					k, v := p.cache(rng, types[1], s.kvHeads, s.head), p.cache(rng, types[1], s.kvHeads, s.head)
					got := attend(t, name, s, p, q, k, v, i%2 == 0)
					compareProducts(t, attention(s, p, q, k, v), got, types)
				})
			}
		}
	})
}

// attend launches an attention kernel; specialise sets its head size as a constant.
func attend(t *testing.T, name string, s attentionShape, p paging, q, k, v tensor, specialise bool) tensor {
	t.Helper()
	l := attentionLaunch(name, s, p, q, k, v)
	if specialise {
		l.constants[0] = uint32(s.head)
	}
	return l.run(t)[7]
}

func attentionLaunch(name string, s attentionShape, p paging, q, k, v tensor) launch {
	perBlock, perHead, perSlot := p.strides(s.kvHeads, s.head)
	l := launch{
		kernel:    name,
		constants: map[uint32]uint32{},
		buffers: map[int]tensor{
			0: q, 1: k, 2: v, 3: ints(p.positions), 4: ints(p.cu), 5: ints(p.contextLens), 6: ints(p.table),
			7: result(q.element, q.length),
		},
		params: kernels.AttentionParams{
			Tokens: uint32(p.tokens()), Seqs: uint32(len(p.lens)), Heads: uint32(s.heads), KvHeads: uint32(s.kvHeads),
			Head: uint32(s.head), Block: uint32(p.block), TableStride: uint32(p.stride),
			BlockStride: uint32(perBlock), HeadStride: uint32(perHead), RowStride: uint32(perSlot),
			Scale: scaleOf(s),
		},
		grid:  [3]int{s.heads, p.tokens(), 1},
		group: 256,
	}
	if k, _ := kernels.Lookup(name); k.Family == "attention_tile" {
		l.grid, l.group = [3]int{ceil(p.tokens(), 32) + len(p.lens), s.heads, 1}, 128
	}
	return l
}

func scaleOf(s attentionShape) float32 { return float32(1 / math.Sqrt(float64(s.head))) }

// attention is the formula, key by key, without features.
func attention(s attentionShape, p paging, q, k, v tensor) []product {
	return features{}.attention(s, p, q, k, v)
}

// attention is the formula, key by key.
func (f features) attention(s attentionShape, p paging, q, k, v tensor) []product {
	out := make([]product, q.length)
	for seq := range p.lens {
		for t := int(p.cu[seq]); t < int(p.cu[seq+1]); t++ {
			seen, first := min(int(p.positions[t])+1, p.contexts[seq]), 0
			if f.window > 0 {
				first = max(0, int(p.positions[t])+1-f.window)
			}
			for h := range s.heads {
				kvHead := h / (s.heads / s.kvHeads)
				at := (t*s.heads + h) * s.head
				scores := make([]float64, max(0, seen))
				highest := math.Inf(-1)
				for j := first; j < seen; j++ {
					for d := range s.head {
						scores[j] += q.at(at+d) * k.at(p.element(p.slot(seq, j), kvHead, s.kvHeads, s.head, d))
					}
					scores[j] *= float64(scaleOf(s))
					if f.softCap != 0 {
						scores[j] = f.softCap * math.Tanh(scores[j]/f.softCap)
					}
					highest = max(highest, scores[j])
				}
				total := 0.0
				if f.sinks != nil {
					highest = max(highest, f.sinks[h])
					total = math.Exp(f.sinks[h] - highest)
				}
				for j := first; j < seen; j++ {
					scores[j] = math.Exp(scores[j] - highest)
					total += scores[j]
				}
				for j := first; j < seen; j++ {
					for d := range s.head {
						term := scores[j] / total * v.at(p.element(p.slot(seq, j), kvHead, s.kvHeads, s.head, d))
						out[at+d].value += term
						out[at+d].scale += math.Abs(term)
					}
				}
			}
		}
	}
	return out
}

// TestAttentionWithoutKeys covers what no schedule should send: a context of no keys
// and positions past the context give zeros and what is there.
func TestAttentionWithoutKeys(t *testing.T) {
	for _, family := range []string{"attention_vec", "attention_tile"} {
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			s := attentionShape{2, 1, headFor(types, 16)}
			rng := newRand(t.Name())
			p := batch{lens: []int{2, 3}, contexts: []int{2, 9}, block: 4}.page(rng)
			q := random(rng, types[0], p.tokens()*s.heads*s.head)
			k, v := p.cache(rng, types[1], s.kvHeads, s.head), p.cache(rng, types[1], s.kvHeads, s.head)
			p.contexts = []int{0, 5} // positions go on to 8
			p.contextLens = []int32{0, 5}
			got := attend(t, name, s, p, q, k, v, true)
			compareProducts(t, attention(s, p, q, k, v), got, types)
		})
	}
}

// TestAttentionKeepsNaNToItself writes NaN and infinities into keys and values that
// only later tokens see: earlier ones must not change by a bit, later ones must show it.
func TestAttentionKeepsNaNToItself(t *testing.T) {
	for _, family := range []string{"attention_vec", "attention_tile"} {
		instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
			s := attentionShape{2, 1, headFor(types, 24)}
			rng := newRand(t.Name())
			p := batch{lens: []int{40}, contexts: []int{110}, block: 8}.page(rng)
			q := random(rng, types[0], p.tokens()*s.heads*s.head)
			k, v := p.cache(rng, types[1], s.kvHeads, s.head), p.cache(rng, types[1], s.kvHeads, s.head)
			clean := attend(t, name, s, p, q, k, v, true).values()
			const position, first = 81, 11 // the key, and the token that sees it first
			for d := range s.head {
				k.put(p.element(p.slot(0, position), 0, 1, s.head, d), math.NaN())
				v.put(p.element(p.slot(0, position), 0, 1, s.head, d), []float64{math.NaN(), math.Inf(1), 1}[d%3])
			}
			got := attend(t, name, s, p, q, k, v, true).values()
			width := s.heads * s.head
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
