package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/smelt-ml/smelt/kernels"
)

// rotation is what the rotary kernels have in common.
type rotation struct {
	head, rotated int
	interleaved   bool
	theta         float64
	freqScale     float64
	magnitude     float64
	factors       []float64 // or nil
}

func (r rotation) String() string {
	s := fmt.Sprintf("%d of %d", r.rotated, r.head)
	if r.interleaved {
		s += " interleaved"
	}
	if r.factors != nil {
		s += " factors"
	}
	return s
}

func (r rotation) constants() map[uint32]uint32 {
	c := map[uint32]uint32{0: 0, 1: 0}
	if r.interleaved {
		c[0] = 1
	}
	if r.factors != nil {
		c[1] = 1
	}
	return c
}

func (r rotation) factorTensor() tensor {
	return filled(kernels.Float, len(r.factors), func(i int) float64 { return r.factors[i] })
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
func (r rotation) bound(positions []int32, types ...kernels.Element) float64 {
	largest := int32(0)
	for _, p := range positions {
		largest = max(largest, p)
	}
	return worst(types...) + 5e-7*float64(largest)*r.freqScale
}

func rotations() []rotation {
	var out []rotation
	for _, head := range few([]int{8, 80, 96, 128}, headSizes) {
		for _, interleaved := range []bool{false, true} {
			out = append(out,
				rotation{head: head, rotated: head, interleaved: interleaved, theta: 1e4, freqScale: 1, magnitude: 1},
				rotation{head: head, rotated: head / 2, interleaved: interleaved, theta: 1e6, freqScale: 0.25, magnitude: 1.2,
					factors: stretch(head / 4)})
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
	positions := []int32{0, 1, 17, 1000, 3}
	instances(t, "rope", func(t *testing.T, name string, types []kernels.Element) {
		for _, r := range rotations() {
			t.Run(r.String(), func(t *testing.T) {
				const heads = 3
				rng := newRand(t.Name())
				stride := heads*r.head + 6
				x := random(rng, types[0], len(positions)*stride)
				l := launch{
					kernel:    name,
					constants: r.constants(),
					buffers:   map[int]tensor{0: x, 1: ints(positions), 3: result(types[0], len(positions)*heads*r.head)},
					params: kernels.RopeParams{Tokens: uint32(len(positions)), Heads: heads, Head: uint32(r.head), Rotated: uint32(r.rotated),
						XStride: uint32(stride), Log2Theta: float32(math.Log2(r.theta)), FreqScale: float32(r.freqScale), Magnitude: float32(r.magnitude)},
					grid:  [3]int{ceil(r.head, 64), heads, len(positions)},
					group: 32,
				}
				if r.factors != nil {
					l.buffers[2] = r.factorTensor()
				}
				got := l.run(t)[3].values()
				for token, position := range positions {
					want := x.values()[token*stride:][:heads*r.head]
					for h := range heads {
						r.turn(want[h*r.head:][:r.head], position)
					}
					compare(t, want, got[token*len(want):][:len(want)], r.head, r.bound([]int32{position}, types[0]))
				}
			})
		}
	})
}

func TestRopeQKVWrite(t *testing.T) { testRopeWrite(t, "rope_qkv_write") }

func TestHeadNormRopeKVWrite(t *testing.T) { testRopeWrite(t, "head_norm_rope_kv_write") }

func testRopeWrite(t *testing.T, family string) {
	norms := family == "head_norm_rope_kv_write"
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
					shape := attentionShape{s[0], s[1], r.head}
					t.Run(fmt.Sprintf("%v/%v/%v", r, shape, b), func(t *testing.T) {
						checkRopeWrite(t, name, types, r, shape, b, norms)
					})
				}
			}
		}
	})
}

func checkRopeWrite(t *testing.T, name string, types []kernels.Element, r rotation, s attentionShape, b batch, norms bool) {
	const eps = 1e-6
	rng := newRand(t.Name())
	p := b.page(rng)
	tokens := b.tokens()
	if tokens > 2 {
		p.slots[1] = -1 // writes no keys
	}
	stride := (s.heads+2*s.kvHeads)*s.head + 4
	qkv := random(rng, types[0], tokens*stride)
	cacheLen := p.blocks * s.kvHeads * p.block * s.head
	l := launch{
		kernel:    name,
		constants: r.constants(),
		buffers: map[int]tensor{0: qkv, 1: ints(p.positions), 2: ints(p.slots), 4: result(types[0], tokens*s.heads*s.head),
			5: result(types[1], cacheLen), 6: result(types[1], cacheLen)},
		params: kernels.RopeWriteParams{Tokens: uint32(tokens), Heads: uint32(s.heads), KvHeads: uint32(s.kvHeads), Head: uint32(s.head),
			Rotated: uint32(r.rotated), QStride: uint32(stride), KStride: uint32(stride), VStride: uint32(stride), Block: uint32(p.block), Log2Theta: float32(math.Log2(r.theta)),
			FreqScale: float32(r.freqScale), Magnitude: float32(r.magnitude), Eps: eps},
		grid:  [3]int{ceil(s.head, 64), s.heads, tokens},
		group: 32,
	}
	if r.factors != nil {
		l.buffers[3] = r.factorTensor()
	}
	if types[1] == kernels.Blocks {
		l.grid, l.group = [3]int{s.heads, tokens, 1}, ceil(s.head/2, 32)*32
	}
	var gains [2]tensor
	if norms {
		gains = [2]tensor{random(rng, kernels.Float, s.head), random(rng, kernels.Float, s.head)}
		l.buffers[8], l.buffers[9] = gains[0], gains[1]
		l.grid, l.group = [3]int{s.heads, tokens, 1}, ceil(s.head/2, 32)*32
	}
	results := l.run(t)
	q, kCache, vCache, rows := results[4].values(), results[5].values(), results[6].values(), qkv.values()

	bound := r.bound(p.positions, types...)
	written := make([]bool, cacheLen)
	for token := range tokens {
		row := rows[token*stride:]
		head := func(h int) []float64 { return append([]float64(nil), row[h*s.head:][:s.head]...) }
		for h := range s.heads {
			want := head(h)
			if norms {
				normalise(want, gains[0], eps)
			}
			r.turn(want, p.positions[token])
			compare(t, want, q[(token*s.heads+h)*s.head:][:s.head], s.head, r.bound(p.positions, types[0]))
		}
		slot := int(p.slots[token])
		if slot < 0 {
			continue
		}
		for h := range s.kvHeads {
			k, v := head(s.heads+h), head(s.heads+s.kvHeads+h)
			if norms {
				normalise(k, gains[1], eps)
			}
			r.turn(k, p.positions[token])
			at := p.element(slot, h, s.kvHeads, s.head, 0)
			compare(t, k, kCache[at:][:s.head], s.head, bound)
			compare(t, v, vCache[at:][:s.head], s.head, worst(types...))
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

func TestRMSNorm(t *testing.T) {
	const eps = 1e-5
	instances(t, "rms_norm", func(t *testing.T, name string, types []kernels.Element) {
		for _, width := range few([]int{5, 172, 1030}, []int{1, 4, 5, 64, 80, 172, 1024, 1030, 4099}) {
			for _, group := range few([]int{32, 256}, []int{32, 64, 96, 256}) {
				t.Run(fmt.Sprintf("%d by %d", width, group), func(t *testing.T) {
					const rows = 3
					rng := newRand(t.Name())
					stride := width + 3
					x, gain := random(rng, types[0], rows*stride), random(rng, kernels.Float, width)
					got := launch{
						kernel:  name,
						buffers: map[int]tensor{0: x, 1: gain, 2: result(types[1], rows*width)},
						params:  kernels.NormParams{Rows: rows, Width: uint32(width), XStride: uint32(stride), Eps: eps},
						grid:    [3]int{rows, 1, 1},
						group:   group,
					}.run(t)[2]
					var want []float64
					for r := range rows {
						row := x.values()[r*stride:][:width]
						normalise(row, gain, eps)
						want = append(want, row...)
					}
					compare(t, want, got.values(), width, worst(types...))
				})
			}
		}
	})
}
