// Code generated from ir's element types, activations and norms by go test ./kernels -run Types -update. DO NOT EDIT.

package kernels

// activations are the values of fc_activation.
var activations = []struct {
	name  string
	gated bool // exists as a gate only
}{
	{"none", false},
	{"silu", false},
	{"gelu", false},
	{"gelu_tanh", false},
	{"relu2", false},
	{"clamped_swiglu", true},
	{"sigmoid", false},
}

// norms are the values of fc_norm, and rmsNorm the one that always has a gain.
var norms = []string{"none", "rms", "layer"}

const rmsNorm = 1

// layouts are the types of stored weights by their numbers in params.h.
var layouts = map[uint32]layout{
	1:  {1, 4},     // f32
	2:  {1, 2},     // f16
	3:  {1, 2},     // bf16
	6:  {32, 34},   // q8_0
	7:  {32, 18},   // q4_0
	8:  {32, 20},   // q4_1
	9:  {32, 22},   // q5_0
	10: {32, 24},   // q5_1
	11: {256, 84},  // q2_k
	12: {256, 110}, // q3_k
	13: {256, 144}, // q4_k
	14: {256, 176}, // q5_k
	15: {256, 210}, // q6_k
	16: {32, 17},   // mxfp4
	17: {32, 18},   // iq4_nl
	18: {256, 136}, // iq4_xs
	19: {64, 36},   // mlx4
	20: {64, 68},   // mlx8
}
