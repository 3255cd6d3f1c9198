package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// GatherPrologue moves a gather of rows into the product that reads them, such as the head's
// gather of the rows that need logits:
//
//	linear(gather_rows(x, rows), w)           becomes   fused_linear(x, w, rows) {Gather}
//	fused_linear(gather_rows(x, rows), w…)    becomes   fused_linear(x, w…, rows) {Gather}
func GatherPrologue() *Rule {
	x, rows := Any(), Any()
	gathered := Op(ir.OpGatherRows, x, rows)
	product := OneOf([]ir.Op{ir.OpLinear, ir.OpFusedLinear}, gathered, Rest())

	return &Rule{
		Name:   "gather_prologue",
		Doc:    "move the gather of a product's input rows into the product",
		Anchor: product,
		Yields: []*Pat{product},
		Needs:  func(t *ir.Target, s ir.Steps) bool { return len(t.Norms(s)) > 0 && t.Gathers },
		Where: func(m Match) bool { // a gather that is also the residual must stay
			attr, _ := ir.AsFusedLinear(m[product])
			return !attr.Gather && !slices.Contains(m[product].Args[1:], m[gathered])
		},
		Build: func(e *Emitter, m Match) []*ir.Value {
			attr, operands := ir.AsFusedLinear(m[product])
			attr.Gather, operands.X, operands.Rows = true, m[x], m[rows]
			return []*ir.Value{e.EmitAs(m[product].Type.DType, ir.OpFusedLinear, attr, operands.List()...)}
		},
	}
}
