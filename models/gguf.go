package models

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

func openGGUF(path string) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := fromGGUF(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, f.Close()))
	}
	m.close = f.Close
	return m, nil
}

func fromGGUF(f *gguf.File) (*Model, error) {
	arch, err := f.String("general.architecture")
	if err != nil {
		return nil, err
	}
	family, err := familyBy("general.architecture", ggufName, arch)
	if err != nil {
		return nil, err
	}
	config, err := configFromGGUF(f, family)
	if err != nil {
		return nil, err
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	tensors := make([]Tensor, len(f.Tensors))
	for i, t := range f.Tensors {
		tensors[i] = Tensor{
			Name: t.Name, DType: t.DType, Stored: t.Type.String(), File: f.Name, Offset: t.Offset, Data: t.Data,
			Shape: lo.Map(t.Shape, func(d int64, _ int) int { return int(d) }),
		}
	}
	m, err := newModel(f.Name, family, config, tensors)
	if err != nil {
		return nil, err
	}
	m.tokenizer = func() (*tokenizer.Tokenizer, error) { return tokenizer.FromGGUF(f) }
	m.metadata = func() ([]gguf.KV, error) { return f.Metadata, nil }
	return m, nil
}

// Keys of the metadata that describe a model, after its architecture and a dot.
// See docs/gguf.md of ggml-org/ggml.
const (
	keyVocab        = "vocab_size"
	keyContext      = "context_length"
	keyWidth        = "embedding_length"
	keyLayers       = "block_count"
	keyFFN          = "feed_forward_length"
	keyHeads        = "attention.head_count"
	keyKVHeads      = "attention.head_count_kv"
	keyHead         = "attention.key_length"
	keyValueHead    = "attention.value_length"
	keyEps          = "attention.layer_norm_rms_epsilon"
	keyTheta        = "rope.freq_base"
	keyRotated      = "rope.dimension_count"
	keyScaling      = "rope.scaling.type"
	keyScalingBy    = "rope.scaling.factor"
	keyOldScaling   = "rope.scale_linear" // before there were types
	keyOldContext   = "rope.scaling.original_context_length"
	keyFastBeta     = "rope.scaling.yarn_beta_fast"
	keySlowBeta     = "rope.scaling.yarn_beta_slow"
	keyMagnitude    = "rope.scaling.attn_factor" // times what YaRN makes of the factor
	keySlidingWidth = "attention.sliding_window"
	keyExperts      = "expert_count"
)

// keys reads the metadata of one architecture and keeps the first error.
type keys struct {
	file *gguf.File
	arch string
	err  error
}

func (k *keys) fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

func (k *keys) has(key string) bool { return k.file.Has(k.arch + "." + key) }

// count returns a size; without it, absent, or an error if that is 0.
func (k *keys) count(key string, absent int) int {
	if absent != 0 && !k.has(key) {
		return absent
	}
	n, err := k.file.Uint(k.arch + "." + key)
	if err != nil {
		k.fail(err)
	}
	return int(min(n, math.MaxInt32))
}

// number returns a float32 entry as the decimal that was meant: 1e-5, not
// 9.99999975e-06.
func (k *keys) number(key string, absent float64) float64 {
	if absent != 0 && !k.has(key) {
		return absent
	}
	x, err := k.file.Float(k.arch + "." + key)
	if err != nil {
		k.fail(err)
	}
	meant, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, 32), 64)
	if err != nil || float32(meant) != float32(x) { // NaN and what float32 cannot hold
		return x
	}
	return meant
}

func configFromGGUF(f *gguf.File, family *Family) (Config, error) {
	k := &keys{file: f, arch: family.Name}
	c := Config{
		Family:  family.Name,
		Context: k.count(keyContext, 0),
		Width:   k.count(keyWidth, 0),
		Layers:  k.count(keyLayers, 0),
		FFN:     k.count(keyFFN, 0),
		Heads:   k.count(keyHeads, 0),
		Eps:     k.number(keyEps, 0),
		Rope:    Rope{Theta: k.number(keyTheta, 10000), Interleaved: family.Interleaved},
	}
	if f.Has("general.name") {
		name, err := f.String("general.name")
		if err != nil {
			return c, err
		}
		c.Name = name
	}
	c.KVHeads = k.count(keyKVHeads, c.Heads)
	c.Head = k.count(keyHead, c.Width/max(1, c.Heads))
	c.Rope.Rotated = k.count(keyRotated, c.Head)
	k.scaling(&c)
	_, untied := f.Tensor("output.weight")
	c.Tied = !untied
	if table, ok := f.Tensor("token_embd.weight"); ok && len(table.Shape) == 2 {
		c.Vocab = int(min(table.Shape[0], math.MaxInt32))
	}
	c.Vocab = k.count(keyVocab, c.Vocab)
	if v := k.count(keyValueHead, c.Head); k.err == nil && v != c.Head {
		k.fail(configError("keys of %d elements and values of %d", c.Head, v))
	}
	for _, key := range []string{keySlidingWidth, keyExperts} {
		if k.has(key) && k.count(key, 0) != 0 {
			k.fail(configError("%s.%s is %d", k.arch, key, k.count(key, 0)))
		}
	}
	return c, k.err
}

// scaling reads how RoPE's angles are changed for long contexts.
func (k *keys) scaling(c *Config) {
	c.Rope.Linear = 1
	kind := "linear"
	if k.has(keyScaling) {
		s, err := k.file.String(k.arch + "." + keyScaling)
		if err != nil {
			k.fail(err)
		}
		kind = s
	}
	switch kind {
	case "none":
	case "linear":
		if factor := k.number(keyScalingBy, k.number(keyOldScaling, 1)); factor != 0 { // llama.cpp takes 0 for no scaling
			c.Rope.Linear = factor
		}
	case "yarn":
		for _, key := range []string{"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"} {
			if k.has(key) {
				k.fail(configError("YaRN RoPE scaling with %s.%s", k.arch, key))
			}
		}
		y := &YaRNRope{Factor: k.number(keyScalingBy, 0), FastBeta: k.number(keyFastBeta, 32), SlowBeta: k.number(keySlowBeta, 1),
			OldContext: float64(k.count(keyOldContext, c.Context))}
		if k.has(keyMagnitude) {
			y.Magnitude = k.number(keyMagnitude, 0) * y.magnitude()
		}
		c.Rope.YaRN = y
	default:
		k.fail(configError("RoPE scaling of type %q", kind))
	}
}

// Metadata returns the configuration as the metadata of a GGUF file, without a
// vocabulary.
func (c *Config) Metadata() []gguf.KV {
	entry := func(key string, v gguf.Value) gguf.KV { return gguf.KV{Key: c.Family + "." + key, Value: v} }
	count := func(key string, n int) gguf.KV { return entry(key, gguf.Uint32(uint32(n))) }
	number := func(key string, x float64) gguf.KV { return entry(key, gguf.Float32(float32(x))) }
	kvs := []gguf.KV{
		{Key: "general.architecture", Value: gguf.String(c.Family)},
		{Key: "general.name", Value: gguf.String(c.Name)},
		count(keyVocab, c.Vocab),
		count(keyContext, c.Context),
		count(keyWidth, c.Width),
		count(keyLayers, c.Layers),
		count(keyFFN, c.FFN),
		count(keyHeads, c.Heads),
		count(keyKVHeads, c.KVHeads),
		count(keyHead, c.Head),
		count(keyValueHead, c.Head),
		number(keyEps, c.Eps),
		number(keyTheta, c.Rope.Theta),
		count(keyRotated, c.Rope.Rotated),
	}
	if c.Rope.Linear != 1 {
		kvs = append(kvs, entry(keyScaling, gguf.String("linear")), number(keyScalingBy, c.Rope.Linear))
	}
	if y := c.Rope.YaRN; y != nil {
		kvs = append(kvs, entry(keyScaling, gguf.String("yarn")), number(keyScalingBy, y.Factor), count(keyOldContext, int(y.OldContext)),
			number(keyFastBeta, y.FastBeta), number(keySlowBeta, y.SlowBeta))
		if y.Magnitude != 0 {
			paper := YaRNRope{Factor: y.Factor}
			kvs = append(kvs, number(keyMagnitude, y.Magnitude/paper.magnitude()))
		}
	}
	return kvs
}
