package smelt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Pooling returns the model's pooling of token embeddings: "rank" if it has a classifier, that of its
// file or, without one, "mean" for bidirectional attention and "last" for causal attention, where
// only the last token attends to all others.
func (m *Model) Pooling() string {
	switch {
	case m.classifier().Classes > 0:
		return "rank"
	case m.file != nil && m.file.Config.Pooling != "":
		return m.file.Config.Pooling
	case m.file != nil && m.file.Config.Both:
		return "mean"
	}
	return "last"
}

func (m *Model) classifier() models.Classifier {
	if m.file == nil {
		return models.Classifier{}
	}
	return m.file.Config.Classifier
}

// Embedder computes embeddings of texts in batches. It is not safe for concurrent use.
type Embedder struct {
	loaded   *Loaded
	pooling  string
	embedder *engine.Embedder
}

// NewEmbedder returns an Embedder of a program compiled with [Options.Embeddings]. Pooling
// is "mean", "cls" (the first token), "last", "none" (an embedding per token) or "rank" (the scores of
// a model with a classifier, which has no other); "" selects [Model.Pooling].
func (l *Loaded) NewEmbedder(pooling string) (*Embedder, error) {
	if pooling == "" {
		pooling = l.program.model.Pooling()
	}
	if !slices.Contains(engine.Poolings, pooling) {
		return nil, fmt.Errorf("%s: no pooling is called %q; known are %s", l.program.model.name, pooling, strings.Join(engine.Poolings, ", "))
	}
	if model := l.program.model; (pooling == "rank") != (model.classifier().Classes > 0) {
		if pooling == "rank" {
			return nil, fmt.Errorf("%s has no classifier (cls.output.weight) that would score texts", model.name)
		}
		return nil, fmt.Errorf("%s scores texts: its pooling is rank, not %s", model.name, pooling)
	}
	e, err := engine.NewEmbedder(l.program.Plan, l.executable)
	if err != nil {
		return nil, err
	}
	if pooling == "rank" && l.program.model.file.Config.TokenTypes > 1 {
		if t, err := l.Tokenizer(); err == nil { // without a vocabulary there are no pairs
			e.Second = func(text []int32) int { return slices.Index(text, t.EOS()) + 1 }
		}
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

// EncodePair tokenizes two texts for a model that scores pairs, such as a reranker: by the template
// that its file calls "rerank", with {query} and {document} in it, or as BERT does,
//
//	[CLS] query [SEP] document [SEP]
//
// where XLM-RoBERTa has two [SEP] between them. Neither text becomes a special token. Where a model
// has two types of tokens, those behind the first [SEP] are of the second.
func (e *Embedder) EncodePair(query, document string) ([]int32, error) {
	if err := e.loaded.fits(query+document, e.Longest()); err != nil {
		return nil, err
	}
	t, err := e.loaded.Tokenizer()
	if err != nil {
		return nil, err
	}
	template, err := e.loaded.program.model.file.RerankTemplate()
	if err != nil {
		return nil, err
	}
	if template == "" {
		return joinPair(t, query, document), nil
	}
	return fillPair(t, template, query, document), nil
}

// joinPair encodes two texts with what their family has around and between them.
func joinPair(t *tokenizer.Tokenizer, query, document string) []int32 {
	spec := t.Spec()
	var between, end []int32
	if spec.AddEOS {
		between, end = []int32{spec.EOS}, []int32{spec.EOS}
		if spec.Algorithm == tokenizer.Unigram {
			between = append(between, spec.EOS)
		}
	}
	return slices.Concat(t.Opening(), t.Encode(query, false), between, t.Encode(document, false), end)
}

// fillPair encodes a template with two texts put in, whose text becomes no special token.
func fillPair(t *tokenizer.Tokenizer, template, query, document string) []int32 {
	texts := map[string]string{"{query}": query, "{document}": document}
	var text strings.Builder
	var quoted []tokenizer.Range
	for template != "" {
		name, at := "", len(template)
		for n := range texts {
			if i := strings.Index(template, n); i >= 0 && i < at {
				name, at = n, i
			}
		}
		text.WriteString(template[:at])
		if name != "" {
			quoted = append(quoted, tokenizer.Range{From: text.Len(), To: text.Len() + len(texts[name])})
			text.WriteString(texts[name])
		}
		template = template[at+len(name):]
	}
	return t.Open(t.EncodeQuoted(text.String(), quoted))
}

// Embed returns the embedding of each text, [Width], or with pooling "none" those of its
// tokens, [tokens, Width] row-major. They are not normalised, see [Embedder.Normalize]. With
// pooling "rank" it returns the scores of the classes, [Width]; a reranker's first is the relevance.
func (e *Embedder) Embed(ctx context.Context, texts [][]int32) ([][]float32, error) {
	pooling, classifier := e.pooling, models.Classifier{}
	if model := e.loaded.program.model; pooling == "rank" {
		classifier, pooling = model.classifier(), "last"
		if model.file.Config.Both {
			pooling = "cls"
		}
	}
	rows := batch.All
	if pooling == "last" {
		rows = batch.Last
	}
	out := make([][]float32, len(texts))
	err := e.embedder.Run(ctx, texts, rows, func(i int, states []float32) error {
		out[i] = engine.Pool(pooling, e.Width(), states)
		if classifier.Softmax {
			engine.Softmax(out[i])
		}
		return nil
	})
	return out, err
}

// Normalize scales an embedding in place to Euclidean length 1; zeros stay zeros.
func (e *Embedder) Normalize(v []float32) { engine.Normalize(v) }
