package ref

import (
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// formulas holds the activations, indexed by activation; nil if one exists as a gate only. slope
// bounds the derivative up to a given |x|, and off is the error of devices' approximations relative
// to |x|.
var formulas = [...]struct {
	of    func(x float64) float64
	slope func(x float64) float64
	off   float64
}{
	ir.NoActivation:  {func(x float64) float64 { return x }, upTo(1), 0},
	ir.SiLU:          {silu, upTo(1.1), 0},     // 1.0999
	ir.GELU:          {gelu, upTo(1.13), 5e-7}, // 1.1290; half of what erf is off by
	ir.GELUTanh:      {geluTanh, upTo(1.13), 5e-7},
	ir.ReLU2:         {relu2, func(x float64) float64 { return 2 * x }, 0},
	ir.ClampedSwiGLU: {},
	ir.Sigmoid:       {sigmoid, upTo(0.25), 0},
	ir.Softplus:      {softplus, upTo(1), 0},
}

func upTo(most float64) func(float64) float64 { return func(float64) float64 { return most } }

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// softplus is ln(1 + exp(x)), without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// gates holds the formulas of gates that are not a product of activation(x) and y.
var gates = [len(formulas)]func(x, y float64) float64{
	ir.ClampedSwiGLU: clampedSwiGLU,
}

// Activate applies an activation that is not a gate only.
func Activate(a ir.Activation, x float64) float64 { return formulas[a].of(x) }

// Gate applies the gate of an activation to x and y.
func Gate(a ir.Activation, x, y float64) float64 {
	if gate := gates[a]; gate != nil {
		return gate(x, y)
	}
	return formulas[a].of(x) * y
}

// gelu is x·Φ(x), by erfc for a precise tail.
func gelu(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x * math.Erfc(-x/math.Sqrt2) / 2
}

// geluTanh is x·(1 + tanh(u))/2 with u = √(2/π)·(x + 0.044715·x³), by the sigmoid of 2u.
func geluTanh(x float64) float64 {
	if math.IsInf(x, -1) {
		return 0
	}
	return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func relu2(x float64) float64 {
	if x < 0 {
		return 0
	}
	return x * x
}

// clampedSwiGLU is gpt-oss' gate (gpt_oss/torch/model.py, swiglu): x is bounded by 7 from above, y
// by 7 from both sides.
func clampedSwiGLU(x, y float64) float64 {
	g, u := clamped(x, y)
	return g * u
}

// clamped returns the two factors of clampedSwiGLU.
func clamped(x, y float64) (g, u float64) {
	g, u = math.Min(x, 7), math.Max(-7, math.Min(y, 7))
	return g / (1 + math.Exp(-1.702*g)), u + 1
}

func (r *run) activate(v *ir.Value) (result, error) {
	a := v.Attr.(ir.ActivationAttr).Activation
	return r.unary(v, func(x float64) float64 { return Activate(a, x) })
}

func (r *run) gate(v *ir.Value) (result, error) {
	a := v.Attr.(ir.ActivationAttr).Activation
	return r.binary(v, func(x, y float64) float64 { return Gate(a, x, y) })
}

// activated returns the activation of x, a device's value known up to slack, and the bound on the
// result's error.
func activated(a ir.Activation, x, slack float64) (y, off float64) {
	if a == ir.NoActivation {
		return x, slack
	}
	f := &formulas[a]
	y = f.of(x)
	return y, f.slope(math.Abs(x)+slack)*slack + 8*unit[dtype.F32]*math.Abs(y) + f.off*math.Abs(x)
}

// gated does the same for a gate.
func gated(a ir.Activation, x, xSlack, y, ySlack float64) (z, slack float64) {
	var off float64
	if a == ir.ClampedSwiGLU { // a SiLU of another width, and as steep
		x, y = clamped(x, y)
		off = 1.1*xSlack + 8*unit[dtype.F32]*math.Abs(x)
	} else {
		x, off = activated(a, x, xSlack)
	}
	return x * y, off*math.Abs(y) + math.Abs(x)*ySlack + off*ySlack
}
