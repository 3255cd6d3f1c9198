// Package parity holds the small models in which smelt is compared with llama.cpp, by family:
// odd shapes with random weights, and the tokens that both are given. The model files are
// generated where they are needed, always with the same bytes; llama.cpp's results for them are
// kept in testdata/parity, and made by
//
//	make parity
//
// A new family needs only a row in the table shapes, or in embedders if it makes embeddings:
// [Cases] makes five geometries that the family allows, in which heads do not divide anything
// evenly, there is one KV head or one per query head, windows are shorter than the text, and the
// embedding is or is not tied to the head.
package parity

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/synth"
)

// Case is a model and its input.
type Case struct {
	Name   string // family and geometry: "gemma3/2"
	Config models.Config
	Seed   uint64 // of the weights
}

// Vocab and Tokens are the extents of the results: logits, [Tokens, Vocab] of each case.
const (
	Vocab  = 264
	Tokens = 12
)

// types are the weight types of every comparison; more are those of families whose row has
// formats.
var (
	types = []string{"f32", "f16", "q8_0", "q4_0", "q4_k_m"}
	more  = []string{"mxfp4", "iq4_nl", "iq4_xs"}
)

// Types returns the weight types of a family, F32 first. F32 is compared with exact results;
// other types with llama.cpp's, whose distance from F32 is kept.
func Types(family string) []string {
	if s, _ := lo.Find(shapes, func(s shape) bool { return s.family == family }); s.formats {
		return slices.Concat(types, more)
	}
	return types
}

// Text returns the input tokens.
func Text() []int32 {
	r := rand.New(rand.NewPCG(7, 8))
	ids := make([]int32, Tokens)
	for i := range ids {
		ids[i] = int32(r.IntN(256))
	}
	return ids
}

// geometry is the part of a shape that is common to all families.
type geometry struct {
	width, heads, kvHeads, head, ffn, layers int
	tied                                     bool
}

// geometries are odd: heads do not divide the width, or one KV head serves all, or each query
// head has its own, or heads are no power of two. The last one has rows of whole blocks of all
// types.
var geometries = [5]geometry{
	{width: 96, heads: 6, kvHeads: 2, head: 16, ffn: 160, layers: 4},
	{width: 96, heads: 4, kvHeads: 1, head: 24, ffn: 224, layers: 2, tied: true},
	{width: 120, heads: 3, kvHeads: 3, head: 40, ffn: 136, layers: 3},
	{width: 112, heads: 5, kvHeads: 5, head: 32, ffn: 192, layers: 4, tied: true},
	{width: 256, heads: 4, kvHeads: 2, head: 64, ffn: 512, layers: 2},
}

// Families returns the families whose logits are compared, Embedders those whose embeddings are,
// Rankers those whose scores of a text are, [Classes] of each case.
func Families() []string  { return lo.Map(shapes, shape.title) }
func Embedders() []string { return lo.Map(embedders, shape.title) }
func Rankers() []string   { return lo.Map(rankers, shape.title) }

// Cases returns the cases of a family.
func Cases(family string) []Case {
	s, _ := lo.Find(slices.Concat(shapes, embedders, rankers), func(s shape) bool { return s.title(0) == family })
	return lo.Map(geometries[:], func(g geometry, i int) Case {
		return Case{fmt.Sprintf("%s/%d", family, i), s.config(i, g), max(s.seed, 1)}
	})
}

// title returns the name that the cases of a shape begin with.
func (s shape) title(int) string { return cmp.Or(s.name, s.family) }

// Embeddings are llama.cpp's embeddings of the text: the hidden states of its tokens, [Tokens,
// Width], and their pooled embedding, [Width].
type Embeddings struct{ States, Pooled []float32 }

// SplitEmbeddings splits the stored array of a family into the embeddings of each case.
func SplitEmbeddings(family string, all []float32) ([]Embeddings, error) {
	var out []Embeddings
	for _, c := range Cases(family) {
		width, n := c.Config.Width, Tokens*c.Config.Width
		if len(all) < n+width {
			return nil, fmt.Errorf("%s: only %d numbers are left for its embeddings", c.Name, len(all))
		}
		out = append(out, Embeddings{all[:n], all[n:][:width]})
		all = all[n+width:]
	}
	if len(all) > 0 {
		return nil, fmt.Errorf("%s: %d numbers too many", family, len(all))
	}
	return out, nil
}

// Write writes a case's model as a GGUF file, with weights of that type.
func (c Case) Write(w io.Writer, weightType string) error {
	m, err := checkpoint.Synthetic(c.Config, weightType)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	defer m.Close()
	return synth.Write(w, m, weightType, c.Seed, nil)
}
