package models

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models/gguf"
)

// shapes lists well-known models by the name that arch: takes, as their
// config.json has them.
var shapes = []Config{
	qwen3Shape("qwen3-0.6b", 28, 1024, 16, 3072, true),
	qwen3Shape("qwen3-1.7b", 28, 2048, 16, 6144, true),
	qwen3Shape("qwen3-4b", 36, 2560, 32, 9728, true),
	qwen3Shape("qwen3-8b", 36, 4096, 32, 12288, false),
	qwen3Shape("qwen3-14b", 40, 5120, 40, 17408, false),
	qwen3Shape("qwen3-32b", 64, 5120, 64, 25600, false),
	llama3Shape("llama3.2-1b", 16, 2048, 32, 64, 8192, 32, true),
	llama3Shape("llama3.2-3b", 28, 3072, 24, 128, 8192, 32, true),
	llama3Shape("llama3.1-8b", 32, 4096, 32, 128, 14336, 8, false),
	{Family: "llama", Name: "llama2-7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 32, Head: 128, FFN: 11008, Vocab: 32000, Context: 4096, Eps: 1e-5, Rope: Rope{Theta: 1e4}},
	{Family: "llama", Name: "tinyllama-1.1b", Layers: 22, Width: 2048, Heads: 32, KVHeads: 4, Head: 64, FFN: 5632, Vocab: 32000, Context: 2048, Eps: 1e-5, Rope: Rope{Theta: 1e4}},
}

func qwen3Shape(name string, layers, width, heads, ffn int, tied bool) Config {
	return Config{
		Family: "qwen3", Name: name, Layers: layers, Width: width, Heads: heads, KVHeads: 8, Head: 128, FFN: ffn,
		Vocab: 151936, Context: 40960, Eps: 1e-6, Rope: Rope{Theta: 1e6}, Tied: tied,
	}
}

func llama3Shape(name string, layers, width, heads, head, ffn int, factor float64, tied bool) Config {
	return Config{
		Family: "llama", Name: name, Layers: layers, Width: width, Heads: heads, KVHeads: 8, Head: head, FFN: ffn,
		Vocab: 128256, Context: 131072, Eps: 1e-5, Tied: tied,
		Rope: Rope{Theta: 5e5, Llama3: &Llama3Rope{Factor: factor, LowFrequency: 1, HighFrequency: 4, OldContext: 8192}},
	}
}

// ArchPrefix marks the name of a shape where a path could stand.
const ArchPrefix = "arch:"

// Archs lists the names that Arch takes.
func Archs() []string { return lo.Map(shapes, func(c Config, _ int) string { return c.Name }) }

// Arch returns a well-known model without its weights. weightType names what
// people call a file by, "f16", "q4_0" or "q4_k_m"; each tensor gets the type that
// llama.cpp's quantizer would give it. Only the RoPE factors have data.
func Arch(name, weightType string) (*Checkpoint, error) {
	shape, ok := lo.Find(shapes, func(c Config) bool { return strings.EqualFold(c.Name, name) })
	if !ok {
		return nil, configError("no shape is called %q; known are %s", name, strings.Join(Archs(), ", "))
	}
	return Synthetic(shape, weightType)
}

// Synthetic is Arch for any configuration.
func Synthetic(c Config, weightType string) (*Checkpoint, error) {
	mix, err := mixtureOf(weightType)
	if err != nil {
		return nil, err
	}
	family, err := familyBy("the family", ggufName, c.Family)
	if err != nil {
		return nil, err
	}
	c.Rope.Interleaved = family.Interleaved
	if c.Rope.Rotated == 0 {
		c.Rope.Rotated = c.Head
	}
	if c.Rope.Linear == 0 {
		c.Rope.Linear = 1
	}
	if err := c.complete(family); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	tensors, err := family.weights(&c, &mix)
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

// weights lists every weight that the definition asks for, as GGUF files have them, with the
// types of the mixture. Only RoPE factors have data.
func (f *Family) weights(c *Config, mix *mixture) ([]Tensor, error) {
	r := &recorder{family: f, config: c, mix: mix}
	// A cache block of one slot: the graph is built for the weights it asks for.
	_, err := ir.Build(c.Family, r, ir.Options{Block: 1}, func(b *ir.Builder) { f.Define(b, c) })
	return f.join(r.tensors), err
}

// recorder holds every weight that a definition asks for.
type recorder struct {
	family  *Family
	config  *Config
	mix     *mixture
	tensors []Tensor
}

// Weight implements [ir.Weights].
func (r *recorder) Weight(name string, want []int) (ir.DType, []int, bool) {
	if want == nil {
		return ir.F32, nil, name == ropeFreqs && r.config.Rope.Llama3 != nil
	}
	t := Tensor{Name: name, DType: r.mix.dtype(r.family.storedAs(name), layerOf(name), want, r.config), Shape: want}
	t.Stored = t.DType.String()
	if name == ropeFreqs {
		for _, x := range singles(r.config.Rope.factors()) {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(x))
		}
	}
	r.tensors = append(r.tensors, t)
	return t.DType, want, true
}

// FileType returns general.file_type of a file whose weights have that type.
func FileType(weightType string) (uint32, error) {
	m, err := mixtureOf(weightType)
	return m.fileType, err
}
