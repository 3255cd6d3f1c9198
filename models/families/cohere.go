package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// commandRFamily is Command-R. cohere2Family is Command-R7B and Command A, in which three layers of
// four have a sliding window, and only these rotate.
var (
	commandRFamily = models.Family{
		Title: "Command-R, Command-R+, Aya 23",
		Name:  "command-r", HF: "CohereForCausalLM", Define: cohere,
		Fields: slices.Concat(cohereFields(true), []models.Field{models.HeadNorms("use_qk_norm")}),
		Tensors: lo.Assign(cohereTensors(), map[string]models.Stored{
			"blk.#.attn_q_norm.weight": models.As("model.layers.#.self_attn.q_norm.weight"),
			"blk.#.attn_k_norm.weight": models.As("model.layers.#.self_attn.k_norm.weight"),
		}), GGUFInterleaved: true, FolderInterleaved: true,
		Shapes: []models.Shape{
			{Parameters: 8_028_033_024, Config: models.Config{Name: "aya-23-8b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 256000, Context: 8192, Eps: 1e-5,
				Rope: models.Rope{Theta: 1e4}, Tied: true, LogitScale: 0.0625}},
		},
	}
	cohere2Family = models.Family{
		Title: "Command-R7B, Command A",
		Name:  "cohere2", HF: "Cohere2ForCausalLM", Define: cohere,
		Fields: slices.Concat(cohereFields(false), []models.Field{models.Window, models.Windowed(4)}),
		Layer: func(c *models.Config, i int, l *models.Layer) {
			if c.SeesWindow(i) {
				l.Window = c.Window
			} else {
				l.Rope = nil
			}
		},
		Tensors: cohereTensors(), GGUFInterleaved: true, FolderInterleaved: true,
		Shapes: []models.Shape{
			{Parameters: 8_028_033_024, Config: models.Config{Name: "command-r7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 256000, Context: 132096, Eps: 1e-5,
				Rope: models.Rope{Theta: 5e4}, Tied: true, LogitScale: 0.25, Window: 4096, Windowed: models.AllButEvery(4, 32)}},
		},
	}
)

func cohereFields(optional bool) []models.Field {
	return slices.Concat(models.ByWidth, []models.Field{models.LayerEps("layer_norm_eps", 1e-5), models.WholeRope, models.Tied(true), models.Activation("silu"),
		{GGUF: "logit_scale", HF: "logit_scale", Number: func(c *models.Config) *float64 { return &c.LogitScale }, Optional: optional}}, models.Biased)
}

func cohereTensors() map[string]models.Stored {
	return models.DecoderTensors(nil, "blk.#.ffn_norm.weight")
}

// cohere is x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n) + Wdown · (silu(Wgate·n) ∘ Wup·n)
// with n = LayerNorm(x), which has a gain and no bias.
func cohere(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.GainNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		return b.Add(b.Add(x, models.Attention(l, n, l.NormedHeads())), models.Gated(l, n, ir.SiLU))
	})
}
