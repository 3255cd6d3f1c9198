package models

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// mixture says which element type llama.cpp gives each tensor of a file that
// people call by one type: llama_tensor_get_type of its quantizer, without an
// importance matrix. Vectors are always F32.
type mixture struct {
	base     ir.DType // of matrices that nothing below names
	fileType uint32   // general.file_type
	head     ir.DType // of the matrix that gives logits; Q6_K where Invalid
	beside   ir.DType // of matrices beside experts, where there are any; base where Invalid
	// output is of attn_output beside eight experts, as Mixtral has; base where Invalid.
	output ir.DType
	// Exceptions, as functions of the layer; nil where there is none.
	attnV, attnOutput, ffnDown func(layer int, c *Config) ir.DType
}

func always(t ir.DType) func(int, *Config) ir.DType { return func(int, *Config) ir.DType { return t } }

// moreBits gives high where a layer is among the first or last eighth, or every
// third in between.
func moreBits(high, low ir.DType) func(int, *Config) ir.DType {
	return func(i int, c *Config) ir.DType {
		first := eighth(c)
		if i < first || i >= 7*c.Layers/8 || (i-first)%3 == 2 {
			return high
		}
		return low
	}
}

func eighth(c *Config) int { return c.Layers / 8 }

// manyQueries gives high where four query heads or more share a KV head.
func manyQueries(high, low ir.DType) func(int, *Config) ir.DType {
	return func(_ int, c *Config) ir.DType {
		if c.Heads/c.KVHeads >= 4 {
			return high
		}
		return low
	}
}

func firstLayers(n func(c *Config) int, high, low ir.DType) func(int, *Config) ir.DType {
	return func(i int, c *Config) ir.DType {
		if i < n(c) {
			return high
		}
		return low
	}
}

var mixtures = map[string]mixture{
	"f32":  {base: ir.F32, fileType: 0},
	"f16":  {base: ir.F16, fileType: 1},
	"bf16": {base: ir.BF16, fileType: 32},
	"q8_0": {base: ir.Q8_0, fileType: 7},
	"q4_0": {base: ir.Q4_0, fileType: 2},
	"q4_1": {base: ir.Q4_1, fileType: 3},
	"q5_0": {base: ir.Q5_0, fileType: 8},
	"q5_1": {base: ir.Q5_1, fileType: 9},
	"q6_k": {base: ir.Q6_K, fileType: 18},
	"q2_k": {base: ir.Q2_K, fileType: 10, output: ir.Q5_K,
		attnV:      manyQueries(ir.Q4_K, ir.Q3_K),
		attnOutput: always(ir.Q3_K), ffnDown: always(ir.Q3_K)},
	"q3_k_s": {base: ir.Q3_K, fileType: 11, output: ir.Q5_K},
	"q3_k_l": {base: ir.Q3_K, fileType: 13, attnV: always(ir.Q5_K), attnOutput: always(ir.Q5_K), ffnDown: always(ir.Q5_K)},
	"q3_k_m": {base: ir.Q3_K, fileType: 12, output: ir.Q5_K,
		attnV:      firstLayers(func(*Config) int { return 2 }, ir.Q5_K, ir.Q4_K),
		attnOutput: always(ir.Q4_K),
		ffnDown:    firstLayers(func(c *Config) int { return c.Layers / 16 }, ir.Q5_K, ir.Q4_K)},
	"q4_k_s": {base: ir.Q4_K, fileType: 14, output: ir.Q5_K,
		attnV:   firstLayers(func(*Config) int { return 4 }, ir.Q5_K, ir.Q4_K),
		ffnDown: firstLayers(eighth, ir.Q5_K, ir.Q4_K)},
	"q4_k_m": {base: ir.Q4_K, fileType: 15, output: ir.Q5_K, attnV: moreBits(ir.Q6_K, ir.Q4_K), ffnDown: moreBits(ir.Q6_K, ir.Q4_K)},
	"q5_k_s": {base: ir.Q5_K, fileType: 16},
	"q5_k_m": {base: ir.Q5_K, fileType: 17, attnV: moreBits(ir.Q6_K, ir.Q5_K), ffnDown: moreBits(ir.Q6_K, ir.Q5_K)},
	"iq4_nl": {base: ir.IQ4_NL, fileType: 25, output: ir.Q5_K, attnV: manyQueries(ir.Q5_K, ir.IQ4_NL), ffnDown: firstLayers(eighth, ir.Q5_K, ir.IQ4_NL)},
	"iq4_xs": {base: ir.IQ4_XS, fileType: 30, output: ir.Q5_K, attnV: manyQueries(ir.Q5_K, ir.IQ4_XS), ffnDown: firstLayers(eighth, ir.Q5_K, ir.IQ4_XS)},
	// llama.cpp's own mixture is for experts alone.
	"mxfp4": {base: ir.MXFP4, fileType: 38, head: ir.Q8_0, beside: ir.Q8_0},
	// What folders become that MLX packed, in groups of 64 elements: no file has it.
	"mlx4": {base: ir.MLX4, head: ir.MLX4},
	"mlx8": {base: ir.MLX8, head: ir.MLX8},
}

// ShapeTypes lists the names that Arch takes for the type of weights.
func ShapeTypes() []string {
	names := lo.Keys(mixtures)
	sort.Strings(names)
	return names
}

// WeightTypes lists those that GGUF files can have.
func WeightTypes() []string {
	return lo.Filter(ShapeTypes(), func(name string, _ int) bool {
		_, ok := mixtures[name].base.GGUF()
		return ok
	})
}

func mixtureOf(name string) (mixture, error) {
	m, ok := mixtures[strings.ToLower(name)]
	if !ok {
		return m, configError("no weight type is called %q; known are %s", name, strings.Join(ShapeTypes(), ", "))
	}
	return m, nil
}

// dtype returns the type of a tensor of layer, which counts for tensors of layers only.
func (m *mixture) dtype(name string, layer int, shape []int, c *Config) ir.DType {
	return fitting(m.want(name, layer, shape, c), shape[len(shape)-1])
}

// unquantized are tables that llama.cpp's converter keeps in F32, as it does norms, whatever the
// others are, and routers, by what they are called in a layer.
var unquantized = []string{"position_embd.weight", "token_types.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight",
	"shortconv.conv.weight", "ssm_conv1d.weight"}

// want is dtype as if rows were whole blocks.
func (m *mixture) want(name string, layer int, shape []int, c *Config) ir.DType {
	role := role(name)
	if len(shape) < 2 || slices.Contains(unquantized, name) || slices.Contains(unquantized, role) || strings.HasSuffix(role, "_norm.weight") || strings.HasSuffix(role, ".bias") {
		return ir.F32
	}
	if !m.base.IsQuantized() {
		return m.base
	}
	t := m.base
	if c.Experts.Count > 0 && !strings.HasSuffix(role, "_exps.weight") {
		t = cmp.Or(m.beside, t)
	}
	exception := map[string]func(int, *Config) ir.DType{
		"attn_v.weight": m.attnV, "attn_qkv.weight": m.attnV, "attn_kv_b.weight": m.attnV, "attn_output.weight": m.attnOutput, "ffn_down.weight": m.ffnDown,
		"ffn_down_exps.weight": m.ffnDown, "ffn_down_shexp.weight": m.ffnDown,
	}[role]
	isHead := name == "output.weight" || name == "token_embd.weight" && c.Tied
	switch {
	case isHead && m.head != ir.Invalid:
		t = m.head
	case isHead && t != ir.Q8_0:
		t = ir.Q6_K
	case c.Experts.Count == 8 && slices.Contains([]string{"attn_k.weight", "attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"}, role):
		t = ir.Q8_0
	case c.Experts.Count == 8 && role == "attn_output.weight":
		t = cmp.Or(m.output, t)
	case exception != nil:
		t = exception(layer, c)
	}
	// In Llama's 70B models eight query heads share a value head: it is small, and
	// much depends on it.
	if role == "attn_v.weight" && c.Family == "llama" && c.Layers == 80 && (t == ir.Q3_K || t == ir.Q4_K) {
		t = ir.Q5_K
	}
	return t
}

// narrower gives the type that stands in where rows are no multiple of 256.
var narrower = map[ir.DType]ir.DType{
	ir.Q2_K: ir.Q4_0, ir.Q3_K: ir.Q4_0, ir.IQ4_XS: ir.IQ4_NL, ir.Q4_K: ir.Q5_0, ir.Q5_K: ir.Q5_1, ir.Q6_K: ir.Q8_0,
}

// fitting returns t, or what replaces it where a row is not a whole number of blocks.
func fitting(t ir.DType, row int) ir.DType {
	if other, ok := narrower[t]; ok && row%t.BlockElems() != 0 {
		t = other
	}
	if row%t.BlockElems() != 0 {
		return ir.F16
	}
	return t
}
