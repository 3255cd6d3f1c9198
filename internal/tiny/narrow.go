package tiny

import "github.com/smelt-ml/smelt/models"

// Narrow is a shape whose rows have 32, 48 and 64 elements, fewer than a block of the
// K-quants.
func Narrow() models.Config {
	return models.Config{
		Family: "llama", Name: "narrow", Vocab: 300, Width: 32, Layers: 2, Heads: 6, KVHeads: 2, Head: 8, FFN: 64,
		Context: 64, Eps: 1e-5, Rope: models.Rope{Theta: 1e4, Llama3: &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 32}},
	}
}
