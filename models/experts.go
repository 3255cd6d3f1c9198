package models

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

// ExpertFields returns the fields of mixtures of experts. count and width are the names that
// folders use for the number of experts and their width; absent returns the width where a GGUF file
// has none.
func ExpertFields(count, width string, absent func(c *Config) int) []Field {
	return []Field{
		{GGUF: "expert_count", HF: count, Size: func(c *Config) *int { return &c.Experts.Count }},
		{GGUF: "expert_used_count", HF: "num_experts_per_tok", Size: func(c *Config) *int { return &c.Experts.Chosen }},
		{GGUF: "expert_feed_forward_length", HF: width, Size: func(c *Config) *int { return &c.Experts.FFN },
			Absent: InFiles(absent)},
	}
}

// WholeFFN returns the width of a dense layer, and PartOfFFN that of an expert of which the chosen
// ones together are as wide as a dense layer.
func WholeFFN(c *Config) int  { return c.FFN }
func PartOfFFN(c *Config) int { return c.FFN / max(c.Experts.Chosen, 1) }

// ExpertTensors returns the names of a mixture's weights in folders that have a tensor for each
// expert; % stands for its number.
func ExpertTensors(block, gate, up, down string) map[string]Stored {
	layer := "model.layers.#." + block + "."
	each := func(name string) Stored { return Stored{Names: []string{layer + "experts.%." + name + ".weight"}} }
	return map[string]Stored{
		"blk.#.ffn_gate_inp.weight":  As(layer + "gate.weight"),
		"blk.#.ffn_gate_exps.weight": each(gate),
		"blk.#.ffn_up_exps.weight":   each(up),
		"blk.#.ffn_down_exps.weight": each(down),
	}
}

// StackedExpertTensors returns the names of a mixture's weights in folders that stack the experts
// of a layer, see [Stack].
func StackedExpertTensors(block string) map[string]Stored {
	layer := "model.layers.#." + block + "."
	return map[string]Stored{
		"blk.#.ffn_gate_inp.weight":  As(layer + "gate.weight"),
		"blk.#.ffn_gate_exps.weight": As(layer + "experts.gate_proj.weight"),
		"blk.#.ffn_up_exps.weight":   As(layer + "experts.up_proj.weight"),
		"blk.#.ffn_down_exps.weight": As(layer + "experts.down_proj.weight"),
	}
}

// DenseFFN lists the weights of a dense layer, which a mixture lacks.
var DenseFFN = []string{"blk.#.ffn_gate.weight", "blk.#.ffn_up.weight", "blk.#.ffn_down.weight"}

// AddFeedForward adds the feed-forward network of the normalised stream n to the residual stream x,
// both [T, Width]: a mixture and the expert that all tokens go to, or the dense network of a layer
// before the mixtures.
func AddFeedForward(l *LayerBuilder, x, n *ir.Value, activation ir.Activation) *ir.Value {
	b, e := l.Builder, &l.Config.Experts
	if l.Dense() {
		return b.Add(x, Gated(l, n, activation))
	}
	x = b.Add(x, Mixture(l, n, activation))
	switch {
	case e.Shared == 0:
		return x
	case e.SharedGate:
		return b.Add(x, SharedExpert(l, n, activation))
	}
	return b.Add(x, GatedBy(l, "_shexp", n, e.Shared, activation))
}

// FeedForward is what AddFeedForward adds, [T, Width], for models that do more with it. The shared
// expert has no gate.
func FeedForward(l *LayerBuilder, n *ir.Value, activation ir.Activation) *ir.Value {
	if l.Dense() {
		return Gated(l, n, activation)
	}
	if l.Config.Experts.Shared == 0 {
		return Mixture(l, n, activation)
	}
	return l.Builder.Add(GatedBy(l, "_shexp", n, l.Config.Experts.Shared, activation), Mixture(l, n, activation))
}

// Dense reports whether the layer has a dense network, no mixture.
func (l *LayerBuilder) Dense() bool {
	return l.Config.Experts.Count == 0 || l.Index < l.Config.Experts.Dense
}

// Mixture returns Σ wᵢ · Wdownᵢ · (activation(Wgateᵢ·n) ∘ Wupᵢ·n), [T, Width], over the experts i
// that the router chooses for a token.
func Mixture(l *LayerBuilder, n *ir.Value, activation ir.Activation) *ir.Value {
	return mixture(l, l.scores(n), 0, nil, n, activation, true)
}

// MixtureBy is Mixture with the logits of a router, [T, Count], their factor (0: 1), and a factor for
// the weight of each expert, [Count], or nil.
func MixtureBy(l *LayerBuilder, logits *ir.Value, sharpness float64, gains, n *ir.Value, activation ir.Activation) *ir.Value {
	return mixture(l, logits, sharpness, gains, n, activation, true)
}

// UngatedMixture returns Σ wᵢ · Wdownᵢ · activation(Wupᵢ·x), as wide as x, over the experts i that the
// router chooses for a token by the normalised stream n.
func UngatedMixture(l *LayerBuilder, n, x *ir.Value, activation ir.Activation) *ir.Value {
	return mixture(l, l.scores(n), 0, nil, x, activation, false)
}

// scores returns the router's logits of the normalised stream, [T, Count].
func (l *LayerBuilder) scores(n *ir.Value) *ir.Value {
	return l.Linear("ffn_gate_inp", n, l.Config.Experts.Count, l.Config.Biases.FFN)
}

func mixture(l *LayerBuilder, logits *ir.Value, sharpness float64, gains, x *ir.Value, activation ir.Activation, gated bool) *ir.Value {
	b, e, biased := l.Builder, l.Config.Experts, l.Config.Biases.FFN
	weights, experts := l.route(logits, sharpness, gains)
	linear := func(role string, x *ir.Value, rows int) *ir.Value { // [T, Chosen, rows]
		w := b.Weight(l.Name(role+".weight"), e.Count, rows, int(x.Type.Shape.Last()))
		var bias *ir.Value
		if biased {
			bias = b.Weight(l.Name(role+".bias"), e.Count, rows)
		}
		return b.ExpertLinear(x, w, experts, bias)
	}
	var inner *ir.Value
	if gated {
		gate := linear("ffn_gate_exps", x, e.FFN)
		inner = linear("ffn_up_exps", x, e.FFN)
		if activation.OnlyGated() {
			inner = b.Gate(activation, gate, inner)
		} else {
			inner = b.Mul(b.Activate(activation, gate), inner)
		}
	} else {
		inner = b.Activate(activation, linear("ffn_up_exps", x, e.FFN))
	}
	return b.WeightedSum(linear("ffn_down_exps", inner, int(x.Type.Shape.Last())), weights)
}

// SharedExpert returns sigmoid(s·n) · Wdown · (activation(Wgate·n) ∘ Wup·n), [T, Width]: the gated
// expert that all tokens go to. The gate multiplies the input of Wdown rather than its output, so
// that Wdown's result adds to the residual stream directly; a fusion rule moves it behind Wdown.
func SharedExpert(l *LayerBuilder, n *ir.Value, activation ir.Activation) *ir.Value {
	b, ffn := l.Builder, l.Config.Experts.Shared
	gate, up := l.Linear("ffn_gate_shexp", n, ffn, false), l.Linear("ffn_up_shexp", n, ffn, false)
	inner := b.Reshape(b.Mul(b.Activate(activation, gate), up), ir.Var(sym.T), ir.Const(1), ir.Const(ffn))
	weight := b.Activate(ir.Sigmoid, l.Linear("ffn_gate_inp_shexp", n, 1, false))
	return l.Linear("ffn_down_shexp", b.WeightedSum(inner, weight), l.Config.Width, false)
}
