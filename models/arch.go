package models

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
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
	{Family: "qwen3moe", Name: "qwen3-30b-a3b", Layers: 48, Width: 2048, Heads: 32, KVHeads: 4, Head: 128, FFN: 6144, Vocab: 151936, Context: 40960, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}, Experts: Experts{Count: 128, Chosen: 8, FFN: 768}},
	{Family: "qwen2moe", Name: "qwen1.5-moe-a2.7b", Layers: 24, Width: 2048, Heads: 16, KVHeads: 16, Head: 128, FFN: 5632, Vocab: 151936, Context: 8192, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}, Experts: Experts{Count: 60, Chosen: 4, FFN: 1408, Shared: 5632}},
	{Family: "gpt-oss", Name: "gpt-oss-20b", Layers: 24, Width: 2880, Heads: 64, KVHeads: 8, Head: 64, FFN: 2880, Vocab: 201088, Context: 131072, Eps: 1e-5,
		Rope:   Rope{Theta: 150000, YaRN: &YaRNRope{Factor: 32, FastBeta: 32, SlowBeta: 1, OldContext: 4096}},
		Window: 128, Windowed: patterned(2, 24), Experts: Experts{Count: 32, Chosen: 4, FFN: 2880}},
	{Family: "olmoe", Name: "olmoe-1b-7b", Layers: 16, Width: 2048, Heads: 16, KVHeads: 16, Head: 128, FFN: 1024, Vocab: 50304, Context: 4096, Eps: 1e-5,
		Rope: Rope{Theta: 1e4}, Experts: Experts{Count: 64, Chosen: 8, FFN: 1024}},
	llama3Shape("llama3.2-1b", 16, 2048, 32, 64, 8192, 32, true),
	llama3Shape("llama3.2-3b", 28, 3072, 24, 128, 8192, 32, true),
	llama3Shape("llama3.1-8b", 32, 4096, 32, 128, 14336, 8, false),
	{Family: "llama", Name: "llama2-7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 32, Head: 128, FFN: 11008, Vocab: 32000, Context: 4096, Eps: 1e-5, Rope: Rope{Theta: 1e4}},
	{Family: "llama", Name: "mistral-7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 32000, Context: 32768, Eps: 1e-5,
		Rope: Rope{Theta: 1e4}, Window: 4096, Windowed: patterned(0, 32)},
	{Family: "llama", Name: "mixtral-8x7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 32000, Context: 32768, Eps: 1e-5,
		Rope: Rope{Theta: 1e6}, Experts: Experts{Count: 8, Chosen: 2}},
	{Family: "qwen2", Name: "qwen2.5-0.5b", Layers: 24, Width: 896, Heads: 14, KVHeads: 2, Head: 64, FFN: 4864, Vocab: 151936, Context: 32768, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}, Tied: true},
	{Family: "qwen2", Name: "qwen2.5-7b", Layers: 28, Width: 3584, Heads: 28, KVHeads: 4, Head: 128, FFN: 18944, Vocab: 152064, Context: 32768, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}},
	{Family: "qwen2vl", Name: "qwen2.5-vl-3b", Layers: 36, Width: 2048, Heads: 16, KVHeads: 2, Head: 128, FFN: 11008, Vocab: 151936, Context: 128000, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}, Tied: true, Sections: []int{16, 24, 24, 0}},
	{Family: "qwen3vl", Name: "qwen3-vl-4b", Layers: 36, Width: 2560, Heads: 32, KVHeads: 8, Head: 128, FFN: 9728, Vocab: 151936, Context: 262144, Eps: 1e-6,
		Rope: Rope{Theta: 5e6}, Tied: true, Sections: []int{24, 20, 20, 0}},
	{Family: "mistral3", Name: "ministral3-3b", Layers: 26, Width: 3072, Heads: 32, KVHeads: 8, Head: 128, FFN: 9216, Vocab: 131072, Context: 262144, Eps: 1e-5,
		Rope: Rope{Theta: 1e6, YaRN: &YaRNRope{Factor: 16, FastBeta: 32, SlowBeta: 1, OldContext: 16384, Magnitude: 1}}, Tied: true, Temperature: 0.1},
	{Family: "gemma2", Name: "gemma2-2b", Layers: 26, Width: 2304, Heads: 8, KVHeads: 4, Head: 256, FFN: 9216, Vocab: 256000, Context: 8192, Eps: 1e-6,
		Rope: Rope{Theta: 1e4}, Tied: true, Window: 4096, Windowed: patterned(2, 26), SoftCap: 50, LogitCap: 30},
	{Family: "gemma3", Name: "gemma3-1b", Layers: 26, Width: 1152, Heads: 4, KVHeads: 1, Head: 256, FFN: 6912, Vocab: 262144, Context: 32768, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}, Tied: true, Window: 512, Windowed: patterned(6, 26)},
	{Family: "smollm3", Name: "smollm3-3b", Layers: 36, Width: 2048, Heads: 16, KVHeads: 4, Head: 128, FFN: 11008, Vocab: 128256, Context: 65536, Eps: 1e-6,
		Rope: Rope{Theta: 5e6}, Tied: true},
	{Family: "olmo2", Name: "olmo2-1b", Layers: 16, Width: 2048, Heads: 16, KVHeads: 16, Head: 128, FFN: 8192, Vocab: 100352, Context: 4096, Eps: 1e-6,
		Rope: Rope{Theta: 5e5}},
	{Family: "granite", Name: "granite3.3-2b", Layers: 40, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 8192, Vocab: 49159, Context: 131072, Eps: 1e-5,
		Rope: Rope{Theta: 1e7}, Tied: true, EmbeddingScale: 12, ResidualScale: 0.22, AttentionScale: 0.015625, LogitScale: 8},
	{Family: "command-r", Name: "aya-23-8b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 256000, Context: 8192, Eps: 1e-5,
		Rope: Rope{Theta: 1e4}, Tied: true, LogitScale: 0.0625},
	{Family: "cohere2", Name: "command-r7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 8, Head: 128, FFN: 14336, Vocab: 256000, Context: 132096, Eps: 1e-5,
		Rope: Rope{Theta: 5e4}, Tied: true, LogitScale: 0.25, Window: 4096, Windowed: patterned(4, 32)},
	{Family: "exaone4", Name: "exaone4-1.2b", Layers: 30, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 4096, Vocab: 102400, Context: 65536, Eps: 1e-5,
		Rope: Rope{Theta: 1e6, Llama3: &Llama3Rope{Factor: 16, LowFrequency: 1, HighFrequency: 4, OldContext: 8192}}, Tied: true},
	{Family: "phi3", Name: "phi3-mini", Layers: 32, Width: 3072, Heads: 32, KVHeads: 32, Head: 96, FFN: 8192, Vocab: 32064, Context: 4096, Eps: 1e-5,
		Rope: Rope{Theta: 1e4}},
	{Family: "phi3", Name: "phi4-mini", Layers: 32, Width: 3072, Heads: 24, KVHeads: 8, Head: 128, FFN: 8192, Vocab: 200064, Context: 4096, Eps: 1e-5,
		Rope: Rope{Theta: 1e4, Rotated: 96}, Tied: true},
	{Family: "arcee", Name: "afm-4.5b", Layers: 36, Width: 2560, Heads: 20, KVHeads: 4, Head: 128, FFN: 18432, Vocab: 128004, Context: 65536, Eps: 1e-5,
		Rope: Rope{Theta: 1e4, YaRN: &YaRNRope{Factor: 20, FastBeta: 32, SlowBeta: 1, OldContext: 4096}}},
	{Family: "glm4", Name: "glm4-9b", Layers: 40, Width: 4096, Heads: 32, KVHeads: 2, Head: 128, FFN: 13696, Vocab: 151552, Context: 32768, Eps: 1e-5,
		Rope: Rope{Theta: 1e4, Rotated: 64}, Biases: Biases{QKV: true}},
	{Family: "gpt2", Name: "gpt2", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 50257, Context: 1024, Eps: 1e-5, Tied: true},
	{Family: "gptneox", Name: "pythia-160m", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 50304, Context: 2048, Eps: 1e-5,
		Rope: Rope{Theta: 1e4, Rotated: 16}, Parallel: true},
	{Family: "starcoder2", Name: "starcoder2-3b", Layers: 30, Width: 3072, Heads: 24, KVHeads: 2, Head: 128, FFN: 12288, Vocab: 49152, Context: 16384, Eps: 1e-5,
		Rope: Rope{Theta: 999999.4420358813}, Tied: true},
	{Family: "phi2", Name: "phi2", Layers: 32, Width: 2560, Heads: 32, KVHeads: 32, Head: 80, FFN: 10240, Vocab: 51200, Context: 2048, Eps: 1e-5,
		Rope: Rope{Theta: 1e4, Rotated: 32}},
	{Family: "stablelm", Name: "stablelm2-1.6b", Layers: 24, Width: 2048, Heads: 32, KVHeads: 32, Head: 64, FFN: 5632, Vocab: 100352, Context: 4096, Eps: 1e-5,
		Rope: Rope{Theta: 1e4, Rotated: 16}, Biases: Biases{QKV: true}},
	{Family: "mpt", Name: "mpt-7b", Layers: 32, Width: 4096, Heads: 32, KVHeads: 32, Head: 128, FFN: 16384, Vocab: 50432, Context: 2048, Eps: 1e-5,
		Tied: true, ALiBi: 8},
	{Family: "qwen3", Name: "qwen3-embedding-0.6b", Layers: 28, Width: 1024, Heads: 16, KVHeads: 8, Head: 128, FFN: 3072, Vocab: 151669, Context: 32768, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}, Tied: true, Pooling: "last"},
	{Family: "bert", Name: "bge-small-en", Layers: 12, Width: 384, Heads: 12, KVHeads: 12, Head: 32, FFN: 1536, Vocab: 30522, Context: 512, Eps: 1e-12,
		TokenTypes: 2, Pooling: "cls"},
	{Family: "bert", Name: "bge-base-en", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 30522, Context: 512, Eps: 1e-12,
		TokenTypes: 2, Pooling: "cls"},
	{Family: "nomic-bert", Name: "nomic-embed-text", Layers: 12, Width: 768, Heads: 12, KVHeads: 12, Head: 64, FFN: 3072, Vocab: 30528, Context: 2048, Eps: 1e-12,
		Rope: Rope{Theta: 1000}, TokenTypes: 2, Pooling: "mean"},
	{Family: "gemma-embedding", Name: "embeddinggemma-300m", Layers: 24, Width: 768, Heads: 3, KVHeads: 1, Head: 256, FFN: 1152, Vocab: 262144, Context: 2048, Eps: 1e-6,
		Rope: Rope{Theta: 1e6}, Window: 512, Windowed: patterned(6, 24), Pooling: "mean", Dense: 3072},
	{Family: "ernie4_5", Name: "ernie4.5-0.3b", Layers: 18, Width: 1024, Heads: 16, KVHeads: 2, Head: 128, FFN: 3072, Vocab: 103424, Context: 131072, Eps: 1e-5,
		Rope: Rope{Theta: 5e5}, Tied: true},
	{Family: "deepseek2", Name: "deepseek-v2-lite", Layers: 27, Width: 2048, Heads: 16, KVHeads: 16, Head: 192, FFN: 10944, Vocab: 102400, Context: 163840, Eps: 1e-6,
		Rope:   Rope{Theta: 1e4, Rotated: 64, YaRN: &YaRNRope{Factor: 40, FastBeta: 32, SlowBeta: 1, OldContext: 4096, Magnitude: 1, Scores: 0.707}},
		Latent: Latent{KV: 512, Value: 128}, Experts: Experts{Count: 64, Chosen: 6, FFN: 1408, Shared: 2816, Dense: 1, Scale: 1}},
	{Family: "lfm2", Name: "lfm2-1.2b", Layers: 16, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 8192, Vocab: 65536, Context: 128000, Eps: 1e-5,
		Rope: Rope{Theta: 1e6}, Tied: true, Taps: 3, Recurrent: allBut(16, 2, 5, 8, 10, 12, 14)},
	{Family: "qwen35", Name: "qwen3.5-0.8b", Layers: 24, Width: 1024, Heads: 8, KVHeads: 2, Head: 256, FFN: 3584, Vocab: 248320, Context: 262144, Eps: 1e-6,
		Rope: Rope{Theta: 1e7, Rotated: 64}, Tied: true, Sections: []int{11, 11, 10, 0}, Taps: 4, Delta: Delta{Heads: 16, KeyHeads: 16, Head: 128}, Recurrent: patterned(4, 24)},
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

// allBut is true for so many layers, without some.
func allBut(layers int, some ...int) []bool {
	return lo.Times(layers, func(i int) bool { return !slices.Contains(some, i) })
}

// ArchPrefix marks the name of a shape where a path could stand.
const ArchPrefix = "arch:"

// Archs lists the names that Arch takes.
func Archs() []string { return lo.Map(shapes, func(c Config, _ int) string { return c.Name }) }

// Set changes what a family's files say, by its name there: the key of a GGUF file after the
// architecture, such as "block_count" or "attention.head_count", or the member of
// config.json. Of more layers than there were, those behind have windows and states as the first ones do.
func (c *Config) Set(name, value string) error {
	family, err := familyBy("the family", ggufName, c.Family)
	if err != nil {
		return err
	}
	f, ok := lo.Find(slices.Concat(family.Fields, ropeFields), func(f Field) bool {
		return (f.GGUF == name || f.HF == name) && (f.Size != nil || f.Number != nil || f.Flag != nil)
	})
	switch {
	case name == "" || !ok:
		return configError("models of the family %s have no %q", c.Family, name)
	case f.Size != nil:
		*f.Size(c), err = strconv.Atoi(value)
	case f.Number != nil:
		*f.Number(c), err = strconv.ParseFloat(value, 64)
	default:
		*f.Flag(c), err = strconv.ParseBool(value)
	}
	if err != nil {
		return configError("%s is %q", name, value)
	}
	if old := c.Windowed; old != nil && c.Layers > 0 && c.Layers <= maxLayers {
		c.Windowed = lo.Times(c.Layers, func(i int) bool { return old[i%len(old)] })
	}
	if old := c.Recurrent; old != nil && c.Layers > 0 && c.Layers <= maxLayers {
		c.Recurrent = lo.Times(c.Layers, func(i int) bool { return old[i%len(old)] })
	}
	return nil
}

// ropeFields are what files say of RoPE in the same words for all families.
var ropeFields = []Field{
	{GGUF: keyTheta, Number: func(c *Config) *float64 { return &c.Rope.Theta }},
	{GGUF: keyRotated, Size: func(c *Config) *int { return &c.Rope.Rotated }},
}

// Arch returns a well-known model without its weights. The name may go on with settings that
// differ: "qwen3-0.6b,block_count=2", see [Config.Set]. weightType names what
// people call a file by, "f16", "q4_0" or "q4_k_m"; each tensor gets the type that
// llama.cpp's quantizer would give it. Only the RoPE factors have data.
func Arch(name, weightType string) (*Checkpoint, error) {
	settings := strings.Split(name, ",")
	shape, ok := lo.Find(shapes, func(c Config) bool { return strings.EqualFold(c.Name, settings[0]) })
	if !ok {
		return nil, configError("no shape is called %q; known are %s", settings[0], strings.Join(Archs(), ", "))
	}
	for _, s := range settings[1:] {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, configError("%q is no setting such as block_count=2", s)
		}
		if err := shape.Set(key, value); err != nil {
			return nil, err
		}
		shape.Name += "," + s
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
	return f.unmake(c, mix, f.join(r.tensors)), err
}

// recorder holds every weight that a definition asks for.
type recorder struct {
	family  *Family
	config  *Config
	mix     *mixture
	tensors []Tensor
}

// Weight implements [ir.Weights].
func (r *recorder) Weight(name string, want []int) (dtype.Type, []int, bool) {
	factors := r.config.Rope.tensors()
	if want == nil {
		_, ok := factors[name]
		return dtype.F32, nil, ok
	}
	// A graph asks for the factors of one length of text: a file has all.
	for _, other := range slices.Sorted(maps.Keys(factors)) {
		if _, ok := factors[name]; ok && other != name {
			r.add(other, want, factors[other])
		}
	}
	return r.add(name, want, factors[name]), want, true
}

// add adds a tensor, with data where they are factors.
func (r *recorder) add(name string, want []int, factors []float64) dtype.Type {
	t := Tensor{Name: name, DType: r.mix.dtype(r.family.storedAs(name), layerOf(name), want, r.config), Shape: want}
	t.Stored = t.DType.String()
	for _, x := range singles(factors) {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(x))
	}
	r.tensors = append(r.tensors, t)
	return t.DType
}
