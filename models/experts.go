package models

import "github.com/smelt-ml/smelt/ir"

// Experts are the feed-forward networks that a mixture chooses among; the zero value is none.
type Experts struct {
	Count  int     // networks of a layer
	Chosen int     // of them, by the router, for each token
	FFN    int     // width of each
	Shared int     // width of the one that all tokens go to; 0: there is none
	Dense  int     // layers at the beginning that are no mixtures
	Scale  float64 // of what the router weighs by; 0: 1
}

// check finds what no graph can be built from.
func (e *Experts) check() error {
	if *e == (Experts{}) {
		return nil
	}
	if err := checkExtents(extent{"number of experts", e.Count, maxExperts}, extent{"number of experts a token goes to", e.Chosen, min(e.Count, maxChosen)},
		extent{"width of experts", e.FFN, maxExtent}); err != nil {
		return err
	}
	if e.Shared < 0 || e.Shared > maxExtent {
		return configError("the width of the shared expert is %d", e.Shared)
	}
	if e.Dense < 0 || e.Dense > maxLayers {
		return configError("the number of layers without experts is %d", e.Dense)
	}
	if e.Scale != 0 && !(e.Scale >= 1/maxScale && e.Scale <= maxScale) {
		return configError("the scale of experts is %g", e.Scale)
	}
	return nil
}

// Bounds on mixtures: far beyond any model, and what the kernel that chooses has room for.
const (
	maxExperts = 1 << 14
	maxChosen  = 256
)

// expertFields are what files say of mixtures; folders call the number of experts, and their
// width, as given. A GGUF file without the width means absent(c).
func expertFields(count, width string, absent func(c *Config) int) []Field {
	return []Field{
		{GGUF: "expert_count", HF: count, Size: func(c *Config) *int { return &c.Experts.Count }},
		{GGUF: "expert_used_count", HF: "num_experts_per_tok", Size: func(c *Config) *int { return &c.Experts.Chosen }},
		{GGUF: "expert_feed_forward_length", HF: width, Size: func(c *Config) *int { return &c.Experts.FFN },
			Absent: inFiles(absent)},
	}
}

// wholeFFN is the width of a dense layer, and partOfFFN that of an expert where the chosen ones
// make up such a layer.
func wholeFFN(c *Config) int  { return c.FFN }
func partOfFFN(c *Config) int { return c.FFN / max(c.Experts.Chosen, 1) }

// expertTensors are the names of a mixture's weights in folders that have a tensor for each
// expert: % stands for its number.
func expertTensors(block, gate, up, down string) map[string]Stored {
	layer := "model.layers.#." + block + "."
	each := func(name string) Stored { return Stored{Names: []string{layer + "experts.%." + name + ".weight"}} }
	return map[string]Stored{
		"blk.#.ffn_gate_inp.weight":  as(layer + "gate.weight"),
		"blk.#.ffn_gate_exps.weight": each(gate),
		"blk.#.ffn_up_exps.weight":   each(up),
		"blk.#.ffn_down_exps.weight": each(down),
	}
}

// denseFFN are the names of a dense layer's weights, which a mixture has not.
var denseFFN = []string{"blk.#.ffn_gate.weight", "blk.#.ffn_up.weight", "blk.#.ffn_down.weight"}

// route chooses the experts of each token by the logits of a router, [T, Count]: their numbers
// and how their results are weighted, [T, Chosen] both.
type route func(b *ir.Builder, logits *ir.Value, chosen int) (weights, experts *ir.Value)

// shareAll weighs by the softmax over all experts (Shazeer et al., "Outrageously Large Neural
// Networks", 2017, without noise).
func shareAll(b *ir.Builder, logits *ir.Value, chosen int) (weights, experts *ir.Value) {
	return b.TopK(b.Softmax(logits), chosen)
}

// shareChosen weighs by the softmax over the chosen ones. It is also what shareAll gives
// divided by its sum, norm_topk_prob in transformers: what softmax divides by cancels.
func shareChosen(b *ir.Builder, logits *ir.Value, chosen int) (weights, experts *ir.Value) {
	best, experts := b.TopK(logits, chosen)
	return b.Softmax(best), experts
}

// mixed is Σ wᵢ · Wdownᵢ · (activation(Wgateᵢ·n) ∘ Wupᵢ·n), [T, Width], over the experts i that
// the router chooses for a token.
func mixed(l *layer, n *ir.Value, route route, activation ir.Activation) *ir.Value {
	b, e, biased := l.b, l.c.Experts, l.c.Biases.FFN
	weights, experts := route(b, l.linear("ffn_gate_inp", n, e.Count, biased), e.Chosen)
	linear := func(role string, x *ir.Value, rows int) *ir.Value { // [T, Chosen, rows]
		w := b.Weight(l.name(role+".weight"), e.Count, rows, int(x.Type.Shape.Last()))
		var bias *ir.Value
		if biased {
			bias = b.Weight(l.name(role+".bias"), e.Count, rows)
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
	return b.WeightedSum(linear("ffn_down_exps", inner, l.c.Width), weights)
}

// shared is sigmoid(s·n) · Wdown · (activation(Wgate·n) ∘ Wup·n), [T, Width]: the expert that all
// tokens go to, weighted by a gate. What the last product multiplies is weighted, so that its
// result is what is added to the residual stream.
func shared(l *layer, n *ir.Value, activation ir.Activation) *ir.Value {
	b, ffn := l.b, l.c.Experts.Shared
	gate, up := l.linear("ffn_gate_shexp", n, ffn, false), l.linear("ffn_up_shexp", n, ffn, false)
	inner := b.Reshape(b.Mul(b.Activate(activation, gate), up), ir.Var(ir.T), ir.Const(1), ir.Const(ffn))
	weight := b.Activate(ir.Sigmoid, l.linear("ffn_gate_inp_shexp", n, 1, false))
	return l.linear("ffn_down_shexp", b.WeightedSum(inner, weight), l.c.Width, false)
}
