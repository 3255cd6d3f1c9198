package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/families"
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
	m.close, m.intact = f.Close, f.Intact
	return m, nil
}

// singleRows are matrices of one row, by their names in a layer, which files may store as vectors.
var singleRows = []string{"ffn_gate_inp_shexp.weight"}

func fromGGUF(f *gguf.File) (*Checkpoint, error) {
	arch, err := f.String("general.architecture")
	if err != nil {
		return nil, err
	}
	family, err := families.ByName("general.architecture", arch)
	if err != nil {
		return nil, err
	}
	config, err := configFromGGUF(f, family)
	if err != nil {
		return nil, err
	}
	if err := family.Verify(&config); err != nil {
		return nil, err
	}
	tensors := make([]Tensor, len(f.Tensors))
	for i, t := range f.Tensors {
		tensors[i] = Tensor{
			Name: t.Name, DType: t.DType, Stored: t.Type.String(), File: t.File, Offset: t.Offset, Data: t.Data,
			Shape: lo.Map(t.Shape, func(d int64, _ int) int { return int(d) }),
		}
		if s := withoutOnes(tensors[i].Shape); len(s) > 1 { // a vector may be a matrix of one row
			tensors[i].Shape = s
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

// keys implements [models.Description] by the metadata of one architecture.
type keys struct {
	file *gguf.File
	arch string
	err  error
}

func (k *keys) Fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

func (k *keys) Format() models.Format { return models.GGUF }

func (k *keys) FullName(key string) string { return k.arch + "." + key }

func (k *keys) Has(key string) bool { return k.file.Has(k.FullName(key)) }

func (k *keys) Flag(key string) bool {
	b, err := k.file.Bool(k.FullName(key))
	if err != nil {
		k.Fail(err)
	}
	return b
}

func (k *keys) Text(key string) string {
	s, err := k.file.String(k.FullName(key))
	if err != nil {
		k.Fail(err)
	}
	return s
}

func (k *keys) Size(key string, absent int) int {
	if absent != 0 && !k.Has(key) {
		return absent
	}
	if k.isList(key) {
		return allEqual(k, key, k.Sizes(key))
	}
	n, err := k.file.Uint(k.FullName(key))
	if err != nil {
		k.Fail(err)
	}
	return int(min(n, math.MaxInt32))
}

// isList reports whether an entry has a value for each layer.
func (k *keys) isList(key string) bool {
	v, ok := k.file.Lookup(k.FullName(key))
	return ok && v.Kind() == gguf.KindArray
}

// allEqual returns the one value of a list by layer.
func allEqual[T comparable](k *keys, key string, list []T) T {
	for _, x := range list {
		if x != list[0] {
			k.Fail(models.ConfigError("%s differs from layer to layer, which no %s model has", k.FullName(key), k.arch))
		}
	}
	if len(list) == 0 {
		k.Fail(models.ConfigError("%s is an empty list", k.FullName(key)))
		list = make([]T, 1)
	}
	return list[0]
}

func (k *keys) Sizes(key string) []int {
	if !k.isList(key) {
		return []int{k.Size(key, 0)}
	}
	list, err := k.file.Ints(k.FullName(key))
	if err != nil {
		k.Fail(err)
	}
	return lo.Map(list, func(n int64, _ int) int { return int(min(max(n, 0), models.MaxExtent)) })
}

func (k *keys) Flags(key string) []bool {
	list, err := k.file.Bools(k.FullName(key))
	if err != nil {
		k.Fail(err)
	}
	return list
}

func (k *keys) Texts(key string) []string {
	list, err := k.file.Strings(k.FullName(key))
	if err != nil {
		k.Fail(err)
	}
	return list
}

// Word, Names and Numbers are for folders only.
func (k *keys) Word(string) string       { return "" }
func (k *keys) Names(string) []string    { return nil }
func (k *keys) Numbers(string) []float64 { return nil }

// Rows returns the outermost extent of a tensor, or of the one that it is joined in.
func (k *keys) Rows(tensor string) (n int, ok bool) {
	t, ok := k.file.Tensor(tensor)
	if _, role, _, in := models.InLayer(tensor); in && !ok && slices.Contains(models.Joins["attn_qkv"], role) {
		t, ok = k.file.Tensor(strings.Replace(tensor, role, "attn_qkv", 1))
	}
	if !ok || len(t.Shape) == 0 {
		return 0, ok
	}
	return int(min(t.Shape[0], models.MaxExtent)), true
}

func (k *keys) holds(tensor string) bool {
	_, ok := k.file.Tensor(tensor)
	return ok
}

func (k *keys) Sections() []int { return k.Sizes(models.KeySections) }

// Scaling is for folders only.
func (k *keys) Scaling(string) float64 { return 0 }

// Windowed reads a flag for each layer, or n if every n-th layer has no window.
func (k *keys) Windowed(every, layers int) []bool {
	const key = "attention.sliding_window_pattern"
	name := k.FullName(key)
	switch v, ok := k.file.Lookup(name); {
	case !ok:
		return models.AllButEvery(every, layers)
	case v.Kind() != gguf.KindArray && every < 0:
		return models.AllButEvery(-k.Size(key, every), layers)
	case v.Kind() != gguf.KindArray:
		return models.AllButEvery(k.Size(key, every), layers)
	}
	flags, err := k.file.Bools(name)
	if err != nil {
		k.Fail(err)
	}
	return flags
}

// Number returns a float32 entry as the shortest decimal that rounds to it: 1e-5, not
// 9.99999975e-06.
func (k *keys) Number(key string, absent float64) float64 {
	if absent != 0 && !k.Has(key) {
		return absent
	}
	var x float64
	var err error
	if k.isList(key) {
		var list []float32
		list, err = k.file.Floats(k.FullName(key))
		if err == nil {
			x = float64(allEqual(k, key, list))
		}
	} else {
		x, err = k.file.Float(k.FullName(key))
	}
	if err != nil {
		k.Fail(err)
	}
	meant, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, 32), 64)
	if err != nil || float32(meant) != float32(x) { // NaN and what float32 cannot hold
		return x
	}
	return meant
}

func configFromGGUF(f *gguf.File, family *models.Family) (models.Config, error) {
	var c models.Config
	if f.Has("general.name") {
		name, err := f.String("general.name")
		if err != nil {
			return c, err
		}
		c.Name = name
	}
	_, untied := f.Tensor("output.weight")
	c.Tied = !untied
	if table, ok := f.Tensor("token_embd.weight"); ok && len(table.Shape) >= 2 {
		c.Vocab = int(min(table.Shape[len(table.Shape)-2], math.MaxInt32))
	}
	k := &keys{file: f, arch: family.Name}
	if f.Has(models.KeySuppressed) {
		ids, err := f.Ints(models.KeySuppressed)
		if err != nil {
			return c, err
		}
		c.Suppressed = lo.Map(ids, func(id int64, _ int) int { return int(id) })
	}
	c.Rope.Interleaved = family.GGUFInterleaved
	family.Describe(k, &c)
	return c, k.err
}
