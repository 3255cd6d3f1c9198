// Package published maps published kernels to the kernels of package kernels that compute the
// same, and has the reasons for kernels that no plan uses. Its .metal files hold kernels with the
// interfaces of other engines, for conformance tests; plans use them only on request. Their rows
// stand in package kernels, because devices and the compiler look up every kernel by name.
package published

import "slices"

// Origin maps a published kernel to the kernel of this module that computes the same. The idea comes
// from the publication; the code is independent.
type Origin struct {
	Name      string            // of the kernel in the publication
	By        string            // the engine or document that published it
	Family    string            // of the counterpart
	Constants map[string]uint32 // function constants that select the same computation, by name
	Note      string            // differences, or ""
}

// Origins returns the published kernels that have a counterpart, grouped by publication.
func Origins() []Origin {
	return slices.Concat(akunuOrigins, rocmForgeOrigins, vllmMetalOrigins, minervaOrigins, aphroditeOrigins)
}

// OriginOf returns the row of a published kernel.
func OriginOf(by, name string) (*Origin, bool) {
	for _, o := range Origins() {
		if o.By == by && o.Name == name {
			return &o, true
		}
	}
	return nil, false
}

// The RoPE kernels of akunu's book. Their host names end in _f16. The position of the
// first token is a parameter, and the cache is one block with a row per position,
// [kv_heads, max_seq_len, head].
var akunuOrigins = []Origin{
	{Name: "rope", By: "akunu", Family: "rope",
		Constants: map[string]uint32{"fc_interleaved": 1, "fc_positions": 0}},
	{Name: "rope_neox", By: "akunu", Family: "rope",
		Constants: map[string]uint32{"fc_interleaved": 0, "fc_positions": 0},
		Note:      "FC_USE_POSITION_IDS is fc_positions"},
	{Name: "rope_qkv_write", By: "akunu", Family: "rope_qkv_write",
		Constants: map[string]uint32{"fc_interleaved": 1, "fc_positions": 0, "fc_slots": 0},
		Note:      "Q goes to a tensor of its own, which may be the one it came from"},
	{Name: "rope_neox_qkv_write", By: "akunu", Family: "rope_qkv_write",
		Constants: map[string]uint32{"fc_interleaved": 0, "fc_positions": 0, "fc_slots": 0}},
	{Name: "rope_batch_kv_write", By: "akunu", Family: "rope_qkv_write",
		Constants: map[string]uint32{"fc_interleaved": 1, "fc_positions": 0, "fc_slots": 0, "fc_separate": 1},
		Note:      "the number of tokens has a field of its own"},
	{Name: "rope_neox_batch_kv_write", By: "akunu", Family: "rope_qkv_write",
		Constants: map[string]uint32{"fc_interleaved": 0, "fc_positions": 0, "fc_slots": 0, "fc_separate": 1}},
	{Name: "head_norm_rope_neox_kv_write", By: "akunu", Family: "head_norm_rope_kv_write",
		Constants: map[string]uint32{"fc_interleaved": 0, "fc_positions": 0, "fc_slots": 0}},
}

// The replication kernels of ROCmForge's design, which are float32.
var rocmForgeOrigins = []Origin{
	{Name: "mqa_kv_replicate_k_kernel", By: "ROCmForge", Family: "repeat_kv", Note: "bound to K"},
	{Name: "mqa_kv_replicate_v_kernel", By: "ROCmForge", Family: "repeat_kv", Note: "bound to V"},
	{Name: "mqa_kv_replicate_fused_kernel", By: "ROCmForge", Family: "repeat_kv_pair"},
}

// The attention kernels of vllm-metal's varlen article. Their caches are
// [blocks, block, kv_heads, head], which strides express.
var vllmMetalOrigins = []Origin{
	{Name: "paged_attention", By: "vllm-metal", Family: "attention_vec", Constants: map[string]uint32{"fc_map": 0}},
	{Name: "paged_attention, sequence map", By: "vllm-metal", Family: "attention_vec", Constants: map[string]uint32{"fc_map": 1}},
	{Name: "paged_attention, split KV", By: "vllm-metal", Family: "attention_vec", Constants: map[string]uint32{"fc_map": 0, "fc_split": 512}},
	{Name: "paged_attention, verify window", By: "vllm-metal", Family: "attention_vec", Constants: map[string]uint32{"fc_map": 0, "fc_rows": 2},
		Note: "tiles of two tokens are aligned to their sequence, as those of paged_attention_tiled"},
	{Name: "paged_attention, reduce", By: "vllm-metal", Family: "attention_reduce"},
	{Name: "paged_attention_tiled", By: "vllm-metal", Family: "attention_tile", Constants: map[string]uint32{"fc_map": 0}},
	{Name: "paged_attention_tiled, Q-block map", By: "vllm-metal", Family: "attention_tile", Constants: map[string]uint32{"fc_map": 1}},
}

// The kernels of Minerva's ADR. fc_type0 and fc_type are numbers of ir/dtype.
var minervaOrigins = []Origin{
	{Name: "flash_attention_forward", By: "Minerva", Family: "flash_attention", Constants: map[string]uint32{"fc_causal": 1},
		Note: "tiles that fit 32 KB, KV heads of their own, and a mask that counts kv_cache_offset"},
	{Name: "matmul_q4_0", By: "Minerva", Family: "linear_mat", Constants: map[string]uint32{"fc_type0": 7},
		Note: "GGUF's order of nibbles; B and C are [N, K] and [N, M], tokens first"},
	{Name: "matmul_q8_0", By: "Minerva", Family: "linear_mat", Constants: map[string]uint32{"fc_type0": 6},
		Note: "scales lie in the blocks, as GGUF has them; B and C as for matmul_q4_0"},
	{Name: "embedding.metal", By: "Minerva", Family: "embed", Constants: map[string]uint32{"fc_type": 2},
		Note: "the ADR names the file alone"},
	{Name: "silu", By: "Minerva", Family: "activate", Constants: map[string]uint32{"fc_activation": 1}},
	{Name: "gelu", By: "Minerva", Family: "activate", Constants: map[string]uint32{"fc_activation": 3}, Note: "by tanh"},
	{Name: "rms_norm", By: "Minerva", Family: "rms_norm", Note: "its weight is float"},
	{Name: "softmax", By: "Minerva", Family: "softmax", Note: "exponentials are never rounded to half"},
}

// The paged attention of vLLM, in Aphrodite's version.
var aphroditeOrigins = []Origin{
	{Name: "paged_attention_v1", By: "Aphrodite", Family: "paged_attention_v1", Note: "ALiBi is fc_alibi; the softmax is online"},
	{Name: "paged_attention_v2", By: "Aphrodite", Family: "paged_attention_v2", Note: "the largest score is in units of log2"},
	{Name: "paged_attention_v2_reduce", By: "Aphrodite", Family: "paged_attention_reduce"},
	{Name: "reshape_and_cache", By: "Aphrodite", Family: "reshape_and_cache", Note: "slots are 32 bits wide"},
	{Name: "copy_blocks", By: "Aphrodite", Family: "copy_blocks", Note: "one layer at a time"},
}
