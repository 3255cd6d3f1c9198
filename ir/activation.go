package ir

import (
	"fmt"
	"slices"
)

// Activation is an elementwise function: the op activate applies it to x, the op gate to x
// and a second tensor y. Kernels select it by its number.
type Activation uint8

// The activations. Package internal/ref computes their formulas in float64.
const (
	// NoActivation is x; its gate is x · y.
	NoActivation Activation = iota
	// SiLU is x / (1 + exp(−x)); its gate is SwiGLU (Shazeer, "GLU Variants Improve
	// Transformer", 2020).
	SiLU
	// GELU is x · Φ(x), Φ being the normal distribution.
	GELU
	// GELUTanh is the approximation of GELU by tanh (Hendrycks and Gimpel, "Gaussian
	// Error Linear Units", 2016).
	GELUTanh
	// ReLU2 is max(x, 0)² (So et al., "Primer", 2021).
	ReLU2
	// ClampedSwiGLU is gpt-oss' gate: with g = min(x, 7) and u = y between −7 and 7,
	// (u + 1) · g / (1 + exp(−1.702 · g)). It needs a y.
	ClampedSwiGLU
	// Sigmoid is 1 / (1 + exp(−x)).
	Sigmoid
	// Softplus is ln(1 + exp(x)).
	Softplus

	numActivations
)

// activations is indexed by Activation.
var activations = [numActivations]struct {
	name, title string
	gated       bool  // exists as a gate only
	work        int64 // see [Op.Work]
}{
	NoActivation:  {"none", "no activation", false, 0},
	SiLU:          {"silu", "SiLU", false, 4},  // negate, exponential, add, divide
	GELU:          {"gelu", "GELU", false, 20}, // a polynomial of degree five, exponential, divide, and Φ of erf
	GELUTanh:      {"gelu_tanh", "GELU by tanh", false, 9},
	ReLU2:         {"relu2", "ReLU²", false, 2},
	ClampedSwiGLU: {"clamped_swiglu", "clamped SwiGLU", true, 10}, // three bounds, SiLU of a product, add, multiply
	Sigmoid:       {"sigmoid", "sigmoid", false, 4},
	Softplus:      {"softplus", "softplus", false, 6}, // absolute value, exponential, add, logarithm, maximum, add
}

// Activations returns all activations in order of their numbers.
func Activations() []Activation {
	all := make([]Activation, numActivations)
	for i := range all {
		all[i] = Activation(i)
	}
	return all
}

// String returns the name in the text form.
func (a Activation) String() string {
	if a < numActivations {
		return activations[a].name
	}
	return fmt.Sprintf("activation(%d)", uint8(a))
}

// Title returns the name for prose, such as "SwiGLU".
func (a Activation) Title() string {
	if a < numActivations {
		return activations[a].title
	}
	return a.String()
}

// OnlyGated reports whether the activation exists as a gate only.
func (a Activation) OnlyGated() bool { return a < numActivations && activations[a].gated }

// Work returns the floating-point operations per element, as [Op.Work] counts them.
func (a Activation) Work() int64 {
	if a < numActivations {
		return activations[a].work
	}
	return 0
}

// UnmarshalText is the inverse of String.
func (a *Activation) UnmarshalText(name []byte) error {
	for n := range numActivations {
		if activations[n].name == string(name) {
			*a = n
			return nil
		}
	}
	return fmt.Errorf("no activation is called %q", name)
}

// NormKind selects the normalisation that a product applies to its input.
type NormKind uint8

// The kinds of norm.
const (
	NoNorm NormKind = iota
	RMSNorm
	LayerNorm

	numNorms
)

var normNames = [numNorms]string{NoNorm: "none", RMSNorm: "rms", LayerNorm: "layer"}

// NormKinds returns all kinds in order of their numbers.
func NormKinds() []NormKind { return []NormKind{NoNorm, RMSNorm, LayerNorm} }

// String returns the name in the text form.
func (n NormKind) String() string {
	return nameOf(normNames[:], "norm", n)
}

// UnmarshalText is the inverse of String.
func (n *NormKind) UnmarshalText(name []byte) error { return numberOf(normNames[:], "norm", name, n) }

// nameOf returns the name of a number in the text form; kind is what is named.
func nameOf[T ~uint8](names []string, kind string, n T) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(n))
}

// numberOf is the inverse of nameOf.
func numberOf[T ~uint8](names []string, kind string, name []byte, n *T) error {
	i := slices.Index(names, string(name))
	if i < 0 {
		return fmt.Errorf("no %s is called %q", kind, name)
	}
	*n = T(i)
	return nil
}
