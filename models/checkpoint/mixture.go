package checkpoint

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/quant"
)

// mixture assigns an element type to each tensor of a file that is known by one type:
// llama_tensor_get_type of llama.cpp's quantizer, without an importance matrix. Vectors are always
// F32.
type mixture struct {
	base     dtype.Type // of matrices without a rule below
	fileType uint32     // general.file_type
	head     dtype.Type // of the output head; Invalid: Q6_K
	beside   dtype.Type // of the matrices of a mixture of experts outside the experts; Invalid: base
	// output is the type of attn_output in models with eight experts, as Mixtral has; Invalid:
	// base.
	output dtype.Type
	// Exceptions by layer; nil: none.
	attnV, attnOutput, ffnDown func(layer int, c *models.Config) dtype.Type
}

func always(t dtype.Type) func(int, *models.Config) dtype.Type {
	return func(int, *models.Config) dtype.Type { return t }
}

// moreBits returns high for the first and last eighth of the layers, and for every third in
// between; low for the others.
func moreBits(high, low dtype.Type) func(int, *models.Config) dtype.Type {
	return func(i int, c *models.Config) dtype.Type {
		first := eighth(c)
		if i < first || i >= 7*c.Layers/8 || (i-first)%3 == 2 {
			return high
		}
		return low
	}
}

func eighth(c *models.Config) int { return c.Layers / 8 }

// manyQueries returns high if four query heads or more share a KV head, else low.
func manyQueries(high, low dtype.Type) func(int, *models.Config) dtype.Type {
	return func(_ int, c *models.Config) dtype.Type {
		if c.Heads/c.KVHeads >= 4 {
			return high
		}
		return low
	}
}

func firstLayers(n func(c *models.Config) int, high, low dtype.Type) func(int, *models.Config) dtype.Type {
	return func(i int, c *models.Config) dtype.Type {
		if i < n(c) {
			return high
		}
		return low
	}
}

// mixtures lists the mixtures whose matrices have several types, or whose name differs from that of
// their base. Without a base, the base and the file type are those of the row in package dtype with
// the mixture's name.
var mixtures = map[string]mixture{
	"q2_k": {output: dtype.Q5_K,
		attnV:      manyQueries(dtype.Q4_K, dtype.Q3_K),
		attnOutput: always(dtype.Q3_K), ffnDown: always(dtype.Q3_K)},
	"q3_k_s": {output: dtype.Q5_K},
	"q3_k_l": {base: dtype.Q3_K, fileType: 13, attnV: always(dtype.Q5_K), attnOutput: always(dtype.Q5_K), ffnDown: always(dtype.Q5_K)},
	"q3_k_m": {base: dtype.Q3_K, fileType: 12, output: dtype.Q5_K,
		attnV:      firstLayers(func(*models.Config) int { return 2 }, dtype.Q5_K, dtype.Q4_K),
		attnOutput: always(dtype.Q4_K),
		ffnDown:    firstLayers(func(c *models.Config) int { return c.Layers / 16 }, dtype.Q5_K, dtype.Q4_K)},
	"q4_k_s": {output: dtype.Q5_K,
		attnV:   firstLayers(func(*models.Config) int { return 4 }, dtype.Q5_K, dtype.Q4_K),
		ffnDown: firstLayers(eighth, dtype.Q5_K, dtype.Q4_K)},
	"q4_k_m": {base: dtype.Q4_K, fileType: 15, output: dtype.Q5_K, attnV: moreBits(dtype.Q6_K, dtype.Q4_K), ffnDown: moreBits(dtype.Q6_K, dtype.Q4_K)},
	"q5_k_m": {base: dtype.Q5_K, fileType: 17, attnV: moreBits(dtype.Q6_K, dtype.Q5_K), ffnDown: moreBits(dtype.Q6_K, dtype.Q5_K)},
	"iq4_nl": {output: dtype.Q5_K, attnV: manyQueries(dtype.Q5_K, dtype.IQ4_NL), ffnDown: firstLayers(eighth, dtype.Q5_K, dtype.IQ4_NL)},
	"iq4_xs": {output: dtype.Q5_K, attnV: manyQueries(dtype.Q5_K, dtype.IQ4_XS), ffnDown: firstLayers(eighth, dtype.Q5_K, dtype.IQ4_XS)},
	// llama.cpp's own mixture is for experts alone.
	"mxfp4": {head: dtype.Q8_0, beside: dtype.Q8_0},
	"mlx4":  {head: dtype.MLX4},
	"mlx8":  {head: dtype.MLX8},
}

// ShapeTypes returns the names of types of weights that Arch accepts.
func ShapeTypes() []string {
	names := lo.Keys(mixtures)
	for _, t := range dtype.Weights() {
		names = append(names, t.Row().Mixture)
	}
	names = lo.Uniq(lo.Compact(names))
	sort.Strings(names)
	return names
}

// WeightTypes returns those that smelt can quantize to and GGUF files can store.
func WeightTypes() []string {
	return lo.Filter(ShapeTypes(), func(name string, _ int) bool {
		m, err := mixtureOf(name)
		_, ok := m.base.GGUF()
		return err == nil && ok && quant.CanQuantize(m.base)
	})
}

func mixtureOf(name string) (mixture, error) {
	m := mixtures[strings.ToLower(name)]
	if m.base != dtype.Invalid {
		return m, nil
	}
	for _, t := range dtype.Weights() {
		if row := t.Row(); row.Mixture != "" && strings.EqualFold(row.Mixture, name) {
			m.base, m.fileType = t, row.FileType
			return m, nil
		}
	}
	return m, models.ConfigError("no weight type is called %q; known are %s", name, strings.Join(ShapeTypes(), ", "))
}

// dtype returns the type of a tensor; layer is ignored for tensors outside layers.
func (m *mixture) dtype(name string, layer int, shape []int, c *models.Config) dtype.Type {
	return fitting(m.want(name, layer, shape, c), shape[len(shape)-1])
}

// unquantized are tables and routers that llama.cpp's converter keeps in F32, as it does norms,
// whatever the other types are. Names are within a layer.
var unquantized = []string{"position_embd.weight", "token_types.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight",
	"shortconv.conv.weight", "ssm_conv1d.weight", "ssm_a", "ssm_d"}

// want is dtype for rows of any length.
func (m *mixture) want(name string, layer int, shape []int, c *models.Config) dtype.Type {
	role := role(name)
	if len(shape) < 2 || slices.Contains(unquantized, name) || slices.Contains(unquantized, role) || strings.HasSuffix(role, "_norm.weight") || strings.HasSuffix(role, ".bias") {
		return dtype.F32
	}
	if !m.base.IsQuantized() {
		return m.base
	}
	if name == "per_layer_model_proj.weight" { // which llama.cpp's quantizer keeps as it is
		return dtype.F16
	}
	t := m.base
	if c.Experts.Count > 0 && !strings.HasSuffix(role, "_exps.weight") {
		t = cmp.Or(m.beside, t)
	}
	exception := map[string]func(int, *models.Config) dtype.Type{
		"attn_v.weight": m.attnV, "attn_qkv.weight": m.attnV, "attn_kv_b.weight": m.attnV, "attn_output.weight": m.attnOutput, "ffn_down.weight": m.ffnDown,
		"ffn_down_exps.weight": m.ffnDown, "ffn_down_shexp.weight": m.ffnDown,
	}[role]
	isHead := name == "output.weight" || name == "token_embd.weight" && c.Tied
	switch {
	case isHead && m.head != dtype.Invalid:
		t = m.head
	case isHead && t != dtype.Q8_0:
		t = dtype.Q6_K
	case c.Experts.Count == 8 && slices.Contains([]string{"attn_k.weight", "attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"}, role):
		t = dtype.Q8_0
	case c.Experts.Count == 8 && role == "attn_output.weight":
		t = cmp.Or(m.output, t)
	case exception != nil:
		t = exception(layer, c)
	}
	// In Llama's 70B models eight query heads share a value head, so that attn_v is small and
	// precision matters more.
	if role == "attn_v.weight" && c.Family == "llama" && c.Layers == 80 && (t == dtype.Q3_K || t == dtype.Q4_K) {
		t = dtype.Q5_K
	}
	return t
}

// fitting returns t, or its replacement if a row is not a whole number of blocks.
func fitting(t dtype.Type, row int) dtype.Type {
	if other := t.Row().Narrower; other != dtype.Invalid && row%t.BlockElems() != 0 {
		t = other
	}
	if row%t.BlockElems() != 0 {
		return dtype.F16
	}
	return t
}
