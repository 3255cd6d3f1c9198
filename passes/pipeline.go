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

	// run rewrites f and returns the number of changes.
	run func(f *ir.Func, t *ir.Target, s ir.Steps) (int, error)
}

// pipeline lists the passes in the order in which they run: those before fusion, a pass for each
// rule, and those after.
var pipeline = slices.Concat([]Pass{
	// A dead reader would keep a rule from matching.
	{Name: "dead_code", Doc: "remove values that no result depends on", Level: 1, Required: true, run: deadCode},
	// Rules match the normal form only.
	{Name: "views", Doc: "rewrite reshapes, transposes, slices and casts in a normal form", Level: 1, run: views},
	// Equal operands become identical; patterns compare by identity.
	{Name: "cse", Doc: "compute equal values once", Level: 1, run: cse},
	// The fused cache writes take the table as their factors.
	{Name: "rope_tables", Doc: "compute RoPE's frequencies once, as a constant", Level: 1, run: ropeTables},
}, rules(true), []Pass{
	// Rules estimate the cost of products by their rows.
	{Name: "wanted_rows", Doc: "gather the rows that need logits as early as possible, so that later ops compute only these", Level: 1, run: wantedRows},
}, rules(false), []Pass{
	// Rules leave operands that only replaced values read.
	{Name: "late_dead_code", Doc: "remove values that fusion left without readers", Level: 1, Required: true, run: deadCode},
	// Precision depends on the final ops.
	{Name: "narrow", Doc: "compute activations of many tokens in the target's type, except for the residual stream, unfused attention and results", Level: 1, run: narrow},
	// Any earlier pass may make an op that the target lacks.
	{Name: "legalise", Doc: "replace ops that the target lacks by those it has", Required: true, run: legalise},
})

// order lists constraints on the pipeline with their reasons; init checks them.
var order = []struct{ first, then, why string }{
	{"dead_code", "kv_replication_elimination", "a dead reader blocks a match"},
	{"dead_code", "cse", "cse would compare dead values"},
	{"views", "cse", "cse finds equal rearrangements in the normal form only"},
	{"views", "kv_replication_elimination", "the rule matches one transpose, not two in a row"},
	{"views", "rope_qkv_write", "the rule matches one reshape between product and RoPE"},
	{"views", "head_norm_rope_kv_write", "the rule matches one reshape between product and norm"},
	{"views", "row_norm_rope_kv_write", "the rule matches no reshape between product and norm"},
	{"cse", "rope_tables", "equal tables of factors become one"},
	{"rope_tables", "head_norm_rope_kv_write", "the pass matches rope, not the ops that it is fused into"},
	{"rope_tables", "row_norm_rope_kv_write", "the pass matches rope, not the ops that it is fused into"},
	{"cse", "row_norm_rope_kv_write", "patterns compare inputs by identity"},
	{"row_norm_rope_kv_write", "attention_write", "attention_write does not match that rule's result"},
	{"cse", "wanted_rows", "two equal gathers must be one value"},
	{"dead_code", "wanted_rows", "a dead reader reads all rows"},
	{"wanted_rows", "norm_prologue", "the cost of a norm inside a product depends on the product's rows"},
	{"wanted_rows", "gate_up", "the pass matches products, not the ops that they are fused into"},
	{"wanted_rows", "linear_residual", "the pass matches products, not the ops that they are fused into"},
	{"wanted_rows", "norm_residual", "the pass matches norms, not the ops that they are fused into"},
	{"wanted_rows", "routed_gate_up", "the pass matches products, not the ops that they are fused into"},
	{"rope_tables", "rope_qkv_write", "the pass matches rope, not the ops that it is fused into"},
	{"cse", "gated_short_conv", "patterns compare inputs by identity"},
	{"cse", "gated_delta_net", "patterns compare inputs by identity"},
	{"gated_delta_net", "gated_activation", "the rule matches the product with the gate and its activation apart"},
	{"gated_delta_net", "linear_activation", "the rule matches the products of source graphs"},
	{"gated_delta_net", "shared_norm", "merged products normalise once"},
	{"wanted_rows", "gated_delta_net", "the pass matches products, not the ops that they are fused into"},
	{"cse", "gated_mamba2", "patterns compare inputs by identity"},
	{"gated_mamba2", "wanted_rows", "the gather would come between the state space and its gate"},
	{"gated_mamba2", "gated_activation", "the rule matches the gate and its activation apart"},
	{"gated_mamba2", "late_dead_code", "the rule leaves operands without readers"},
	{"cse", "latent_write", "patterns compare inputs by identity"},
	{"rope_tables", "latent_write", "the pass matches rope, not the ops that it is fused into"},
	{"views", "latent_write", "the rule matches one reshape and one slice of what the vector and the key share"},
	{"cse", "latent_products", "patterns compare inputs by identity"},
	{"views", "latent_products", "the rule matches one reshape and one slice of what the vector and the key share"},
	{"rope_tables", "latent_products", "the pass matches rope that a rule has not moved"},
	{"latent_products", "latent_write", "latent_write replaces the row that the rule matches"},
	{"latent_products", "shared_norm", "a merged product normalises once"},
	{"latent_products", "norm_prologue", "a norm with separate products of both vectors as readers cannot move into either"},
	{"norm_prologue", "leading_columns", "a norm separates the columns from their product"},
	{"routed_sum", "leading_columns", "the rule matches products of experts with all their epilogues"},
	{"leading_columns", "late_dead_code", "the rule leaves operands without readers"},
	{"latent_write", "latent_attention", "latent_attention matches that rule's result"},
	{"kv_replication_elimination", "latent_attention", "latent_attention matches attention"},
	{"latent_attention", "late_dead_code", "the rule leaves operands without readers"},
	{"latent_attention", "narrow", "rules keep precision, they do not choose it"},
	{"latent_write", "late_dead_code", "the rule leaves operands without readers"},
	{"gated_short_conv", "late_dead_code", "the rule leaves operands without readers"},
	{"cse", "qkv_write", "patterns compare inputs by identity"},
	{"qkv_write", "norm_prologue", "a norm with separate products of Q, K and V as readers cannot move into any of them"},
	{"cse", "kv_replication_elimination", "patterns compare inputs by identity"},
	{"cse", "rope_qkv_write", "patterns compare inputs by identity"},
	{"kv_replication_elimination", "repeat_kv_pair", "attention without copies is better than one dispatch for the copies of both"},
	{"cse", "repeat_kv_pair", "the rule identifies the keys and the values of one cache by their operands"},
	{"head_norm_rope_kv_write", "norm_prologue", "a norm with separate products of Q, K and V as readers cannot move into any of them"},
	{"rope_qkv_write", "norm_prologue", "a norm with separate products of Q, K and V as readers cannot move into any of them"},
	{"gated_activation", "gate_up", "gate_up matches gate"},
	{"gated_activation", "column_gate", "column_gate matches gate"},
	{"gate_up", "column_gate", "a gate of two products is of both"},
	{"wanted_rows", "column_gate", "the pass matches products, not the ops that they are fused into"},
	{"column_gate", "norm_prologue", "the rule matches the product without a norm"},
	{"gated_activation", "linear_activation", "the activation of a gate belongs to two products"},
	{"linear_activation", "linear_residual", "the residual is added to the activation's result"},
	{"gate_up", "norm_prologue", "a norm with separate products of gate and up as readers cannot move into either"},
	{"linear_residual", "norm_prologue", "norm_prologue must see which norms are the residual too"},
	{"gated_activation", "routed_gate_up", "routed_gate_up matches gate"},
	{"routed_gate_up", "routed_norm", "a norm with separate products of gate and up as readers cannot move into either"},
	{"routed_sum", "routed_residual", "the residual is added to the sum"},
	{"routed_residual", "narrow", "the rule matches sums in float only"},
	{"routed_norm", "norm_prologue", "the router's norm can move once experts have their own"},
	{"qkv_write", "shared_norm", "a merged product of Q, K and V normalises once"},
	{"head_norm_rope_kv_write", "shared_norm", "a merged product of Q, K and V normalises once"},
	{"row_norm_rope_kv_write", "shared_norm", "a merged product of Q, K and V normalises once"},
	{"rope_qkv_write", "shared_norm", "a merged product of Q, K and V normalises once"},
	{"gate_up", "shared_norm", "a merged product of gate and up normalises once"},
	{"linear_residual", "shared_norm", "shared_norm must see which norms are the residual too"},
	{"routed_norm", "shared_norm", "a norm that experts read cannot move into dense products alone"},
	{"shared_norm", "norm_prologue", "norm_prologue handles the last product of a shared norm"},
	{"norm_residual", "residual_gain", "the rule matches the sum with its norm"},
	{"norm_residual", "narrow", "the rule matches sums in float only"},
	{"kv_replication_elimination", "attention_write", "attention_write matches attention"},
	{"kv_replication_elimination", "attention_gate", "attention_gate matches attention"},
	{"attention_gate", "gated_activation", "the rule matches the product with the gate and its activation apart"},
	{"attention_gate", "linear_activation", "attention activates its gate itself"},
	{"attention_gate", "qkv_gate", "the gate is attention's operand"},
	{"head_norm_rope_kv_write", "qkv_gate", "the gate's product joins the merged one"},
	{"row_norm_rope_kv_write", "qkv_gate", "the gate's product joins the merged one"},
	{"rope_qkv_write", "qkv_gate", "the gate's product joins the merged one"},
	{"qkv_write", "qkv_gate", "the gate's product joins the merged one"},
	{"qkv_gate", "shared_norm", "a merged product normalises once"},
	{"qkv_gate", "attention_write", "attention_write matches attention over the merged product"},
	{"qkv_gate", "late_dead_code", "the rule leaves operands without readers"},
	{"row_gate", "linear_activation", "the product activates its gate itself"},
	{"row_gate", "linear_residual", "the residual is added to the gated product"},
	{"row_gate", "router_gate", "the gate is the product's operand"},
	{"wanted_rows", "row_gate", "the pass matches products, not the ops that they are fused into"},
	{"router_gate", "linear_residual", "the rule matches the gated product without a residual"},
	{"router_gate", "shared_norm", "a merged product normalises once"},
	{"router_gate", "late_dead_code", "the rule leaves operands without readers"},
	{"head_norm_rope_kv_write", "attention_write", "attention_write matches that rule's result"},
	{"rope_qkv_write", "attention_write", "attention_write matches that rule's result"},
	{"kv_replication_elimination", "query_attention", "query_attention matches attention"},
	{"head_norm_rope_kv_write", "query_attention", "a layer with keys of its own writes them"},
	{"attention_gate", "query_attention", "the gate is attention's operand"},
	{"query_attention", "narrow", "rules keep precision, they do not choose it"},
	{"attention_write", "late_dead_code", "the rule leaves operands without readers"},
	{"attention_write", "narrow", "rules keep precision, they do not choose it"},
	{"norm_prologue", "gather_prologue", "a norm separates the gather from its product"},
	{"gather_prologue", "late_dead_code", "the rule leaves operands without readers"},
	{"gather_prologue", "narrow", "rules keep precision, they do not choose it"},
	{"norm_prologue", "late_dead_code", "the rule leaves operands without readers"},
	{"kv_replication_elimination", "narrow", "attention in source ops stays float, and would keep its neighbours in float"},
	{"norm_prologue", "narrow", "rules keep precision, they do not choose it"},
	{"late_dead_code", "narrow", "a dead reader in float would keep its operands in float"},
	{"narrow", "legalise", "an op's replacement depends on its precision"},
}

// rules returns a pass for each fusion rule that is early, or is not.
func rules(early bool) []Pass {
	return lo.FilterMap(fusion.All(), func(r *fusion.Rule, _ int) (Pass, bool) { return fuse(r), r.Early == early })
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
	return Pass{Name: r.Name, Doc: r.Doc, Rule: true, Level: 1, run: func(f *ir.Func, t *ir.Target, s ir.Steps) (int, error) {
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

func deadCode(f *ir.Func, _ *ir.Target, _ ir.Steps) (int, error) { return f.Sweep(), nil }
