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

// Family describes a model family: the names in its files, where they have each weight, and its
// graph. Package families has a file for each.
type Family struct {
	Title string // name of its models, for people
	Name  string // general.architecture in GGUF files
	HF    string // one of architectures in config.json; "": folders are not supported

	// Alias lists further values of architectures in config.json.
	Alias []string

	// Variant returns the name of the family that a folder belongs to, where several have its class; nil
	// or "": this one.
	Variant func(d Description) string

	// Define builds the graph.
	Define func(b *ir.Builder, c *Config)

	// Fields are read in order: later ones may depend on earlier ones.
	Fields []Field

	// Router is the family's row of what files say of routers; the zero value: it has no mixtures.
	Router RouterKeys

	// Given sets what all models of the family have and files do not contain; nil: nothing. It must
	// be idempotent.
	Given func(c *Config)

	// Layer changes the description of layer i where layers differ; l begins as the description
	// that all layers share. nil: layers are equal.
	Layer func(c *Config, i int, l *Layer)

	// Check returns an error for configurations that the family's graph cannot be built from, in
	// addition to the checks of all families; nil: nothing.
	Check func(c *Config) error

	// Encodes marks models that return embeddings of texts, and no logits.
	Encodes bool

	// GGUFInterleaved and FolderInterleaved report whether the two elements of a RoPE pair are
	// adjacent in the family's GGUF files and in its folders; see [Rope.Interleaved].
	GGUFInterleaved, FolderInterleaved bool

	// Joined lists the roles of tensors that hold several weights in GGUF files of the family: see
	// [Joins].
	Joined []string

	// Sources returns the tensors of a layer from which weights are derived, where GGUF files have
	// their rows in another order; nil: none.
	Sources func(c *Config) []Source

	// Prefixes are optional prefixes of tensor names in folders.
	Prefixes []string

	// Judge describes the rerankers among the family's folders; nil: there are none.
	Judge *Judge

	// Tensors locates each weight in Hugging Face folders, by its GGUF name; # stands for the
	// number of the layer. A bias is stored beside its weight, and needs an entry only where it is
	// not.
	Tensors map[string]Stored

	// Stacks lists tensors of folders that are split before Tensors is applied.
	Stacks []Stack

	// Ignorable lists, as patterns of path.Match, tensors that a file may hold without use: tables
	// that older converters precomputed.
	Ignorable []string

	// Shapes lists well-known models of the family, with the values of their config.json.
	Shapes []Shape
}

// Shape is a well-known model without its weights; Config.Name is its name behind "arch:".
type Shape struct {
	// Parameters counts the elements of all weights but RoPE's factors, as the publisher does.
	// Publishers of a text model within a larger one give no exact number: Qwen3-VL's is that of
	// Qwen3, Ministral's is rounded to 3.4e9, Gemma 4's to 30.7e9 and 25.2e9, and Qwen3.5's and Muse Glimmer's agree only with the
	// model's name, as those of MiniMax-M2, Trinity and North Mini Code do, which are rounded.
	Parameters int64
	Config     Config // its Family is empty
}

// Judge describes decoders that score a document by what they answer. Their folders are those of
// models that answer anything, so that only a name tells them apart.
type Judge struct {
	Name     string   // part of it, in lower case
	Words    []string // tokens whose rows of the head are the classes, the one for relevance first
	Template string   // of what the model reads, with {query} and {document} in it
}

// decoderTensors are the names that decoder-only models share.
var decoderTensors = map[string]Stored{
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

// DecoderTensors returns the names that decoder-only models share, plus more, minus without.
func DecoderTensors(more map[string]Stored, without ...string) map[string]Stored {
	tensors := make(map[string]Stored, len(decoderTensors)+len(more))
	maps.Copy(tensors, decoderTensors)
	maps.Copy(tensors, more)
	for _, name := range without {
		delete(tensors, name)
	}
	return tensors
}

// Describe reads the family's configuration from a file's description. The first error stays in d.
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
func (f *Family) AllFields() []Field { return slices.Concat(f.Fields, f.Router.fields(), commonFields) }

// Complete applies Given and the router that the family has where none is described, and, unless the layers are described already, Layer.
func (f *Family) Complete(c *Config) error {
	if f.Given != nil {
		f.Given(c)
	}
	if c.Experts.Count > 0 {
		f.Router.complete(&c.Experts.Router)
	}
	if c.ByLayer != nil || f.Layer == nil || c.Layers < 1 || c.Layers > MaxLayers {
		return nil
	}
	for _, list := range []*[]bool{&c.Windowed, &c.Recurrent, &c.Networks} {
		if c.Guessing > 0 && len(*list) == c.Layers+c.Guessing {
			*list = (*list)[:c.Layers]
		}
	}
	if c.Windowed != nil && len(c.Windowed) != c.Layers {
		return ConfigError("sliding windows are listed for %d layers, the model has %d", len(c.Windowed), c.Layers)
	}
	if c.Recurrent != nil && len(c.Recurrent) != c.Layers {
		return ConfigError("kinds are listed for %d layers, the model has %d", len(c.Recurrent), c.Layers)
	}
	if c.Networks != nil && len(c.Networks) != c.Layers {
		return ConfigError("feed-forward networks are listed for %d layers, the model has %d", len(c.Networks), c.Layers)
	}
	for name, list := range map[string][]int{"heads": c.HeadCounts, "KV heads": c.KVCounts, "feed-forward widths": c.FFNs} {
		if list != nil && len(list) != c.Layers {
			return ConfigError("%s are listed for %d layers, the model has %d", name, len(list), c.Layers)
		}
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

// Verify returns an error for a configuration that no graph can be built from.
func (f *Family) Verify(c *Config) error {
	if err := c.check(); err != nil {
		return err
	}
	if f.Check != nil {
		if err := f.Check(c); err != nil {
			return err
		}
	}
	if c.Both && !f.Encodes && (c.ALiBi != 0 || slices.Contains(c.Windowed, true)) {
		return ConfigError("%s is false, in a decoder with a sliding window or ALiBi", keyCausal)
	}
	return c.checkLayers()
}

// Set changes a setting by the name in the family's files: the GGUF key after the architecture,
// such as "block_count" or "attention.head_count", or the member of config.json. If the number of
// layers grows, the patterns of windows and of recurrent layers repeat.
func (f *Family) Set(c *Config, name, value string) (err error) {
	field, ok := lo.Find(slices.Concat(f.Fields, ropeFields), func(f Field) bool {
		return (f.GGUF == name || f.HF == name) && (f.Size != nil || f.Number != nil || f.Flag != nil)
	})
	switch {
	case name == "" || !ok:
		return ConfigError("models of the family %s have no setting %q", f.Name, name)
	case field.Size != nil:
		*field.Size(c), err = strconv.Atoi(value)
	case field.Number != nil:
		*field.Number(c), err = strconv.ParseFloat(value, 64)
	default:
		*field.Flag(c), err = strconv.ParseBool(value)
	}
	if err != nil {
		return ConfigError("%s: invalid value %q", name, value)
	}
	if c.Layers > 0 && c.Layers <= MaxLayers {
		c.Windowed, c.Recurrent, c.Networks = repeated(c.Windowed, c.Layers), repeated(c.Recurrent, c.Layers), repeated(c.Networks, c.Layers)
		for _, list := range []*[]int{&c.HeadCounts, &c.KVCounts, &c.FFNs} {
			*list = repeated(*list, c.Layers)
		}
	}
	return nil
}

// repeated returns the pattern repeated over all layers; nil stays nil.
func repeated[T any](of []T, layers int) []T {
	if of == nil {
		return nil
	}
	return lo.Times(layers, func(i int) T { return of[i%len(of)] })
}

// Stored returns the location in folders of each weight of [Family.Tensors], and of its bias.
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
		all[role+"bias"] = s.bias()
	}
	return all
}

// bias returns the location of the bias beside a weight.
func (s Stored) bias() Stored {
	s.Transposed = false
	s.Names = lo.Map(s.Names, func(n string, _ int) string { return strings.TrimSuffix(n, "weight") + "bias" })
	if s.Or != nil {
		s.Or = new(s.Or.bias())
	}
	return s
}

// StoredAs returns the tensor that contains a weight in GGUF files of the family, or its own name.
func (f *Family) StoredAs(name string) string {
	_, role, _, ok := InLayer(name)
	joined, found := lo.Find(f.Joined, func(joined string) bool { return slices.Contains(Joins[joined], role) })
	if !ok || !found {
		return name
	}
	return strings.Replace(name, role, joined, 1)
}

// Bare returns the name of a tensor without "model." and the family's prefixes, in either order.
func (f *Family) Bare(name string) string {
	for _, prefix := range slices.Concat(f.Prefixes, []string{"model."}, f.Prefixes) {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

// frequencies are RoPE's, which some folders hold.
const frequencies = "*.rotary_emb.inv_freq"

// Ignores reports whether a file may hold the tensor without use.
func (f *Family) Ignores(name string) bool {
	return slices.ContainsFunc(append(slices.Clip(f.Ignorable), frequencies), func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return err == nil && match
	})
}
