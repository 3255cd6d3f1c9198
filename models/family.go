package models

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// Family is all that is known of a model family: what its files are called and say, where
// they have each weight, and its graph. Package families has a file for each.
type Family struct {
	Title string // what people call its models
	Name  string // general.architecture in GGUF files
	HF    string // one of architectures in config.json; "": folders are not read

	// Alias lists further names of HF's kind.
	Alias []string

	// Define writes the graph.
	Define func(b *ir.Builder, c *Config)

	// Fields are read one after the other: later ones may build on earlier ones.
	Fields []Field

	// Given sets what models of the family have and files do not say; nil: nothing. It may
	// be called again.
	Given func(c *Config)

	// Layer changes the description of layer i, which is that of all layers, where layers
	// differ; nil: they do not.
	Layer func(c *Config, i int, l *Layer)

	// Check finds what no graph of the family can be built from, beside what none of any family
	// can; nil: nothing.
	Check func(c *Config) error

	// Encodes marks models that make embeddings of texts, and no logits.
	Encodes bool

	// Interleaved marks families whose GGUF files have the two elements that RoPE
	// rotates together side by side.
	Interleaved bool

	// FolderInterleaved marks those whose folders have.
	FolderInterleaved bool

	// Joined lists the roles of weights that GGUF files of the family have as one: see [Joins].
	Joined []string

	// Sources lists tensors of layers that weights are made of, where GGUF files have their rows in
	// another order; nil: there are none.
	Sources func(c *Config) []Source

	// Prefix is what names in folders may begin with.
	Prefix string

	// Tensors says where Hugging Face folders have each weight, by its name in GGUF
	// files. # stands for the number of the layer. A bias lies beside its weight, and needs
	// an entry where it does not.
	Tensors map[string]Stored

	// Stacks lists tensors of folders that are taken apart before Tensors names them.
	Stacks []Stack

	// Ignorable lists, as patterns of path.Match, tensors that may lie in a file
	// without use: what older converters computed ahead.
	Ignorable []string

	// Shapes lists well-known models of the family, as their config.json has them.
	Shapes []Shape
}

// Shape is a well-known model without its weights, by the name that arch: takes.
type Shape struct {
	// Parameters counts the elements of all weights but RoPE's factors, as the publisher does.
	// Who publishes a text model among others gives no number of its own: Qwen3-VL's is
	// that of Qwen3, Ministral's is said to be 3.4e9, and of Qwen3.5 only its name is known to agree.
	Parameters int64
	Config     Config // Family is that of the shape
}

// DecoderTensors returns the names that decoder-only models share and some more, without those
// that a family lacks.
func DecoderTensors(more map[string]Stored, without ...string) map[string]Stored {
	tensors := map[string]Stored{
		"token_embd.weight":        As("model.embed_tokens.weight"),
		"output_norm.weight":       As("model.norm.weight"),
		"output.weight":            As("lm_head.weight"),
		"blk.#.attn_norm.weight":   As("model.layers.#.input_layernorm.weight"),
		"blk.#.attn_q.weight":      As("model.layers.#.self_attn.q_proj.weight"),
		"blk.#.attn_k.weight":      As("model.layers.#.self_attn.k_proj.weight"),
		"blk.#.attn_v.weight":      As("model.layers.#.self_attn.v_proj.weight"),
		"blk.#.attn_output.weight": As("model.layers.#.self_attn.o_proj.weight"),
		"blk.#.ffn_norm.weight":    As("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.ffn_gate.weight":    As("model.layers.#.mlp.gate_proj.weight"),
		"blk.#.ffn_up.weight":      As("model.layers.#.mlp.up_proj.weight"),
		"blk.#.ffn_down.weight":    As("model.layers.#.mlp.down_proj.weight"),
	}
	maps.Copy(tensors, more)
	for _, name := range without {
		delete(tensors, name)
	}
	return tensors
}

// Describe reads the family's configuration from a file's description, and keeps in it the
// first error.
func (f *Family) Describe(d Description, c *Config) {
	c.Family = f.Name
	for _, field := range f.AllFields() {
		field.ReadFrom(d, c)
	}
	if err := f.Complete(c); err != nil {
		d.Fail(err)
	}
}

// AllFields returns the family's fields and those of all families.
func (f *Family) AllFields() []Field { return slices.Concat(f.Fields, commonFields) }

// Complete adds what the family knows of its models, and has it describe its layers, unless
// they are described already.
func (f *Family) Complete(c *Config) error {
	if f.Given != nil {
		f.Given(c)
	}
	if c.ByLayer != nil || f.Layer == nil || c.Layers < 1 || c.Layers > MaxLayers {
		return nil
	}
	if c.Windowed != nil && len(c.Windowed) != c.Layers {
		return ConfigError("windows of %d layers, of %d", len(c.Windowed), c.Layers)
	}
	if c.Recurrent != nil && len(c.Recurrent) != c.Layers {
		return ConfigError("attention or none in %d layers, of %d", len(c.Recurrent), c.Layers)
	}
	layers, differ := make([]Layer, c.Layers), false
	for i := range layers {
		layers[i] = c.Layer(i)
		f.Layer(c, i, &layers[i])
		differ = differ || layers[i] != c.Layer(i)
	}
	if differ {
		c.ByLayer = layers
	}
	return nil
}

// Verify finds what no graph can be built from.
func (f *Family) Verify(c *Config) error {
	if err := c.check(); err != nil {
		return err
	}
	if f.Check != nil {
		if err := f.Check(c); err != nil {
			return err
		}
	}
	return c.checkLayers()
}

// Set changes what the family's files say, by its name there: the key of a GGUF file after the
// architecture, such as "block_count" or "attention.head_count", or the member of
// config.json. Of more layers than there were, those behind have windows and states as the first
// ones do.
func (f *Family) Set(c *Config, name, value string) (err error) {
	field, ok := lo.Find(slices.Concat(f.Fields, ropeFields), func(f Field) bool {
		return (f.GGUF == name || f.HF == name) && (f.Size != nil || f.Number != nil || f.Flag != nil)
	})
	switch {
	case name == "" || !ok:
		return ConfigError("models of the family %s have no %q", f.Name, name)
	case field.Size != nil:
		*field.Size(c), err = strconv.Atoi(value)
	case field.Number != nil:
		*field.Number(c), err = strconv.ParseFloat(value, 64)
	default:
		*field.Flag(c), err = strconv.ParseBool(value)
	}
	if err != nil {
		return ConfigError("%s is %q", name, value)
	}
	if c.Layers > 0 && c.Layers <= MaxLayers {
		c.Windowed, c.Recurrent = repeated(c.Windowed, c.Layers), repeated(c.Recurrent, c.Layers)
	}
	return nil
}

// repeated begins anew after its last layer; nil stays nil.
func repeated(of []bool, layers int) []bool {
	if of == nil {
		return nil
	}
	return lo.Times(layers, func(i int) bool { return of[i%len(of)] })
}

// Stored returns where folders have each weight of [Family.Tensors], and its bias.
func (f *Family) Stored() map[string]Stored {
	all := maps.Clone(f.Tensors)
	for name, s := range f.Tensors {
		role, beside := strings.CutSuffix(name, "weight")
		for _, n := range s.Names {
			beside = beside && strings.HasSuffix(n, "weight")
		}
		if _, has := all[role+"bias"]; has || !beside {
			continue
		}
		s.Transposed = false
		s.Names = lo.Map(s.Names, func(n string, _ int) string { return strings.TrimSuffix(n, "weight") + "bias" })
		all[role+"bias"] = s
	}
	return all
}

// StoredAs returns what a weight is part of in GGUF files of the family, or its own name.
func (f *Family) StoredAs(name string) string {
	_, role, _, ok := InLayer(name)
	joined, found := lo.Find(f.Joined, func(joined string) bool { return slices.Contains(Joins[joined], role) })
	if !ok || !found {
		return name
	}
	return strings.Replace(name, role, joined, 1)
}

// Bare is the name of a tensor without what some folders have before it: "model." and the
// family's prefix, in any order.
func (f *Family) Bare(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, f.Prefix), "model.")
	return strings.TrimPrefix(name, f.Prefix)
}

// frequencies are RoPE's, as folders may have them.
const frequencies = "*.rotary_emb.inv_freq"

// Ignores reports whether a tensor may lie in a file without use.
func (f *Family) Ignores(name string) bool {
	return slices.ContainsFunc(append(slices.Clip(f.Ignorable), frequencies), func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return err == nil && match
	})
}
