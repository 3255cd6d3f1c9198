package families

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// hunyuanDenseFamily is the dense models of Hunyuan: Llama whose heads are normalised behind RoPE.
var hunyuanDenseFamily = models.Family{
	Title: "Hunyuan (dense)",
	Name:  "hunyuan-dense", HF: "HunYuanDenseV1ForCausalLM", Define: hunyuanDense,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, {Read: hunyuanRope}, models.Tied(false), models.Activation("silu"),
		{HF: "attention_bias", Only: false}, models.NoWindow, models.NoExperts, {Read: models.RefuseWindow}}),
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight": models.As("model.layers.#.self_attn.query_layernorm.weight"),
		"blk.#.attn_k_norm.weight": models.As("model.layers.#.self_attn.key_layernorm.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 1_791_080_448, Config: models.Config{Name: "hunyuan-1.8b", Layers: 32, Width: 2048, Heads: 16, KVHeads: 4, Head: 128, FFN: 6144, Vocab: 120818, Context: hunyuanContext, Eps: 1e-5,
			Rope: models.Rope{Theta: models.NTKTheta(1e4, 1000, 128)}, Tied: true}},
	},
}

// hunyuanContext is that of folders whose base alpha scales, and that of files made of them:
// config.json tells an eighth of what the models were trained for.
const hunyuanContext = 256 << 10

// hunyuanRope reads RoPE, whose base alpha scales by the NTK-aware rule.
func hunyuanRope(d models.Description, c *models.Config) {
	if alpha := d.Scaling("alpha"); alpha > 0 {
		theta := cmp.Or(d.Scaling("rope_theta"), d.Number("rope_theta", 10000))
		c.Rope = *(&models.Rope{Rotated: c.Head, Interleaved: c.Rope.Interleaved}).Unscaled(models.NTKTheta(theta, alpha, c.Head))
		c.Context = hunyuanContext
		return
	}
	models.WholeRope.Read(d, c)
	const alpha = "rope.scaling.alpha"
	if d.Format() == models.GGUF && d.Has(alpha) {
		if by := d.Number(alpha, 0); by > 0 { // llama.cpp takes 0 for none
			c.Rope.Theta = models.NTKTheta(c.Rope.Theta, by, c.Head)
		}
	}
}

// hunyuanDense is qwen3 with Q and K rotated before they are normalised: norm(rope(Wq·n)) in place
// of rope(norm(Wq·n)).
func hunyuanDense(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		heads := func(role string, count int) *ir.Value {
			return b.SplitHeads(l.Linear(role, n, count*l.Head, false), count)
		}
		q, k := l.Rotate(heads("attn_q", l.Heads)), l.Rotate(heads("attn_k", l.KVHeads))
		mixed := models.Attend(l, l.NormHeads("attn_q", q), l.NormHeads("attn_k", k), heads("attn_v", l.KVHeads))
		x = b.Add(x, l.Linear("attn_output", mixed, c.Width, false))
		return b.Add(x, models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU))
	})
}
