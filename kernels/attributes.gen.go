// Code generated from ir's activations and norms by go test ./kernels -run Types -update. DO NOT EDIT.

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
	{"softplus", false},
}

// norms are the values of fc_norm, and rmsNorm the one that always has a gain.
var norms = []string{"none", "rms", "layer"}

const rmsNorm = 1
