package models

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// Family is all that is known of a model family. Each has a file of its own, which holds
// what follows and its graph, and a row in families.
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

	// Encodes says that models of the family make embeddings of texts, and no logits.
	Encodes bool

	// Interleaved says that GGUF files of the family have the two elements that RoPE
	// rotates together side by side.
	Interleaved bool

	// FolderInterleaved says it of folders.
	FolderInterleaved bool

	// Joined lists the roles of weights that GGUF files of the family have as one: see joins.
	Joined []string

	// Sources lists tensors of layers that weights are made of, where files have their rows in
	// another order; nil: there are none.
	Sources func(c *Config) []source

	// Prefix is what names in folders may begin with.
	Prefix string

	// Tensors says where Hugging Face folders have each weight, by its name in GGUF
	// files. # stands for the number of the layer. A bias lies beside its weight, and needs
	// an entry where it does not.
	Tensors map[string]Stored

	// Unpack makes the tensors that Tensors names of what folders have, where weights are stored
	// in a way of the family's own; nil: they are not.
	Unpack func(tensors []Tensor, memory *arena) ([]Tensor, error)

	// Ignorable lists, as patterns of path.Match, tensors that may lie in a file
	// without use: what older converters computed ahead.
	Ignorable []string
}

// families holds every family.
var families = []Family{
	llamaFamily, qwen3Family, qwen2Family, qwen2vlFamily, qwen3vlFamily, mistral3Family, gemma2Family, gemma3Family, smollm3Family, olmo2Family, graniteFamily,
	starcoder2Family, phi2Family, stablelmFamily, commandRFamily, cohere2Family, exaone4Family, ernie45Family, phi3Family, glm4Family, arceeFamily,
	gpt2Family, gptneoxFamily, mptFamily, bertFamily, nomicBertFamily, gemmaEmbeddingFamily,
	qwen3moeFamily, qwen2moeFamily, olmoeFamily, gptossFamily, deepseek2Family, lfm2Family, qwen35Family,
}

// decoderTensors returns the names that decoder-only models share and some more, without those
// that a family lacks.
func decoderTensors(more map[string]Stored, without ...string) map[string]Stored {
	tensors := map[string]Stored{
		"token_embd.weight":        as("model.embed_tokens.weight"),
		"output_norm.weight":       as("model.norm.weight"),
		"output.weight":            as("lm_head.weight"),
		"blk.#.attn_norm.weight":   as("model.layers.#.input_layernorm.weight"),
		"blk.#.attn_q.weight":      as("model.layers.#.self_attn.q_proj.weight"),
		"blk.#.attn_k.weight":      as("model.layers.#.self_attn.k_proj.weight"),
		"blk.#.attn_v.weight":      as("model.layers.#.self_attn.v_proj.weight"),
		"blk.#.attn_output.weight": as("model.layers.#.self_attn.o_proj.weight"),
		"blk.#.ffn_norm.weight":    as("model.layers.#.post_attention_layernorm.weight"),
		"blk.#.ffn_gate.weight":    as("model.layers.#.mlp.gate_proj.weight"),
		"blk.#.ffn_up.weight":      as("model.layers.#.mlp.up_proj.weight"),
		"blk.#.ffn_down.weight":    as("model.layers.#.mlp.down_proj.weight"),
	}
	maps.Copy(tensors, more)
	for _, name := range without {
		delete(tensors, name)
	}
	return tensors
}

// describe reads the family's configuration from a file's description.
func (f *Family) describe(d description, c *Config) {
	c.Family = f.Name
	for _, field := range slices.Concat(f.Fields, commonFields) {
		field.read(d, c)
	}
	if err := c.complete(f); err != nil {
		d.fail(err)
	}
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

// Families returns every family that Open knows.
func Families() []Family { return slices.Clone(families) }

// familyBy finds a family by one of its names, or says which there are.
func familyBy(field string, nameOf func(Family) string, name string) (*Family, error) {
	for i := range families {
		if nameOf(families[i]) == name || slices.Contains(families[i].Alias, name) {
			return &families[i], nil
		}
	}
	known := lo.Compact(lo.Map(families, func(f Family, _ int) string { return nameOf(f) }))
	return nil, configError("%s is %q; known are %s", field, name, strings.Join(known, ", "))
}

func ggufName(f Family) string { return f.Name }
func hfName(f Family) string   { return f.HF }

// frequencies are RoPE's, as folders may have them.
const frequencies = "*.rotary_emb.inv_freq"

// ignores reports whether a tensor may lie in a file without use.
func (f *Family) ignores(name string) bool {
	return slices.ContainsFunc(append(slices.Clip(f.Ignorable), frequencies), func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return err == nil && match
	})
}
