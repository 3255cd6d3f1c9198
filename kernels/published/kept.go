package published

import (
	"slices"

	"github.com/smelt-ml/smelt/kernels"
)

// kept lists kernels that no plan uses, with the reason why they exist. Each has conformance
// tests and is launched by name.
var kept = []struct {
	family    string
	instances []string // by suffix; nil for all
	why       string
}{
	{"flash_attention", nil, "Minerva's: it attends over contiguous tensors, and plans attend over a cache"},
	{"repeat_kv", []string{"f16", "bf16"}, "ROCmForge's, which copies heads of every type: plans copy only float, as they read the cache"},
	{"repeat_kv_pair", []string{"f16", "bf16"}, "ROCmForge's, likewise"},
	{"softmax", []string{"f16", "bf16"}, "Minerva's: scores of plans are float"},
}

// Kept returns the reason why a kernel that no plan uses is in the table; "" for any other.
func Kept(k *kernels.Kernel) string {
	for _, row := range kept {
		suffix := ""
		if len(k.Name) > len(k.Family) {
			suffix = k.Name[len(k.Family)+1:]
		}
		if row.family == k.Family && (row.instances == nil || slices.Contains(row.instances, suffix)) {
			return row.why
		}
	}
	return ""
}

// keptOrigins lists published kernels whose counterpart needs function constants that no plan
// sets.
var keptOrigins = []struct{ by, name, why string }{
	{"akunu", "rope", "plans bind each token's position, the general case of one position per step"},
	{"akunu", "rope_neox", "likewise"},
	{"akunu", "rope_qkv_write", "plans bind each token's slot and position"},
	{"akunu", "rope_neox_qkv_write", "likewise"},
	{"akunu", "rope_batch_kv_write", "plans project Q, K and V side by side, and bind each token's slot and position"},
	{"akunu", "rope_neox_batch_kv_write", "likewise"},
	{"akunu", "head_norm_rope_neox_kv_write", "plans bind each token's slot"},
	{"Minerva", "flash_attention_forward", "no plan uses its kernel"},
}

// KeptOrigin returns the reason why a published kernel whose constants no plan sets is kept; ""
// for any other.
func KeptOrigin(o *Origin) string {
	for _, row := range keptOrigins {
		if row.by == o.By && row.name == o.Name {
			return row.why
		}
	}
	return ""
}
