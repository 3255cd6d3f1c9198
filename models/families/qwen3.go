package families

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// qwen3Family is the dense Qwen3 models. Folders of its embedding models have no head, and tensor
// names without "model.".
var qwen3Family = models.Family{
	Title: "Qwen3",
	Name:  "qwen3", HF: "Qwen3ForCausalLM", Define: qwen3,
	Fields: append(models.DecoderFields(func(c *models.Config, format models.Format) float64 {
		if format == models.Folder {
			return 128
		}
		return models.WidthByHeads(c, format)
	}), models.ClassifierField),
	Given: func(c *models.Config) { c.Classifier.Softmax = c.Classifier.Classes > 0 },
	Judge: &models.Judge{Name: "qwen3-reranker", Words: []string{"yes", "no"}, Template: qwen3Judge},
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.attn_q_norm.weight": models.As("model.layers.#.self_attn.q_norm.weight"),
		"blk.#.attn_k_norm.weight": models.As("model.layers.#.self_attn.k_norm.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 596_049_920, Config: qwen3Shape("qwen3-0.6b", 28, 1024, 16, 3072, true)},
		{Parameters: 1_720_574_976, Config: qwen3Shape("qwen3-1.7b", 28, 2048, 16, 6144, true)},
		{Parameters: 4_022_468_096, Config: qwen3Shape("qwen3-4b", 36, 2560, 32, 9728, true)},
		{Parameters: 8_190_735_360, Config: qwen3Shape("qwen3-8b", 36, 4096, 32, 12288, false)},
		{Parameters: 14_768_307_200, Config: qwen3Shape("qwen3-14b", 40, 5120, 40, 17408, false)},
		{Parameters: 32_762_123_264, Config: qwen3Shape("qwen3-32b", 64, 5120, 64, 25600, false)},
		{Parameters: 595_776_512, Config: models.Config{Name: "qwen3-embedding-0.6b", Layers: 28, Width: 1024, Heads: 16, KVHeads: 8, Head: 128, FFN: 3072, Vocab: 151669, Context: 32768, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}, Tied: true, Pooling: "last"}},
		{Parameters: 595_776_512 + 2*1024, Config: models.Config{Name: "qwen3-reranker-0.6b", Layers: 28, Width: 1024, Heads: 16, KVHeads: 8, Head: 128, FFN: 3072, Vocab: 151669, Context: 40960, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e6}, Tied: true, Pooling: "rank", Classifier: models.Classifier{Classes: 2}}},
	},
}

// qwen3Judge is what Qwen publishes for its rerankers, with the instruction for searches.
const qwen3Judge = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. " +
	"Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n" +
	"<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n" +
	"<|im_start|>assistant\n<think>\n\n</think>\n\n"

// qwen3 differs from llama in that each head of Q and K is normalised by itself before RoPE, which
// bounds scores, and in that Heads·Head need not be Width:
//
//	x += Wo · attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n)   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                            n = RMSNorm(x)
func qwen3(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		x = b.Add(x, models.Attention(l, l.Norm("attn_norm", x), l.NormHeads))
		return b.Add(x, models.Gated(l, l.Norm("ffn_norm", x), ir.SiLU))
	})
}

func qwen3Shape(name string, layers, width, heads, ffn int, tied bool) models.Config {
	return models.Config{
		Name: name, Layers: layers, Width: width, Heads: heads, KVHeads: 8, Head: 128, FFN: ffn,
		Vocab: 151936, Context: 40960, Eps: 1e-6, Rope: models.Rope{Theta: 1e6}, Tied: tied,
	}
}
