package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// llamaFamily is Llama 2 and 3 and the models built like them. Mistral, whose layers may have a
// sliding window, and Mixtral, whose layers are mixtures, have the same name in GGUF files.
var llamaFamily = models.Family{
	Title: "Llama 2, 3, 3.1 and 3.2, TinyLlama, Mistral, Mixtral, Falcon 3, SmolLM2, MiniCPM5",
	Name:  "llama", HF: "LlamaForCausalLM", Alias: []string{"MistralForCausalLM", "MinistralForCausalLM", "MixtralForCausalLM"}, Define: llama,
	Fields: slices.Concat(models.ByWidth, models.Biased, []models.Field{models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), models.Window, models.Windowed(0),
		{GGUF: "expert_count", HF: "num_local_experts", Size: func(c *models.Config) *int { return &c.Experts.Count }, Optional: true},
		{GGUF: "expert_used_count", HF: "num_experts_per_tok", Size: func(c *models.Config) *int { return &c.Experts.Chosen }, Optional: true}}),
	Given: func(c *models.Config) {
		if c.Experts.Count > 0 {
			c.Experts.FFN = c.FFN
		}
	},
	Router:  models.RouterKeys{Router: models.Router{Score: ir.SoftmaxScore, Normalised: true}},
	Layer:   models.WithWindow,
	Tensors: lo.Assign(models.DecoderTensors(nil), models.ExpertTensors("block_sparse_moe", "w1", "w3", "w2")),
	// llama.cpp's converter makes the two elements of a RoPE pair adjacent; folders keep them half
	// a head apart.
	GGUFInterleaved: true,
	Ignorable:       []string{"blk.*.attn_rot_embd.weight"},
	Shapes: []models.Shape{
		{Parameters: 1_235_814_400, Config: llama3Shape("llama3.2-1b", 16, 2048, 32, 64, 8192, 32, true)},
		{Parameters: 3_212_749_824, Config: llama3Shape("llama3.2-3b", 28, 3072, 24, 128, 8192, 32, true)},
		{Parameters: 8_030_261_248, Config: llama3Shape("llama3.1-8b", 32, 4096, 32, 128, 14336, 8, false)},
		{Parameters: 6_738_415_616, Config: models.Config{Name: "llama2-7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 32, Head: 128, FFN: 11008, Vocab: 32000, Context: 4096, Eps: 1e-5, Rope: models.Rope{Theta: 1e4}}},
		{Parameters: 7_241_732_096, Config: models.Config{Name: "mistral-7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 32000, Context: 32768, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4}, Window: 4096, Windowed: models.AllButEvery(0, 32)}},
		{Parameters: 46_702_792_704, Config: models.Config{Name: "mixtral-8x7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 32000, Context: 32768, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e6}, Experts: models.Experts{Count: 8, Chosen: 2}}},
		{Parameters: 1_669_408_768, Config: models.Config{Name: "falcon3-1b", Layers: 18, Width: 2048, Heads: 8, KVHeads: 4, Head: 256, FFN: 8192, Vocab: 131072, Context: 4096, Eps: 1e-6, Rope: models.Rope{Theta: 1000042}}},
		{Parameters: 134_515_008, Config: models.Config{Name: "smollm2-135m", Layers: 30, Width: 576, Heads: 9, KVHeads: 3, Head: 64, FFN: 1536, Vocab: 49152, Context: 8192, Eps: 1e-5, Rope: models.Rope{Theta: 1e5}, Tied: true}},
		{Parameters: 1_100_048_384, Config: models.Config{Name: "tinyllama-1.1b", Layers: 22, Width: 2048, Heads: 32, KVHeads: 4, Head: 64, FFN: 5632, Vocab: 32000, Context: 2048, Eps: 1e-5, Rope: models.Rope{Theta: 1e4}}},
	},
}

// llama adds two terms to the residual stream x in each layer:
//
//	x += Wo · attention(rope(Wq·n), rope(Wk·n), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                n = RMSNorm(x)
//
// In mixtures the second one is the weighted sum of the chosen experts (Jiang et al., "Mixtral of
// Experts", 2024):
//
//	x += Σ wᵢ · Wdownᵢ · (silu(Wgateᵢ·n) ∘ Wupᵢ·n)      w = softmax(the largest of R·n)
func llama(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), models.AsIs))
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}

func llama3Shape(name string, layers, width, heads, head, ffn int, factor float64, tied bool) models.Config {
	return models.Config{
		Name: name, Layers: layers, Width: width, Heads: heads, KVHeads: 8, Head: head, FFN: ffn,
		Vocab: 128256, Context: 131072, Eps: 1e-5, Tied: tied,
		Rope: models.Rope{Theta: 5e5, Llama3: &models.Llama3Rope{Factor: factor, LowFrequency: 1, HighFrequency: 4, OldContext: 8192}},
	}
}
