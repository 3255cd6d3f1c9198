package limits

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/native"
)

func TestProbe(t *testing.T) {
	c := Probe(native.ISA(), 2)
	t.Logf("%s, 2 threads: %+v", native.ISA(), c)
	require.Positive(t, c.ReadGBs)
	require.Less(t, c.ReadGBs, 1e4, "the sums were left out")
	if peaksOf(native.ISA()).f32 != nil {
		// 1000 GFLOP/s a thread would be twenty multiply-adds of 512 bits in a
		// nanosecond: a loop that the compiler has emptied.
		require.Positive(t, c.F32GOPs)
		require.Less(t, c.F32GOPs, 2*1000.0)
		require.Positive(t, c.Int8GOPs)
		require.Less(t, c.Int8GOPs, 2*4000.0)
	}
}

func TestProbeWithoutCode(t *testing.T) {
	require.Zero(t, peak(peaksOf("portable").f32, 1))
}

func TestSum(t *testing.T) {
	b := make([]byte, 64)
	b[0], b[8], b[31], b[63] = 3, 4, 1, 1
	require.Equal(t, uint64(7)+2<<56, sum(b))
}
