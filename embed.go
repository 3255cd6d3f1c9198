package smelt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
)

// Pooling returns the model's pooling of token embeddings: that of its file or, without one,
// "mean" for bidirectional attention and "last" for causal attention, where only the last token
// attends to all others.
func (m *Model) Pooling() string {
	switch {
	case m.file != nil && m.file.Config.Pooling != "":
		return m.file.Config.Pooling
	case m.file != nil && m.file.Config.Both:
		return "mean"
	}
	return "last"
}

// Embedder computes embeddings of texts in batches. It is not safe for concurrent use.
type Embedder struct {
	loaded   *Loaded
	pooling  string
	embedder *engine.Embedder
}

// NewEmbedder returns an Embedder of a program compiled with [Options.Embeddings]. Pooling
// is "mean", "cls" (the first token), "last" or "none" (an embedding per token); "" selects
// [Model.Pooling].
func (l *Loaded) NewEmbedder(pooling string) (*Embedder, error) {
	if pooling == "" {
		pooling = l.program.model.Pooling()
	}
	if !slices.Contains(engine.Poolings, pooling) {
		return nil, fmt.Errorf("%s: no pooling is called %q; known are %s", l.program.model.name, pooling, strings.Join(engine.Poolings, ", "))
	}
	e, err := engine.NewEmbedder(l.program.Plan, l.executable)
	if err != nil {
		return nil, err
	}
	return &Embedder{loaded: l, pooling: pooling, embedder: e}, nil
}

// Close releases the embedder's memory.
func (e *Embedder) Close() error { return e.embedder.Close() }

// Pooling returns the pooling, as [Loaded.NewEmbedder] names it.
func (e *Embedder) Pooling() string { return e.pooling }

// Vocab returns the size of the vocabulary.
func (e *Embedder) Vocab() int { return int(e.loaded.program.Plan.Vocab) }

// Width returns the number of elements of an embedding.
func (e *Embedder) Width() int { return e.embedder.Width() }

// Longest returns the maximum number of tokens of a text.
func (e *Embedder) Longest() int { return e.embedder.Longest() }

// Encode tokenizes a text for Embed. It recognises special tokens, and adds the start and end
// tokens that the model has. It returns [ErrContext] for a text whose length shows that it has more
// than [Embedder.Longest] tokens: encoding it would take many times its size in memory.
func (e *Embedder) Encode(text string) ([]int32, error) {
	if err := e.loaded.fits(text, e.Longest()); err != nil {
		return nil, err
	}
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

// Embed returns the embedding of each text, [Width], or with pooling "none" those of its
// tokens, [tokens, Width] row-major. They are not normalised, see [Embedder.Normalize].
func (e *Embedder) Embed(ctx context.Context, texts [][]int32) ([][]float32, error) {
	rows := batch.All
	if e.pooling == "last" {
		rows = batch.Last
	}
	out := make([][]float32, len(texts))
	err := e.embedder.Run(ctx, texts, rows, func(i int, states []float32) error {
		out[i] = engine.Pool(e.pooling, e.Width(), states)
		return nil
	})
	return out, err
}

// Normalize scales an embedding in place to Euclidean length 1; zeros stay zeros.
func (e *Embedder) Normalize(v []float32) { engine.Normalize(v) }
