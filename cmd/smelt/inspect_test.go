package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/gguf"
)

// TestMisaligned writes a model with its tensors at shifted places: inspect names
// those that a device then copies, which are all that a program has copies of.
func TestMisaligned(t *testing.T) {
	f, err := gguf.Open(filepath.Join(testfiles.Root(t), "testdata/models/tiny-llama/gguf/tiny-llama-Q4_0.gguf"))
	require.NoError(t, err)
	defer f.Close()
	sources := lo.Map(f.Tensors, func(t gguf.Tensor, _ int) gguf.TensorWriter { return t.Writer() })
	seen := map[int64]int{} // by the first tensor's place in a word, how many are copied
	for pad := range 4 {
		path := filepath.Join(t.TempDir(), "model.gguf")
		metadata := append([]gguf.KV{
			{Key: "general.alignment", Value: gguf.Uint32(1)},
			{Key: "pad", Value: gguf.String(strings.Repeat("x", pad))},
		}, f.Metadata...)
		require.NoError(t, gguf.WriteFile(path, metadata, sources))
		s, err := inspect(path)
		require.NoError(t, err)
		seen[s.Tensors[0].Offset%4] = len(s.Misaligned)
		var bytes int64
		for _, row := range s.Tensors {
			i := lo.IndexOf(lo.Map(s.Misaligned, func(m misaligned, _ int) string { return m.Name }), row.Name)
			if i < 0 {
				continue
			}
			require.Equal(t, row.Offset, s.Misaligned[i].Offset)
			require.NotZero(t, row.Offset%int64(s.Misaligned[i].Alignment))
			bytes += row.Bytes
		}
		var text strings.Builder
		require.NoError(t, s.print(&text))
		require.Equal(t, len(s.Misaligned), strings.Count(text.String(), "note: "))
		require.Equal(t, bytes, copied(t, path))
	}
	// Norms are floats and want 4; blocks of Q4_0 and Q8_0 have 18 and 34 bytes and want
	// 2, and none of these tensors moves the next one within a word.
	all, floats := len(f.Tensors), lo.CountBy(f.Tensors, func(t gguf.Tensor) bool { return t.Type.DType() == dtype.F32 })
	require.Equal(t, map[int64]int{0: 0, 1: all, 2: floats, 3: all}, seen)
}

// copied returns the bytes of weights that are copied to run a model in the order of its file.
func copied(t *testing.T, path string) int64 {
	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	defer m.Close()
	opts := smelt.DefaultOptions()
	opts.Target = "cpu"
	p, err := m.Compile(opts)
	require.NoError(t, err)
	l, err := p.Load(smelt.Device{Name: "cpu", Threads: 1, Options: device.Options{Rearrange: device.RearrangeNever}})
	require.NoError(t, err)
	defer l.Close()
	return l.OnDevice().Memory().Converted
}
