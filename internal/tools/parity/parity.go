// Package parity holds the small models in which smelt is compared with llama.cpp, one family
// after the other: odd shapes with random weights, and the tokens that both see. Their files
// are made anew wherever they are needed, always with the same bytes; what llama.cpp computes
// for them is kept in testdata/parity, and made again by
//
//	make parity
//
// A family that is added has its shapes in the table shapes, one that makes embeddings in the
// table embedders, and nothing else: [Cases] makes five
// geometries of each that a family allows, in which heads do not divide anything evenly, the
// KV heads are one or as many as the query heads, windows are shorter than the text, and the
// table is the head or is not.
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

// Case is a model and what it is shown.
type Case struct {
	Name   string // family and geometry: "gemma3/2"
	Config models.Config
	Seed   uint64 // of its weights
}

// Vocab and Tokens are the extents of what is kept: logits, [Tokens, Vocab] of each case.
const (
	Vocab  = 264
	Tokens = 12
)

// types are the types of weights in which models are compared, and more those in which
// families are whose row says so.
var (
	types = []string{"f32", "f16", "q8_0", "q4_0", "q4_k_m"}
	more  = []string{"mxfp4", "iq4_nl", "iq4_xs"}
)

// Types lists those of a family, F32 first. F32 is computed as it should be; others as
// llama.cpp computes them, whose distance from F32 is kept.
func Types(family string) []string {
	if s, _ := lo.Find(shapes, func(s shape) bool { return s.family == family }); s.formats {
		return slices.Concat(types, more)
	}
	return types
}

// Text returns the tokens that models are shown.
func Text() []int32 {
	r := rand.New(rand.NewPCG(7, 8))
	ids := make([]int32, Tokens)
	for i := range ids {
		ids[i] = int32(r.IntN(256))
	}
	return ids
}

// geometry is what a family's shapes have in common.
type geometry struct {
	width, heads, kvHeads, head, ffn, layers int
	tied                                     bool
}

// geometries are odd: by turns heads do not divide the width, or one KV head serves all, or
// each query head has its own, or heads are no power of two. The last one has rows of whole
// blocks of all types.
var geometries = [5]geometry{
	{width: 96, heads: 6, kvHeads: 2, head: 16, ffn: 160, layers: 4},
	{width: 96, heads: 4, kvHeads: 1, head: 24, ffn: 224, layers: 2, tied: true},
	{width: 120, heads: 3, kvHeads: 3, head: 40, ffn: 136, layers: 3},
	{width: 112, heads: 5, kvHeads: 5, head: 32, ffn: 192, layers: 4, tied: true},
	{width: 256, heads: 4, kvHeads: 2, head: 64, ffn: 512, layers: 2},
}

// Families lists those whose logits are compared, Embedders those whose embeddings are.
func Families() []string  { return lo.Map(shapes, shape.title) }
func Embedders() []string { return lo.Map(embedders, shape.title) }

// Cases returns those of a family.
func Cases(family string) []Case {
	s, _ := lo.Find(append(slices.Clip(shapes), embedders...), func(s shape) bool { return s.title(0) == family })
	return lo.Map(geometries[:], func(g geometry, i int) Case {
		return Case{fmt.Sprintf("%s/%d", family, i), s.config(i, g), max(s.seed, 1)}
	})
}

// title is what the cases of a shape are called.
func (s shape) title(int) string { return cmp.Or(s.name, s.family) }

// Embeddings are what llama.cpp makes of the text: the hidden states of its tokens, [Tokens,
// Width], and what their pooling gives, [Width].
type Embeddings struct{ States, Pooled []float32 }

// SplitEmbeddings takes apart what is kept of a family: those of each case, one after the
// other.
func SplitEmbeddings(family string, all []float32) ([]Embeddings, error) {
	var out []Embeddings
	for _, c := range Cases(family) {
		width, n := c.Config.Width, Tokens*c.Config.Width
		if len(all) < n+width {
			return nil, fmt.Errorf("%s: %d numbers are left of its embeddings, too few", c.Name, len(all))
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
