package kernels

import "slices"

// kept are kernels that no plan reaches, with the reason why they are here all the same. Each
// has its conformance tests, and is launched by name.
var kept = []struct {
	family    string
	instances []string // by suffix; nil for all
	why       string
}{
	{"flash_attention", nil, "Minerva's: it attends over contiguous tensors, and plans attend over a cache"},
	{"repeat_kv", []string{"f16", "bf16"}, "ROCmForge's, whose copies are asked for in every type: plans make them of a cache that is read in float"},
	{"repeat_kv_pair", []string{"f16", "bf16"}, "ROCmForge's, likewise"},
	{"softmax", []string{"f16", "bf16"}, "Minerva's: scores of plans are float"},
}

// Kept returns why a kernel that no plan reaches is in the table; "" for any other.
func Kept(k *Kernel) string {
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

// keptOrigins are published kernels that a kernel here computes with function constants which
// no plan sets.
var keptOrigins = []struct{ by, name, why string }{
	{"akunu", "rope", "plans say each token's position, of which one number for a step is a case"},
	{"akunu", "rope_neox", "likewise"},
	{"akunu", "rope_qkv_write", "plans say each token's slot and position"},
	{"akunu", "rope_neox_qkv_write", "likewise"},
	{"akunu", "rope_batch_kv_write", "plans project Q, K and V side by side, and say each token's slot and position"},
	{"akunu", "rope_neox_batch_kv_write", "likewise"},
	{"akunu", "head_norm_rope_neox_kv_write", "plans say each token's slot"},
	{"Minerva", "flash_attention_forward", "no plan reaches its kernel"},
}

// KeptOrigin returns why a published kernel is kept whose constants no plan sets; "" for any
// other.
func KeptOrigin(o *Origin) string {
	for _, row := range keptOrigins {
		if row.by == o.By && row.name == o.Name {
			return row.why
		}
	}
	return ""
}
