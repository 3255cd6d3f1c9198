package models

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

func openGGUF(path string) (*Checkpoint, error) {
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

// singleRows are matrices of one row, by their names in a layer, which files may have as vectors.
var singleRows = []string{"ffn_gate_inp_shexp.weight"}

func fromGGUF(f *gguf.File) (*Checkpoint, error) {
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
		if slices.Contains(singleRows, role(t.Name)) && len(t.Shape) == 1 {
			tensors[i].Shape = []int{1, int(t.Shape[0])}
		}
	}
	m, err := newCheckpoint(f.Name, family, config, tensors)
	if err != nil {
		return nil, err
	}
	m.tokenizer = func() (*tokenizer.Tokenizer, error) { return tokenizer.FromGGUF(f) }
	m.template = ggufTemplate(f)
	m.metadata = func() ([]gguf.KV, error) { return f.Metadata, nil }
	return m, nil
}

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

func (k *keys) form() Form { return GGUF }

func (k *keys) fullName(key string) string { return k.arch + "." + key }

func (k *keys) has(key string) bool { return k.file.Has(k.fullName(key)) }

func (k *keys) flag(key string) bool {
	b, err := k.file.Bool(k.fullName(key))
	if err != nil {
		k.fail(err)
	}
	return b
}

func (k *keys) text(key string) string {
	s, err := k.file.String(k.fullName(key))
	if err != nil {
		k.fail(err)
	}
	return s
}

func (k *keys) size(key string, absent int) int {
	if absent != 0 && !k.has(key) {
		return absent
	}
	n, err := k.file.Uint(k.fullName(key))
	if err != nil {
		k.fail(err)
	}
	return int(min(n, math.MaxInt32))
}

func (k *keys) sizes(key string) []int {
	list, err := k.file.Ints(k.fullName(key))
	if err != nil {
		k.fail(err)
	}
	return lo.Map(list, func(n int64, _ int) int { return int(min(max(n, 0), maxExtent)) })
}

func (k *keys) flags(key string) []bool {
	list, err := k.file.Bools(k.fullName(key))
	if err != nil {
		k.fail(err)
	}
	return list
}

func (k *keys) texts(key string) []string {
	list, err := k.file.Strings(k.fullName(key))
	if err != nil {
		k.fail(err)
	}
	return list
}

func (k *keys) holds(tensor string) bool {
	_, ok := k.file.Tensor(tensor)
	return ok
}

// windowed reads a pattern that is a flag a layer, or the number of layers after which one
// has no window.
func (k *keys) windowed(every, layers int) []bool {
	const key = "attention.sliding_window_pattern"
	name := k.fullName(key)
	switch v, ok := k.file.Lookup(name); {
	case !ok:
		return patterned(every, layers)
	case v.Kind() != gguf.KindArray:
		return patterned(k.size(key, every), layers)
	}
	flags, err := k.file.Bools(name)
	if err != nil {
		k.fail(err)
	}
	return flags
}

// number returns a float32 entry as the decimal that was meant: 1e-5, not
// 9.99999975e-06.
func (k *keys) number(key string, absent float64) float64 {
	if absent != 0 && !k.has(key) {
		return absent
	}
	x, err := k.file.Float(k.fullName(key))
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
	var c Config
	if f.Has("general.name") {
		name, err := f.String("general.name")
		if err != nil {
			return c, err
		}
		c.Name = name
	}
	_, untied := f.Tensor("output.weight")
	c.Tied = !untied
	if table, ok := f.Tensor("token_embd.weight"); ok && len(table.Shape) == 2 {
		c.Vocab = int(min(table.Shape[0], math.MaxInt32))
	}
	k := &keys{file: f, arch: family.Name}
	c.Rope.Interleaved = family.Interleaved
	family.describe(k, &c)
	return c, k.err
}

// Metadata returns the configuration as the metadata of a GGUF file, without a
// vocabulary.
func (c *Config) Metadata() []gguf.KV {
	family, err := familyBy("the family", ggufName, c.Family)
	if err != nil {
		return nil
	}
	kvs := []gguf.KV{
		{Key: "general.architecture", Value: gguf.String(c.Family)},
		{Key: "general.name", Value: gguf.String(c.Name)},
	}
	for _, field := range slices.Concat(family.Fields, commonFields) {
		if key, v, ok := field.entry(c); ok {
			kvs = append(kvs, gguf.KV{Key: c.Family + "." + key, Value: v})
		}
	}
	if c.TokenTypes > 0 {
		kvs = append(kvs, gguf.KV{Key: keyTokenTypes, Value: gguf.Uint32(uint32(c.TokenTypes))})
	}
	if c.Rope == (Rope{}) {
		return kvs
	}
	return append(kvs, c.Rope.metadata(c.Family)...)
}
