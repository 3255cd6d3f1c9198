package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// plamo2Family is PLaMo 2, whose layers have Mamba-2 or attention by turns. What its state space reads is
// projected from what is convolved, and normalised.
var plamo2Family = models.Family{
	Title: "PLaMo 2",
	Name:  "plamo2", Define: plamo2,
	Fields: slices.Concat(models.Without(models.ByWidth, keyKVHeads, keyHeads), []models.Field{
		{Read: plamo2Layers, Write: lfm2HeadCounts},
		{Write: func(c *models.Config) (string, gguf.Value, bool) {
			return keyHeads, gguf.Uint32(uint32(c.Heads)), true
		}},
		models.RMSEps, models.WholeRope, models.NoWindow, models.NoExperts,
	}, models.Without(mambaFields(nil), "ssm.group_count"), []models.Field{zero("ssm.group_count"), {GGUF: "ssm.group_count", Only: 0}}),
	Given:  func(c *models.Config) { c.Mamba.Groups = 1 },
	Layer:  func(c *models.Config, i int, l *models.Layer) { l.Recurrent = c.Recurs(i) },
	Check:  checkMamba,
	Joined: []string{"attn_qkv", "ffn_up"},
	Sources: func(c *models.Config) []models.Source {
		m := &c.Mamba
		every := func(role string, first int) models.Made {
			return models.Made{Role: role, Rows: m.Inner(), Row: func(i int) int { return i/m.Head*2*m.Head + first + i%m.Head }}
		}
		return []models.Source{{Role: "ssm_in.weight", Shape: []int{2 * m.Inner(), c.Width}, Makes: []models.Made{every("ssm_z.weight", 0), every("ssm_in_x.weight", m.Head)}}}
	},
	Shapes: []models.Shape{
		{Parameters: 1_291_441_920, Config: models.Config{Name: "plamo2-1b", Layers: 16, Width: 2048, Heads: 16, KVHeads: 1, Head: 128, FFN: 8192, Vocab: 100000, Context: 10485760, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e4}, Tied: true, Taps: 4, Mamba: models.Mamba{Heads: 32, Head: 128, Groups: 1, States: 64}, Recurrent: models.AllButEvery(2, 16)}},
	},
}

// plamo2Layers reads which layers have no attention, and the heads of the others. Publishers' files have
// no heads in the former, with which llama.cpp does not rotate in the latter.
func plamo2Layers(d models.Description, c *models.Config) {
	c.Recurrent = headless(d, c)
	counts := d.Sizes(keyHeads)
	c.Heads = lo.Max(counts)
	for i, n := range counts {
		if n != c.Heads && (n != 0 || i >= len(c.Recurrent) || !c.Recurrent[i]) {
			d.Fail(models.ConfigError("%s is %d in layer %d, where others have %d", d.FullName(keyHeads), n, i, c.Heads))
		}
	}
}

// plamo2 adds two normalised terms to the residual stream x in each layer; the first is one of two:
//
//	x += norm(Wout · (ssm(u, norm(B·u), norm(C·u), Wdt·norm(D·u)) ∘ silu(Wz·n)))   u = silu(conv(Wx·n)), n = RMSNorm(x)
//	x += norm(Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n))           n = RMSNorm(x)
//	x += norm(Wdown · (silu(Wgate·n) ∘ Wup·n))                                    n = RMSNorm(x)
//
// Heads of Q and K have norms with weights of their own.
func plamo2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		norm := func(role string, x *ir.Value) *ir.Value { // whose name ends there
			return b.RMSNorm(x, b.Weight(l.Name(role), int(x.Type.Shape.Last())), c.Eps)
		}
		n := l.Norm("attn_norm", x)
		if l.Recurrent {
			x = b.Add(x, norm("post_attention_norm", projectedStateSpace(l, n, norm)))
		} else {
			x = b.Add(x, norm("post_attention_norm", models.Attention(l, n, func(role string, heads *ir.Value) *ir.Value {
				count, _ := heads.Type.Shape[1].IsConst()
				return b.GroupNorm(heads, b.Weight(l.Name(role+"_norm.weight"), int(count), l.Head), c.Eps)
			})))
		}
		return b.Add(x, norm("post_ffw_norm", models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU)))
	})
}

// projectedStateSpace is the first of the terms, before its norm.
func projectedStateSpace(l *models.LayerBuilder, n *ir.Value, norm func(role string, x *ir.Value) *ir.Value) *ir.Value {
	b, m, taps := l.Builder, &l.Config.Mamba, l.Config.Taps
	inner, rank := m.Inner(), max(64, l.Config.Width/16)
	u := b.ShortConv(l.Linear("ssm_in_x", n, inner, false), b.Weight(l.Name("ssm_conv1d.weight"), inner, taps), b.State("conv", taps-1, inner))
	u = b.SiLU(u)
	all := l.Linear("ssm_x", u, rank+2*m.States, false)
	part := func(role string, first, width int) *ir.Value { return norm(role, b.Slice(all, first, first+width)) }
	dt := l.Linear("ssm_dt", part("ssm_dt_norm", 2*m.States, rank), m.Heads, false)
	xbc := b.Concat(u, part("ssm_b_norm", 0, m.States), part("ssm_c_norm", m.States, m.States))
	decay, bias, skip := b.Weight(l.Name("ssm_a"), m.Heads), b.Weight(l.Name("ssm_dt.bias"), m.Heads), b.Weight(l.Name("ssm_d"), m.Heads)
	y := b.MergeHeads(b.Mamba2(xbc, dt, decay, bias, skip, b.State("ssm", m.Heads*m.States, m.Head), 1))
	return l.Linear("ssm_out", b.Mul(y, b.SiLU(l.Linear("ssm_z", n, inner, false))), l.Config.Width, false)
}
