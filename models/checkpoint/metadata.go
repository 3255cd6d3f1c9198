package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Metadata returns the configuration as metadata of a GGUF file, without a vocabulary.
func Metadata(c *models.Config) []gguf.KV {
	family, err := families.ByName("the family", c.Family)
	if err != nil {
		return nil
	}
	kvs := []gguf.KV{
		{Key: "general.architecture", Value: gguf.String(c.Family)},
		{Key: "general.name", Value: gguf.String(c.Name)},
	}
	for _, field := range family.AllFields() {
		if key, v, ok := field.Entry(c); ok {
			kvs = append(kvs, gguf.KV{Key: c.Family + "." + key, Value: v})
		}
	}
	if c.TokenTypes > 0 {
		kvs = append(kvs, gguf.KV{Key: models.KeyTokenTypes, Value: gguf.Uint32(uint32(c.TokenTypes))})
	}
	if len(c.Suppressed) > 0 {
		kvs = append(kvs, gguf.KV{Key: models.KeySuppressed, Value: gguf.Int32Array(lo.Map(c.Suppressed, func(id, _ int) int32 { return int32(id) }))})
	}
	if c.Rope == (models.Rope{}) {
		return kvs
	}
	return append(kvs, ropeMetadata(&c.Rope, c.Family)...)
}

// ropeMetadata returns RoPE's entries of a GGUF file. Llama 3's factors are a tensor there.
func ropeMetadata(r *models.Rope, arch string) []gguf.KV {
	entry := func(key string, v gguf.Value) gguf.KV { return gguf.KV{Key: arch + "." + key, Value: v} }
	count := func(key string, n int) gguf.KV { return entry(key, gguf.Uint32(uint32(n))) }
	number := func(key string, x float64) gguf.KV { return entry(key, gguf.Float32(float32(x))) }
	kvs := []gguf.KV{number(models.KeyTheta, r.Theta), count(models.KeyRotated, r.Rotated)}
	if r.Linear != 1 {
		if r.Long == nil { // LongRoPE has a type of its own
			kvs = append(kvs, entry(models.KeyScaling, gguf.String("linear")))
		}
		kvs = append(kvs, number(models.KeyScalingBy, r.Linear))
	}
	if y := r.YaRN; y != nil {
		kvs = append(kvs, entry(models.KeyScaling, gguf.String("yarn")), number(models.KeyScalingBy, y.Factor), count(models.KeyOldContext, int(y.OldContext)),
			number(models.KeyFastBeta, y.FastBeta), number(models.KeySlowBeta, y.SlowBeta))
	}
	if l := r.Long; l != nil {
		kvs = append(kvs, entry(models.KeyScaling, gguf.String("longrope")), count(models.KeyOldContext, int(l.OldContext)))
	}
	magnitude, strength := r.InFile()
	if magnitude != 1 {
		kvs = append(kvs, number(models.KeyMagnitude, magnitude))
	}
	if strength != 0 {
		kvs = append(kvs, number(models.KeyStrength, strength))
	}
	return kvs
}

// described returns metadata for a model whose files have none: its configuration and a vocabulary.
func described(c models.Config, name string, vocabulary []tokenizer.Entry) ([]gguf.KV, error) {
	if c.Name == "" {
		c.Name = name
	}
	list := Metadata(&c)
	for _, e := range vocabulary {
		v, err := ggufValue(e.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
		list = append(list, gguf.KV{Key: e.Key, Value: v})
	}
	return list, nil
}

// folderMetadata returns metadata for a Hugging Face folder. Without tokenizer.json it has no
// vocabulary.
func folderMetadata(dir string, c models.Config, template func(name string) (string, error)) ([]gguf.KV, error) {
	var vocabulary []tokenizer.Entry
	t, err := tokenizer.FromHF(dir)
	if err == nil {
		vocabulary, err = t.Metadata()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range []string{"default", toolTemplate, rerankTemplate} {
		text, err := template(name)
		if err != nil {
			return nil, err
		}
		if text != "" {
			vocabulary = append(vocabulary, tokenizer.Entry{Key: templateKey(name), Value: text})
		}
	}
	return described(c, filepath.Base(filepath.Clean(dir)), vocabulary)
}

// shapeMetadata returns metadata for a shape without weights, with a placeholder vocabulary.
func shapeMetadata(c models.Config) ([]gguf.KV, error) {
	spec, err := tokenizer.Placeholder(c.Vocab)
	if err != nil {
		return nil, err
	}
	vocabulary, err := spec.Metadata()
	if err != nil {
		return nil, err
	}
	return described(c, "", vocabulary)
}

func ggufValue(v any) (gguf.Value, error) {
	switch v := v.(type) {
	case string:
		return gguf.String(v), nil
	case bool:
		return gguf.Bool(v), nil
	case uint32:
		return gguf.Uint32(v), nil
	case []string:
		return gguf.StringArray(v), nil
	case []int32:
		return gguf.Int32Array(v), nil
	case []byte:
		return gguf.Uint8Array(v), nil
	case []float32:
		return gguf.Float32Array(v), nil
	}
	return gguf.Value{}, fmt.Errorf("GGUF metadata cannot hold a %T", v)
}
