package ir_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
)

// Source ops that compute have their work in the table; what moves, stores or is made of
// other ops has none.
func TestWork(t *testing.T) {
	still := map[ir.Op]bool{ir.OpEmbed: true, ir.OpGatherRows: true, ir.OpCacheWrite: true, ir.OpCacheRead: true, ir.OpCopyBlocks: true, ir.OpRepeatKV: true}
	for op := ir.OpInput; int(op) < ir.NumOps; op++ {
		computes := op.Stage() == ir.Source && !op.IsLeaf() && !still[op] && op.Category() != ir.MoveOps
		require.Equal(t, computes, op.Work(ir.ActivationAttr{Activation: ir.SiLU}) > 0, op)
	}
	for _, a := range ir.Activations() {
		attr := ir.ActivationAttr{Activation: a}
		require.Equal(t, a != ir.NoActivation, ir.OpActivate.Work(attr) > 0, a)
		require.Positive(t, ir.OpGate.Work(attr), a)
	}
}

// Every category has a name, and every fused op a category.
func TestCategories(t *testing.T) {
	names := map[string]bool{}
	for _, c := range ir.Categories() {
		names[c.String()] = true
	}
	require.Len(t, names, len(ir.Categories()))
	for op := ir.OpInput; int(op) < ir.NumOps; op++ {
		if op.Stage() == ir.Fused {
			require.NotEqual(t, ir.OtherOps, op.Category(), op)
		}
	}
}
