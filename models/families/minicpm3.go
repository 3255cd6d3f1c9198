package families

import (
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// minicpm3Family is MiniCPM3: latent attention as DeepSeek-V2 has it, with MiniCPM's multipliers.
var minicpm3Family = models.Family{
	Title: "MiniCPM3",
	Name:  "minicpm3", HF: "MiniCPM3ForCausalLM", Define: minicpm3,
	Fields: slices.Concat(models.Without(models.ShapeFields(nil), "attention.head_count_kv", "attention.key_length", "attention.value_length"), []models.Field{
		models.RMSEps, models.Tied(false), models.Activation("silu"), {HF: "attention_bias", Only: false}, models.NoWindow, models.NoExperts,
		{GGUF: "attention.head_count_kv", HF: "num_key_value_heads", Repeats: func(c *models.Config) int { return c.Heads }},
		{GGUF: "attention.q_lora_rank", HF: "q_lora_rank", Size: func(c *models.Config) *int { return &c.Latent.Query }},
		{GGUF: "attention.kv_lora_rank", HF: "kv_lora_rank", Size: func(c *models.Config) *int { return &c.Latent.KV }},
		{Read: minicpm3Heads, Write: func(c *models.Config) (string, gguf.Value, bool) {
			return "attention.key_length", gguf.Uint32(uint32(c.Head)), true
		}},
		latentSize("attention.value_length", func(c *models.Config) int { return c.Latent.Value })}),
	Given: func(c *models.Config) {
		c.Latent.Joined = true
		c.EmbeddingScale, c.ResidualScale, c.LogitDivisor = 12, 1.4/math.Sqrt(float64(max(c.Layers, 1))), float64(c.Width)/256
		c.KVHeads = c.Heads
	},
	Check:   checkLatent,
	Sources: latentSources,
	Tensors: models.DecoderTensors(latentTensors, "blk.#.attn_q.weight", "blk.#.attn_k.weight", "blk.#.attn_v.weight"),
	Shapes: []models.Shape{
		{Parameters: 4_073_875_968, Config: models.Config{Name: "minicpm3-4b", Layers: 62, Width: 2560, Heads: 40, KVHeads: 40, Head: 96, FFN: 6400, Vocab: 73448, Context: 32768, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, Rotated: 32}, Latent: models.Latent{Query: 768, KV: 256, Value: 64}, Tied: true}},
	},
}

// minicpm3Heads reads the sizes of heads and RoPE, and refuses multipliers other than those that
// llama.cpp has for all files.
func minicpm3Heads(d models.Description, c *models.Config) {
	value := c.Width / max(c.Heads, 1)
	if d.Format() == models.GGUF {
		c.Head, c.Latent.Value = d.Size("attention.key_length", 0), d.Size("attention.value_length", value)
		d.ReadRope(c)
		return
	}
	rotated := d.Size("qk_rope_head_dim", 0)
	c.Head, c.Latent.Value = d.Size("qk_nope_head_dim", 0)+rotated, d.Size("v_head_dim", value)
	d.ReadRope(c)
	c.Rope.Rotated = rotated
	for name, want := range map[string]float64{"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256} {
		if is := d.Number(name, 1); is != want {
			d.Fail(models.ConfigError("%s is %g, not %g", name, is, want))
		}
	}
}

// minicpm3 is deepseek2 without experts, with Granite's multipliers: see granite for those of the
// residual stream, which the norms within attention do not read.
func minicpm3(b *ir.Builder, c *models.Config) {
	models.Decode(b, multiplied(c), models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, latentAttention(l, l.Norm("attn_norm", x), c.Eps, growing(b, c)))
		return b.Add(x, models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU))
	})
}
