package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/published"
	"github.com/smelt-ml/smelt/models"
)

// rotation is what the rotary kernels have in common.
type rotation struct {
	head, rotated int
	interleaved   bool
	theta         float64
	freqScale     float64
	magnitude     float64
	factors       []float64 // divide the frequencies; or nil
	table         bool      // the base of the frequencies goes into the factors
	counted       bool      // positions follow each other
	slotless      bool      // a token's slot is its position
	separate      bool      // K and V lie apart from Q
}

func (r rotation) String() string {
	s := fmt.Sprintf("%d of %d", r.rotated, r.head)
	for name, set := range map[string]bool{"interleaved": r.interleaved, "factors": r.factors != nil, "table": r.table,
		"counted": r.counted, "slotless": r.slotless, "separate": r.separate} {
		if set {
			s += " " + name
		}
	}
	words := strings.Fields(s)
	slices.Sort(words[3:])
	return strings.Join(words, " ")
}

// named returns the function constants that differ from their defaults, and the
// pairing, which has none.
func (r rotation) named() map[string]uint32 {
	c := map[string]uint32{"fc_interleaved": 0}
	set := func(name string, value uint32, when bool) {
		if when {
			c[name] = value
		}
	}
	set("fc_interleaved", 1, r.interleaved)
	set("fc_factors", 1, r.factors != nil && !r.table)
	set("fc_table", 1, r.table)
	set("fc_positions", 0, r.counted)
	set("fc_slots", 0, r.slotless)
	set("fc_separate", 1, r.separate)
	return c
}

func (r rotation) constants(kernel string) map[string]uint32 {
	c := map[string]uint32{}
	k, _ := kernels.Lookup(kernel)
	for _, constant := range k.Constants {
		if value, ok := r.named()[constant.Name]; ok {
			c[constant.Name] = value
		}
	}
	return c
}

// bind adds the factors or the table where there is one. A kernel with a
// table is given a base that it must not use.
func (r rotation) bind(l *launch) (log2Theta float32) {
	log2Theta = float32(math.Log2(r.theta))
	if r.table || r.factors != nil {
		l.buffers["factors"] = filled(kernels.Float, r.rotated/2, func(i int) float64 {
			x := 1.0
			if r.factors != nil {
				x = r.factors[i]
			}
			if r.table {
				x *= math.Pow(r.theta, 2*float64(i)/float64(r.rotated))
			}
			return x
		})
	}
	if r.table {
		return float32(math.NaN())
	}
	return log2Theta
}

// turn rotates one head in place.
func (r rotation) turn(x []float64, position int32) {
	for i := range r.rotated / 2 {
		angle := float64(position) * r.freqScale * math.Pow(r.theta, -2*float64(i)/float64(r.rotated))
		if r.factors != nil {
			angle /= r.factors[i]
		}
		a, b := 2*i, 2*i+1
		if !r.interleaved {
			a, b = i, i+r.rotated/2
		}
		sin, cos := math.Sincos(angle)
		sin, cos = sin*r.magnitude, cos*r.magnitude
		x[a], x[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
	}
}

// bound is the error allowed: angles are float, so they err by a part of their size.
// Those from a table err by two roundings, its own and that of the division.
func (r rotation) bound(positions []int32, types ...kernels.Element) float64 {
	largest := int32(0)
	for _, p := range positions {
		largest = max(largest, p)
	}
	part := 5e-7
	if r.table {
		part = 1.5e-7
	}
	return worst(types...) + part*float64(largest)*r.freqScale
}

func rotations() []rotation {
	var out []rotation
	for _, head := range few([]int{8, 80, 128, 160, 512}, headSizes) {
		for _, interleaved := range []bool{false, true} {
			plain := rotation{head: head, rotated: head, interleaved: interleaved, theta: 1e4, freqScale: 1, magnitude: 1}
			partial := rotation{head: head, rotated: head / 2, interleaved: interleaved, theta: 1e6, freqScale: 0.25, magnitude: 1.2,
				factors: stretch(head / 4)}
			odd := partial // a lane has a pair that rotates and one that does not
			odd.rotated, odd.factors = head-2, stretch(head/2-1)
			table, whole := partial, plain
			table.table, table.separate = true, true
			whole.table, whole.counted, whole.slotless = true, true, true
			out = append(out, plain, partial, odd, table, whole)
		}
	}
	return out
}

func stretch(n int) []float64 {
	f := make([]float64, n)
	for i := range f {
		f[i] = 1 + float64(i)/4
	}
	return f
}

func TestRope(t *testing.T) {
	instances(t, "rope", func(t *testing.T, name string, types []kernels.Element) {
		for _, r := range rotations() {
			for _, positions := range [][]int32{{0, 1, 17, 1000, 3, 131071}, {7}} {
				t.Run(fmt.Sprintf("%v/%d", r, len(positions)), func(t *testing.T) {
					checkRope(t, name, types[0], r, 3, positions, r.constants(name))
				})
			}
		}
	})
}

func checkRope(t *testing.T, name string, element kernels.Element, r rotation, heads int, positions []int32, constants map[string]uint32) {
	rng := newRand(t.Name())
	tokens, width := len(positions), heads*r.head
	stride := width + 6
	x := random(rng, element, tokens*stride)
	l := launch{
		kernel:    name,
		constants: constants,
		buffers:   map[string]tensor{"x": x, "out": result(element, tokens*width)},
		grid:      [3]int{ceil(r.head, 64), heads, tokens},
		group:     32,
	}
	params := kernels.RopeParams{Tokens: uint32(tokens), Heads: uint32(heads), Head: uint32(r.head), Rotated: uint32(r.rotated),
		XStride: uint32(stride), FreqScale: float32(r.freqScale), Magnitude: float32(r.magnitude), Log2Theta: r.bind(&l)}
	if r.counted {
		params.First = uint32(positions[0])
		positions = consecutive(positions[0], tokens)
	} else {
		params.First = 1 << 20 // must not matter
		l.buffers["positions"] = ints(positions)
	}
	l.params = params
	got := l.run(t)["out"].values()
	for token, position := range positions {
		want := x.values()[token*stride:][:width]
		for h := range heads {
			r.turn(want[h*r.head:][:r.head], position)
		}
		compare(t, want, got[token*width:][:width], r.head, r.bound([]int32{position}, element))
	}
}

func consecutive(first int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = first + int32(i)
	}
	return out
}

func TestRopeQKVWrite(t *testing.T) { testRopeWrite(t, "rope_qkv_write") }

func TestHeadNormRopeKVWrite(t *testing.T) { testRopeWrite(t, "head_norm_rope_kv_write") }

func testRopeWrite(t *testing.T, family string) {
	shapes := few([][2]int{{4, 2}}, [][2]int{{4, 4}, {8, 2}, {5, 1}})
	batches := few([]batch{{lens: []int{3, 1}, contexts: []int{5, 9}, block: 4}},
		[]batch{{lens: []int{1}, contexts: []int{300}, block: 512}, {lens: []int{3, 1, 4}, contexts: []int{5, 9, 4}, block: 7}})
	instances(t, family, func(t *testing.T, name string, types []kernels.Element) {
		for _, r := range rotations() {
			if headFor(types, r.head) != r.head {
				continue
			}
			for _, s := range shapes {
				for _, b := range batches {
					if r.counted {
						b = batch{lens: b.lens[:1], contexts: b.contexts[:1], block: b.contexts[0] + 3}
					}
					shape := attentionShape{s[0], s[1], r.head}
					t.Run(fmt.Sprintf("%v/%v/%v", r, shape, b), func(t *testing.T) {
						checkRopeWrite(t, name, types, r, shape, b, r.constants(name))
					})
					if family == "head_norm_rope_kv_write" {
						for title, constant := range map[string]string{"all heads": "fc_all_heads", "values": "fc_norm_values"} {
							t.Run(fmt.Sprintf("%v/%v/%v/%s", r, shape, b, title), func(t *testing.T) {
								constants := r.constants(name)
								constants[constant] = 1
								checkRopeWrite(t, name, types, r, shape, b, constants)
							})
						}
					}
				}
			}
		}
	})
}

func checkRopeWrite(t *testing.T, name string, types []kernels.Element, r rotation, s attentionShape, b batch, constants map[string]uint32) {
	const eps = 1e-6
	k, _ := kernels.Lookup(name)
	norms := k.Family == "head_norm_rope_kv_write"
	rng := newRand(t.Name())
	p := b.page(rng)
	tokens := b.tokens()
	if r.slotless { // one block, a row for each position
		p.blocks, p.slots = 1, p.positions
	} else if tokens > 2 {
		p.slots[1] = -1 // writes no keys
	}
	// What a token's heads lie apart, and where each of Q, K and V begins.
	strides, starts := [3]int{}, [3]int{0, s.heads * s.head, (s.heads + s.kvHeads) * s.head}
	var rows [3]tensor
	inputs := func(stride int) tensor {
		x := random(rng, types[0], tokens*stride)
		for i := range stride { // so small a token that eps shows
			x.put(i, x.at(i)/64)
		}
		return x
	}
	if r.separate {
		starts = [3]int{}
		for i, heads := range []int{s.heads, s.kvHeads, s.kvHeads} {
			strides[i] = heads*s.head + 4*i // of whole vectors, or not
			if r.interleaved {
				strides[i] = heads*s.head + 2 + i
			}
			rows[i] = inputs(strides[i])
		}
	} else {
		stride := (s.heads+2*s.kvHeads)*s.head + 4
		qkv := inputs(stride)
		rows, strides = [3]tensor{qkv, qkv, qkv}, [3]int{stride, stride, stride}
	}
	cacheLen := p.blocks * s.kvHeads * p.block * s.head
	l := launch{
		kernel:    name,
		constants: constants,
		buffers:   map[string]tensor{"qkv": rows[0], "q_out": result(types[0], tokens*s.heads*s.head), "k_cache": result(types[1], cacheLen), "v_cache": result(types[1], cacheLen)},
		grid:      [3]int{ceil(s.heads+2*s.kvHeads, kernels.RopeWriteRows(s.head)), tokens, 1},
		group:     32,
	}
	params := kernels.RopeWriteParams{Tokens: uint32(tokens), Heads: uint32(s.heads), KvHeads: uint32(s.kvHeads), Head: uint32(s.head),
		Rotated: uint32(r.rotated), QStride: uint32(strides[0]), KStride: uint32(strides[1]), VStride: uint32(strides[2]), Block: uint32(p.block),
		FreqScale: float32(r.freqScale), Magnitude: float32(r.magnitude), Eps: eps, First: 1 << 20, Log2Theta: r.bind(&l)}
	if r.separate {
		l.buffers["k"], l.buffers["v"] = rows[1], rows[2]
	}
	if r.counted {
		params.First = uint32(p.positions[0])
	} else {
		l.buffers["positions"] = ints(p.positions)
	}
	if !r.slotless {
		l.buffers["slots"] = ints(p.slots)
	}
	l.params = params
	var gains [2]tensor
	if norms {
		n := [2]int{1, 1} // heads that a norm is over
		if constants["fc_all_heads"] == 1 {
			n = [2]int{s.heads, s.kvHeads}
		}
		gains = [2]tensor{random(rng, kernels.Float, n[0]*s.head), random(rng, kernels.Float, n[1]*s.head)}
		l.buffers["q_norm"], l.buffers["k_norm"] = gains[0], gains[1]
	}
	results := l.run(t)
	q, kCache, vCache := results["q_out"].values(), results["k_cache"].values(), results["v_cache"].values()

	ones := filled(kernels.Float, s.head, func(int) float64 { return 1 })
	bound := r.bound(p.positions, types...)
	written := make([]bool, cacheLen)
	for token := range tokens {
		// head returns head h of Q (0), K (1) or V (2), normalised and turned as it must be.
		head := func(of, h int) []float64 {
			first, n := h, 1 // of what is normalised together
			if of < 2 && norms {
				first, n = h-h%(gains[of].length/s.head), gains[of].length/s.head
			}
			x := make([]float64, n*s.head)
			for d := range x {
				x[d] = rows[of].at(starts[of] + token*strides[of] + first*s.head + d)
			}
			if of < 2 {
				if norms {
					normalise(x, gains[of], eps)
				}
				x = x[(h-first)*s.head:][:s.head]
				r.turn(x, p.positions[token])
			} else if constants["fc_norm_values"] == 1 {
				normalise(x, ones, eps)
			}
			return x
		}
		for h := range s.heads {
			compare(t, head(0, h), q[(token*s.heads+h)*s.head:][:s.head], s.head, r.bound(p.positions, types[0]))
		}
		slot := int(p.slots[token])
		if slot < 0 {
			continue
		}
		for h := range s.kvHeads {
			at := p.element(slot, h, s.kvHeads, s.head, 0)
			compare(t, head(1, h), kCache[at:][:s.head], s.head, bound)
			compare(t, head(2, h), vCache[at:][:s.head], s.head, max(worst(types...), float64(constants["fc_norm_values"])*bound))
			for d := range s.head {
				written[at+d] = true
			}
		}
	}
	for i, w := range written {
		if math.IsNaN(kCache[i]) == w || math.IsNaN(vCache[i]) == w {
			t.Fatalf("element %d of the caches: %v, %v; written should be %v", i, kCache[i], vCache[i], w)
		}
	}
}

// TestPublishedRope runs the shapes of akunu's chapter by the rows that name its
// kernels: one token and batches, inline frequencies and a table, whole and halved
// frequencies, every ratio of query heads to KV heads.
func TestPublishedRope(t *testing.T) {
	for _, o := range published.Origins() {
		if o.By != "akunu" {
			continue
		}
		batched := strings.Contains(o.Name, "batch") || o.Family == "rope"
		for _, table := range []bool{false, true} {
			for _, tokens := range map[bool][]int{false: {1}, true: {1, 5}}[batched] {
				for _, heads := range few([][2]int{{8, 2}, {3, 1}}, [][2]int{{32, 8}, {8, 8}, {16, 2}, {8, 1}}) {
					r := rotation{head: 128, rotated: 128, theta: 1e4, freqScale: 0.5, magnitude: 1, table: table, counted: true}
					r.interleaved = o.Constants["fc_interleaved"] == 1
					r.separate = o.Constants["fc_separate"] == 1
					r.slotless = o.Family != "rope"
					require.Subset(t, r.named(), o.Constants, "what the row sets")
					constants := maps.Clone(o.Constants)
					if table {
						constants["fc_table"] = 1
					}
					t.Run(fmt.Sprintf("%s/table=%t/%d by %v", o.Name, table, tokens, heads), func(t *testing.T) {
						if o.Family == "rope" {
							checkRope(t, "rope_f16", kernels.Half, r, heads[0], consecutive(42, tokens), constants)
							ids := maps.Clone(constants) // as FC_USE_POSITION_IDS has it, for trees of drafts
							ids["fc_positions"] = 1
							r.counted = false
							checkRope(t, "rope_f16", kernels.Half, r, heads[0], []int32{42, 43, 43, 44, 43}[:tokens], ids)
							return
						}
						b := batch{lens: []int{tokens}, contexts: []int{42 + tokens}, block: 64}
						checkRopeWrite(t, o.Family+"_f16_f16", []kernels.Element{kernels.Half, kernels.Half}, r, attentionShape{heads[0], heads[1], 128}, b, constants)
					})
				}
			}
		}
	}
}

// TestRopeScaling compares tables and factors of package models with the formulas of
// the methods, which work on frequencies, through the kernels.
func TestRopeScaling(t *testing.T) {
	const head, theta, old = 128, 5e5, 8192
	frequency := func(theta float64, i int) float64 { return math.Pow(theta, -2*float64(i)/head) }
	for _, c := range []struct {
		name      string
		rope      models.Rope
		frequency func(i int) float64
		magnitude float64
	}{
		{"none", models.Rope{Theta: theta}, func(i int) float64 { return frequency(theta, i) }, 1},
		{"linear", models.Rope{Theta: theta, Linear: 4}, func(i int) float64 { return frequency(theta, i) / 4 }, 1},
		{"ntk", models.Rope{Theta: models.NTKTheta(theta, 4, head)},
			func(i int) float64 { return frequency(theta*math.Pow(4, head/(head-2.)), i) }, 1},
		{"llama3", models.Rope{Theta: theta, Llama3: &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: old}},
			func(i int) float64 {
				f := frequency(theta, i)
				switch wavelength := 2 * math.Pi / f; {
				case wavelength < old/4.:
					return f
				case wavelength > old:
					return f / 8
				default:
					smooth := (old/wavelength - 1) / (4 - 1)
					return (1-smooth)*f/8 + smooth*f
				}
			}, 1},
		{"yarn", models.Rope{Theta: theta, YaRN: &models.YaRNRope{Factor: 16, FastBeta: 32, SlowBeta: 1, OldContext: old}},
			func(i int) float64 {
				f := frequency(theta, i)
				pair := func(turns float64) float64 { return head * math.Log(old/(turns*2*math.Pi)) / (2 * math.Log(theta)) }
				low, high := math.Floor(pair(32)), math.Ceil(pair(1))
				ramp := min(1, max(0, (float64(i)-low)/(high-low)))
				return f/16*ramp + f*(1-ramp)
			}, 0.1*math.Log(16) + 1},
	} {
		c.rope.Rotated = head
		divisors, magnitude := c.rope.Table()
		require.InEpsilon(t, c.magnitude, magnitude, 1e-12, c.name)
		// r turns by the formula: its factors are what is left of the base's frequencies.
		r := rotation{head: head, rotated: head, theta: theta, freqScale: 1, magnitude: c.magnitude, factors: make([]float64, head/2)}
		for i := range r.factors {
			r.factors[i] = frequency(theta, i) / c.frequency(i)
			require.InEpsilon(t, 1/c.frequency(i), float64(divisors[i]), 0x1p-24+1e-12, "%s: pair %d", c.name, i)
		}
		r.table = true
		for _, interleaved := range []bool{false, true} {
			r.interleaved = interleaved
			t.Run(c.name+"/"+r.String(), func(t *testing.T) {
				checkRope(t, "rope_f32", kernels.Float, r, 2, []int32{0, 1, 8191, 8192, 131071}, r.constants("rope_f32"))
				name := "head_norm_rope_kv_write_f16_f16"
				checkRopeWrite(t, name, []kernels.Element{kernels.Half, kernels.Half}, r, attentionShape{4, 2, head},
					batch{lens: []int{2, 1}, contexts: []int{300, 9000}, block: 16}, r.constants(name))
			})
		}
	}
}

// TestLargeGroupsAreRefused asks for more threads than a simdgroup has.
func TestLargeGroupsAreRefused(t *testing.T) {
	for _, name := range []string{"rope_qkv_write_f16_q8_0", "head_norm_rope_kv_write_f16_f16", "head_norm_rope_kv_write_f32_q8_0"} {
		_, constants, err := kernels.Bind(name, nil, kernels.RopeWriteParams{}, map[string]uint32{"fc_interleaved": 0})
		require.NoError(t, err)
		err = emulated.Run(emulated.Launch{Kernel: name, Grid: [3]uint32{1, 1, 1}, Group: [3]uint32{64, 1, 1},
			Constants: constants, Buffers: make([][]byte, 12)}, emulated.Options{})
		require.ErrorContains(t, err, "64,1,1 threads in a threadgroup, at most 32", name)
	}
}

// normalise applies RMSNorm.
func normalise(x []float64, gain tensor, eps float64) {
	squares := 0.0
	for _, v := range x {
		squares += v * v
	}
	s := 1 / math.Sqrt(squares/float64(len(x))+eps)
	for i := range x {
		x[i] *= s * gain.at(i)
	}
}
