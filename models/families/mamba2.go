package families

import (
	"math"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/gguf"
)

// mamba2Family is Mamba-2, whose layers have a recurrent state and nothing else.
var mamba2Family = models.Family{
	Title: "Mamba-2",
	Name:  "mamba2", HF: "Mamba2ForCausalLM", Define: mamba2,
	Fields: slices.Concat([]models.Field{
		{GGUF: "vocab_size", HF: "vocab_size", Size: func(c *models.Config) *int { return &c.Vocab }, ByTensor: true},
		{GGUF: "context_length", Size: func(c *models.Config) *int { return &c.Context }},
		{Read: unboundContext},
		{GGUF: "embedding_length", HF: "hidden_size", Size: func(c *models.Config) *int { return &c.Width }},
		{GGUF: "block_count", HF: "num_hidden_layers", Size: func(c *models.Config) *int { return &c.Layers }},
		zero("feed_forward_length"), zero("attention.head_count"),
		{GGUF: "attention.layer_norm_rms_epsilon", HF: "layer_norm_epsilon", Number: func(c *models.Config) *float64 { return &c.Eps }, Absent: models.InFolders(1e-5)},
	}, mambaFields(map[string]string{"heads": "num_heads", "head": "head_dim", "groups": "n_groups", "states": "state_size", "taps": "conv_kernel", "bias": "use_conv_bias"}), []models.Field{
		{HF: "expand", Repeats: func(c *models.Config) int { return c.Mamba.Inner() / max(c.Width, 1) }},
		{HF: "use_bias", Only: false}, {HF: "rms_norm", Only: true}, models.Activation("silu"), models.Tied(false)}),
	Given: func(c *models.Config) { c.Rope = models.Rope{} },
	Layer: func(_ *models.Config, _ int, l *models.Layer) {
		*l = models.Layer{Recurrent: true, Kind: models.MixerAlone}
	},
	Check: checkMamba,
	Tensors: lo.Assign(mambaTensors("backbone.layers.#.mixer."), map[string]models.Stored{
		"token_embd.weight":      models.As("backbone.embeddings.weight"),
		"output_norm.weight":     models.As("backbone.norm_f.weight"),
		"output.weight":          models.As("lm_head.weight"),
		"blk.#.attn_norm.weight": models.As("backbone.layers.#.norm.weight"),
	}),
	Shapes: []models.Shape{
		{Parameters: 7_285_403_648, Config: models.Config{Name: "mamba-codestral-7b", Layers: 64, Width: 4096, Vocab: 32768, Context: 1 << 20, Eps: 1e-5,
			Taps: 4, Mamba: models.Mamba{Heads: 128, Head: 64, Groups: 8, States: 128}}},
	},
}

// unboundContext is what llama.cpp's converter writes for models whose state holds any text.
func unboundContext(d models.Description, c *models.Config) {
	if d.Format() == models.Folder {
		c.Context = 1 << 20
	}
}

// zero is an entry that llama.cpp wants in files of models without what it counts.
func zero(key string) models.Field {
	return models.Field{Write: func(*models.Config) (string, gguf.Value, bool) { return key, gguf.Uint32(0), true }}
}

// mambaFields are the fields of models with layers of Mamba-2, by the names that folders have for the
// heads, their size, the groups, the states, the taps and the convolution's bias.
func mambaFields(names map[string]string) []models.Field {
	return []models.Field{
		{GGUF: "ssm.conv_kernel", HF: names["taps"], Size: func(c *models.Config) *int { return &c.Taps }, Absent: models.InFolders(4)},
		{GGUF: "ssm.state_size", HF: names["states"], Size: func(c *models.Config) *int { return &c.Mamba.States }},
		{GGUF: "ssm.time_step_rank", HF: names["heads"], Size: func(c *models.Config) *int { return &c.Mamba.Heads }},
		{GGUF: "ssm.group_count", HF: names["groups"], Size: func(c *models.Config) *int { return &c.Mamba.Groups }},
		{HF: names["head"], Size: func(c *models.Config) *int { return &c.Mamba.Head }},
		{HF: names["bias"], Only: true},
		{Read: mambaInner, Write: func(c *models.Config) (string, gguf.Value, bool) {
			return keyInner, gguf.Uint32(uint32(c.Mamba.Inner())), true
		}},
		{Read: unboundSteps},
	}
}

// hybridMamba are mambaFields by the names that folders of hybrids have.
var hybridMamba = mambaFields(map[string]string{"heads": "mamba_n_heads", "head": "mamba_d_head", "groups": "mamba_n_groups", "states": "mamba_d_state", "taps": "mamba_d_conv", "bias": "mamba_conv_bias"})

const keyInner = "ssm.inner_size"

// mambaInner reads the size of heads from that of all in GGUF files.
func mambaInner(d models.Description, c *models.Config) {
	if d.Format() != models.GGUF {
		return
	}
	n := d.Size(keyInner, 0)
	if c.Mamba.Heads < 1 || n%c.Mamba.Heads != 0 {
		d.Fail(models.ConfigError("%s is %d, in %d heads", d.FullName(keyInner), n, c.Mamba.Heads))
		return
	}
	c.Mamba.Head = n / c.Mamba.Heads
}

// unboundSteps refuses folders that bound the steps of the recurrence.
func unboundSteps(d models.Description, _ *models.Config) {
	const key = "time_step_limit"
	if d.Format() != models.Folder || !d.Has(key) {
		return
	}
	if list := d.Numbers(key); len(list) != 2 || list[0] != 0 || !math.IsInf(list[1], 1) {
		d.Fail(models.ConfigError("%s is %v, not from 0 to infinity", key, list))
	}
}

// mambaTensors are the tensors of layers with Mamba-2, in folders behind a prefix.
func mambaTensors(prefix string) map[string]models.Stored {
	return map[string]models.Stored{
		"blk.#.ssm_in.weight":     models.As(prefix + "in_proj.weight"),
		"blk.#.ssm_conv1d.weight": {Names: []string{prefix + "conv1d.weight"}, Depthwise: true},
		"blk.#.ssm_conv1d.bias":   models.As(prefix + "conv1d.bias"),
		"blk.#.ssm_a":             {Names: []string{prefix + "A_log"}, Value: func(x float32) float32 { return float32(-math.Exp(float64(x))) }},
		"blk.#.ssm_d":             models.As(prefix + "D"),
		"blk.#.ssm_dt.bias":       models.As(prefix + "dt_bias"),
		"blk.#.ssm_norm.weight":   models.As(prefix + "norm.weight"),
		"blk.#.ssm_out.weight":    models.As(prefix + "out_proj.weight"),
	}
}

// mamba2 is x += Mamba-2(RMSNorm(x)) in each layer, see [stateSpace].
func mamba2(b *ir.Builder, c *models.Config) {
	models.Decode(b, c, models.RMSNorm, func(l *models.LayerBuilder, x *ir.Value) *ir.Value {
		return b.Add(x, stateSpace(l, l.Norm("attn_norm", x), c.Eps, true))
	})
}

// stateSpace returns the output of a layer's Mamba-2 block on the normalised stream n, [T, Width]:
//
//	Wout · norm(ssm(silu(conv(xbc) + bias), dt) ∘ silu(z))   z, xbc, dt = Win·n
//
// The norm is over each group of heads, with its own weights; some models have none.
func stateSpace(l *models.LayerBuilder, n *ir.Value, eps float64, normed bool) *ir.Value {
	b, m, taps := l.Builder, &l.Config.Mamba, l.Config.Taps
	inner, width := m.Inner(), m.Convolved()
	all := l.Linear("ssm_in", n, inner+width+m.Heads, false)
	xbc := b.ShortConv(b.Slice(all, inner, inner+width), b.Weight(l.Name("ssm_conv1d.weight"), width, taps), b.State("conv", taps-1, width))
	xbc = b.SiLU(b.Shift(xbc, b.Weight(l.Name("ssm_conv1d.bias"), width)))
	dt := b.Slice(all, inner+width, inner+width+m.Heads)
	decay, bias, skip := b.Weight(l.Name("ssm_a"), m.Heads, 1), b.Weight(l.Name("ssm_dt.bias"), m.Heads), b.Weight(l.Name("ssm_d"), m.Heads, 1)
	y := b.MergeHeads(b.Mamba2(xbc, dt, decay, bias, skip, b.State("ssm", m.Heads*m.States, m.Head), m.Groups))
	y = b.Mul(y, b.SiLU(b.Slice(all, 0, inner)))
	switch gain := l.Name("ssm_norm.weight"); {
	case !normed:
	case m.Groups == 1:
		y = b.RMSNorm(y, b.Weight(gain, inner), eps)
	default:
		y = b.MergeHeads(b.GroupNorm(b.SplitHeads(y, m.Groups), b.Weight(gain, m.Groups, inner/m.Groups), eps))
	}
	return l.Linear("ssm_out", y, l.Config.Width, false)
}

// checkMamba returns an error for shapes that no kernel supports.
func checkMamba(c *models.Config) error {
	m := &c.Mamba
	if err := models.CheckExtents(models.Extent{Name: "number of heads of Mamba-2", N: m.Heads, Max: models.MaxExtent}, models.Extent{Name: "size of its heads", N: m.Head, Max: maxStateSpace},
		models.Extent{Name: "number of its groups", N: m.Groups, Max: m.Heads}, models.Extent{Name: "number of its states", N: m.States, Max: maxStateSpace},
		models.Extent{Name: "number of its taps", N: c.Taps, Max: ir.MaxTaps}); err != nil {
		return err
	}
	if m.Heads%m.Groups != 0 || m.Heads > models.MaxExtent/(4*maxStateSpace) {
		return models.ConfigError("Mamba-2 has %d heads in %d groups, which no kernel supports", m.Heads, m.Groups)
	}
	return nil
}

// maxStateSpace is the largest head and state of Mamba-2's kernels.
const maxStateSpace = 256

// headsByLayer returns a number of heads for each layer with attention, and 0 for the others.
func headsByLayer(c *models.Config, heads int) gguf.Value {
	return gguf.Int32Array(lo.Times(c.Layers, func(i int) int32 {
		return int32(lo.Ternary(c.Recurs(i) || c.Networks != nil && c.Networks[i], 0, heads))
	}))
}

// headless reads which layers have no KV heads in a GGUF file, and how many the others have.
func headless(d models.Description, c *models.Config) (without []bool) {
	counts := d.Sizes(keyKVHeads)
	c.KVHeads = lo.Max(counts)
	for _, n := range counts {
		without = append(without, n == 0)
		if n != 0 && n != c.KVHeads {
			d.Fail(models.ConfigError("layers have %d KV heads and %d, want one number", n, c.KVHeads))
		}
	}
	return without
}
