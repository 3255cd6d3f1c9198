package families

import (
	"cmp"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// graniteFamily is the dense models of Granite 3: Llama with four multipliers.
var graniteFamily = models.Family{
	Title: "Granite 3, Granite 4 (dense)",
	Name:  "granite", HF: "GraniteForCausalLM", Alias: []string{graniteHybrid}, Define: granite,
	Variant: func(d models.Description) string {
		return lo.Ternary(slices.Contains(d.Texts("layer_types"), "mamba"), "granitehybrid", "")
	},
	Fields: slices.Concat(graniteFields, []models.Field{stillHeads, {Read: granite4}}),
	Given: func(c *models.Config) {
		if c.Rope.Theta == 0 {
			c.Rope = models.Rope{}
		}
	},
	Layer: func(c *models.Config, _ int, l *models.Layer) {
		if c.Rope == (models.Rope{}) {
			l.Rope = nil
		}
	},
	Tensors: models.DecoderTensors(map[string]models.Stored{
		"blk.#.ffn_gate.weight": {Names: []string{"model.layers.#.mlp.gate_proj.weight"}, Or: new(sharedPart(0, models.WholeFFN))},
		"blk.#.ffn_up.weight":   {Names: []string{"model.layers.#.mlp.up_proj.weight"}, Or: new(sharedPart(1, models.WholeFFN))},
		"blk.#.ffn_down.weight": {Names: []string{"model.layers.#.mlp.down_proj.weight"}, Or: new(models.As("model.layers.#.shared_mlp.output_linear.weight"))},
	}),
	GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 2_533_539_840, Config: models.Config{Name: "granite3.3-2b", Layers: 40, Width: 2048, Heads: 32, KVHeads: 8, Head: 64, FFN: 8192, Vocab: 49159, Context: 131072, Eps: 1e-5,
			Rope: models.Rope{Theta: 1e7}, Tied: true, EmbeddingScale: 12, ResidualScale: 0.22, AttentionScale: 0.015625, LogitDivisor: 8}},
	},
}

// stillHeads reads whether layers do not rotate: their files say that RoPE was not trained.
var stillHeads = models.Field{
	Read: func(d models.Description, c *models.Config) {
		if c.Rope.Theta == 0 {
			d.Fail(models.ConfigError("the base of RoPE's frequencies is 0"))
		}
		if d.Format() == models.GGUF && d.Has(keyFinetuned) && !d.Flag(keyFinetuned) {
			c.Rope = models.Rope{}
		}
	},
	Write: func(c *models.Config) (string, gguf.Value, bool) {
		return keyFinetuned, gguf.Bool(false), c.Rope == (models.Rope{})
	},
}

const keyFinetuned = "rope.scaling.finetuned"

// noDeepStack refuses files of Granite Vision, whose layers read more than the embeddings.
var noDeepStack = models.Field{Read: func(d models.Description, _ *models.Config) {
	const key = "deepstack_mapping"
	if d.Format() == models.GGUF && d.Has(key) {
		d.Fail(models.ConfigError("%s: layers that read parts of a picture are not supported", d.FullName(key)))
	}
}}

// graniteFields are those of dense models that rotate their heads.
var graniteFields = slices.Concat(models.DecoderFields(models.WidthByHeads), multipliers)

// graniteHybrid is the class of Granite 4, whose dense models have attention in all layers.
const graniteHybrid = "GraniteMoeHybridForCausalLM"

// granite4 reads the width of the feed-forward network of Granite 4's folders, which have it as a
// shared expert's, and whether heads rotate. Experts and layers without attention are refused.
func granite4(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF || lo.FirstOr(d.Texts("architectures"), "") != graniteHybrid {
		return
	}
	c.FFN = d.Size("shared_intermediate_size", 1024)
	if n := max(d.Size("num_local_experts", models.Unset), 0); n > 0 {
		d.Fail(models.ConfigError("num_local_experts is %d, not 0", n))
	}
	if d.Text("position_embedding_type") != "rope" {
		c.Rope = models.Rope{}
	}
	if kinds := d.Texts("layer_types"); len(kinds) != c.Layers || lo.Count(kinds, "attention") != c.Layers {
		d.Fail(models.ConfigError("layer_types are %v, where only %d of attention are supported", kinds, c.Layers))
	}
}

// multipliers are Granite's.
var multipliers = []models.Field{
	noDeepStack,
	{GGUF: "embedding_scale", HF: "embedding_multiplier", Number: func(c *models.Config) *float64 { return &c.EmbeddingScale }, Optional: true},
	{GGUF: "residual_scale", HF: "residual_multiplier", Number: func(c *models.Config) *float64 { return &c.ResidualScale }, Optional: true},
	{GGUF: "attention.scale", HF: "attention_multiplier", Number: func(c *models.Config) *float64 { return &c.AttentionScale }, Optional: true},
	{GGUF: "logit_scale", HF: "logits_scaling", Number: func(c *models.Config) *float64 { return &c.LogitDivisor }},
}

// granite is llama with embeddings multiplied by EmbeddingScale, each layer's outputs by
// ResidualScale, and logits divided by LogitDivisor.
func granite(b *ir.Builder, c *models.Config) { llama(b, multiplied(c)) }

// multiplied returns the configuration with Granite's multipliers in what a graph without them has:
// it holds the residual stream divided by s = ResidualScale, so that products add their results
// without scaling. The norms that read the stream are those of the configuration: norm(s·y) with ε
// equals norm(y) with ε/s².
func multiplied(c *models.Config) *models.Config {
	of, s := *c, cmp.Or(c.ResidualScale, 1)
	of.EmbeddingScale, of.ResidualScale, of.Eps = cmp.Or(c.EmbeddingScale, 1)/s, 0, c.Eps/(s*s)
	of.LogitScale = 1 / cmp.Or(c.LogitDivisor, 1)
	return &of
}
