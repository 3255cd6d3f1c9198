package picture

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower/plan"
)

// colours holds, by category, the colour of dispatches and fused ops and the paler one of source
// ops.
var colours = [...]struct{ full, pale string }{
	ir.OtherOps:      {"#d5dbe1", "#ffffff"},
	ir.InputOps:      {"#dfe7f2", "#dfe7f2"},
	ir.RowOps:        {"#9fd3cc", "#d6ecea"},
	ir.ProductOps:    {"#8fc7a0", "#cfe3d4"},
	ir.NormOps:       {"#9cc4e8", "#d5e6f6"},
	ir.CacheOps:      {"#f6cf7f", "#f3e3c3"},
	ir.AttentionOps:  {"#f2b5a7", "#f9ded7"},
	ir.ActivationOps: {"#c9b6e4", "#e6ddf3"},
	ir.MoveOps:       {"#e6eaee", "#ffffff"},
}

// OfCategory returns the colour of dispatches of a category, as "#rrggbb".
func OfCategory(c ir.Category) string { return colours[c].full }

// Colour returns the colour of values of an op; source ops are paler than fused ops.
func Colour(op ir.Op) string {
	if op.Stage() == ir.Source {
		return colours[op.Category()].pale
	}
	return OfCategory(op.Category())
}

// CategoryOf returns the category of the op that a dispatch computes.
func CategoryOf(d *plan.Dispatch) ir.Category {
	op, _ := ir.ParseOp(d.Op)
	return op.Category()
}

// ColourOf returns the colour of a dispatch, that of its category.
func ColourOf(d *plan.Dispatch) string { return OfCategory(CategoryOf(d)) }
