package models

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// Config holds everything besides weights that a family's graph depends on.
type Config struct {
	Family  string // general.architecture in GGUF files: "llama", "qwen3"
	Name    string // of the model, or ""
	Vocab   int    // tokens
	Width   int    // of the residual stream
	Layers  int
	Heads   int // query heads
	KVHeads int // key and value heads; each serves Heads/KVHeads query heads
	Head    int // elements of a head
	FFN     int // width of the feed-forward layer
	Context int // tokens of the longest sequence in training
	Eps     float64
	Rope    Rope
	Tied    bool // the output head is the embedding table

	// The following fields are zero in families without the feature.

	Biases         Biases
	Window         int    // keys that a token attends to in layers with a sliding window, its own included
	Windowed       []bool // layers with a sliding window
	WindowRope     Rope   // of layers with a sliding window, where it differs
	SoftCap        float64
	LogitCap       float64 // SoftCap of logits
	AttentionScale float64 // of scores; 0: 1/√Head
	EmbeddingScale float64 // of token embeddings; 0: 1
	ResidualScale  float64 // of what a layer adds to the residual stream; 0: 1
	LogitScale     float64 // by which logits are multiplied; 0: 1
	Suppressed     []int   // tokens that are never generated: their logits are −∞
	LogitDivisor   float64 // by which Granite's logits are divided; 0: 1
	Parallel       bool    // attention and feed-forward network both read the layer's input
	HeadNorms      bool    // each head of Q and K is normalised with weights of its own
	RMS            bool    // the norms are RMSNorm; only of families that have models with either norm
	Positions      bool    // each of Context positions has an embedding
	FirstPosition  int     // the row of folders' table of them that a sequence begins with
	ALiBi          float64 // see alibi
	Sections       []int   // RoPE pairs of a head for each axis of an image
	Temperature    float64 // by which queries grow with each GrowsEvery positions
	GrowsEvery     int
	HeadCounts     []int   // query heads of each layer, where they differ; Heads is the largest
	KVCounts       []int   // KV heads of each layer, likewise
	FFNs           []int   // widths of feed-forward layers, likewise
	WindowHead     int     // elements of a head in layers with a sliding window, where they differ
	Sharing        int     // last layers, which read the keys and values of earlier ones
	KeyIsValue     bool    // layers without a sliding window have no attn_v: their values are their keys before norm and RoPE
	PerLayer       int     // elements of a token's embedding for each layer
	ElementGate    bool    // the gate of attention has a value for each element of a head, not for each head
	Recurrent      []bool  // layers with a recurrent state instead of attention
	Guessing       int     // blocks behind the layers that guess further tokens, which no graph runs
	Taps           int     // tokens in the window of a short convolution, its own included
	Experts        Experts // of layers whose feed-forward network is a mixture of experts
	Delta          Delta   // of layers with the gated delta rule
	GateNorm       bool    // what Mamba-2 yields is normalised; only of families that have models without
	Mamba          Mamba   // of layers with the state space of Mamba-2
	Networks       []bool  // layers that are a feed-forward network alone, where the others have none; nil: all have one
	Latent         Latent  // of attention over K and V that are products of one vector

	Multipliers Multipliers // of Falcon-H1's folders

	Both       bool   // attention is bidirectional
	Pooling    string // one of poolings, by which token embeddings become one; "": not in the files
	TokenTypes int    // number of token types, each of which has an embedding
	Dense      int    // inner width of the two dense layers behind the pooling; 0: none
	Classifier Classifier

	MaxContext int  // bound on the tokens of a sequence; 0: none. See At
	Embeds     bool // the graph returns the head's input instead of logits

	// ByLayer describes each layer of a model whose layers differ; nil where all have the sizes
	// above and nothing else. [Family.Complete] derives it from the other fields.
	ByLayer []Layer
}

// SeesWindow reports whether layer i has a sliding window.
func (c *Config) SeesWindow(i int) bool { return c.Windowed != nil && c.Windowed[i] }

// Recurs reports whether layer i has a recurrent state instead of attention.
func (c *Config) Recurs(i int) bool { return c.Recurrent != nil && c.Recurrent[i] }

// WithWindow is the [Family.Layer] of families whose layers differ in the sliding window only.
func WithWindow(c *Config, i int, l *Layer) {
	if c.SeesWindow(i) {
		l.Window = c.Window
	}
}

// Classifier is the head of models that score texts, such as rerankers, in place of embedding them.
type Classifier struct {
	Classes int  // 0: no classifier
	Dense   bool // whether a dense layer with tanh stands before the scores
	Softmax bool // whether the scores become probabilities
}

// Biases marks the products that add a vector.
type Biases struct{ QKV, Output, FFN, Head, Classifier bool }

// Layer is the shape of one layer.
type Layer struct {
	Heads, KVHeads, Head int
	FFN                  int
	Rope                 *Rope   // nil: heads are not rotated
	Window               int     // keys that a token attends to, its own included; 0: all up to its own
	SoftCap              float64 // of attention scores; 0: none
	Sinks                bool    // each head has a sink beside its scores
	ALiBi                float64 // scale of ALiBi's slopes, see alibi; 0: no ALiBi
	Recurrent            bool    // a recurrent state instead of attention
	Back                 int     // the layer attends over the keys and values of the one so many before it; 0: its own
	Kind                 LayerKind
}

// LayerKind says what a layer consists of.
type LayerKind int

const (
	WholeLayer   LayerKind = iota // attention or a recurrent state, then a feed-forward network
	MixerAlone                    // no feed-forward network
	NetworkAlone                  // a feed-forward network and nothing else
)

// At returns the configuration for sequences of at most context tokens (see [Rope]), whose graph
// returns embeddings or logits.
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

// check returns an error for a configuration that no graph can be built from.
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
		{"scale of residuals", c.ResidualScale}, {"scale of logits", c.LogitScale}, {"divisor of logits", c.LogitDivisor}} {
		if x.is != 0 && !(x.is >= 1/maxScale && x.is <= maxScale) {
			return ConfigError("the %s is %g", x.name, x.is)
		}
	}
	if c.Taps != 0 && (c.Taps < 2 || c.Taps > ir.MaxTaps) {
		return ConfigError("convolutions have %d taps, want 2 to %d", c.Taps, ir.MaxTaps)
	}
	return nil
}

// checkLayers checks each layer.
func (c *Config) checkLayers() error {
	if c.ByLayer == nil {
		l := c.Layer(0)
		return l.check()
	}
	if len(c.ByLayer) != c.Layers {
		return ConfigError("%d layers are described, the model has %d", len(c.ByLayer), c.Layers)
	}
	for i := range c.ByLayer {
		if err := cmp.Or(c.ByLayer[i].check(), c.checkBack(i)); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}

// checkBack checks the layer whose keys and values layer i attends over.
func (c *Config) checkBack(i int) error {
	l := &c.ByLayer[i]
	if l.Back == 0 {
		return nil
	}
	if l.Back < 0 || l.Back > i {
		return ConfigError("it attends over the keys and values of the layer %d before it", l.Back)
	}
	from := &c.ByLayer[i-l.Back]
	switch {
	case from.Back != 0 || !from.attends() || !l.attends():
		return ConfigError("it attends over the keys and values of layer %d, which has none", i-l.Back)
	case l.KVHeads != from.KVHeads || l.Head != from.Head:
		return ConfigError("%d KV heads of %d elements are those of layer %d, which has %d of %d", l.KVHeads, l.Head, i-l.Back, from.KVHeads, from.Head)
	case from.Window != 0 && (l.Window == 0 || l.Window > from.Window):
		return ConfigError("it sees more keys than layer %d, which keeps %d", i-l.Back, from.Window)
	}
	return nil
}

func (l *Layer) check() error {
	var extents []Extent
	if l.Kind == WholeLayer || l.attends() {
		extents = append(extents, Extent{"number of heads", l.Heads, MaxExtent}, Extent{"number of KV heads", l.KVHeads, MaxExtent}, Extent{"head size", l.Head, MaxExtent})
	}
	if l.Kind != MixerAlone {
		extents = append(extents, Extent{"feed-forward width", l.FFN, MaxExtent})
	}
	if err := CheckExtents(extents...); err != nil || l.Kind != WholeLayer && !l.attends() {
		return err
	}
	switch {
	case l.Heads%l.KVHeads != 0:
		return ConfigError("%d query heads cannot share %d KV heads evenly", l.Heads, l.KVHeads)
	case l.Heads*l.Head > MaxExtent:
		return ConfigError("%d heads of %d elements are more than %d elements in all", l.Heads, l.Head, MaxExtent)
	case l.Window < 0 || l.Window > math.MaxInt32:
		return ConfigError("the sliding window has %d keys, want 0 to %d", l.Window, math.MaxInt32)
	case l.SoftCap != 0 && !positive(l.SoftCap):
		return ConfigError("the soft cap of scores is %g, want a positive number", l.SoftCap)
	case l.ALiBi != 0 && !(l.ALiBi > 0 && l.ALiBi <= maxScale):
		return ConfigError("the scale of ALiBi's slopes is %g, want 0 to %g", l.ALiBi, maxScale)
	case l.Rope != nil:
		return l.Rope.check(l.Head)
	}
	return nil
}

// Unread reports whether files may hold a tensor of a layer that reads the keys and values of an earlier
// one, and so has no use for its own.
func (c *Config) Unread(tensor string) bool {
	i, role, _, ok := InLayer(tensor)
	return ok && c.ByLayer != nil && i >= 0 && i < c.Layers && c.ByLayer[i].Back > 0 && slices.Contains([]string{"attn_k", "attn_v", "attn_k_norm"}, role)
}

// attends reports whether the layer has attention.
func (l *Layer) attends() bool { return !l.Recurrent && l.Kind != NetworkAlone }

// Guesses reports whether a tensor belongs to a block that guesses further tokens. The name is that
// in a GGUF file, or a bare one in a folder.
func (c *Config) Guesses(tensor string) bool {
	for _, layer := range []string{"blk.%d.", "layers.%d."} {
		var block int
		if _, err := fmt.Sscanf(tensor, layer, &block); err == nil && block >= c.Layers && block < c.Layers+c.Guessing {
			return true
		}
	}
	return false
}

// Experts is the shape of a mixture of experts; the zero value is none.
type Experts struct {
	Count      int  // experts of a layer
	Chosen     int  // experts that the router chooses for each token
	FFN        int  // width of each
	Shared     int  // width of the shared expert, which all tokens go to; 0: none
	SharedGate bool // the output of the shared expert is multiplied by a gate of its own
	Dense      int  // leading layers with a dense feed-forward network
	Latent     int  // elements of the vector that experts read and write, a projection of the stream; 0: the stream
	Router     Router
}

// check returns an error for a mixture that no graph can be built from.
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
	if e.Latent < 0 || e.Latent > MaxExtent {
		return ConfigError("the width of what experts read is %d", e.Latent)
	}
	return e.Router.check(e.Count, e.Chosen)
}

// Mamba is the shape of layers with the state space of Mamba-2; the zero value is none.
type Mamba struct {
	Heads  int
	Head   int // elements of each
	Groups int // of B and C, which divide the heads
	States int // elements of a group of B and of C
}

// Inner returns the elements of all heads, and Convolved those that are convolved: heads, B and C.
func (m *Mamba) Inner() int     { return m.Heads * m.Head }
func (m *Mamba) Convolved() int { return m.Inner() + 2*m.Groups*m.States }

// Multipliers are what products of Falcon-H1 are multiplied by, which GGUF files have in the weights and
// folders beside them.
type Multipliers struct {
	Embedding, Head              float64
	AttentionIn, AttentionOut, K float64
	MambaIn, MambaOut            float64
	Gate, Down                   float64
	Parts                        [5]float64 // of what Mamba-2 projects: z, x, B, C and dt
}

// Delta is the shape of layers with the gated delta rule.
type Delta struct {
	Heads    int // of V
	KeyHeads int // of Q and of K
	Head     int // elements of each
	// Adjacent is set where the heads of V that share one of Q and K are adjacent; if not, they are
	// KeyHeads apart.
	Adjacent bool
	Joined   bool // files store Q, K, V and the gate as one tensor, ssm_in
}

// Latent is the shape of multi-head latent attention; the zero value is none. Heads of K have
// [Config.Head] elements, of which the first [Rope.Rotated] are shared by all heads.
type Latent struct {
	Query  int  // elements of the latent vector that Q is projected from; 0: from the residual stream
	KV     int  // elements of the latent vector that K and V are projected from
	Value  int  // elements of a head of V
	Joined bool // files store the projections of K and V as one tensor, attn_kv_b
}
