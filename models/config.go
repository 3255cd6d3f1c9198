package models

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/samber/lo"

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

	// What follows is for families that have it; zero elsewhere.

	Biases         Biases
	Window         int    // keys that a token sees in layers with a window, its own included
	Windowed       []bool // which layers have one
	WindowRope     Rope   // of layers with a window, where it differs
	SoftCap        float64
	LogitCap       float64 // as SoftCap, of logits
	AttentionScale float64 // of scores; 0: 1/√Head
	EmbeddingScale float64 // of token embeddings; 0: 1
	ResidualScale  float64 // of what a layer adds to the residual stream; 0: 1
	LogitScale     float64 // as the family uses it; 0: 1
	Parallel       bool    // both halves of a layer see its input
	HeadNorms      bool    // each head of Q and K is normed with weights of its own
	Positions      bool    // each of Context positions has an embedding
	ALiBi          float64 // see alibi
	Sections       []int   // pairs of a head for each axis of an image
	Temperature    float64 // by which queries grow beyond the context of the first training
	Recurrent      []bool  // which layers have a recurrent state in the place of attention
	Taps           int     // tokens that a short convolution sees, its own included
	Experts        Experts // of layers whose feed-forward network is a mixture
	Delta          Delta   // of layers with the gated delta rule
	Latent         Latent  // of attention over K and V that are products of one vector

	Both       bool   // tokens see those after them, too
	Pooling    string // one of poolings: what makes one embedding of those of a text's tokens; "": files do not say
	TokenTypes int    // each of which has an embedding
	Dense      int    // width between two products that embeddings pass; 0: there are none

	context    int  // tokens that sequences may have; 0: as many as they like. See at
	embeddings bool // the result is what the head would read

	// ByLayer describes each layer of a model whose layers differ; nil where all have
	// the sizes above and nothing else. A family that has such layers makes it of the rest.
	ByLayer []Layer
}

// seesWindow reports whether layer i sees a window.
func (c *Config) seesWindow(i int) bool { return c.Windowed != nil && c.Windowed[i] }

// recurs reports whether layer i has a recurrent state in the place of attention.
func (c *Config) recurs(i int) bool { return c.Recurrent != nil && c.Recurrent[i] }

// withWindow is the [Family.Layer] of families whose layers differ in nothing but the window.
func withWindow(c *Config, i int, l *Layer) {
	if c.seesWindow(i) {
		l.Window = c.Window
	}
}

// Biases says which products add a vector.
type Biases struct{ QKV, Output, FFN, Head bool }

// Layer is the shape of one layer.
type Layer struct {
	Heads, KVHeads, Head int
	FFN                  int
	Rope                 *Rope   // nil: heads are not rotated
	Window               int     // keys that a token sees, its own included; 0: all up to its own
	SoftCap              float64 // of attention scores; 0: none
	Sinks                bool    // each head has a sink beside its scores
	ALiBi                float64 // scores fall with distance; see alibi; 0: they do not
	Recurrent            bool    // it has no attention, but a state that tokens take further
}

// at is the model for sequences of up to that many tokens, see [Rope], whose result are logits
// or embeddings.
func (c Config) at(context int, embeddings bool) *Config {
	c.embeddings = embeddings
	c.context, c.Rope = context, c.Rope.at(context)
	c.ByLayer = slices.Clone(c.ByLayer)
	for i := range c.ByLayer {
		if l := &c.ByLayer[i]; l.Rope != nil {
			l.Rope = new(l.Rope.at(context))
		}
	}
	return &c
}

// Layer returns the shape of layer i.
func (c *Config) Layer(i int) Layer {
	if c.ByLayer != nil {
		return c.ByLayer[i]
	}
	return Layer{Heads: c.Heads, KVHeads: c.KVHeads, Head: c.Head, FFN: c.FFN, Rope: &c.Rope, SoftCap: c.SoftCap, ALiBi: c.ALiBi}
}

// complete adds what a family knows of its models, and has it describe its layers, unless
// they are described already.
func (c *Config) complete(family *Family) error {
	if family.Given != nil {
		family.Given(c)
	}
	if c.ByLayer != nil || family.Layer == nil || c.Layers < 1 || c.Layers > maxLayers {
		return nil
	}
	if c.Windowed != nil && len(c.Windowed) != c.Layers {
		return configError("windows of %d layers, of %d", len(c.Windowed), c.Layers)
	}
	if c.Recurrent != nil && len(c.Recurrent) != c.Layers {
		return configError("attention or none in %d layers, of %d", len(c.Recurrent), c.Layers)
	}
	layers, differ := make([]Layer, c.Layers), false
	for i := range layers {
		layers[i] = c.Layer(i)
		family.Layer(c, i, &layers[i])
		differ = differ || layers[i] != c.Layer(i)
	}
	if differ {
		c.ByLayer = layers
	}
	return nil
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
	maxScale  = 1e9
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
	if err := c.Experts.check(); err != nil {
		return err
	}
	if !positive(c.Eps) {
		return configError("the norms' epsilon is %g", c.Eps)
	}
	for _, x := range []struct {
		name string
		is   float64
	}{{"soft cap of logits", c.LogitCap}, {"scale of attention", c.AttentionScale}, {"scale of embeddings", c.EmbeddingScale},
		{"scale of residuals", c.ResidualScale}, {"scale of logits", c.LogitScale}} {
		if x.is != 0 && !(x.is >= 1/maxScale && x.is <= maxScale) {
			return configError("the %s is %g", x.name, x.is)
		}
	}
	if c.Taps != 0 && (c.Taps < 2 || c.Taps > ir.MaxTaps) {
		return configError("convolutions of %d tokens: want 2 to %d", c.Taps, ir.MaxTaps)
	}
	if err := c.Delta.check(); err != nil {
		return err
	}
	if err := c.Latent.check(c); err != nil {
		return err
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
	case l.ALiBi != 0 && !(l.ALiBi > 0 && l.ALiBi <= maxScale):
		return configError("ALiBi up to a power of %g", l.ALiBi)
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
	if l := r.Long; l != nil {
		if !(positive(l.OldContext) && positive(l.Magnitude)) {
			return configError("LongRoPE beyond %g tokens, of a magnitude of %g", l.OldContext, l.Magnitude)
		}
		for _, factors := range [][]float64{l.Short, l.Long} {
			if factors != nil && len(factors) != r.Rotated/2 {
				return configError("LongRoPE has %d factors for %d pairs", len(factors), r.Rotated/2)
			}
			if x, ok := lo.Find(factors, func(x float64) bool { return !positive(x) }); ok {
				return configError("a factor of LongRoPE is %g", x)
			}
		}
	}
	if d := r.Dynamic; d != nil && !(d.Factor >= 1 && positive(d.Factor) && positive(d.OldContext) && r.Rotated > 2) {
		return configError("dynamic RoPE scaling by %+v", *d)
	}
	if lo.Count([]bool{r.Llama3 != nil, r.YaRN != nil, r.Long != nil, r.Dynamic != nil}, true) > 1 {
		return configError("RoPE scaled in two ways")
	}
	return nil
}

func positive(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
