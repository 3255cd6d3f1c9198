package parity

import (
	"math"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// shape is what a family's models have in addition to a geometry.
type shape struct {
	family  string
	name    string                               // of the cases; "": the family
	square  bool                                 // whether heads × head size is the width
	untied  bool                                 // whether the embedding is never the head
	tied    bool                                 // whether the embedding is always the head
	each    bool                                 // whether each query head has a KV head of its own
	partial bool                                 // whether only part of each head rotates
	seed    uint64                               // of weights; 0: 1
	formats bool                                 // whether weights are compared in every type
	more    func(c *models.Config, geometry int) // further changes of the configuration; nil: none
}

// shapes lists the families that are compared with llama.cpp.
var shapes = []shape{
	{family: "llama", formats: true, more: func(c *models.Config, i int) {
		switch i {
		case 1:
			c.Rope.Llama3 = &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 32}
		case 2:
			c.Rope.Linear = 4
		case 3:
			c.Rope.YaRN = &models.YaRNRope{Factor: 4, FastBeta: 4, SlowBeta: 1, OldContext: 32}
		case 4:
			c.Rope.Magnitude = 1.25
		}
	}},
	{family: "qwen3", more: func(c *models.Config, i int) { c.Biases.QKV = i == 3 }},
	{family: "qwen2", square: true, more: func(c *models.Config, i int) { c.Biases.Head = i == 2 }},
	{family: "qwen2vl", square: true, more: imageSections},
	{family: "qwen3vl", more: imageSections},
	{family: "mistral3", more: func(c *models.Config, i int) {
		c.Rope.YaRN = &models.YaRNRope{Factor: 16, FastBeta: 8, SlowBeta: 1, OldContext: 4 + 60*float64(i%3/2)}
		if i != 0 {
			c.Rope.YaRN.Magnitude = 1
		}
		if i%2 == 0 {
			c.Temperature = 4 // more than models have, so that it has an effect
		}
	}},
	{family: "gemma2", tied: true, more: func(c *models.Config, i int) {
		c.Window, c.Windowed, c.SoftCap, c.LogitCap = 3+i, windows(c.Layers, 2), 2, 3
		if i == 3 {
			c.WindowRope.Theta = 50
		}
	}},
	{family: "gemma3", formats: true, tied: true, more: func(c *models.Config, i int) {
		c.Window, c.Windowed, c.WindowRope.Theta = 3+i, windows(c.Layers, 2+i%2), 100
	}},
	{family: "gemma4", tied: true, more: alternating},
	{family: "gemma4", name: "gemma4-moe", tied: true, more: func(c *models.Config, i int) {
		alternating(c, 4-i)
		c.Experts = experts(i)
	}},
	{family: "smollm3"},
	{family: "olmo2", square: true, untied: true, more: func(c *models.Config, i int) {
		if i%2 == 1 {
			c.Window, c.Windowed = 4, windows(c.Layers, 4)
		}
	}},
	{family: "granite", more: func(c *models.Config, i int) {
		c.Biases = models.Biases{Output: i == 2, FFN: i == 3} // variants that GGUF files may have
		c.EmbeddingScale, c.ResidualScale, c.AttentionScale, c.LogitDivisor = 3, 0.4, 0.1+0.05*float64(i), 2
		if i == 1 {
			c.Rope = models.Rope{}
		}
	}},
	{family: "granitemoe", more: func(c *models.Config, i int) {
		c.Biases.Output = i == 2
		c.EmbeddingScale, c.ResidualScale, c.AttentionScale, c.LogitDivisor = 3, 0.4, 0.1+0.05*float64(i), 2
		c.Experts = experts(i)
		c.FFN, c.Experts.Shared = c.Experts.FFN, []int{0, 40, 88, 0, 512}[i]
		if i == 3 {
			c.Experts.Router.Groups, c.Experts.Router.UsedGroups = 4, 2
		}
	}},
	{family: "starcoder2", square: true},
	{family: "phi2", square: true, untied: true, partial: true},
	{family: "stablelm", square: true, untied: true, partial: true, more: func(c *models.Config, i int) {
		c.Biases.QKV, c.Parallel, c.HeadNorms = i%2 == 0, i == 2, i >= 2
	}},
	{family: "command-r", square: true, tied: true, more: func(c *models.Config, i int) {
		c.LogitScale = 0.25
		if i == 0 { // llama.cpp identifies such models by their number of layers
			c.Layers, c.HeadNorms = 64, true
		}
	}},
	{family: "cohere2", square: true, tied: true, more: func(c *models.Config, i int) {
		c.LogitScale, c.Window, c.Windowed = 0.25, 3+i, windows(c.Layers, 2)
	}},
	{family: "exaone4", square: true},
	{family: "ernie4_5"},
	{family: "phi3", square: true, more: func(c *models.Config, i int) {
		if i == 2 {
			c.Rope.Rotated = c.Head / 4 * 2
		}
		if i%2 == 1 { // alternately for longer texts than these and for shorter ones
			c.Context, c.Rope.Long = 8192, longRope(c.Head/2, 16+4080*float64(i/2))
		}
	}},
	{family: "glm4", partial: true, more: func(c *models.Config, i int) { c.Biases.QKV = i%2 == 0 }},
	{family: "gpt2", square: true, each: true},
	{family: "gptneox", square: true, each: true, untied: true, partial: true, more: func(c *models.Config, i int) { c.Parallel = i%2 == 0 }},
	{family: "olmoe", square: true, each: true, untied: true, more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.FFN = c.Experts.FFN // llama.cpp takes this for the width
		if i == 3 {
			c.Experts.Router.Groups, c.Experts.Router.UsedGroups = 4, 2
		}
	}},
	{family: "llama", name: "mixtral", more: func(c *models.Config, i int) { c.Experts = experts(i) }},
	{family: "qwen2moe", square: true, untied: true, more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.Experts.Shared = []int{64, 200, 88, 48, 512}[i]
	}},
	{family: "gpt-oss", formats: true, untied: true, more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.Window, c.Windowed = 3+i, windows(c.Layers, 2)
		c.Rope.YaRN = &models.YaRNRope{Factor: 8, FastBeta: 32, SlowBeta: 1, OldContext: 16}
		if i == 3 {
			c.WindowRope.Theta = 50
		}
	}},
	// With seed 1 the router nearly ties on the first token, which all others attend to.
	{family: "qwen3moe", seed: 2, more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		if i == 3 {
			c.Experts.Router.Groups, c.Experts.Router.UsedGroups = 3, 2
		}
	}},
	{family: "qwen3vlmoe", more: func(c *models.Config, i int) {
		imageSections(c, i)
		c.Experts = experts(i)
	}},
	{family: "lfm2", square: true, more: func(c *models.Config, i int) {
		if convolutions(c, i); i == 2 {
			c.Window = 4
		}
	}},
	{family: "lfm2moe", square: true, more: func(c *models.Config, i int) {
		convolutions(c, i)
		c.Experts = experts(i)
		c.Experts.Dense = i % 2
	}},
	{family: "qwen35", partial: true, more: deltas},
	{family: "qwen35moe", partial: true, untied: true, more: func(c *models.Config, i int) {
		deltas(c, i)
		c.Experts = experts(i)
		c.Experts.Shared = []int{64, 200, 88, 48, 512}[i]
	}},
	{family: "qwen3next", partial: true, untied: true, more: func(c *models.Config, i int) {
		deltas(c, i)
		c.Sections = nil
		c.Delta.KeyHeads, c.Delta.Joined = 2, i%2 == 0
		c.Experts = experts(i)
		c.Experts.Shared = []int{64, 200, 88, 48, 512}[i]
	}},
	{family: "mpt", square: true, more: func(c *models.Config, i int) {
		c.ALiBi, c.Positions = 8-2*float64(i%2), i == 2
		c.Biases = models.Biases{QKV: i == 3, Output: i == 3, FFN: i == 4}
	}},
	{family: "deepseek2", each: true, more: latent},
	{family: "deepseek2", name: "deepseek3", each: true, more: func(c *models.Config, i int) {
		latent(c, i)
		c.Experts.Router.Score, c.Experts.Router.Normalised, c.Experts.Router.Biased = ir.SigmoidScore, true, true
		if i%2 == 1 {
			c.Experts.Count, c.Experts.Chosen = 16, 3
			c.Experts.Router.Groups, c.Experts.Router.UsedGroups = 4, 2
		}
	}},
	{family: "glm4moe", partial: true, more: func(c *models.Config, i int) {
		c.Biases.QKV, c.HeadNorms = i%2 == 0, i >= 2
		c.Experts = experts(i)
		c.Experts.Shared, c.Experts.Dense, c.Experts.Router.Scale = c.Experts.FFN*(1+i%2), i%2, 1+float64(i)/2
	}},
	{family: "arcee"},
	{family: "seed_oss", more: func(c *models.Config, i int) { c.Biases.QKV = i != 1 }},
	{family: "gemma", tied: true},
	{family: "muse-glimmer", untied: true, more: func(c *models.Config, i int) {
		c.LogitScale, c.LogitCap, c.Window, c.Windowed = 0.25, 1+float64(i%3), 3+i, windows(c.Layers, 2+i%2)
		if i == 3 {
			c.WindowRope.Theta = 100
		}
	}},
	{family: "minicpm", more: func(c *models.Config, i int) {
		c.EmbeddingScale, c.ResidualScale, c.LogitDivisor = 3, 0.4, 2
		if i%2 == 1 {
			c.Context, c.Rope.Long = 8192, longRope(c.Head/2, 16+4080*float64(i/2))
		}
	}},
	{family: "ernie4_5-moe", more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.Experts.Shared, c.Experts.Dense, c.Experts.Router.Biased = []int{64, 200, 0, 48, 512}[i], i%2, i != 2
	}},
	{family: "bailingmoe2", square: true, untied: true, partial: true, more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.Experts.Shared, c.Experts.Dense = c.Experts.FFN*(1+i%2), i%2
		c.Experts.Router = models.Router{Score: ir.SigmoidScore, Normalised: i != 1, Biased: i != 2, Scale: 1 + float64(i)/2}
		if i == 3 {
			c.Experts.Router.Groups, c.Experts.Router.UsedGroups = 4, 2
		}
	}},
	{family: "cohere2moe", more: func(c *models.Config, i int) {
		c.LogitScale, c.Window, c.Windowed, c.RMS = 0.25, 3+i, windows(c.Layers, 2), i%2 == 1
		c.Experts = experts(i)
		c.Experts.Shared, c.Experts.Dense = []int{0, 40, 88, 0, 512}[i], i%2
		c.Experts.Router = models.Router{Score: ir.SigmoidScore, Normalised: i == 2, Scale: float64(i) / 2}
		if i == 4 {
			c.Experts.Router.Score = ir.SoftmaxScore
		}
	}},
	{family: "laguna", partial: true, more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.Experts.Shared, c.Experts.Dense = []int{64, 200, 88, 48, 512}[i], i%2
		c.Experts.Router = models.Router{Score: ir.SigmoidScore, Normalised: i != 1, Biased: true, Scale: 1 + float64(i)/2}
		c.ElementGate = i == 2
		c.Rope.YaRN = &models.YaRNRope{Factor: 8, FastBeta: 32, SlowBeta: 1, OldContext: 16}
		if i != 2 {
			c.Window, c.Windowed = 3+i, models.AllButEvery(-2, c.Layers) // from the first layer llama.cpp takes how much of a head rotates
			c.HeadCounts = lo.Times(c.Layers, func(k int) int { return lo.Ternary(c.Windowed[k], c.Heads, c.KVHeads) })
			c.WindowRope = models.Rope{Theta: 100, Rotated: c.Head}
		}
	}},
	{family: "minimax-m2", untied: true, partial: true, more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.FFN = c.Experts.FFN // llama.cpp takes this for the width
	}},
	{family: "afmoe", more: func(c *models.Config, i int) {
		c.Experts = experts(i)
		c.Experts.Shared, c.Experts.Dense = c.Experts.FFN*(i%3), i%2
		c.Experts.Router = models.Router{Score: ir.SigmoidScore, Normalised: true, Biased: true, Scale: 1 + float64(i)/2}
		c.Window, c.Windowed = 3+i, windows(c.Layers, 2+i%3)
		if i == 3 {
			c.WindowRope.Theta = 100
		}
	}},
	{family: "phimoe", square: true, untied: true, more: func(c *models.Config, i int) {
		c.Biases.QKV = i != 1
		c.Experts = experts(i)
		c.FFN = c.Experts.FFN // llama.cpp takes this for the width
		if i%2 == 1 {
			c.Context, c.Rope.Long = 8192, longRope(c.Head/2, 16+4080*float64(i/2))
		}
	}},
	{family: "minicpm3", each: true, more: func(c *models.Config, i int) {
		latent(c, i)
		c.Experts, c.Rope.YaRN = models.Experts{}, nil
		c.Latent.Joined, c.Latent.Query = true, [...]int{24, 40, 48, 72, 256}[i]
		if i%2 == 1 {
			c.Context, c.Rope.Long = 8192, longRope(c.Rope.Rotated/2, 16+4080*float64(i/2))
		}
	}},
	{family: "hunyuan-dense"},
	{family: "mamba2", more: func(c *models.Config, i int) {
		c.Heads, c.KVHeads, c.Head, c.FFN, c.Rope = 0, 0, 0, 0, models.Rope{}
		mamba(c, i)
	}},
	{family: "granitehybrid", more: func(c *models.Config, i int) {
		mamba(c, i)
		c.EmbeddingScale, c.ResidualScale, c.AttentionScale, c.LogitDivisor = 3, 0.4, 0.1+0.05*float64(i), 2
		if c.Recurrent = windows(c.Layers, 2); i != 1 {
			c.Rope = models.Rope{}
		}
		if i != 2 { // which has no experts
			c.Experts = experts(i)
			c.FFN, c.Experts.Shared = c.Experts.FFN, []int{64, 40, 0, 0, 512}[i]
		}
	}},
	{family: "falcon-h1", more: func(c *models.Config, i int) {
		mamba(c, i)
		c.GateNorm = i >= 2
	}},
	{family: "nemotron_h", more: func(c *models.Config, i int) {
		mamba(c, i)
		c.Layers, c.Rope = max(c.Layers, 3), models.Rope{}
		c.Recurrent, c.Networks = kinds(c.Layers, 0), kinds(c.Layers, 2)
	}},
	{family: "nemotron_h_moe", more: func(c *models.Config, i int) {
		mamba(c, i)
		c.Layers, c.Rope = max(c.Layers, 3), models.Rope{}
		c.Recurrent, c.Networks = kinds(c.Layers, 0), kinds(c.Layers, 1)
		c.Experts = experts(i)
		c.FFN, c.Experts.Shared, c.Experts.Latent = c.Experts.FFN, []int{64, 200, 88, 48, 512}[i], []int{0, 64, 0, 96, 256}[i]
		c.Experts.Router = models.Router{Score: ir.SigmoidScore, Normalised: i != 1, Biased: true, Scale: 1 + float64(i)/2}
		if i == 3 {
			c.Experts.Router.Groups, c.Experts.Router.UsedGroups = 4, 2
		}
	}},
	{family: "plamo2", more: func(c *models.Config, i int) {
		mamba(c, i)
		c.Mamba.Groups, c.Recurrent = 1, windows(c.Layers, 2)
	}},
	{family: "qwen3", name: "odd-heads", more: func(c *models.Config, i int) { // no multiples of 8, which kernels of attention take
		c.Head = [...]int{12, 18, 20, 10, 36}[i]
		c.Rope.Rotated = c.Head
	}},
}

// embedders lists the families whose embeddings are compared.
var embedders = []shape{
	{family: "qwen3", name: "qwen3-embedding", more: func(c *models.Config, i int) { c.Pooling = lo.Ternary(i == 1, "mean", "last") }},
	{family: "bert", square: true, each: true, more: func(c *models.Config, i int) {
		c.TokenTypes, c.Pooling = 2, []string{"mean", "cls"}[i%2]
	}},
	{family: "nomic-bert", square: true, each: true, more: func(c *models.Config, i int) {
		c.TokenTypes, c.Pooling = 1+i%2, "mean"
	}},
	{family: "gemma-embedding", tied: true, more: func(c *models.Config, i int) {
		c.Window, c.Windowed, c.WindowRope.Theta, c.Pooling = 4+i, windows(c.Layers, 2), 100, "mean"
		if i%2 == 1 {
			c.Dense = 192
		}
	}},
}

// rankers lists the families whose classifiers are compared.
var rankers = []shape{
	{family: "bert", name: "bert-rank", square: true, each: true, more: func(c *models.Config, i int) {
		c.TokenTypes, c.Pooling = 1, "rank"
		c.Classifier, c.Biases.Classifier = models.Classifier{Classes: 1, Dense: i%2 == 0}, true
	}},
	{family: "qwen3", name: "qwen3-rank", more: func(c *models.Config, _ int) {
		c.Pooling, c.Classifier.Classes = "rank", 2
	}},
}

// longRope returns different factors for texts of up to old tokens and for longer ones.
func longRope(pairs int, old float64) *models.LongRope {
	factors := func(by float64) []float64 {
		return lo.Times(pairs, func(i int) float64 { return 1 + by*float64(i)/float64(pairs) })
	}
	return &models.LongRope{Short: factors(0.5), Long: factors(30), OldContext: old, Magnitude: 1.25}
}

// imageSections divides the pairs of a head among the axes of an image.
func imageSections(c *models.Config, _ int) {
	pairs := c.Head / 2
	c.Sections = []int{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0}
}

// latent configures latent attention (MLA): keys that rotate in part and are longer than values,
// in some geometries with a low-rank Q, and K and V from one weight. The last geometry has whole
// blocks.
func latent(c *models.Config, i int) {
	c.Head = [...]int{24, 24, 40, 32, 64}[i]
	c.Rope.Rotated = [...]int{8, 16, 16, 24, 32}[i]
	c.Latent = models.Latent{KV: [...]int{40, 32, 64, 72, 256}[i], Value: [...]int{16, 24, 24, 8, 64}[i], Joined: i%2 == 1}
	if i >= 2 {
		c.Latent.Query = [...]int{48, 72, 256}[i-2]
	}
	if i != 1 {
		c.Rope.YaRN = &models.YaRNRope{Factor: 8, FastBeta: 8, SlowBeta: 1, OldContext: 16, Magnitude: 1}
		c.Rope.Scores = math.Pow(models.YaRNMagnitude(8, [...]float64{0.7, 0, 1, 0.5, 0.7}[i]), 2)
	}
	c.Experts = experts(i)
	c.Experts.Shared, c.Experts.Dense, c.Experts.Router.Scale = c.Experts.FFN*(1+i%3), 1, [...]float64{1, 2, 0.5, 1.5, 1}[i]
}

// convolutions makes every other layer a short convolution.
func convolutions(c *models.Config, i int) {
	c.Taps, c.Recurrent = 2+i%3, windows(c.Layers, 2)
}

// deltas makes every other layer one of the gated delta rule.
func deltas(c *models.Config, i int) {
	imageSections(c, i)
	c.Taps, c.Recurrent = 4, windows(c.Layers, 2)
	c.Delta = models.Delta{Heads: 4 - i%2*2, KeyHeads: 1 + i/2%2, Head: []int{16, 32, 16, 32, 64}[i]}
}

// alternating makes every other layer one without a window, with larger heads of its own number. In some
// geometries the last layers read the keys and values of earlier ones, have wide networks, and tokens
// have an embedding for each layer; in some the whole layers have no values.
func alternating(c *models.Config, i int) {
	if i%2 == 0 {
		c.Layers, c.Sharing, c.PerLayer = 4+i%4, 2, 16+8*i // an even number
		c.FFNs = lo.Times(c.Layers, func(k int) int { return lo.Ternary(k < c.Layers-2, c.FFN, 2*c.FFN) })
	}
	c.Window, c.Windowed, c.WindowHead, c.LogitCap, c.WindowRope.Theta = 3+i, windows(c.Layers, 2), c.Head/16*8, 3, 100
	c.KeyIsValue = i >= 2
	if c.KVHeads > 1 && i != 3 {
		c.KVCounts = lo.Times(c.Layers, func(k int) int { return lo.Ternary(c.Windowed[k], c.KVHeads, 1) })
	}
}

// mamba gives layers Mamba-2 whose heads are twice as wide as the model together.
func mamba(c *models.Config, i int) {
	heads := []int{6, 4, 6, 7, 8}[i]
	c.Taps, c.Mamba = 4, models.Mamba{Heads: heads, Head: 2 * c.Width / heads, Groups: []int{1, 2, 3, 1, 2}[i], States: []int{16, 32, 24, 40, 64}[i]}
}

// kinds marks each third layer, from one on.
func kinds(layers, from int) []bool {
	return lo.Times(layers, func(i int) bool { return i%3 == from })
}

// windows marks all layers but every n-th, which then have a window, or a state instead of
// attention.
func windows(layers, every int) []bool {
	return lo.Times(layers, func(i int) bool { return (i+1)%every != 0 })
}

// experts returns a mixture whose widths are odd too, and in the last geometry whole blocks. Of
// few or many experts some are chosen, or all.
func experts(i int) models.Experts {
	return [...]models.Experts{
		{Count: 8, Chosen: 2, FFN: 96}, {Count: 5, Chosen: 1, FFN: 72}, {Count: 3, Chosen: 3, FFN: 40},
		{Count: 12, Chosen: 4, FFN: 64}, {Count: 7, Chosen: 3, FFN: 256},
	}[i]
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
