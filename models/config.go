package models

import (
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
)

// Config is what a family's graph depends on besides weights.
type Config struct {
	Family  string // general.architecture in GGUF files: "llama", "qwen3"
	Name    string // what the model calls itself, or ""
	Vocab   int    // tokens
	Width   int    // of the residual stream
	Layers  int
	Heads   int // query heads
	KVHeads int // key and value heads; each serves Heads/KVHeads query heads
	Head    int // elements of a head
	FFN     int // width of the feed-forward layer
	Context int // tokens that the model was trained to see
	Eps     float64
	Rope    Rope
	Tied    bool // the output head is the embedding table
}

// Rope is a model's rotary position embedding. See [ir.RopeAttr].
type Rope struct {
	Theta       float64
	Rotated     int     // leading elements of a head that rotate
	Interleaved bool    // pairs lie side by side, as in llama.cpp's files of Llama models
	Linear      float64 // positions are divided by this; 1 for most models
	// Llama3 gives factors that divide the frequencies. Where a file holds them as
	// rope_freqs.weight, those are used.
	Llama3 *Llama3Rope
}

// Llama3Rope stretches low frequencies more than high ones, to see further than
// the context of the first training.
type Llama3Rope struct {
	Factor        float64 // of wavelengths beyond OldContext/LowFrequency
	LowFrequency  float64
	HighFrequency float64 // wavelengths below OldContext/HighFrequency stay
	OldContext    float64 // tokens
}

// ErrConfig is wrapped by errors about what a model says of itself.
var ErrConfig = errors.New("unsupported model")

func configError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
}

// Bounds on what a file may say: far beyond any model, and small enough that
// products of two fit an int and that a graph of that many layers is built at once.
const (
	maxExtent = 1 << 24
	maxLayers = 1 << 10
)

// check finds what no graph can be built from.
func (c *Config) check() error {
	for _, size := range []struct {
		name   string
		n, max int
	}{
		{"vocabulary size", c.Vocab, maxExtent}, {"width", c.Width, maxExtent}, {"number of layers", c.Layers, maxLayers},
		{"number of heads", c.Heads, maxExtent}, {"number of KV heads", c.KVHeads, maxExtent}, {"head size", c.Head, maxExtent},
		{"feed-forward width", c.FFN, maxExtent}, {"context length", c.Context, math.MaxInt32},
	} {
		if size.n < 1 || size.n > size.max {
			return configError("the %s is %d", size.name, size.n)
		}
	}
	r := &c.Rope
	switch {
	case c.Heads%c.KVHeads != 0:
		return configError("%d query heads cannot share %d KV heads evenly", c.Heads, c.KVHeads)
	case c.Heads*c.Head > maxExtent:
		return configError("%d heads of %d elements", c.Heads, c.Head)
	case r.Rotated < 2 || r.Rotated%2 != 0 || r.Rotated > c.Head:
		return configError("RoPE of %d elements of a head of %d", r.Rotated, c.Head)
	case !positive(c.Eps):
		return configError("the norms' epsilon is %g", c.Eps)
	case !positive(r.Theta):
		return configError("the base of RoPE's frequencies is %g", r.Theta)
	case !positive(r.Linear):
		return configError("RoPE's scaling factor is %g", r.Linear)
	}
	if l := r.Llama3; l != nil && !(positive(l.Factor) && positive(l.LowFrequency) && positive(l.HighFrequency) &&
		positive(l.OldContext) && l.HighFrequency > l.LowFrequency) {
		return configError("llama3 RoPE scaling by %+v", *l)
	}
	return nil
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

// ropeFreqs is the tensor of a GGUF file that holds RoPE factors.
const ropeFreqs = "rope_freqs.weight"

// rope returns what the DSL's Rope takes: its attribute, and the factors or nil.
func (c *Config) rope(b *ir.Builder) (ir.RopeAttr, *ir.Value) {
	attr := ir.RopeAttr{
		Interleaved: c.Rope.Interleaved,
		Rotated:     c.Rope.Rotated,
		Theta:       c.Rope.Theta,
		FreqScale:   1 / c.Rope.Linear,
		Magnitude:   1,
	}
	switch {
	case b.HasWeight(ropeFreqs):
		return attr, b.Weight(ropeFreqs, c.Rope.Rotated/2)
	case c.Rope.Llama3 != nil:
		return attr, b.Const(c.Rope.Llama3.factors(c.Rope.Theta, c.Rope.Rotated))
	}
	return attr, nil
}

// factors returns what each pair's frequency is divided by, as
// _compute_llama3_parameters of Hugging Face's transformers has it: wavelengths
// over OldContext/LowFrequency are stretched by Factor, those under
// OldContext/HighFrequency stay, and in between the frequencies are mixed.
func (l *Llama3Rope) factors(theta float64, rotated int) []float32 {
	out := make([]float32, rotated/2)
	for i := range out {
		wavelength := 2 * math.Pi * math.Pow(theta, 2*float64(i)/float64(rotated))
		switch turns := l.OldContext / wavelength; {
		case turns < l.LowFrequency:
			out[i] = float32(l.Factor)
		case turns > l.HighFrequency:
			out[i] = 1
		default:
			smooth := (turns - l.LowFrequency) / (l.HighFrequency - l.LowFrequency)
			out[i] = float32(1 / ((1-smooth)/l.Factor + smooth))
		}
	}
	return out
}
