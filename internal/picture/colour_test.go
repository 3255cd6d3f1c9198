package picture_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/picture"
	"github.com/smelt-ml/smelt/ir"
)

// Everything has a colour, fused ops a stronger one than what they are made of.
func TestColours(t *testing.T) {
	for _, c := range ir.Categories() {
		require.Regexp(t, `^#[0-9a-f]{6}$`, picture.OfCategory(c))
	}
	for op := ir.OpInput; int(op) < ir.NumOps; op++ {
		require.Regexp(t, `^#[0-9a-f]{6}$`, picture.Colour(op), op)
		if op.Stage() == ir.Fused {
			require.Equal(t, picture.OfCategory(op.Category()), picture.Colour(op))
		}
	}
	require.NotEqual(t, picture.Colour(ir.OpLinear), picture.Colour(ir.OpFusedLinear))
}
