package models

import (
	"path"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// Family is all that is known of a model family. Each has a file of its own, which holds
// what follows and its graph, and a row in families.
type Family struct {
	Name string // general.architecture in GGUF files
	HF   string // one of architectures in config.json

	// Define writes the graph.
	Define func(b *ir.Builder, c *Config)

	// Fields are read one after the other: later ones may build on earlier ones.
	Fields []Field

	// Interleaved says that GGUF files of the family have the two elements that RoPE
	// rotates together side by side.
	Interleaved bool

	// Tensors says where Hugging Face folders have each weight, by its name in GGUF
	// files. # stands for the number of the layer.
	Tensors map[string]Stored

	// Ignorable lists, as patterns of path.Match, tensors that may lie in a file
	// without use: what older converters computed ahead.
	Ignorable []string
}

// families holds every family.
var families = []Family{llamaFamily, qwen3Family}

// decoderTensors returns the names that decoder-only models share, and some more.
func decoderTensors(more map[string]Stored) map[string]Stored {
	return lo.Assign(map[string]Stored{
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
	}, more)
}

// describe reads the family's configuration from a file's description.
func (f *Family) describe(d description, c *Config) {
	c.Family = f.Name
	for i := range f.Fields {
		f.Fields[i].read(d, c)
	}
}

// Families returns every family that Open knows.
func Families() []Family { return slices.Clone(families) }

// familyBy finds a family by one of its names, or says which there are.
func familyBy(field string, nameOf func(Family) string, name string) (*Family, error) {
	for i := range families {
		if nameOf(families[i]) == name {
			return &families[i], nil
		}
	}
	known := lo.Map(families, func(f Family, _ int) string { return nameOf(f) })
	return nil, configError("%s is %q; known are %s", field, name, strings.Join(known, ", "))
}

func ggufName(f Family) string { return f.Name }
func hfName(f Family) string   { return f.HF }

// ignores reports whether a tensor may lie in a file without use.
func (f *Family) ignores(name string) bool {
	return slices.ContainsFunc(f.Ignorable, func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return err == nil && match
	})
}
