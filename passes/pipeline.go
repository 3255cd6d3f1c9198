package passes

import (
	"fmt"
	"slices"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/ir"
)

// Pass is one row of the pipeline.
type Pass struct {
	Name     string
	Doc      string // one line
	Rule     bool   // a fusion rule
	Required bool   // cannot be switched off
	Level    int    // the lowest optimisation level that runs it

	// run rewrites f and returns how many changes it made.
	run func(f *ir.Func, t *ir.Target, s ir.Step) (int, error)
}

// pipeline lists the passes in the order in which they run: those before fusion, a pass for each
// rule, and those after.
var pipeline = slices.Concat([]Pass{
	// A dead reader would keep a rule from matching.
	{Name: "dead_code", Doc: "remove values that no result depends on", Level: 1, Required: true, run: deadCode},
	// A normal form of rearrangements, so that rules match one form only.
	{Name: "views", Doc: "bring reshapes, transposes, slices and casts into one form", Level: 1, run: views},
	// Equal operands become identical; patterns compare by identity.
	{Name: "cse", Doc: "compute equal values once", Level: 1, run: cse},
	// The fused cache writes take the table as their factors.
	{Name: "rope_tables", Doc: "compute the frequencies of RoPE once, as a constant", Level: 1, run: ropeTables},
	// Rules estimate the cost of products by their rows.
	{Name: "wanted_rows", Doc: "compute only the rows that logits are wanted of, from where nothing reads the others", Level: 1, run: wantedRows},
}, lo.Map(fusion.All(), func(r *fusion.Rule, _ int) Pass { return fuse(r) }), []Pass{
	// Rules leave operands that only replaced values read.
	{Name: "late_dead_code", Doc: "remove what fusion left behind", Level: 1, Required: true, run: deadCode},
	// Precision depends on the final ops.
	{Name: "narrow", Doc: "compute activations in the target's type where the residual stream does not need float", Level: 1, run: narrow},
	// Any earlier pass may make an op that the target lacks.
	{Name: "legalise", Doc: "replace ops that the target lacks by those it has", Required: true, run: legalise},
})

// order lists constraints on the pipeline with their reasons; init checks them.
var order = []struct{ first, then, why string }{
	{"dead_code", "kv_replication_elimination", "a dead reader blocks a match"},
	{"dead_code", "cse", "there is no use in comparing dead values"},
	{"views", "cse", "equal rearrangements must be spelled alike to be found equal"},
	{"views", "kv_replication_elimination", "the rule knows one transpose, not two in a row"},
	{"views", "rope_qkv_write", "the rule knows one reshape between product and RoPE"},
	{"views", "head_norm_rope_kv_write", "the rule knows one reshape between product and norm"},
	{"views", "row_norm_rope_kv_write", "the rule knows no reshape between product and norm"},
	{"cse", "rope_tables", "equal tables of factors become one"},
	{"rope_tables", "head_norm_rope_kv_write", "the pass knows RoPE, not what it is fused into"},
	{"rope_tables", "row_norm_rope_kv_write", "the pass knows RoPE, not what it is fused into"},
	{"cse", "row_norm_rope_kv_write", "patterns compare inputs by identity"},
	{"row_norm_rope_kv_write", "attention_write", "the rule leaves what that one made"},
	{"cse", "wanted_rows", "rows that are taken twice look like two sets of them"},
	{"dead_code", "wanted_rows", "a dead reader wants all rows"},
	{"wanted_rows", "norm_prologue", "what a norm inside a product costs goes by the product's rows"},
	{"wanted_rows", "gate_up", "the pass knows products, not what they are fused into"},
	{"wanted_rows", "linear_residual", "the pass knows products, not what they are fused into"},
	{"wanted_rows", "norm_residual", "the pass knows norms, not what they are fused into"},
	{"wanted_rows", "routed_gate_up", "the pass knows products, not what they are fused into"},
	{"rope_tables", "rope_qkv_write", "the pass knows RoPE, not what it is fused into"},
	{"cse", "gated_short_conv", "patterns compare inputs by identity"},
	{"gated_short_conv", "late_dead_code", "rules leave operands behind"},
	{"cse", "qkv_write", "patterns compare inputs by identity"},
	{"qkv_write", "norm_prologue", "a norm that feeds Q, K and V apart cannot move into any of them"},
	{"cse", "kv_replication_elimination", "patterns compare inputs by identity"},
	{"cse", "rope_qkv_write", "patterns compare inputs by identity"},
	{"kv_replication_elimination", "repeat_kv_pair", "no copies are better than copies of both at once"},
	{"cse", "repeat_kv_pair", "the keys and the values of one cache are known by their operands"},
	{"head_norm_rope_kv_write", "norm_prologue", "a norm that feeds Q, K and V apart cannot move into any of them"},
	{"rope_qkv_write", "norm_prologue", "a norm that feeds Q, K and V apart cannot move into any of them"},
	{"gated_activation", "gate_up", "gate_up starts from gate"},
	{"gated_activation", "linear_activation", "what is a gate's activation belongs to both products"},
	{"linear_activation", "linear_residual", "the residual is added to what the activation leaves"},
	{"gate_up", "norm_prologue", "a norm that feeds gate and up apart cannot move into either"},
	{"linear_residual", "norm_prologue", "a norm that is the residual too must be seen as such"},
	{"gated_activation", "routed_gate_up", "routed_gate_up starts from gate"},
	{"routed_gate_up", "routed_norm", "a norm that feeds gate and up apart cannot move into either"},
	{"routed_sum", "routed_residual", "the residual is added to the sum"},
	{"routed_residual", "narrow", "a sum in less than float is not the residual stream's"},
	{"routed_norm", "norm_prologue", "the router's norm can move once experts have their own"},
	{"qkv_write", "shared_norm", "one product of Q, K and V normalises once"},
	{"head_norm_rope_kv_write", "shared_norm", "one product of Q, K and V normalises once"},
	{"row_norm_rope_kv_write", "shared_norm", "one product of Q, K and V normalises once"},
	{"rope_qkv_write", "shared_norm", "one product of Q, K and V normalises once"},
	{"gate_up", "shared_norm", "one product of gate and up normalises once"},
	{"linear_residual", "shared_norm", "a norm that is the residual too must be seen as such"},
	{"routed_norm", "shared_norm", "a norm that experts read cannot move into dense products alone"},
	{"shared_norm", "norm_prologue", "the last product of a shared norm is that rule's"},
	{"norm_residual", "narrow", "a sum in less than float is not the residual stream's"},
	{"kv_replication_elimination", "attention_write", "the rule starts from attention"},
	{"head_norm_rope_kv_write", "attention_write", "the rule takes what that one made"},
	{"rope_qkv_write", "attention_write", "the rule takes what that one made"},
	{"attention_write", "late_dead_code", "rules leave operands behind"},
	{"attention_write", "narrow", "rules keep precision, they do not choose it"},
	{"norm_prologue", "gather_prologue", "a norm stands between the rows and their product"},
	{"gather_prologue", "late_dead_code", "rules leave operands behind"},
	{"gather_prologue", "narrow", "rules keep precision, they do not choose it"},
	{"norm_prologue", "late_dead_code", "rules leave operands behind"},
	{"kv_replication_elimination", "narrow", "attention in float from cached values would hold its neighbours in float"},
	{"norm_prologue", "narrow", "rules keep precision, they do not choose it"},
	{"late_dead_code", "narrow", "a dead reader in float would hold its operands in float"},
	{"narrow", "legalise", "what an op is replaced by depends on its precision"},
}

func init() {
	if err := checkOrder(pipeline); err != nil {
		panic("passes: " + err.Error())
	}
}

// checkOrder compares a pipeline with the order constraints.
func checkOrder(p []Pass) error {
	at := func(name string) int {
		return slices.IndexFunc(p, func(row Pass) bool { return row.Name == name })
	}
	for i, row := range p {
		if at(row.Name) != i {
			return fmt.Errorf("two passes are called %s", row.Name)
		}
	}
	for _, c := range order {
		first, then := at(c.first), at(c.then)
		if first < 0 || then < 0 {
			return fmt.Errorf("%s before %s: no such pass", c.first, c.then)
		}
		if first >= then {
			return fmt.Errorf("%s must run before %s: %s", c.first, c.then, c.why)
		}
	}
	if last := p[len(p)-1]; last.Name != "legalise" {
		return fmt.Errorf("%s runs after legalise", last.Name)
	}
	return nil
}

// fuse returns the pipeline's row for a rule.
func fuse(r *fusion.Rule) Pass {
	return Pass{Name: r.Name, Doc: r.Doc, Rule: true, Level: 1, run: func(f *ir.Func, t *ir.Target, s ir.Step) (int, error) {
		own := r.For(t, s)
		if own == nil {
			return 0, nil
		}
		n, err := fusion.Apply(f, own)
		return n[0], err
	}}
}

// Passes returns the rows of the pipeline in order.
func Passes() []Pass { return slices.Clone(pipeline) }

func deadCode(f *ir.Func, _ *ir.Target, _ ir.Step) (int, error) { return f.Sweep(), nil }
