package kernels

const (
	linearArgs = "0 x read $0; 1 w0 read uchar; 2 w1 read uchar?; 3 w2 read uchar?; 4 out write $1; " +
		"6 residual read float?; 7 gain read float?"
	linearConstants = "0 fc_type0 uint; 1 fc_type1 uint?; 2 fc_type2 uint?; 3 fc_residual bool?; 4 fc_activation uint?"
)

// linearFamilies read stored weights.
var linearFamilies = []family{
	{name: "embed", file: "embed.metal", summary: "rows of the embedding table by token id", instances: []string{""},
		args: "0 tokens read int; 1 table read uchar; 2 out write float", params: EmbedParams{}, paramsIndex: 3,
		constants: "0 fc_type uint", maxThreads: 32},
	{name: "linear_vec", file: "linear_vec.metal", summary: "x·Wᵀ token by token, up to three weights side by side",
		instances: double, args: linearArgs, params: LinearParams{}, paramsIndex: 5,
		constants: linearConstants + "; 5 fc_norm bool?", maxThreads: 64},
	{name: "linear_mat", file: "linear_mat.metal", summary: "x·Wᵀ in tiles of 32 tokens × 32 columns",
		instances: double, args: linearArgs, params: LinearParams{}, paramsIndex: 5,
		constants: linearConstants, maxThreads: 128,
		threadgroup: func(e []Element) int { return 2 * 32 * 72 * e[0].Size() }},
}
