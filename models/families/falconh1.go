package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// falconH1Family is Falcon-H1, in whose layers attention and Mamba-2 stand side by side. Its folders have
// multipliers, which GGUF files have in the weights.
var falconH1Family = models.Family{
	Title: "Falcon-H1",
	Name:  "falcon-h1", HF: "FalconH1ForCausalLM", Define: falconH1,
	Fields: slices.Concat(models.ByWidth, hybridMamba, []models.Field{
		models.RMSEps, models.WholeRope, models.NoWindow, models.NoExperts, models.Activation("silu"),
		{HF: "mamba_d_ssm", Repeats: func(c *models.Config) int { return c.Mamba.Inner() }},
		{HF: "attention_bias", Only: false}, {HF: "mlp_bias", Only: false}, {HF: "mamba_proj_bias", Only: false}, {HF: "projectors_bias", Only: false},
		{GGUFTensor: "blk.0.ssm_norm.weight", HF: "mamba_rms_norm", Flag: func(c *models.Config) *bool { return &c.GateNorm }},
		{Read: falconFolder}}),
	Check: checkMamba,
	Tensors: lo.MapValues(models.DecoderTensors(lo.Assign(mambaTensors("model.layers.#.mamba."), map[string]models.Stored{
		"output_norm.weight":    models.As("model.final_layernorm.weight"),
		"blk.#.ffn_norm":        models.As("model.layers.#.pre_ff_layernorm.weight"),
		"blk.#.ffn_gate.weight": models.As("model.layers.#.feed_forward.gate_proj.weight"),
		"blk.#.ffn_up.weight":   models.As("model.layers.#.feed_forward.up_proj.weight"),
		"blk.#.ffn_down.weight": models.As("model.layers.#.feed_forward.down_proj.weight"),
		"output.weight":         {Names: []string{"lm_head.weight"}, Or: new(models.As("model.embed_tokens.weight"))},
	}), "blk.#.ffn_norm.weight"), falconStored),
	Shapes: []models.Shape{
		{Parameters: 521_411_104, Config: models.Config{Name: "falcon-h1-0.5b", Layers: 36, Width: 1024, Heads: 8, KVHeads: 2, Head: 64, FFN: 2048, Vocab: 32784, Context: 16384, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e11}, Taps: 4, Mamba: models.Mamba{Heads: 24, Head: 64, Groups: 1, States: 128}}},
	},
}

// falconFolder reads the multipliers of a folder. A tied model has two tables, with one each.
func falconFolder(d models.Description, c *models.Config) {
	if d.Format() != models.Folder {
		return
	}
	if c.GateNorm && (!d.Has("mamba_norm_before_gate") || d.Flag("mamba_norm_before_gate")) {
		d.Fail(models.ConfigError("mamba_norm_before_gate is true, where the norm comes behind the gate"))
	}
	one := func(key string) float64 { return d.Number(key, 1) }
	list := func(key string, n int) []float64 {
		by := d.Numbers(key)
		if by == nil {
			by = slices.Repeat([]float64{1}, n)
		}
		if len(by) != n {
			d.Fail(models.ConfigError("%s are %v, not %d numbers", key, by, n))
			return make([]float64, n)
		}
		return by
	}
	network := list("mlp_multipliers", 2)
	c.Multipliers = models.Multipliers{
		Embedding: one("embedding_multiplier"), Head: one("lm_head_multiplier"), AttentionIn: one("attention_in_multiplier"), AttentionOut: one("attention_out_multiplier"), K: one("key_multiplier"),
		MambaIn: one("ssm_in_multiplier"), MambaOut: one("ssm_out_multiplier"), Gate: network[0], Down: network[1], Parts: [5]float64(list("ssm_multipliers", 5)),
	}
}

// falconTimes is what the weights of a folder are multiplied by.
var falconTimes = map[string]func(c *models.Config, row int) float64{
	"token_embd.weight":        func(c *models.Config, _ int) float64 { return c.Multipliers.Embedding },
	"output.weight":            func(c *models.Config, _ int) float64 { return c.Multipliers.Head },
	"blk.#.attn_q.weight":      func(c *models.Config, _ int) float64 { return c.Multipliers.AttentionIn },
	"blk.#.attn_k.weight":      func(c *models.Config, _ int) float64 { return c.Multipliers.AttentionIn * c.Multipliers.K },
	"blk.#.attn_v.weight":      func(c *models.Config, _ int) float64 { return c.Multipliers.AttentionIn },
	"blk.#.attn_output.weight": func(c *models.Config, _ int) float64 { return c.Multipliers.AttentionOut },
	"blk.#.ffn_gate.weight":    func(c *models.Config, _ int) float64 { return c.Multipliers.Gate },
	"blk.#.ffn_down.weight":    func(c *models.Config, _ int) float64 { return c.Multipliers.Down },
	"blk.#.ssm_out.weight":     func(c *models.Config, _ int) float64 { return c.Multipliers.MambaOut },
	"blk.#.ssm_in.weight": func(c *models.Config, row int) float64 {
		m := &c.Mamba
		ends := [...]int{m.Inner(), 2 * m.Inner(), 2*m.Inner() + m.Groups*m.States, m.Inner() + m.Convolved()}
		part, _ := slices.BinarySearch(ends[:], row+1)
		return c.Multipliers.MambaIn * c.Multipliers.Parts[part]
	},
}

// falconStored returns where a folder has a weight, with its multiplier.
func falconStored(s models.Stored, name string) models.Stored {
	if s.Times = falconTimes[name]; s.Or != nil {
		s.Or = new(falconStored(*s.Or, name))
	}
	return s
}

// falconH1 is, with n = RMSNorm(x),
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) + Mamba-2(n)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)
func falconH1(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		x = b.Add(x, models.Attention(l, n, models.AsIs))
		x = b.Add(x, stateSpace(l, n, c.Eps, c.GateNorm))
		return b.Add(x, models.Gated(l, b.RMSNorm(x, b.Weight(l.Name("ffn_norm"), c.Width), c.Eps), ir.SiLU))
	})
}
