package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
)

// phi3Family is Phi-3, Phi-3.5 and Phi-4-mini: Llama whose files store Q, K and V in one tensor,
// and gate and up in another. Some models rotate part of each head, some have sliding windows.
var phi3Family = models.Family{
	Title: "Phi-3, Phi-3.5, Phi-4-mini",
	Name:  "phi3", HF: "Phi3ForCausalLM", Define: llama,
	Fields: slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.PartOfHeads(1), models.Tied(false), models.Activation("silu"),
		{HF: "attention_bias", Only: false}, models.NoExperts, models.Window, models.Windowed(0)}),
	Layer:  models.WithWindow,
	Joined: []string{"attn_qkv", "ffn_up"},
	Tensors: models.DecoderTensors(lo.Assign(models.Cut("attn_qkv", models.As("model.layers.#.self_attn.qkv_proj.weight")),
		models.Cut("ffn_up", models.As("model.layers.#.mlp.gate_up_proj.weight")))),
	Shapes: []models.Shape{
		{Parameters: 3_821_079_552, Config: models.Config{Name: "phi3-mini", Layers: 32, Width: 3072, Heads: 32, KVHeads: 32, Head: 96, FFN: 8192, Vocab: 32064, Context: 4096, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4}}},
		{Parameters: 3_836_021_760, Config: models.Config{Name: "phi4-mini", Layers: 32, Width: 3072, Heads: 24, KVHeads: 8, Head: 128, FFN: 8192, Vocab: 200064, Context: 4096, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e4, Rotated: 96}, Tied: true}},
	},
}
