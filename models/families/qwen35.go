package families

import (
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// qwen35Family is the dense Qwen3.5 models, in which three layers of four mix tokens by the gated
// delta rule, and the others by gated attention. In folders the heads of V that share a head of K
// are adjacent; in GGUF files they are KeyHeads apart.
var qwen35Family = models.Family{
	Title: "Qwen3.5 (dense, text)",
	Name:  "qwen35", HF: "Qwen3_5ForCausalLM", Alias: []string{"Qwen3_5ForConditionalGeneration"}, Define: qwen35,
	Fields:    slices.Concat(deltaFields, []models.Field{sections}),
	Layer:     func(c *models.Config, i int, l *models.Layer) { l.Recurrent = c.Recurs(i) },
	Check:     checkDelta,
	Sources:   querySources,
	Prefixes:  []string{"language_model."},
	Tensors:   lo.Assign(besideDelta, deltaTensors),
	Ignorable: []string{"mtp.*", "model.visual.*", "visual.*"},
	Shapes: []models.Shape{
		{Parameters: 752_393_024, Config: models.Config{Name: "qwen3.5-0.8b", Layers: 24, Width: 1024, Heads: 8, KVHeads: 2, Head: 256, FFN: 3584, Vocab: 248320, Context: 262144, Eps: 1e-6,
			Rope: models.Rope{Theta: 1e7, Rotated: 64}, Tied: true, Sections: []int{11, 11, 10, 0}, Taps: 4, Delta: models.Delta{Heads: 16, KeyHeads: 16, Head: 128}, Recurrent: models.AllButEvery(4, 24)}},
	},
}

// deltaFields are the fields of models with layers of the gated delta rule, and dense layers.
var deltaFields = slices.Concat(models.ByWidth, []models.Field{models.RMSEps, models.PartOfHeads(0.25), models.Tied(false), models.Activation("silu"),
	{HF: "attention_bias", Only: false}, {HF: "attn_output_gate", Only: true},
	{GGUF: "ssm.conv_kernel", HF: "linear_conv_kernel_dim", Size: func(c *models.Config) *int { return &c.Taps }},
	{GGUF: "ssm.state_size", HF: "linear_key_head_dim", Size: func(c *models.Config) *int { return &c.Delta.Head }},
	{HF: "linear_value_head_dim", Repeats: func(c *models.Config) int { return c.Delta.Head }},
	{GGUF: "ssm.time_step_rank", HF: "linear_num_value_heads", Size: func(c *models.Config) *int { return &c.Delta.Heads }},
	{GGUF: "ssm.group_count", HF: "linear_num_key_heads", Size: func(c *models.Config) *int { return &c.Delta.KeyHeads }},
	{GGUF: "ssm.inner_size", Repeats: func(c *models.Config) int { return c.Delta.Heads * c.Delta.Head }},
	{Read: qwen35Layers, Write: func(c *models.Config) (string, gguf.Value, bool) {
		return recurrentLayers, gguf.BoolArray(c.Recurrent), true
	}},
	models.NoWindow, models.NoExperts})

// besideDelta are the other tensors of such models.
var besideDelta = models.DecoderTensors(map[string]models.Stored{
	"output_norm.weight":               models.Gain("model.norm.weight"),
	"blk.#.attn_norm.weight":           models.Gain("model.layers.#.input_layernorm.weight"),
	"blk.#.attn_q_norm.weight":         models.Gain("model.layers.#.self_attn.q_norm.weight"),
	"blk.#.attn_k_norm.weight":         models.Gain("model.layers.#.self_attn.k_norm.weight"),
	"blk.#.post_attention_norm.weight": models.Gain("model.layers.#.post_attention_layernorm.weight"),
}, "blk.#.ffn_norm.weight")

// deltaTensors are the tensors of layers with the gated delta rule.
var deltaTensors = map[string]models.Stored{
	"blk.#.attn_qkv.weight":   {Names: []string{"model.layers.#.linear_attn.in_proj_qkv.weight"}, Order: besideQK},
	"blk.#.attn_gate.weight":  {Names: []string{"model.layers.#.linear_attn.in_proj_z.weight"}, Order: elementOfV},
	"blk.#.ssm_alpha.weight":  {Names: []string{"model.layers.#.linear_attn.in_proj_a.weight"}, Order: headOfV},
	"blk.#.ssm_beta.weight":   {Names: []string{"model.layers.#.linear_attn.in_proj_b.weight"}, Order: headOfV},
	"blk.#.ssm_conv1d.weight": {Names: []string{"model.layers.#.linear_attn.conv1d.weight"}, Order: besideQK, Depthwise: true},
	"blk.#.ssm_a": {Names: []string{"model.layers.#.linear_attn.A_log"}, Order: headOfV,
		Value: func(x float32) float32 { return float32(-math.Exp(float64(x))) }},
	"blk.#.ssm_dt.bias":     {Names: []string{"model.layers.#.linear_attn.dt_bias"}, Order: headOfV},
	"blk.#.ssm_norm.weight": models.As("model.layers.#.linear_attn.norm.weight"),
	"blk.#.ssm_out.weight":  {Names: []string{"model.layers.#.linear_attn.out_proj.weight"}, Columns: elementOfV},
}

// headOfV returns the position in folders of head h of V: folders have the V heads of the first
// head of K, then those of the next. elementOfV maps elements accordingly, and besideQK those of a
// tensor that begins with Q and K.
func headOfV(c *models.Config, h int) int {
	d := &c.Delta
	return h%d.KeyHeads*(d.Heads/d.KeyHeads) + h/d.KeyHeads
}

func elementOfV(c *models.Config, i int) int {
	return headOfV(c, i/c.Delta.Head)*c.Delta.Head + i%c.Delta.Head
}

func besideQK(c *models.Config, i int) int {
	first := 2 * c.Delta.KeyHeads * c.Delta.Head
	if i < first {
		return i
	}
	return first + elementOfV(c, i-first)
}

const recurrentLayers = "attention.recurrent_layers"

// qwen35Layers reads which layers have no attention: from a list, or all but every n-th.
func qwen35Layers(d models.Description, c *models.Config) {
	switch {
	case d.Has("layer_types"):
		c.Recurrent = models.RecurrentKinds(d, c, "linear_attention")
	case d.Has(recurrentLayers):
		c.Recurrent = d.Flags(recurrentLayers)
	case c.Layers <= models.MaxLayers:
		c.Recurrent = models.AllButEvery(d.Size("full_attention_interval", 4), c.Layers)
	}
}

// qwen35 adds two terms to the residual stream x in each layer; the first is one of two:
//
//	x += Wout · (norm(delta(silu(conv(Wqkv·n)), Wα·n, Wβ·n)) ∘ silu(Wz·n))
//	x += Wo · (attention(rope(norm(Wq·n)), rope(norm(Wk·n)), Wv·n) ∘ σ(Wg·n))   n = RMSNorm(x)
//	x += Wdown · (silu(Wgate·n) ∘ Wup·n)                                        n = RMSNorm(x)
func qwen35(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		n := l.Norm("attn_norm", x)
		if l.Recurrent {
			x = b.Add(x, deltaNet(l, n))
		} else {
			x = b.Add(x, gatedAttention(l, n))
		}
		return models.AddFeedForward(l, x, l.Norm("post_attention_norm", x), ir.SiLU)
	})
}

// deltaNet returns the output of a layer's gated delta rule on the normalised stream n, [T, Width].
func deltaNet(l *models.LayerBuilder, n *ir.Value) *ir.Value {
	b, d, taps := l.Builder, l.Config.Delta, l.Config.Taps
	width := (2*d.KeyHeads + d.Heads) * d.Head
	w := b.Weight(l.Name("ssm_conv1d.weight"), width, taps)
	qkv := b.SiLU(b.ShortConv(l.Linear("attn_qkv", n, width, false), w, b.State("conv", taps-1, width)))
	alpha, beta := l.Linear("ssm_alpha", n, d.Heads, false), l.Linear("ssm_beta", n, d.Heads, false)
	decay, bias := b.Weight(l.Name("ssm_a"), d.Heads), b.Weight(l.Name("ssm_dt.bias"), d.Heads)
	y := b.DeltaNet(qkv, alpha, beta, decay, bias, b.State("delta", d.Heads*d.Head, d.Head), ir.DeltaNetAttr{KeyHeads: d.KeyHeads, Adjacent: d.Adjacent, Eps: l.Config.Eps})
	z := b.SplitHeads(l.Linear("attn_gate", n, d.Heads*d.Head, false), d.Heads)
	return l.Linear("ssm_out", b.MergeHeads(b.Mul(l.Norm("ssm_norm", y), b.SiLU(z))), l.Config.Width, false)
}

// gatedAttention multiplies the heads of attention by a gate.
func gatedAttention(l *models.LayerBuilder, n *ir.Value) *ir.Value {
	b := l.Builder
	project := func(role string, heads int) *ir.Value {
		return b.SplitHeads(l.Linear(role, n, heads*l.Head, false), heads)
	}
	q, k, v := project("attn_q", l.Heads), project("attn_k", l.KVHeads), project("attn_v", l.KVHeads)
	q, k = l.Rotate(l.NormHeads("attn_q", q)), l.Rotate(l.NormHeads("attn_k", k))
	gate := b.Activate(ir.Sigmoid, l.Linear("attn_q_gate", n, l.Heads*l.Head, false))
	return l.Linear("attn_output", b.Mul(models.Attend(l, q, k, v), gate), l.Config.Width, false)
}

// querySources divides the product in which files alternate the heads of Q and of their gate.
func querySources(c *models.Config) []models.Source {
	rows := c.Heads * c.Head
	every := func(role string, first int) models.Made {
		return models.Made{Role: role, Rows: rows, Row: func(i int) int { return i/c.Head*2*c.Head + first + i%c.Head }}
	}
	return []models.Source{{Role: "attn_q.weight", Shape: []int{2 * rows, c.Width}, Makes: []models.Made{every("attn_q.weight", 0), every("attn_q_gate.weight", c.Head)}}}
}

// checkDelta returns an error for shapes that no kernel supports.
func checkDelta(c *models.Config) error {
	d := &c.Delta
	if *d == (models.Delta{}) { // all layers have attention
		return nil
	}
	if err := models.CheckExtents(models.Extent{Name: "number of heads of the delta rule", N: d.Heads, Max: models.MaxExtent}, models.Extent{Name: "number of its key heads", N: d.KeyHeads, Max: models.MaxExtent},
		models.Extent{Name: "size of its heads", N: d.Head, Max: models.MaxExtent}); err != nil {
		return err
	}
	if d.Heads%d.KeyHeads != 0 || lo.Max([]int{d.Heads, d.KeyHeads}) > models.MaxExtent/d.Head/4 {
		return models.ConfigError("the delta rule has %d heads over %d key heads of %d elements, which no kernel supports", d.Heads, d.KeyHeads, d.Head)
	}
	return nil
}
