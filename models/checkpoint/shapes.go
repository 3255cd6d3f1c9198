package checkpoint

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
)

// ArchPrefix precedes the name of a shape where a path is accepted.
const ArchPrefix = "arch:"

// Archs returns the names that Arch accepts.
func Archs() []string {
	return lo.FlatMap(families.All(), func(f models.Family, _ int) []string {
		return lo.Map(f.Shapes, func(s models.Shape, _ int) string { return s.Config.Name })
	})
}

// wellKnown returns a shape by its name.
func wellKnown(name string) (*models.Family, models.Config, error) {
	for _, f := range families.All() {
		for _, s := range f.Shapes {
			if strings.EqualFold(s.Config.Name, name) {
				s.Config.Family = f.Name
				return &f, s.Config, nil
			}
		}
	}
	return nil, models.Config{}, models.ConfigError("no shape is called %q; known are %s", name, strings.Join(Archs(), ", "))
}

// Arch returns a well-known model without its weights. Settings may follow the name:
// "qwen3-0.6b,block_count=2", see [models.Family.Set]. weightType is a common name of a mixture of
// types, "f16", "q4_0" or "q4_k_m"; each tensor gets the type that llama.cpp's quantizer would give
// it. Only the RoPE factors have data.
func Arch(name, weightType string) (*Checkpoint, error) {
	settings := strings.Split(name, ",")
	family, c, err := wellKnown(settings[0])
	if err != nil {
		return nil, err
	}
	for _, s := range settings[1:] {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, models.ConfigError("%q is not a setting such as block_count=2", s)
		}
		if err := family.Set(&c, key, value); err != nil {
			return nil, err
		}
		c.Name += "," + s
	}
	return Synthetic(c, weightType)
}

// Synthetic is Arch for any configuration.
func Synthetic(c models.Config, weightType string) (*Checkpoint, error) {
	mix, err := mixtureOf(weightType)
	if err != nil {
		return nil, err
	}
	family, err := families.ByName("the family", c.Family)
	if err != nil {
		return nil, err
	}
	c.Rope.Interleaved = family.GGUFInterleaved
	if c.Rope.Rotated == 0 {
		c.Rope.Rotated = c.Head
	}
	if c.Rope.Linear == 0 {
		c.Rope.Linear = 1
	}
	if err := family.Complete(&c); err != nil {
		return nil, err
	}
	if err := family.Verify(&c); err != nil {
		return nil, err
	}
	tensors, err := weightsOf(family, &c, &mix)
	if err != nil {
		return nil, err
	}
	m, err := newCheckpoint(ArchPrefix+c.Name, family, c, tensors)
	if err != nil {
		return nil, err
	}
	m.metadata = func() ([]gguf.KV, error) { return shapeMetadata(c) }
	return m, nil
}

// weightsOf returns all weights of the definition, as GGUF files have them, with the types of the
// mixture. Only RoPE factors have data.
func weightsOf(f *models.Family, c *models.Config, mix *mixture) ([]Tensor, error) {
	r := &recorder{family: f, config: c, mix: mix}
	// The graph is built to record its weights only, so a cache block of one slot suffices.
	_, err := ir.Build(c.Family, r, ir.Options{Block: 1}, func(b *ir.Builder) { f.Define(b, c) })
	if c.Classifier.Classes > 0 && err == nil { // a graph binds the classifier's weights or the head's
		scores := *c
		scores.Embeds = true
		_, err = ir.Build(c.Family, r, ir.Options{Block: 1, Embeddings: true}, func(b *ir.Builder) { f.Define(b, &scores) })
	}
	return unmake(f, c, mix, join(f, r.tensors)), err
}

// recorder records every weight that a definition binds.
type recorder struct {
	family  *models.Family
	config  *models.Config
	mix     *mixture
	tensors []Tensor
}

// Weight implements [ir.Weights].
func (r *recorder) Weight(name string, want []int) (dtype.Type, []int, bool) {
	factors := r.config.Rope.Tensors()
	if want == nil {
		_, ok := factors[name]
		return dtype.F32, nil, ok
	}
	// A graph binds the factors for one length of text; a file has all.
	for _, other := range slices.Sorted(maps.Keys(factors)) {
		if _, ok := factors[name]; ok && other != name {
			r.add(other, want, factors[other])
		}
	}
	return r.add(name, want, factors[name]), want, true
}

// add records a tensor unless it is recorded, with its data if it holds factors.
func (r *recorder) add(name string, want []int, factors []float64) dtype.Type {
	if i := slices.IndexFunc(r.tensors, func(t Tensor) bool { return t.Name == name }); i >= 0 {
		return r.tensors[i].DType
	}
	t := Tensor{Name: name, DType: r.mix.dtype(r.family.StoredAs(name), layerOf(name), want, r.config), Shape: want}
	t.Stored = t.DType.String()
	for _, x := range factors {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(float32(x)))
	}
	r.tensors = append(r.tensors, t)
	return t.DType
}
