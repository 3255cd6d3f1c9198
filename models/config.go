package models

import (
	"errors"
	"fmt"
	"math"
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
	if y := r.YaRN; y != nil && !(positive(y.Factor) && positive(y.FastBeta) && positive(y.SlowBeta) && positive(y.OldContext) &&
		y.FastBeta > y.SlowBeta && r.Theta > 1 && (y.Magnitude == 0 || positive(y.Magnitude))) {
		return configError("YaRN RoPE scaling by %+v over a base of %g", *y, r.Theta)
	}
	if r.Llama3 != nil && r.YaRN != nil {
		return configError("RoPE scaled in two ways")
	}
	return nil
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
