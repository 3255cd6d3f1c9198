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

func TestReader(t *testing.T) {
	r := NewReader(1000, 3) // 15 whole lines
	defer r.Close()
	total := 0
	for i := range 3 {
		total += len(r.share(i))
	}
	require.Equal(t, 15*lineBytes, total)
	require.Positive(t, r.GBs(1))
	require.Positive(t, r.sums[0], "what was written is what is read")
}

// Every word counts once, whatever is left over by the streams.
func TestSum(t *testing.T) {
	for lines := range 10 {
		b, want := make([]byte, lines*lineBytes), uint64(0)
		for i := 0; i < len(b); i += 8 {
			b[i], b[i+1] = byte(i/8+1), 1
			want += uint64(i/8+1) + 1<<8
		}
		require.Equal(t, want, sum(b), "%d lines", lines)
	}
}
