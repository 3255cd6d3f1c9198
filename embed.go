package smelt

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
)

// Poolings are the ways of making one embedding of the hidden states of a text's tokens: none
// at all, their mean, those of the first token or of the last.
var Poolings = []string{"none", "mean", "cls", "last"}

// Defaults of Options for programs that embed texts.
const (
	DefaultTexts       = 64   // of a step
	DefaultTextContext = 2048 // tokens of a text, where the model was trained for as many
)

// Pooling returns how the model makes one embedding of a text: as its file says or, where it
// does not, by the mean of what attention both ways makes of tokens, and by the last token
// where it alone has seen all others.
func (m *Model) Pooling() string {
	switch {
	case m.file != nil && m.file.Config.Pooling != "":
		return m.file.Config.Pooling
	case m.file != nil && m.file.Config.Both:
		return "mean"
	}
	return "last"
}

// embeddingDefaults are those of Options with Embeddings. A text comes in one step, since of
// attention both ways no token can do without those after it.
func (m *Model) embeddingDefaults(o *Options) {
	if o.Context == 0 {
		o.Context = DefaultTextContext
		if m.context > 0 {
			o.Context = min(m.context, DefaultTextContext)
		}
	}
	o.Sequences, o.Block = cmp.Or(o.Sequences, DefaultTexts), cmp.Or(o.Block, min(DefaultBlock, o.Context))
	o.Prefill = max(cmp.Or(o.Prefill, DefaultPrefill), o.Context)
	o.Rows = o.Prefill
}

// Embedder makes embeddings of texts, many in a step. It is used by one goroutine at a time.
type Embedder struct {
	loaded   *Loaded
	pooling  string
	embedder *engine.Embedder
}

// NewEmbedder makes embeddings with a program that was compiled for them, see
// [Options.Embeddings], pooled in one of the ways of [Poolings], or as the model says where
// pooling is "".
func (l *Loaded) NewEmbedder(pooling string) (*Embedder, error) {
	if pooling == "" {
		pooling = l.program.model.Pooling()
	}
	if !slices.Contains(Poolings, pooling) {
		return nil, fmt.Errorf("%s: no pooling is called %q; known are %s", l.program.model.name, pooling, strings.Join(Poolings, ", "))
	}
	e, err := engine.NewEmbedder(l.program.Plan, l.metal)
	if err != nil {
		return nil, err
	}
	return &Embedder{loaded: l, pooling: pooling, embedder: e}, nil
}

// Close releases the memory.
func (e *Embedder) Close() error { return e.embedder.Close() }

// Pooling returns how tokens become one embedding: one of [Poolings].
func (e *Embedder) Pooling() string { return e.pooling }

// Vocab returns how many tokens the model knows.
func (e *Embedder) Vocab() int { return int(e.loaded.program.Plan.Vocab) }

// Width returns the elements of an embedding.
func (e *Embedder) Width() int { return e.embedder.Width() }

// Longest returns how many tokens a text may have.
func (e *Embedder) Longest() int { return e.embedder.Longest() }

// Encode turns a text into the tokens that the model embeds: special tokens are recognised, and
// those that start and end a text are added where the model has them.
func (e *Embedder) Encode(text string) ([]int32, error) {
	t, err := e.loaded.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids := t.Open(t.Encode(text, true))
	if end := t.EOS(); t.Spec().AddEOS && (len(ids) == 0 || ids[len(ids)-1] != end) {
		ids = append(ids, end)
	}
	return ids, nil
}

// Embed returns the embedding of each text, [Width], or with pooling "none" that of each of
// its tokens, one after the other, [tokens, Width]. They are as the model computes them:
// [Normalize] gives them the length of one.
func (e *Embedder) Embed(ctx context.Context, texts [][]int32) ([][]float32, error) {
	rows := batch.All
	if e.pooling == "last" {
		rows = batch.Last
	}
	out := make([][]float32, len(texts))
	err := e.embedder.Run(ctx, texts, rows, func(i int, states []float32) error {
		out[i] = e.pool(states)
		return nil
	})
	return out, err
}

// pool makes an embedding of the rows of states, which it does not keep.
func (e *Embedder) pool(states []float32) []float32 {
	width := e.Width()
	switch e.pooling {
	case "mean":
		sums := make([]float64, width)
		for row := range slices.Chunk(states, width) {
			for i, x := range row {
				sums[i] += float64(x)
			}
		}
		mean := make([]float32, width)
		for i, sum := range sums {
			mean[i] = float32(sum / float64(len(states)/width))
		}
		return mean
	case "cls":
		return slices.Clone(states[:width])
	}
	return slices.Clone(states)
}

// Normalize scales a vector to the Euclidean length of one; one of zeros stays.
func Normalize(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	by := 1 / math.Sqrt(sum)
	for i, x := range v {
		v[i] = float32(float64(x) * by)
	}
}
