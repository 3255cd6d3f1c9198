package kernels

import "slices"

const (
	ropeConstants  = "0 fc_interleaved bool; 1 fc_factors bool?; 2 fc_table bool?; 3 fc_positions bool?"
	writeConstants = ropeConstants + "; 4 fc_slots bool?; 5 fc_separate bool?; 6 fc_all_heads bool?; 7 fc_norm_values bool?"
	writeArgs      = "0 qkv read $0; 1 positions read int?; 2 slots read int?; 3 factors read float?; 4 q_out write $0; " +
		"5 k_cache write $1; 6 v_cache write $1; 10 k read $0?; 11 v read $0?"
)

var (
	ropeTypes  = slices.Concat(single, []string{"bf16"})
	ropeWrites = slices.Concat(double, []string{"bf16_bf16"})
	ropeBlocks = slices.Concat(blocks, []string{"bf16_q8_0"})
)

// ropeFamilies apply RoPE, alone or fused with the cache write.
var ropeFamilies = []family{
	{name: "rope", check: checkRope, file: "rope.metal", summary: "rotary position embedding", instances: ropeTypes,
		args: "0 x read $0; 1 positions read int?; 2 factors read float?; 3 out write $0", params: RopeParams{}, paramsIndex: 4,
		constants: ropeConstants, grid: "head/64, heads, tokens", maxThreads: 32},
	{name: "rope_qkv_write", check: checkRopeWrite, file: "rope_write.metal", summary: "RoPE of Q and K, and the cache write of K and V",
		instances: slices.Concat(ropeWrites, ropeBlocks), args: writeArgs, params: RopeWriteParams{}, paramsIndex: 7,
		constants: writeConstants, threadgroup: staged, maxThreads: 32},
	{name: "head_norm_rope_kv_write", check: checkRopeWrite, file: "rope_write.metal", summary: "head RMSNorm, RoPE of Q and K, and the cache write",
		instances: slices.Concat(ropeWrites, ropeBlocks), args: writeArgs + "; 8 q_norm read float; 9 k_norm read float", params: RopeWriteParams{},
		paramsIndex: 7, constants: writeConstants, threadgroup: staged, maxThreads: 32},
	{name: "latent_write", check: checkLatentWrite, file: "latent_write.metal", summary: "norm and RoPE of what latent attention caches, the write, and RoPE of its queries",
		instances: slices.Concat(ropeWrites, ropeBlocks), args: "0 absorbed read $0; 1 q read $0; 2 all read $0; 3 gain read float; 4 positions read int; 5 slots read int; 6 factors read float?; " +
			"7 q_out write $0; 8 k_cache write $1", params: LatentWriteParams{}, paramsIndex: 9, constants: "0 fc_interleaved bool; 1 fc_factors bool?; 2 fc_table bool?",
		grid: "rows, tokens", maxThreads: 32},
}

// staged returns the threadgroup memory of rope_write.metal in bytes: rows that wait to be
// quantized into cache blocks.
func staged(e []Element) int {
	if e[1] == Blocks {
		return 4 * 8 * 128
	}
	return 4
}
