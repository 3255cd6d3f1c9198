package families

import (
	"cmp"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// gemma2Family is Gemma 2: every second layer has a sliding window; scores and logits are
// soft-capped.
var gemma2Family = models.Family{
	Title: "Gemma 2",
	Name:  "gemma2", HF: "Gemma2ForCausalLM", Define: gemma2,
	Fields: slices.Concat(models.Without(gemmaFields(4096, 2), models.LogitCap.GGUF), []models.Field{windowTheta, someWindow,
		{GGUF: models.SoftCap.GGUF, HF: models.SoftCap.HF, Number: models.SoftCap.Number, Optional: true, Absent: inGGUF(50)},
		{GGUF: models.LogitCap.GGUF, HF: models.LogitCap.HF, Number: models.LogitCap.Number, Optional: true, Absent: inGGUF(30)}}),
	Given: gemmaGiven(46),
	Layer: func(c *models.Config, i int, l *models.Layer) {
		if c.SeesWindow(i) {
			l.Window, l.Rope = c.Window, windowRope(c)
		}
	},
	Tensors: gemmaTensors(nil),
	Shapes: []models.Shape{
		{Parameters: 2_614_341_888, Config: models.Config{Name: "gemma2-2b", Layers: 26, Width: 2304, Heads: 8, KVHeads: 4, Head: 256, FFN: 9216, Vocab: 256000, Context: 8192, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e4}, Tied: true, Window: 4096, Windowed: models.AllButEvery(2, 26), SoftCap: 50, LogitCap: 30}},
	},
}

// inGGUF is the default of a number in GGUF files, as llama.cpp has it. Folders have all numbers, or null.
func inGGUF(absent float64) func(*models.Config, models.Format) float64 {
	return models.InFiles(func(*models.Config) int { return int(absent) })
}

// gemmaFields are the fields of Gemma 2 and 3. unsaid is the sliding window in files without the
// entry, 0 for none; by default every every-th layer has no window.
func gemmaFields(unsaid, every int) []models.Field {
	return slices.Concat(models.ShapeFields(gemmaHead), models.Biased, []models.Field{
		models.RMSEps, models.WholeRope, models.Tied(true), {HF: "hidden_activation", Only: "gelu_pytorch_tanh"}, models.LogitCap,
		{GGUF: models.Window.GGUF, HF: models.Window.HF, Size: models.Window.Size, Optional: unsaid == 0,
			Absent: func(*models.Config, models.Format) float64 { return float64(unsaid) }},
		models.Windowed(every),
		{Read: func(d models.Description, c *models.Config) {
			if d.Format() == models.Folder && d.Has("query_pre_attn_scalar") {
				c.AttentionScale = 1 / math.Sqrt(d.Number("query_pre_attn_scalar", 0))
			}
		}},
	})
}

// gemmaGiven scales embeddings by √Width, and scores by the head size, or by Width/Heads in the
// largest model, recognised by its number of layers.
func gemmaGiven(largest int) func(c *models.Config) {
	return func(c *models.Config) {
		c.EmbeddingScale = math.Sqrt(float64(c.Width))
		over := c.Head
		if c.Layers == largest {
			over = c.Width / max(1, c.Heads)
		}
		c.AttentionScale = cmp.Or(c.AttentionScale, 1/math.Sqrt(float64(max(1, over))))
	}
}

// gemmaTensors returns the tensors of Gemma 2 and 3, plus more. Folders store the gains of norms
// minus one.
func gemmaTensors(more map[string]models.Stored) map[string]models.Stored {
	tensors := models.DecoderTensors(map[string]models.Stored{
		"output_norm.weight":               models.Gain("model.norm.weight"),
		"blk.#.attn_norm.weight":           models.Gain("model.layers.#.input_layernorm.weight"),
		"blk.#.post_attention_norm.weight": models.Gain("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.ffn_norm.weight":            models.Gain("model.layers.#.pre_feedforward_layernorm.weight"),
		"blk.#.post_ffw_norm.weight":       models.Gain("model.layers.#.post_feedforward_layernorm.weight"),
	})
	for name, s := range more {
		s.Value = models.PlusOne
		tensors[name] = s
	}
	return tensors
}

// gemma2 also normalises the outputs of attention and of the feed-forward network:
//
//	x += norm(Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n))   n = RMSNorm(x)
//	x += norm(Wdown · (gelu(Wgate·n) ∘ Wup·n))                n = RMSNorm(x)
func gemma2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value { return gemmaLayer(l, x, models.AsIs) })
}

func gemmaLayer(l *models.LayerBuilder, x *ir.Value, prepare models.Prepare) *ir.Value {
	x = l.Builder.Add(x, l.Norm("post_attention_norm", models.Attention(l, l.Norm("attn_norm", x), prepare)))
	return l.Builder.Add(x, l.Norm("post_ffw_norm", models.Gated(l, l.Norm("ffn_norm", x), ir.GELUTanh)))
}
