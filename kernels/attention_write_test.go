package kernels_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// writeCall is a step of attention_write: projected tokens, and caches in which the slots
// that the step writes hold NaN.
type writeCall struct {
	attentionShape
	paging
	features
	rotation
	norms     bool
	values    bool // with norms: of V too
	types     []kernels.Element
	qkv       tensor
	qkvStride int // elements between its rows
	k, v      tensor
	gains     [2]tensor
}

func newWriteCall(t *testing.T, s attentionShape, b batch, r rotation, types []kernels.Element, norms bool) writeCall {
	rng := newRand(t.Name())
	stride := (s.heads+2*s.kvHeads)*s.head + 3*(s.heads%2) + 8*(s.heads/2%2) // other columns follow some
	c := writeCall{attentionShape: s, paging: b.page(rng), rotation: r, norms: norms, types: types, qkvStride: stride,
		qkv:   random(rng, types[0], b.tokens()*stride),
		gains: [2]tensor{random(rng, kernels.Float, s.head), random(rng, kernels.Float, s.head)}}
	for _, cache := range []*tensor{&c.k, &c.v} {
		*cache = c.cache(rng, types[1], s.kvHeads, s.head)
		for _, slot := range c.slots {
			for h := range s.kvHeads {
				for d := range s.head {
					cache.put(c.element(int(slot), h, s.kvHeads, s.head, d), math.NaN())
				}
			}
		}
	}
	return c
}

func (c writeCall) suffix() string {
	return map[kernels.Element]string{kernels.Float: "f32", kernels.Half: "f16", kernels.Bfloat: "bf16"}[c.types[0]] + "_" +
		map[kernels.Element]string{kernels.Float: "f32", kernels.Half: "f16", kernels.Bfloat: "bf16", kernels.Blocks: "q8_0"}[c.types[1]]
}

// launch returns the step as one dispatch.
func (c writeCall) launch() launch {
	name := "attention_write_" + c.suffix()
	block, kvHead, slot := c.strides(c.kvHeads, c.attentionShape.head)
	l := launch{
		kernel:    name,
		constants: c.constants(name),
		buffers: map[string]tensor{
			"qkv": c.qkv, "k_cache": c.k, "v_cache": c.v, "positions": ints(c.positions), "cu_seqlens": ints(c.cu), "context_lens": ints(c.contextLens),
			"block_table": ints(c.paging.table), "slots": ints(c.slots), "out": result(c.types[0], c.tokens()*c.heads*c.attentionShape.head),
			"k_slots": result(c.types[1], c.k.length), "v_slots": result(c.types[1], c.v.length),
		},
		params: kernels.AttentionParams{Tokens: uint32(c.tokens()), Heads: uint32(c.heads), Head: uint32(c.attentionShape.head)},
		grid:   [3]int{c.heads, c.tokens(), 1},
		group:  256,
	}
	c.ask(&l)
	asked := l.params.(kernels.AttentionParams)
	l.params = kernels.AttentionWriteParams{
		Tokens: uint32(c.tokens()), Seqs: uint32(len(c.lens)), Heads: uint32(c.heads), KvHeads: uint32(c.kvHeads),
		Head: uint32(c.attentionShape.head), Block: uint32(c.block), TableStride: uint32(c.stride),
		BlockStride: uint32(block), HeadStride: uint32(kvHead), RowStride: uint32(slot),
		Scale: scaleOf(c.attentionShape), Window: asked.Window, SoftCap: asked.SoftCap, GateStride: asked.GateStride, GateFrom: asked.GateFrom, QkvStride: uint32(c.qkvStride), Rotated: uint32(c.rotated),
		FreqScale: float32(c.freqScale), Magnitude: float32(c.magnitude), Eps: writeEps, Log2Theta: c.bind(&l),
	}
	if c.norms {
		l.constants["fc_norms"] = 1
		l.buffers["q_norm"], l.buffers["k_norm"] = c.gains[0], c.gains[1]
	}
	if c.values {
		l.constants["fc_norm_values"] = 1
	}
	return l
}

const writeEps = 1e-6

// apart runs the step as separate dispatches, and returns attention's result and the caches.
// A partition of 0 keys is the whole context.
func (c writeCall) apart(t *testing.T, partition int) (out, k, v tensor) {
	t.Helper()
	family, tokens, head := "rope_qkv_write_", c.tokens(), c.attentionShape.head
	if c.norms {
		family = "head_norm_rope_kv_write_"
	}
	name := family + c.suffix()
	stride := uint32(c.qkvStride)
	write := launch{
		kernel:    name,
		constants: c.constants(name),
		buffers: map[string]tensor{"qkv": c.qkv, "positions": ints(c.positions), "slots": ints(c.slots), "q_out": result(c.types[0], tokens*c.heads*head),
			"k_cache": result(c.types[1], c.k.length), "v_cache": result(c.types[1], c.v.length)},
		grid:  [3]int{ceil(c.heads+2*c.kvHeads, kernels.RopeWriteRows(head)), tokens, 1},
		group: 32,
	}
	write.params = kernels.RopeWriteParams{Tokens: uint32(tokens), Heads: uint32(c.heads), KvHeads: uint32(c.kvHeads), Head: uint32(head),
		Rotated: uint32(c.rotated), QStride: stride, KStride: stride, VStride: stride, Block: uint32(c.block),
		FreqScale: float32(c.freqScale), Magnitude: float32(c.magnitude), Eps: writeEps, Log2Theta: c.bind(&write)}
	if c.norms {
		write.buffers["q_norm"], write.buffers["k_norm"] = c.gains[0], c.gains[1]
	}
	if c.values {
		write.constants["fc_norm_values"] = 1
	}
	written := write.run(t)
	k, v = written["k_cache"], written["v_cache"]

	full := attentionCall{attentionShape: c.attentionShape, paging: c.paging, features: c.features, q: written["q_out"]}
	full.k, full.v = c.filled(k, v)
	attention := "attention_vec_" + c.suffix()
	if partition == 0 {
		return full.run(t, attention, nil), k, v
	}
	return full.runInParts(t, attention, partition, nil), k, v
}

// filled returns the caches with the slots that a step has written to k and v.
func (c writeCall) filled(k, v tensor) (keys, values tensor) {
	keys, values = c.k.clone(), c.v.clone()
	head := c.attentionShape.head
	for i, slot := range c.slots {
		if slot < 0 {
			slot = int32(c.slot(i, int(c.positions[i]))) // where attention looks for the key
		}
		for h := range c.kvHeads {
			from, to := sizeOf(c.types[1], c.element(int(slot), h, c.kvHeads, head, 0)), sizeOf(c.types[1], c.element(int(slot), h, c.kvHeads, head, 0)+head)
			copy(keys.bytes[from:to], k.bytes[from:to])
			copy(values.bytes[from:to], v.bytes[from:to])
		}
	}
	return keys, values
}

// inParts runs the step with split-KV in partitions of `partition` keys, merged by
// attention_reduce, with `heads` query heads per threadgroup.
func (c writeCall) inParts(t *testing.T, partition, heads int) (out, k, v tensor) {
	t.Helper()
	head, partitions := c.attentionShape.head, slices.Max(c.contexts)/partition+2
	rows := c.tokens() * c.heads * partitions
	l := c.inHeads(c.launch(), heads)
	sinks, hasSinks := l.buffers["sinks"]
	delete(l.buffers, "out")
	l.constants["fc_split"] = uint32(partition)
	l.buffers["part"], l.buffers["statistics"] = result(kernels.Float, rows*head), result(kernels.Float, rows*2)
	l.grid[2] = partitions
	reduce := launch{
		kernel:    "attention_reduce_" + suffixOf[c.types[0]],
		buffers:   map[string]tensor{"out": result(c.types[0], c.tokens()*c.heads*head)},
		params:    kernels.ReduceParams{Tokens: uint32(c.tokens()), Heads: uint32(c.heads), Head: uint32(head), Partitions: uint32(partitions)},
		grid:      [3]int{c.heads, c.tokens(), 1},
		group:     ceil(head/4, 32) * 32,
		constants: map[string]uint32{},
	}
	moveGate(&l, &reduce)
	parts := l.run(t)
	reduce.buffers["part"], reduce.buffers["statistics"] = parts["part"], parts["statistics"]
	if hasSinks {
		reduce.buffers["sinks"], reduce.constants["fc_sinks"] = sinks, 1
	}
	return reduce.run(t)["out"], parts["k_slots"], parts["v_slots"]
}

// decodes has steps of one token per sequence: new contexts, contexts that end at the start and
// at the end of a block, and contexts of several iterations of the simdgroups.
var decodes = []batch{
	{lens: []int{1, 1, 1}, contexts: []int{37, 1, 300}, block: 16},
	{lens: []int{1}, contexts: []int{8}, block: 7},
	{lens: []int{1, 0, 1, 1, 1, 1, 1, 1, 1}, contexts: []int{64, 9, 2, 33, 257, 5, 16, 17, 40}, block: 8},
	{lens: []int{1, 1}, contexts: []int{290, 31}, block: 512},
}

type writeCase struct {
	attentionShape
	rotation
	features
	norms, values bool
}

// writeCases covers head shapes, RoPE variants and features, each in at least one case.
func writeCases() []writeCase {
	plain := func(head int) rotation {
		return rotation{head: head, rotated: head, theta: 1e4, freqScale: 1, magnitude: 1}
	}
	turned := func(head int, f func(r *rotation)) rotation {
		r := plain(head)
		f(&r)
		return r
	}
	return []writeCase{
		{attentionShape{4, 2, 64}, plain(64), features{}, true, false},
		{attentionShape{3, 1, 128}, turned(128, func(r *rotation) { r.interleaved, r.table = true, true }), features{}, false, false},
		{attentionShape{2, 2, 256}, turned(256, func(r *rotation) { r.rotated, r.table = 64, true }), features{window: 33}, true, false},
		{attentionShape{8, 1, 32}, turned(32, func(r *rotation) { r.factors, r.freqScale, r.magnitude = inTurn(16, 1, 2.5, 8), 0.5, 1.25 }), features{sinks: inTurn(8, 0, 2, -5)}, false, false},
		{attentionShape{4, 2, 160}, turned(160, func(r *rotation) { r.interleaved, r.rotated = true, 96 }), features{softCap: 3, slopes: inTurn(4, 0.25, 0)}, true, false},
		{attentionShape{2, 1, 40}, turned(40, func(r *rotation) { r.rotated = 10 }), features{window: 1}, true, false},
		{attentionShape{14, 2, 64}, plain(64), features{slopes: inTurn(14, 0.25, 0, 1), sinks: inTurn(14, 1, -2)}, true, false},
		{attentionShape{6, 2, 64}, plain(64), features{gate: ir.Sigmoid, window: 33}, true, false},
		{attentionShape{4, 1, 128}, plain(128), features{gate: ir.Softplus, byHead: true}, false, false},
		{attentionShape{4, 2, 64}, plain(64), features{}, true, true},
		{attentionShape{2, 1, 512}, turned(512, func(r *rotation) { r.rotated = 128 }), features{window: 33}, true, true},
	}
}

func (w writeCase) call(t *testing.T, b batch, types []kernels.Element) writeCall {
	c := newWriteCall(t, w.attentionShape, b, w.rotation, types, w.norms)
	c.features, c.values = w.features, w.values
	return c
}

// eachWrite runs a test for every instance on the cases, each with one of the steps.
func eachWrite(t *testing.T, f func(t *testing.T, c writeCall)) {
	instances(t, "attention_write", func(t *testing.T, name string, types []kernels.Element) {
		for i, w := range writeCases() {
			for j, b := range decodes {
				if headFor(types, w.attentionShape.head) != w.attentionShape.head || !everything() && (i+len(name))%len(decodes) != j {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/%v/%v/%t/%t", w.attentionShape, b, w.rotation, w.features, w.norms, w.values), func(t *testing.T) { f(t, w.call(t, b, types)) })
			}
		}
	})
}

// One dispatch has the bits of separate write and attention dispatches, in the result and in
// the cache, and never reads the slots that it writes, which hold NaN.
func TestAttentionWrite(t *testing.T) {
	eachWrite(t, func(t *testing.T, c writeCall) {
		want, k, v := c.apart(t, 0)
		for _, constants := range []map[string]uint32{nil, {"fc_head": uint32(c.attentionShape.head)}} {
			l := c.launch()
			maps.Copy(l.constants, constants)
			got := l.run(t)
			agree(t, want, got["out"])
			agree(t, k, got["k_slots"])
			agree(t, v, got["v_slots"])
			for i := range want.length {
				require.False(t, math.IsNaN(want.at(i)))
			}
		}
	})
}

// Over a cache that has the token's key and value, queries alone give the same bits.
func TestAttentionWriteQueries(t *testing.T) {
	eachWrite(t, func(t *testing.T, c writeCall) {
		want, k, v := c.apart(t, 0)
		l := c.launch()
		l.constants["fc_queries"] = 1
		l.buffers["k_cache"], l.buffers["v_cache"] = c.filled(k, v)
		for _, name := range []string{"slots", "k_slots", "v_slots", "k_norm"} {
			delete(l.buffers, name)
		}
		agree(t, want, l.run(t)["out"])
	})
}

// With split-KV only the partition with a token's key writes it.
func TestAttentionWriteSplit(t *testing.T) {
	eachWrite(t, func(t *testing.T, c writeCall) {
		for _, partition := range []int{64, 8} {
			want, k, v := c.apart(t, partition)
			out, kSlots, vSlots := c.inParts(t, partition, 1)
			agree(t, want, out)
			agree(t, k, kSlots)
			agree(t, v, vSlots)
		}
	})
}

// Query heads that share a threadgroup, which computes their key and value once, have the bits
// of each head alone, in the result and in the cache.
func TestAttentionWriteHeads(t *testing.T) {
	eachWrite(t, func(t *testing.T, c writeCall) {
		want := c.launch().run(t)
		const partition = 24
		parts, k, v := c.inParts(t, partition, 1)
		for heads := 2; heads <= kernels.MaxHeads && heads*c.attentionShape.head <= kernels.MaxQueries && heads < 2*c.heads/c.kvHeads; heads *= 2 {
			got := c.inHeads(c.launch(), heads).run(t)
			for _, name := range []string{"out", "k_slots", "v_slots"} {
				agree(t, want[name], got[name], "%d heads: %s", heads, name)
			}
			out, kSlots, vSlots := c.inParts(t, partition, heads)
			agree(t, parts, out, "%d heads", heads)
			agree(t, k, kSlots)
			agree(t, v, vSlots)
		}
	})
}

// Tokens without a slot are not written; tokens past their context, which do not see their own
// key, are.
func TestAttentionWriteEdges(t *testing.T) {
	instances(t, "attention_write", func(t *testing.T, name string, types []kernels.Element) {
		c := writeCases()[0].call(t, batch{lens: []int{1, 1, 1}, contexts: []int{40, 21, 3}, block: 16}, types)
		c.contextLens = []int32{40, 20, 0}
		want, k, v := c.apart(t, 0)
		got := c.launch().run(t)
		agree(t, want, got["out"])
		agree(t, k, got["k_slots"])
		agree(t, v, got["v_slots"])
		out, k2, v2 := c.inParts(t, 8, 1)
		compare(t, want.values(), out.values(), want.length, worst(types[0]))
		agree(t, k, k2)
		agree(t, v, v2)

		c.slots = slices.Clone(c.slots)
		c.slots[0] = -1
		got = c.launch().run(t)
		agree(t, want, got["out"])
		row := sizeOf(types[1], c.attentionShape.head)
		at := sizeOf(types[1], c.element(c.slot(0, 39), 0, c.kvHeads, c.attentionShape.head, 0))
		require.Equal(t, slices.Repeat([]byte{0xff}, row), got["k_slots"].bytes[at:][:row])
		require.Equal(t, slices.Repeat([]byte{0xff}, row), got["v_slots"].bytes[at:][:row])
	})
}

// A cache with slots outermost is read and written by its strides.
func TestAttentionWriteStrides(t *testing.T) {
	instances(t, "attention_write", func(t *testing.T, name string, types []kernels.Element) {
		c := writeCases()[0].call(t, decodes[0], types)
		want := c.launch().run(t)
		turned := c
		turned.bySlot = true
		head := c.attentionShape.head
		move := func(from, to tensor, of, as writeCall) {
			for slot := range c.blocks * c.block {
				for h := range c.kvHeads {
					a := sizeOf(types[1], of.element(slot, h, c.kvHeads, head, 0))
					b := sizeOf(types[1], as.element(slot, h, c.kvHeads, head, 0))
					copy(to.bytes[b:][:sizeOf(types[1], head)], from.bytes[a:])
				}
			}
		}
		turned.k, turned.v = c.k.clone(), c.v.clone()
		move(c.k, turned.k, c, turned)
		move(c.v, turned.v, c, turned)
		got := turned.launch().run(t)
		agree(t, want["out"], got["out"])
		for _, name := range []string{"k_slots", "v_slots"} {
			back := want[name].clone()
			move(got[name], back, turned, c)
			agree(t, want[name], back)
		}
	})
}
