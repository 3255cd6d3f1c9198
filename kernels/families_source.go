package kernels

// sourceFamilies are the kernels that only plans of the source stage use, the unfused graph.
var sourceFamilies = []family{
	{name: "transpose", scalar: true, check: checkTranspose, file: "source.metal", summary: "a strided tensor of three axes made dense", instances: rowTypes,
		args: "0 x read $0; 1 out write $0", params: TransposeParams{}, paramsIndex: 2, grid: "size[2]/64, size[1], size[0]", maxThreads: 64},
	{name: "matmul", check: checkMatmul, file: "source.metal", summary: "a·b or a·bᵀ of a batch of matrices", instances: floatOnly,
		args: binaryArgs, params: MatmulParams{}, paramsIndex: 3, constants: "0 fc_transposed bool?",
		threadgroup: func(e []Element) int { return 2 * 32 * 40 * e[0].Size() }, grid: "n/32, m/32, batch", maxThreads: 128},
	{name: "mask", check: checkMask, file: "source.metal", summary: "-inf where a token does not see a key", instances: floatOnly,
		args:   "0 scores read $0; 1 positions read int; 2 cu_seqlens read int; 3 context_lens read int; 4 out write $0; 6 slopes read float?",
		params: MaskParams{}, paramsIndex: 5, constants: "2 fc_slopes bool?", grid: "seqs·context/64, tokens, heads", maxThreads: 64},
}
