package families

import (
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
)

// graniteHybridFamily is Granite 4 H: Granite with Mamba-2 in most layers in place of attention, which
// does not rotate heads, and a mixture with a shared expert or a dense network.
var graniteHybridFamily = models.Family{
	Title: "Granite 4 H",
	Name:  "granitehybrid", HF: graniteHybrid, Define: graniteHybridGraph,
	Fields: slices.Concat(models.Without(models.ByWidth, keyKVHeads), []models.Field{
		{HF: "num_key_value_heads", Size: func(c *models.Config) *int { return &c.KVHeads }},
		{Read: hybridLayers, Write: lfm2HeadCounts}, models.RMSEps, models.WholeRope, models.Tied(false), models.Activation("silu"), {HF: "attention_bias", Only: false},
		{HF: "normalization_function", Only: "rmsnorm"}, {HF: "mamba_proj_bias", Only: false}, models.NoWindow,
	}, hybridMamba,
		models.Without(multipliers, "logit_scale"), []models.Field{stillHeads,
			{GGUF: "logit_scale", HF: "logits_scaling", Number: func(c *models.Config) *float64 { return &c.LogitDivisor }, Optional: true},
			{GGUF: "expert_count", HF: "num_local_experts", Size: func(c *models.Config) *int { return &c.Experts.Count }, Optional: true},
			{GGUF: "expert_used_count", HF: "num_experts_per_tok", Size: func(c *models.Config) *int { return &c.Experts.Chosen }, Optional: true},
			{GGUF: keySharedLength, HF: "shared_intermediate_size", Size: func(c *models.Config) *int { return &c.Experts.Shared }, Optional: true},
			{Read: hybridNetworks}}),
	Router: granitemoeFamily.Router,
	Given: func(c *models.Config) {
		graniteFamily.Given(c)
		if c.Experts.Count > 0 {
			c.Experts.FFN = c.FFN
		}
	},
	Layer: func(c *models.Config, i int, l *models.Layer) {
		graniteFamily.Layer(c, i, l)
		l.Recurrent = c.Recurs(i)
	},
	Check:           checkMamba,
	Tensors:         lo.Assign(when(graniteFamily.Tensors, isDense, models.DenseFFN...), when(granitemoeFamily.Tensors, isMixed, sharedFFN...), mambaTensors("model.layers.#.mamba.")),
	Stacks:          granitemoeFamily.Stacks,
	GGUFInterleaved: true,
	Shapes: []models.Shape{
		{Parameters: 6_939_037_248, Config: models.Config{Name: "granite4.0-h-tiny", Layers: 40, Width: 1536, Heads: 12, KVHeads: 4, Head: 128, FFN: 512, Vocab: 100352, Context: 131072, Eps: 1e-5,
			Tied: true, EmbeddingScale: 12, ResidualScale: 0.22, AttentionScale: 0.0078125, LogitDivisor: 6, Recurrent: allBut(40, 5, 15, 25, 35), Taps: 4,
			Mamba: models.Mamba{Heads: 48, Head: 64, Groups: 1, States: 128}, Experts: models.Experts{Count: 64, Chosen: 6, Shared: 1024}}},
	},
}

// sharedFFN lists the weights of a shared expert.
var sharedFFN = []string{"blk.#.ffn_gate_shexp.weight", "blk.#.ffn_up_shexp.weight", "blk.#.ffn_down_shexp.weight"}

func isDense(c *models.Config) bool { return c.Experts.Count == 0 }
func isMixed(c *models.Config) bool { return c.Experts.Count > 0 }

// when returns the weights, some of which only such models have.
func when(weights map[string]models.Stored, has func(c *models.Config) bool, some ...string) map[string]models.Stored {
	return lo.MapValues(weights, func(s models.Stored, name string) models.Stored {
		if slices.Contains(some, name) {
			s.When = has
		}
		return s
	})
}

// hybridLayers reads which layers have no attention.
func hybridLayers(d models.Description, c *models.Config) {
	if d.Format() == models.GGUF {
		c.Recurrent = headless(d, c)
		return
	}
	c.Recurrent = lo.Map(d.Texts("layer_types"), func(kind string, _ int) bool {
		if kind != "mamba" && kind != "attention" {
			d.Fail(models.ConfigError("a layer is of type %q", kind))
		}
		return kind == "mamba"
	})
}

// hybridNetworks reads what models without experts have: the shared expert is their network.
func hybridNetworks(d models.Description, c *models.Config) {
	if d.Format() == models.Folder && d.Text("position_embedding_type") != "rope" {
		c.Rope = models.Rope{}
	}
	if c.Experts.Count > 0 {
		return
	}
	if d.Format() == models.Folder {
		c.FFN = c.Experts.Shared
	}
	c.Experts = models.Experts{}
}

// graniteHybridGraph is granite with Mamba-2 in place of attention in some layers.
func graniteHybridGraph(b *ir.Builder, c *models.Config) {
	models.Decode(b, multiplied(c), models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		if l.Recurrent {
			x = b.Add(x, stateSpace(l, n, c.Eps, true))
		} else {
			x = b.Add(x, models.Attention(l, n, models.AsIs))
		}
		return models.AddFeedForward(l, x, l.Norm("ffn_norm", x), ir.SiLU)
	})
}
