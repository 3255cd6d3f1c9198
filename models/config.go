package models

import (
	"fmt"
	"math"
	"slices"

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

	MaxContext int  // tokens that sequences may have; 0: as many as they like. See at
	Embeds     bool // the result is what the head would read

	// ByLayer describes each layer of a model whose layers differ; nil where all have
	// the sizes above and nothing else. A family that has such layers makes it of the rest.
	ByLayer []Layer
}

// SeesWindow reports whether layer i sees a window.
func (c *Config) SeesWindow(i int) bool { return c.Windowed != nil && c.Windowed[i] }

// Recurs reports whether layer i has a recurrent state in the place of attention.
func (c *Config) Recurs(i int) bool { return c.Recurrent != nil && c.Recurrent[i] }

// WithWindow is the [Family.Layer] of families whose layers differ in nothing but the window.
func WithWindow(c *Config, i int, l *Layer) {
	if c.SeesWindow(i) {
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

// At is the model for sequences of up to that many tokens, see [Rope], whose result are logits
// or embeddings.
func (c Config) At(context int, embeddings bool) *Config {
	c.Embeds = embeddings
	c.MaxContext, c.Rope = context, c.Rope.at(context)
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

// check finds what no graph can be built from.
func (c *Config) check() error {
	if err := CheckExtents(Extent{"vocabulary size", c.Vocab, MaxExtent}, Extent{"width", c.Width, MaxExtent},
		Extent{"number of layers", c.Layers, MaxLayers}, Extent{"context length", c.Context, math.MaxInt32}); err != nil {
		return err
	}
	if err := c.Experts.check(); err != nil {
		return err
	}
	if !positive(c.Eps) {
		return ConfigError("the norms' epsilon is %g", c.Eps)
	}
	for _, x := range []struct {
		name string
		is   float64
	}{{"soft cap of logits", c.LogitCap}, {"scale of attention", c.AttentionScale}, {"scale of embeddings", c.EmbeddingScale},
		{"scale of residuals", c.ResidualScale}, {"scale of logits", c.LogitScale}} {
		if x.is != 0 && !(x.is >= 1/maxScale && x.is <= maxScale) {
			return ConfigError("the %s is %g", x.name, x.is)
		}
	}
	if c.Taps != 0 && (c.Taps < 2 || c.Taps > ir.MaxTaps) {
		return ConfigError("convolutions of %d tokens: want 2 to %d", c.Taps, ir.MaxTaps)
	}
	return nil
}

// checkLayers is check of each layer.
func (c *Config) checkLayers() error {
	if c.ByLayer == nil {
		l := c.Layer(0)
		return l.check()
	}
	if len(c.ByLayer) != c.Layers {
		return ConfigError("%d layers are described, of %d", len(c.ByLayer), c.Layers)
	}
	for i := range c.ByLayer {
		if err := c.ByLayer[i].check(); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

func (l *Layer) check() error {
	if err := CheckExtents(Extent{"number of heads", l.Heads, MaxExtent}, Extent{"number of KV heads", l.KVHeads, MaxExtent},
		Extent{"head size", l.Head, MaxExtent}, Extent{"feed-forward width", l.FFN, MaxExtent}); err != nil {
		return err
	}
	switch {
	case l.Heads%l.KVHeads != 0:
		return ConfigError("%d query heads cannot share %d KV heads evenly", l.Heads, l.KVHeads)
	case l.Heads*l.Head > MaxExtent:
		return ConfigError("%d heads of %d elements", l.Heads, l.Head)
	case l.Window < 0 || l.Window > math.MaxInt32:
		return ConfigError("a window of %d keys", l.Window)
	case l.SoftCap != 0 && !positive(l.SoftCap):
		return ConfigError("a soft cap of %g", l.SoftCap)
	case l.ALiBi != 0 && !(l.ALiBi > 0 && l.ALiBi <= maxScale):
		return ConfigError("ALiBi up to a power of %g", l.ALiBi)
	case l.Rope != nil:
		return l.Rope.check(l.Head)
	}
	return nil
}

// Experts are the feed-forward networks that a mixture chooses among; the zero value is none.
type Experts struct {
	Count  int     // networks of a layer
	Chosen int     // of them, by the router, for each token
	FFN    int     // width of each
	Shared int     // width of the one that all tokens go to; 0: there is none
	Dense  int     // layers at the beginning that are no mixtures
	Scale  float64 // of what the router weighs by; 0: 1
}

// check finds what no graph can be built from.
func (e *Experts) check() error {
	if *e == (Experts{}) {
		return nil
	}
	if err := CheckExtents(Extent{"number of experts", e.Count, MaxExperts}, Extent{"number of experts a token goes to", e.Chosen, min(e.Count, maxChosen)},
		Extent{"width of experts", e.FFN, MaxExtent}); err != nil {
		return err
	}
	if e.Shared < 0 || e.Shared > MaxExtent {
		return ConfigError("the width of the shared expert is %d", e.Shared)
	}
	if e.Dense < 0 || e.Dense > MaxLayers {
		return ConfigError("the number of layers without experts is %d", e.Dense)
	}
	if e.Scale != 0 && !(e.Scale >= 1/maxScale && e.Scale <= maxScale) {
		return ConfigError("the scale of experts is %g", e.Scale)
	}
	return nil
}

// Delta is the shape of layers with the gated delta rule.
type Delta struct {
	Heads    int // of V
	KeyHeads int // of Q and of K
	Head     int // elements of each
}

// Latent is the shape of multi-head latent attention; the zero value is none. Heads of K have
// [Config.Head] elements, of which [Rope.Rotated] are those of the head that all share.
type Latent struct {
	Query  int  // elements of the vector that all heads of Q are products of; 0: they are of the residual stream
	KV     int  // elements of that of K and V
	Value  int  // elements of a head of V
	Joined bool // files have the products that make K and V as one, attn_kv_b
}
