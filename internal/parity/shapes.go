package parity

import (
	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
)

// shape says what a family's models have beside a geometry.
type shape struct {
	family  string
	square  bool                                 // heads and their elements make up the width
	untied  bool                                 // the table is never the head
	tied    bool                                 // or always
	each    bool                                 // each query head has a KV head of its own
	partial bool                                 // part of each head rotates
	more    func(c *models.Config, geometry int) // nil: nothing
}

// shapes has every family that is compared with llama.cpp.
var shapes = []shape{
	{family: "llama", more: func(c *models.Config, i int) {
		if i == 1 {
			c.Rope.Llama3 = &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 32}
		}
	}},
	{family: "qwen3"},
	{family: "qwen2", square: true},
	{family: "gemma2", tied: true, more: func(c *models.Config, i int) {
		c.Window, c.Windowed, c.SoftCap, c.LogitCap = 3+i, windows(c.Layers, 2), 2, 3
	}},
	{family: "gemma3", tied: true, more: func(c *models.Config, i int) {
		c.Window, c.Windowed, c.WindowRope.Theta = 3+i, windows(c.Layers, 2+i%2), 100
	}},
	{family: "smollm3"},
	{family: "olmo2", square: true, untied: true, more: func(c *models.Config, i int) {
		if i%2 == 1 {
			c.Window, c.Windowed = 4, windows(c.Layers, 4)
		}
	}},
	{family: "granite", more: func(c *models.Config, i int) {
		c.Biases = models.Biases{Output: i == 2, FFN: i == 3} // as GGUF files may have them
		c.EmbeddingScale, c.ResidualScale, c.AttentionScale, c.LogitScale = 3, 0.4, 0.1+0.05*float64(i), 2
	}},
	{family: "starcoder2", square: true},
	{family: "phi2", square: true, untied: true, partial: true},
	{family: "stablelm", square: true, untied: true, partial: true, more: func(c *models.Config, i int) {
		c.Biases.QKV, c.Parallel = i%2 == 0, i == 2
	}},
	{family: "command-r", square: true, tied: true, more: func(c *models.Config, _ int) { c.LogitScale = 0.25 }},
	{family: "cohere2", square: true, tied: true, more: func(c *models.Config, i int) {
		c.LogitScale, c.Window, c.Windowed = 0.25, 3+i, windows(c.Layers, 2)
	}},
	{family: "exaone4", square: true},
	{family: "ernie4_5"},
	{family: "phi3", square: true},
	{family: "glm4", partial: true, more: func(c *models.Config, i int) { c.Biases.QKV = i%2 == 0 }},
	{family: "gpt2", square: true, each: true},
	{family: "gptneox", square: true, each: true, untied: true, partial: true, more: func(c *models.Config, i int) { c.Parallel = i%2 == 0 }},
	{family: "mpt", square: true, more: func(c *models.Config, i int) { c.ALiBi = 8 - 2*float64(i%2) }},
}

// windows has all layers but every n-th see one.
func windows(layers, every int) []bool {
	return lo.Times(layers, func(i int) bool { return (i+1)%every != 0 })
}

func (s *shape) config(i int, g geometry) models.Config {
	c := models.Config{
		Family: s.family, Name: "random", Vocab: Vocab, Width: g.width, Layers: g.layers, Heads: g.heads, KVHeads: g.kvHeads, Head: g.head,
		FFN: g.ffn, Context: 128, Eps: 1e-5, Rope: models.Rope{Theta: 1000}, Tied: (g.tied || s.tied) && !s.untied,
	}
	if s.square {
		c.Width = g.heads * g.head
	}
	if s.each {
		c.KVHeads = c.Heads
	}
	if s.partial {
		c.Rope.Rotated = g.head / 4 * 2
	}
	if s.more != nil {
		s.more(&c, i)
	}
	return c
}
