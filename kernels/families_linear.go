package kernels

import (
	"slices"
	"strings"
)

const (
	linearArgs = "0 x read $0; 1 w0 read uchar; 2 w1 read uchar?; 3 w2 read uchar?; 4 out write $1; " +
		"6 residual read float?; 8 bias0 read float?; 9 bias1 read float?; 10 bias2 read float?; 15 w3 read uchar?; 16 bias3 read float?; 17 gate read float?"
	linearConstants = "0 fc_type0 uint; 1 fc_type1 uint?; 2 fc_type2 uint?; 3 fc_residual bool?; 4 fc_activation uint?; " +
		"8 fc_bias bool?; 9 fc_gated bool?; 17 fc_type3 uint?; 18 fc_row_gate uint?; 19 fc_column_gate bool?"
	// Constants that only some of the kernels with linearConstants have.
	gatherConstant   = "; 12 fc_gather bool?"
	expertsConstants = "; 13 fc_experts uint?; 14 fc_top uint?; 15 fc_each bool?"
)

// linearTypes lists the types of activations and results.
var linearTypes = slices.Concat(double, []string{"f32_bf16", "bf16_f32", "bf16_bf16"})

// linearFamilies are the kernels that read stored weights.
var linearFamilies = []family{
	{name: "embed", check: checkEmbed, file: "embed.metal", summary: "rows of the embedding table by token id", instances: []string{""},
		args: "0 tokens read int; 1 table read uchar; 2 out write float", params: EmbedParams{}, paramsIndex: 3,
		constants: "0 fc_type uint", grid: "width/1024, tokens", maxThreads: 32},
	{name: "linear_vec", check: checkLinear, file: "linear_vec.metal", summary: "x·Wᵀ for a few tokens, up to four weights side by side",
		instances: linearTypes, args: linearArgs + "; 7 gain read float?; 11 shift read float?; 12 rows read int?; 13 expert read int?; 14 share read float?", params: LinearParams{}, paramsIndex: 5,
		constants:  linearConstants + "; 5 fc_norm uint?; 6 fc_rows uint?; 7 fc_tokens uint?; 10 fc_gain bool?; 11 fc_shift bool?" + gatherConstant + expertsConstants + "; 16 fc_mixed bool?",
		maxThreads: 256},
	{name: "linear_mat", check: checkLinear, file: "linear_mat.metal", summary: "x·Wᵀ in tiles of 32 or 64 tokens × 64 columns",
		instances: linearTypes, args: linearArgs + "; 12 rows read int?; 13 starts read int?", params: LinearParams{}, paramsIndex: 5,
		constants: linearConstants + "; 6 fc_tile uint?" + gatherConstant + expertsConstants, maxThreads: 128,
		threadgroup: func(e []Element) int { return matTiles(e[0]) }},
	{name: "norm_linear_mat", check: checkLinear, file: "linear_mat.metal", summary: "linear_mat of RMSNorm(x), in tiles of the second type",
		instances: []string{"f32_f32_f32", "f32_f16_f16", "f32_f16_f32", "f16_f16_f16", "f16_f16_f32",
			"f32_bf16_bf16", "f32_bf16_f32", "bf16_bf16_bf16", "bf16_bf16_f32"},
		args:   strings.Replace(linearArgs, "$1", "$2", 1) + "; 7 gain read float; 12 rows read int?",
		params: LinearParams{}, paramsIndex: 5, constants: linearConstants + "; 6 fc_tile uint?" + gatherConstant, maxThreads: 128,
		threadgroup: func(e []Element) int { return matTiles(e[1]) + 2*MatTokens*4 }},
	{name: "indices", check: checkIndices, file: "experts.metal", summary: "the choice of all experts, in order", instances: []string{""},
		args: "0 positions read int; 1 out write int", params: IndicesParams{}, paramsIndex: 2, grid: "width/256, rows", maxThreads: 256},
	{name: GroupByExpert, check: checkGroupByExpert, file: "experts.metal", summary: "rows in the order of their experts", instances: []string{""},
		args: "0 expert read int; 1 order write int; 2 starts write int", params: GroupByExpertParams{}, paramsIndex: 3,
		threadgroup: floats(16), grid: "groups", maxThreads: 256},
}

// MatTile returns the element type of the tiles of linear_mat (the type of x) or of
// norm_linear_mat (the second of its instance's three types).
func MatTile(k *Kernel) Element {
	types := strings.Split(strings.TrimPrefix(k.Name, k.Family+"_"), "_")
	return suffixes[types[len(types)-2]]
}

// matTiles returns the threadgroup memory of linear_mat's tiles of a type, in bytes.
func matTiles(e Element) int {
	if e == Float {
		return 96 * 68 * 4
	}
	return 128 * 72 * 2
}
