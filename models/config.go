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

	// ByLayer describes each layer of a model whose layers differ; nil where all have
	// the sizes above and nothing else.
	ByLayer []Layer
}

// Layer is the shape of one layer.
type Layer struct {
	Heads, KVHeads, Head int
	FFN                  int
	Rope                 *Rope   // nil: heads are not rotated
	Window               int     // keys that a token sees, its own included; 0: all up to its own
	SoftCap              float64 // of attention scores; 0: none
	Sinks                bool    // each head has a sink beside its scores
	ALiBi                bool    // scores fall with distance; see alibi
}

// Layer returns the shape of layer i.
func (c *Config) Layer(i int) Layer {
	if c.ByLayer != nil {
		return c.ByLayer[i]
	}
	return Layer{Heads: c.Heads, KVHeads: c.KVHeads, Head: c.Head, FFN: c.FFN, Rope: &c.Rope}
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

// extent is a size and what errors call it.
type extent struct {
	name   string
	n, max int
}

func checkExtents(sizes ...extent) error {
	for _, s := range sizes {
		if s.n < 1 || s.n > s.max {
			return configError("the %s is %d", s.name, s.n)
		}
	}
	return nil
}

// check finds what no graph can be built from.
func (c *Config) check() error {
	if err := checkExtents(extent{"vocabulary size", c.Vocab, maxExtent}, extent{"width", c.Width, maxExtent},
		extent{"number of layers", c.Layers, maxLayers}, extent{"context length", c.Context, math.MaxInt32}); err != nil {
		return err
	}
	if !positive(c.Eps) {
		return configError("the norms' epsilon is %g", c.Eps)
	}
	if c.ByLayer == nil {
		l := c.Layer(0)
		return l.check()
	}
	if len(c.ByLayer) != c.Layers {
		return configError("%d layers are described, of %d", len(c.ByLayer), c.Layers)
	}
	for i := range c.ByLayer {
		if err := c.ByLayer[i].check(); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func (l *Layer) check() error {
	if err := checkExtents(extent{"number of heads", l.Heads, maxExtent}, extent{"number of KV heads", l.KVHeads, maxExtent},
		extent{"head size", l.Head, maxExtent}, extent{"feed-forward width", l.FFN, maxExtent}); err != nil {
		return err
	}
	switch {
	case l.Heads%l.KVHeads != 0:
		return configError("%d query heads cannot share %d KV heads evenly", l.Heads, l.KVHeads)
	case l.Heads*l.Head > maxExtent:
		return configError("%d heads of %d elements", l.Heads, l.Head)
	case l.Window < 0 || l.Window > math.MaxInt32:
		return configError("a window of %d keys", l.Window)
	case l.SoftCap != 0 && !positive(l.SoftCap):
		return configError("a soft cap of %g", l.SoftCap)
	case l.Rope != nil:
		return l.Rope.check(l.Head)
	}
	return nil
}

// check is for heads of that many elements.
func (r *Rope) check(head int) error {
	switch {
	case r.Rotated < 2 || r.Rotated%2 != 0 || r.Rotated > head:
		return configError("RoPE of %d elements of a head of %d", r.Rotated, head)
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
