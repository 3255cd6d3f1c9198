package lower

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

// costsOf returns the costs of one layer's dispatches with their kernels' families,
// those outside the layers by family, and the sum of all.
func costsOf(t *testing.T, plan *plan.Plan, phase string, sizes sym.Sizes) (layer []predict.Cost, names []string, outside map[string]predict.Cost, total predict.Cost) {
	outside = map[string]predict.Cost{}
	for i := range plan.Phases {
		ph := &plan.Phases[i]
		if ph.Name != phase || !ph.Holds(&sizes) {
			continue
		}
		for j := range ph.Dispatches {
			d := &ph.Dispatches[j]
			c := predict.CostOf(plan, d, &sizes)
			total = total.Plus(c)
			k, ok := kernels.Lookup(d.Kernel)
			require.True(t, ok, d.Kernel)
			switch d.Layer {
			case 1:
				layer, names = append(layer, c), append(names, k.Family)
			case ir.NoLayer:
				outside[k.Family] = outside[k.Family].Plus(c)
			}
		}
		return layer, names, outside, total
	}
	t.Fatalf("no phase %s", phase)
	return
}

// The expected figures are derived from the shapes alone. Activations of a token are F32; between the
// products of a prompt they are F16.
func TestCostByHand(t *testing.T) {
	t.Run("qwen3-0.6b decode", func(t *testing.T) {
		const (
			width, ffn, vocab, layers = 1024, 3072, 151936, 28
			heads, kv, head           = 16, 8, 128
			q, qkv                    = heads * head, (heads + 2*kv) * head
			context                   = 512
		)
		plan := compiled(t, "qwen3-0.6b", "f16", 1, context)
		layer, names, outside, total := costsOf(t, plan, "decode", sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: context})
		require.Equal(t, []string{"linear_vec", "attention_write", "linear_vec", "linear_vec", "linear_vec"}, names)
		want := []predict.Cost{
			{ // norm, Q K V
				Read:    4*width + 4*width + 2*qkv*width,
				Written: 4 * qkv,
				Ops:     2*qkv*width + 4*width,
			},
			{ // head norms, RoPE, cache: qkv, slot, frequencies and two norms are read; attention:
				// K and V but its own, position, two ends, length, block. Every query head
				// rotates itself and its key
				Read:    4*qkv + 4 + 4*head/2 + 2*4*head + 2*2*(context-1)*kv*head + 4 + 2*4 + 4 + 4,
				Written: 4*q + 2*2*kv*head,
				Reread:  (heads/kv - 1) * 2 * 2 * (context - 1) * kv * head,
				Ops:     heads*context*(4*head+5) + 2*(3+4+40)*heads*head,
			},
			{ // output projection and residual
				Read:    4*q + 2*width*q + 4*width,
				Written: 4 * width,
				Ops:     2*width*q + width,
			},
			{ // norm, gate and up, silu·mul
				Read:    4*width + 4*width + 2*2*ffn*width,
				Written: 4 * ffn,
				Ops:     2*2*ffn*width + 5*ffn + 4*width,
			},
			{ // down and residual
				Read:    4*ffn + 2*width*ffn + 4*width,
				Written: 4 * width,
				Ops:     2*width*ffn + width,
			},
		}
		require.Equal(t, want, layer)
		require.Equal(t, int64(4+2*width), outside["embed"].Read, "one row of the table")
		require.Equal(t, int64(4*width), outside["embed"].Written)

		require.Equal(t, predict.Cost{ // final norm and head: logits are float
			Read:    4*width + 4*width + 2*vocab*width + 4, // and which row
			Written: 4 * vocab,
			Ops:     2*vocab*width + 4*width,
		}, outside["linear_vec"])

		sum := predict.Cost{}
		for _, c := range outside {
			sum = sum.Plus(c)
		}
		for range layers {
			for _, c := range want {
				sum = sum.Plus(c)
			}
		}
		require.Equal(t, sum, total)
		// All matrices once, of the 596,049,920 weights that the file has, and 58.7 MB
		// of cache.
		const matrices, cache = layers*(qkv*width+width*q+3*ffn*width) + vocab*width, layers * 2 * 2 * context * kv * head
		require.Equal(t, 595984384, matrices)
		require.Equal(t, 58720256, cache)
		require.InEpsilon(t, 2*matrices+cache, total.Read, 0.002)
	})

	t.Run("llama3.1-8b decode", func(t *testing.T) {
		const (
			width, ffn, vocab, layers = 4096, 14336, 128256, 32
			heads, kv, head           = 32, 8, 128
			context                   = 512
		)
		plan := compiled(t, "llama3.1-8b", "q4_0", 1, context)
		layer, names, outside, total := costsOf(t, plan, "decode", sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: context})
		require.Equal(t, []string{"linear_vec", "attention_write", "linear_vec", "linear_vec", "linear_vec"}, names)
		q4 := func(n int) int64 { return int64(n / 32 * 18) }
		qkv := (heads + 2*kv) * head
		require.Equal(t, predict.Cost{
			Read:    4*width + 4*width + q4(qkv*width),
			Written: int64(4 * qkv),
			Ops:     int64(2*qkv*width + 4*width),
			Shifts:  int64(4 * qkv * width),
		}, layer[0])
		require.Equal(t, predict.Cost{
			Read:    int64(4*qkv + 4 + 4*head/2 + 2*2*(context-1)*kv*head + 20), // the factors of the frequencies among it
			Written: 4*heads*head + 2*2*kv*head,
			Reread:  (heads/kv - 1) * 2 * 2 * (context - 1) * kv * head,
			Ops:     heads*context*(4*head+5) + 2*(3+40)*heads*head,
		}, layer[1])
		require.Equal(t, 4*width+4*width+2*q4(ffn*width), layer[3].Read)
		require.Equal(t, int64(2*2*ffn*width+5*ffn+4*width), layer[3].Ops)

		plan = compiled(t, "llama3.1-8b", "q4_0", 1, context, "attention_write")
		layer, names, _, _ = costsOf(t, plan, "decode", sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: context})
		require.Equal(t, []string{"linear_vec", "rope_qkv_write", "attention_vec", "linear_vec", "linear_vec", "linear_vec"}, names)
		require.Equal(t, predict.Cost{
			Read:    int64(4*qkv + 4 + 4 + 4*head/2),
			Written: 4*heads*head + 2*2*kv*head,
			Ops:     3 * (heads + kv) * head,
		}, layer[1])
		require.Equal(t, predict.Cost{
			Read:    4*heads*head + 2*2*context*kv*head + 20,
			Written: 4 * heads * head,
			Reread:  (heads/kv - 1) * 2 * 2 * context * kv * head,
			Ops:     heads * context * (4*head + 5),
		}, layer[2])
		// 3.93 GB of Q4_0 in the layers, 431 MB of Q6_K in the head, 67 MB of cache.
		body := layers * q4(qkv*width+width*width+3*ffn*width)
		require.Equal(t, int64(3925868544), body)
		require.Equal(t, int64(vocab*width/256*210+4*width+4*width+4), outside["linear_vec"].Read)
		require.InEpsilon(t, body+outside["linear_vec"].Read+layers*2*2*context*kv*head, total.Read, 0.002)
	})

	t.Run("attention in prefill", func(t *testing.T) {
		plan := compiled(t, "llama3.1-8b", "f16", 1, 4096)
		// 100 tokens behind 900 others: the first sees 901 keys, the last 1000.
		layer, names, _, _ := costsOf(t, plan, "prefill", sym.Sizes{sym.T: 100, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 1000})
		require.Contains(t, names, "attention_tile")
		for i, name := range names {
			if name == "attention_tile" {
				require.Equal(t, int64(32*(901+1000)*50*(4*128+5)), layer[i].Ops)
				require.Equal(t, int64(2*100*32*128+2*2*1000*8*128+4*(100+2+1+1)), layer[i].Read)
			}
		}
	})
}

// Memory that two arguments read counts once; memory that is read and overwritten counts as read
// and as written.
func TestCostOfSharedArguments(t *testing.T) {
	p := &plan.Plan{Buffers: []plan.Buffer{{Kind: plan.Arena}}}
	k, ok := kernels.Lookup("mul_f32")
	require.True(t, ok)
	bind := func(name string, offset int64, write bool) plan.Binding {
		a, ok := k.Named(name)
		require.True(t, ok, name)
		return plan.Binding{Index: uint32(a.Index), Offset: offset, Bytes: plan.Number(64), Write: write, Read: !write}
	}
	d := &plan.Dispatch{Kernel: k.Name, Params: make([]plan.Expr, k.ParamWords)}
	for name, n := range map[string]int64{"rows": 1, "width": 16} {
		i, ok := k.Param(name)
		require.True(t, ok, name)
		d.Params[i] = plan.Number(n)
	}
	for _, c := range []struct {
		bindings []plan.Binding
		want     predict.Cost
	}{
		{[]plan.Binding{bind("a", 0, false), bind("b", 64, false), bind("out", 128, true)}, predict.Cost{Read: 128, Written: 64, Ops: 16}},
		{[]plan.Binding{bind("a", 0, false), bind("b", 0, false), bind("out", 128, true)}, predict.Cost{Read: 64, Written: 64, Ops: 16}},
		{[]plan.Binding{bind("a", 0, false), bind("b", 64, false), bind("out", 0, true)}, predict.Cost{Read: 128, Written: 64, Ops: 16}},
	} {
		d.Bindings = c.bindings
		require.Equal(t, c.want, predict.CostOf(p, d, &sym.Sizes{}))
	}
}

// A product of few tokens decodes every weight that it reads once, at its type's cycles of the pipe
// for shifts and conversions.
func TestShiftsOfWeights(t *testing.T) {
	plan := compiledFor(t, "metal", "qwen3-0.6b", "q4_k_m", 1, 512)
	kinds := map[dtype.Type]bool{}
	for i := range plan.Phases {
		ph := &plan.Phases[i]
		for j := range ph.Dispatches {
			d := &ph.Dispatches[j]
			want, few := int64(0), strings.HasPrefix(d.Kernel, linearVec)
			for k := range d.Bindings {
				b := &plan.Buffers[d.Bindings[k].Buffer]
				if few && d.TypeOf(&d.Bindings[k]) != nil {
					kinds[b.DType] = true
					n, _ := b.Bytes.IsConst()
					want += kernels.ShiftCycles(uint32(b.DType), n/int64(b.DType.BlockBytes())*int64(b.DType.BlockElems()))
				}
			}
			require.Equal(t, want, predict.CostOf(plan, d, &ph.Bounds).Shifts, d.Label())
			require.Equal(t, few, want > 0, d.Label())
		}
	}
	require.Equal(t, map[dtype.Type]bool{dtype.Q4_K: true, dtype.Q6_K: true}, kinds)
}
