package kernels_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// TestPutLines moves every byte of every block to its place, codes first.
func TestPutLines(t *testing.T) {
	from := make([]byte, 2*18) // two blocks of Q4_0: a scale of two bytes, 16 of codes
	for i := range from {
		from[i] = byte(i)
	}
	to := make([]byte, len(from))
	kernels.PutLines(uint32(dtype.Q4_0), to, from)
	want := append(append([]byte{}, from[2:18]...), from[20:]...)
	require.Equal(t, append(want, 0, 1, 18, 19), to)

	for _, elem := range lined() {
		size := elem.BlockBytes()
		from, to := make([]byte, 3*size), make([]byte, 3*size)
		for i := range from {
			from[i] = byte(i)
		}
		kernels.PutLines(uint32(elem), to, from)
		require.ElementsMatch(t, from, to)
	}
	for _, elem := range lined() { // pieces of several threads meet nowhere
		size := elem.BlockBytes()
		from := make([]byte, 9001*size)
		for i := range from {
			from[i] = byte(i * 7 >> 3)
		}
		to, one := make([]byte, len(from)), make([]byte, len(from))
		kernels.PutLines(uint32(elem), to, from)
		before := runtime.GOMAXPROCS(1)
		kernels.PutLines(uint32(elem), one, from)
		runtime.GOMAXPROCS(before)
		require.True(t, bytes.Equal(one, to), elem)
	}
	require.Panics(t, func() { kernels.PutLines(uint32(dtype.Q4_0), to, from[:18]) })
	require.Panics(t, func() { kernels.PutLines(uint32(dtype.F16), to, from) })
	require.False(t, kernels.HasLines(uint32(dtype.Q4_1)) || kernels.HasLines(uint32(dtype.F32)))
}

func BenchmarkPutLines(b *testing.B) {
	from := make([]byte, 18<<20)
	to := make([]byte, len(from))
	b.SetBytes(int64(len(from)))
	for b.Loop() {
		kernels.PutLines(uint32(dtype.Q4_0), to, from)
	}
}
