package passes_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/passes"
)

// TestRopeTable compares a table with the formula, to half a unit in the last place
// of float32.
func TestRopeTable(t *testing.T) {
	f, err := ir.Build("rope", anything{}, ir.Options{Block: 8}, func(b *ir.Builder) {
		x := b.SplitHeads(b.Embed(b.Input(sym.Tokens), b.Weight("x", 4, 256)), 2)
		b.Return("y", b.Rope(x, ir.RopeAttr{Rotated: 128, Theta: 1e6, FreqScale: 0.25, Magnitude: 1}, nil))
	})
	require.NoError(t, err)
	n, err := passes.RunOne("rope_tables", f, target(t, dtype.F32), decoding)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	data := f.Result("y").Args[2].Attr.(ir.ConstAttr).Data
	for i := range 64 {
		got := math.Float32frombits(binary.LittleEndian.Uint32([]byte(data[4*i:])))
		want := math.Pow(1e6, float64(2*i)/128) / 0.25
		require.InEpsilon(t, want, float64(got), 0x1p-24+1e-12)
	}
}

type anything struct{}

func (anything) Weight(_ string, want []int) (dtype.Type, []int, bool) { return dtype.F32, want, true }
