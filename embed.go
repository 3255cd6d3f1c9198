package smelt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
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

// Embedder makes embeddings of texts, many in a step. It is used by one goroutine at a time.
type Embedder struct {
	loaded   *Loaded
	pooling  string
	embedder *engine.Embedder
}

// NewEmbedder makes embeddings with a program that was compiled for them, see
// [Options.Embeddings], pooled by "mean", "cls" (the first token) or "last", or "none"
// at all; or as the model says where pooling is "".
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

// Close releases the memory.
func (e *Embedder) Close() error { return e.embedder.Close() }

// Pooling returns how tokens become one embedding, as [Loaded.NewEmbedder] names it.
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
// [Embedder.Normalize] gives them the length of one.
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

// Normalize scales an embedding to the Euclidean length of one; one of zeros stays.
func (e *Embedder) Normalize(v []float32) { engine.Normalize(v) }
