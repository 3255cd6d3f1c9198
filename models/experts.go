package models

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

// ExpertFields are what files say of mixtures; folders call the number of experts, and their
// width, as given. A GGUF file without the width means absent(c).
func ExpertFields(count, width string, absent func(c *Config) int) []Field {
	return []Field{
		{GGUF: "expert_count", HF: count, Size: func(c *Config) *int { return &c.Experts.Count }},
		{GGUF: "expert_used_count", HF: "num_experts_per_tok", Size: func(c *Config) *int { return &c.Experts.Chosen }},
		{GGUF: "expert_feed_forward_length", HF: width, Size: func(c *Config) *int { return &c.Experts.FFN },
			Absent: InFiles(absent)},
	}
}

// WholeFFN is the width of a dense layer, and PartOfFFN that of an expert where the chosen ones
// make up such a layer.
func WholeFFN(c *Config) int  { return c.FFN }
func PartOfFFN(c *Config) int { return c.FFN / max(c.Experts.Chosen, 1) }

// ExpertTensors are the names of a mixture's weights in folders that have a tensor for each
// expert: % stands for its number.
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

// DenseFFN are the names of a dense layer's weights, which a mixture has not.
var DenseFFN = []string{"blk.#.ffn_gate.weight", "blk.#.ffn_up.weight", "blk.#.ffn_down.weight"}

// Route chooses the experts of each token by the logits of a router, [T, Count]: their numbers
// and how their results are weighted, [T, Chosen] both.
type Route func(b *ir.Builder, logits *ir.Value, chosen int) (weights, experts *ir.Value)

// SoftmaxTopK weighs by the softmax over all experts (Shazeer et al., "Outrageously Large Neural
// Networks", 2017, without noise).
func SoftmaxTopK(b *ir.Builder, logits *ir.Value, chosen int) (weights, experts *ir.Value) {
	return b.TopK(b.Softmax(logits), chosen)
}

// TopKSoftmax weighs by the softmax over the chosen ones. It is also what SoftmaxTopK gives
// divided by its sum, norm_topk_prob in transformers: what softmax divides by cancels.
func TopKSoftmax(b *ir.Builder, logits *ir.Value, chosen int) (weights, experts *ir.Value) {
	best, experts := b.TopK(logits, chosen)
	return b.Softmax(best), experts
}

// Mixture is Σ wᵢ · Wdownᵢ · (activation(Wgateᵢ·n) ∘ Wupᵢ·n), [T, Width], over the experts i that
// the router chooses for a token.
func Mixture(l *LayerBuilder, n *ir.Value, route Route, activation ir.Activation) *ir.Value {
	b, e, biased := l.Builder, l.Config.Experts, l.Config.Biases.FFN
	weights, experts := route(b, l.Linear("ffn_gate_inp", n, e.Count, biased), e.Chosen)
	linear := func(role string, x *ir.Value, rows int) *ir.Value { // [T, Chosen, rows]
		w := b.Weight(l.Name(role+".weight"), e.Count, rows, int(x.Type.Shape.Last()))
		var bias *ir.Value
		if biased {
			bias = b.Weight(l.Name(role+".bias"), e.Count, rows)
		}
		return b.ExpertLinear(x, w, experts, bias)
	}
	gate, up := linear("ffn_gate_exps", n, e.FFN), linear("ffn_up_exps", n, e.FFN)
	var inner *ir.Value
	if activation.OnlyGated() {
		inner = b.Gate(activation, gate, up)
	} else {
		inner = b.Mul(b.Activate(activation, gate), up)
	}
	return b.WeightedSum(linear("ffn_down_exps", inner, l.Config.Width), weights)
}

// SharedExpert is sigmoid(s·n) · Wdown · (activation(Wgate·n) ∘ Wup·n), [T, Width]: the expert that all
// tokens go to, weighted by a gate. What the last product multiplies is weighted, so that its
// result is what is added to the residual stream.
func SharedExpert(l *LayerBuilder, n *ir.Value, activation ir.Activation) *ir.Value {
	b, ffn := l.Builder, l.Config.Experts.Shared
	gate, up := l.Linear("ffn_gate_shexp", n, ffn, false), l.Linear("ffn_up_shexp", n, ffn, false)
	inner := b.Reshape(b.Mul(b.Activate(activation, gate), up), ir.Var(sym.T), ir.Const(1), ir.Const(ffn))
	weight := b.Activate(ir.Sigmoid, l.Linear("ffn_gate_inp_shexp", n, 1, false))
	return l.Linear("ffn_down_shexp", b.WeightedSum(inner, weight), l.Config.Width, false)
}
