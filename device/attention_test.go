//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/passes"
)

// attention is a layer of attention to build: every way in which models differ.
type attention struct {
	window  int
	softCap float64
	sinks   bool
	slopes  bool
}

const (
	attentionHeads, attentionKV, attentionHead = 4, 2, 16
	attentionVocab, attentionBlock             = 19, 8
)

func (a attention) String() string {
	return fmt.Sprintf("window %d cap %g sinks %v slopes %v", a.window, a.softCap, a.sinks, a.slopes)
}

func (a attention) define(b *ir.Builder) {
	const width = attentionHeads * attentionHead
	turn := func(x *ir.Value) *ir.Value { return b.Transpose(x, [3]int{1, 0, 2}) }
	b.Layer(0, func() {
		x := b.Embed(b.Input(sym.Tokens), b.Weight("embd", attentionVocab, width))
		project := func(name string, heads int) *ir.Value {
			return b.SplitHeads(b.Linear(x, b.Weight(name, heads*attentionHead, width)), heads)
		}
		q, k, v := project("q", attentionHeads), project("k", attentionKV), project("v", attentionKV)
		keys, values := b.CacheRead(b.CacheWrite(b.Cache(attentionKV, attentionHead), k, v))
		const repeats = attentionHeads / attentionKV
		scores := b.Scale(b.MatmulT(turn(q), turn(b.RepeatKV(keys, repeats))), 0.25)
		if a.softCap != 0 {
			scores = b.SoftCap(scores, a.softCap)
		}
		if a.slopes {
			scores = b.MaskSlopes(scores, b.Weight("slopes", attentionHeads), a.window)
		} else {
			scores = b.MaskWindow(scores, a.window)
		}
		if a.sinks {
			scores = b.SoftmaxSinks(scores, b.Weight("sinks", attentionHeads))
		} else {
			scores = b.Softmax(scores)
		}
		mixed := b.MergeHeads(turn(b.Matmul(scores, turn(b.RepeatKV(values, repeats)))))
		b.Return("out", b.Linear(mixed, b.Weight("o", width, width)))
	})
}

type floatWeights struct{}

func (floatWeights) Weight(_ string, want []int) (dtype.Type, []int, bool) {
	return dtype.F32, want, true
}

// attentionWeight gives every name its own elements.
func attentionWeight(name string) []float32 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	const width, kv = attentionHeads * attentionHead, attentionKV * attentionHead
	sizes := map[string]int{"embd": attentionVocab * width, "q": width * width, "k": kv * width, "v": kv * width,
		"o": width * width, "sinks": attentionHeads, "slopes": attentionHeads}
	data := make([]float32, sizes[name])
	for i := range data {
		data[i] = float32(r.NormFloat64()) / 4
	}
	return data
}

// TestAttentionAgainstReference runs attention with windows, soft caps, sinks and slopes from
// Plans, fused and as a paper writes it, for prompts and single tokens, whole and in
// partitions of the keys, and compares it with the reference.
func TestAttentionAgainstReference(t *testing.T) {
	tests := []attention{{}, {window: 5}, {softCap: 0.5}, {sinks: true}, {window: 7, softCap: 0.4, sinks: true}, {window: 1},
		{slopes: true}, {window: 9, softCap: 0.4, sinks: true, slopes: true}}
	if testing.Short() {
		tests = tests[len(tests)-1:]
	}
	for _, a := range tests {
		for _, level := range []int{0, 1} {
			for _, on := range []struct {
				device, target string
				bound          float64
			}{{"emu", "metal", 4e-3}, {"cpu", "cpu", 1e-5}} {
				t.Run(fmt.Sprintf("%s/O%d/%s", a, level, on.device), func(t *testing.T) {
					checkAttention(t, a, level, on.device, on.target, on.bound)
				})
			}
		}
	}
}

func checkAttention(t *testing.T, a attention, level int, on, target string, bound float64) {
	const context = 64
	source, err := ir.Build("attention", floatWeights{}, ir.Options{KV: dtype.F32, Block: attentionBlock}, a.define)
	require.NoError(t, err)
	phases := []lower.Range{
		{Name: "prefill", MinT: 2, MaxT: 40, MaxContext: context},
		{Name: "decode", MinT: 1, MaxT: 1, MaxContext: context / 2},
		{Name: "decode", MinT: 1, MaxT: 1, MaxContext: context},
	}
	tgt, err := lower.NewTarget(target)
	require.NoError(t, err)
	if tgt.SplitContext > 0 {
		tgt.SplitContext = context / 2
	}
	for i := range phases {
		ph := &phases[i]
		ph.Func = source.Clone()
		_, err = passes.Compile(ph.Func, &tgt.Target, ir.StepsOf(ph.MaxT), passes.Options{Level: level})
		require.NoError(t, err)
		require.Equal(t, level, ph.Func.OpCounts()[ir.OpAttention])
	}
	plan, err := lower.Lower("attention", phases, tgt, lower.Options{Context: context})
	require.NoError(t, err)

	d, err := device.Open(on, device.Options{Threads: 2, Poison: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	executable, err := d.Load(plan, func(name string) ([]byte, dtype.Type, error) {
		var raw []byte
		for _, x := range attentionWeight(name) {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		return raw, dtype.F32, nil
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, executable.Close()) }()
	const blocks = 8
	instance, err := executable.NewInstance(blocks)
	require.NoError(t, err)
	defer func() { require.NoError(t, instance.Close()) }()

	caches := ref.CachesFor(source, blocks)
	table := []int32{5, 2, 7, 0, 3, 1, 6, 4}
	ran := map[string]bool{}
	step := func(phase, most int, sequence batch.Piece) {
		sequence.Rows = batch.All
		in := batch.Pack(attentionBlock, context, sequence).Inputs
		sizes := ref.SizesFor(in, most)
		want, err := ref.Run(source, ref.Env{Sizes: sizes, Inputs: in, Caches: caches, Weight: func(name string) ([]float64, error) {
			var wide []float64
			for _, x := range attentionWeight(name) {
				wide = append(wide, float64(x))
			}
			return wide, nil
		}})
		require.NoError(t, err)
		got := make([]float32, len(want.Tensors["out"].Data))
		require.NoError(t, instance.Run(t.Context(), &device.Step{Phase: phase, Sizes: sizes, Inputs: in, Outputs: map[string][]float32{"out": got}}))
		for _, k := range instance.Counters().Kernels {
			ran[k.Kernel] = true
		}
		for i, x := range want.Tensors["out"].Data {
			require.InDelta(t, x, float64(got[i]), bound, "element %d of phase %d", i, phase)
		}
	}
	words := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(i*i+3*i) % attentionVocab
		}
		return ids
	}
	first, second := append(table[:2:2], table[3]), table[2:3]
	step(0, context, batch.Piece{Tokens: words(12), Blocks: first})
	step(0, context, batch.Piece{Tokens: words(5), Blocks: second})
	step(0, context, batch.Piece{Tokens: words(9), Start: 12, Blocks: first})
	step(1, context/2, batch.Piece{Tokens: words(1), Start: 21, Blocks: first})
	step(2, context, batch.Piece{Tokens: words(1), Start: 22, Blocks: first})
	step(1, context/2, batch.Piece{Tokens: words(1), Start: 5, Blocks: second})
	if level == 1 && target == "metal" {
		require.True(t, ran["attention_tile_f16_f32"] && ran["attention_vec_f32_f32"] && ran["attention_reduce_f32"], "%v", ran)
	}
}
