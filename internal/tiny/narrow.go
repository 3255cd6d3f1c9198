package tiny

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/synth"
)

// Narrow returns a shape whose rows have 32, 48 and 64 elements, fewer than a block of the
// K-quants.
func Narrow() models.Config {
	return models.Config{
		Family: "llama", Name: "narrow", Vocab: 300, Width: 32, Layers: 2, Heads: 6, KVHeads: 2, Head: 8, FFN: 64,
		Context: 64, Eps: 1e-5, Rope: models.Rope{Theta: 1e4, Llama3: &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 32}},
	}
}

// Small returns a shape with rows of one block of the K-quants each. It has every feature of the
// trained models at a third of their work.
func Small() models.Config {
	c := Narrow()
	c.Name, c.Vocab, c.Width, c.FFN, c.Heads, c.KVHeads, c.Head, c.Context = "small", 512, 256, 256, 8, 2, 32, 512
	return c
}

// Random returns the path of a GGUF file of a shape with random weights, always the same.
func Random(t testing.TB, c models.Config, weightType string) string {
	t.Helper()
	m, err := checkpoint.Synthetic(c, weightType)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), c.Name+"-"+weightType+".gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := synth.Write(f, m, weightType, 1, nil); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
