package gguf

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParts has files in one to three parts, of which the first may hold no tensors, and parts
// that are missing, exchanged, foreign or repeated.
func TestParts(t *testing.T) {
	all := []TensorWriter{bytesOf("a", TypeF32, 3), bytesOf("b", TypeF16, 2, 8), bytesOf("c", TypeF32, 5)}
	entries := func(no, count, tensors int) []KV {
		return []KV{{keyPart, Uint32(uint32(no))}, {keyParts, Uint32(uint32(count))}, {keyTensors, Int32(int32(tensors))}}
	}
	write := func(t *testing.T, path string, metadata []KV, tensors []TensorWriter) {
		require.NoError(t, WriteFile(path, metadata, tensors))
	}
	name := func(dir string, no, count int) string {
		return filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", no+1, count))
	}
	made := func(t *testing.T, cuts ...int) string { // the first tensor of each part
		dir := t.TempDir()
		for i, from := range cuts {
			to := len(all)
			if i+1 < len(cuts) {
				to = cuts[i+1]
			}
			write(t, name(dir, i, len(cuts)), append(entries(i, len(cuts), len(all)), KV{"of", Uint32(uint32(i))}), all[from:to])
		}
		return dir
	}
	for _, cuts := range [][]int{{0}, {0, 1}, {0, 1, 2}, {0, 0, 2}} {
		dir := made(t, cuts...)
		f, err := Open(name(dir, 0, len(cuts)))
		require.NoError(t, err)
		require.Len(t, f.Tensors, len(all))
		for i, want := range all {
			got, ok := f.Tensor(want.Name)
			require.True(t, ok)
			require.Equal(t, f.Tensors[i], got)
			require.Equal(t, want.Shape, got.Shape)
			require.Equal(t, byte(got.Size-1), got.Data[got.Size-1])
			require.FileExists(t, got.File)
		}
		of, err := f.Uint("of") // the metadata are the first part's
		require.NoError(t, err)
		require.Zero(t, of)
		require.NoError(t, f.Close())
	}

	for title, c := range map[string]struct {
		spoil func(dir string)
		open  int
		fails string
	}{
		"the second":        {func(string) {}, 1, "part 2 of 3; open the first, m-00001-of-00003.gguf"},
		"one missing":       {func(dir string) { os.Remove(name(dir, 2, 3)) }, 0, "part 3 of 3: open"},
		"one of another":    {func(dir string) { write(t, name(dir, 1, 3), entries(1, 2, 3), all[1:2]) }, 0, "it is part 2 of 2 by split.no and split.count, not part 2 of 3"},
		"exchanged":         {func(dir string) { write(t, name(dir, 1, 3), entries(2, 3, 3), all[1:2]) }, 0, "it is part 3 of 3"},
		"no part":           {func(dir string) { write(t, name(dir, 1, 3), nil, all[1:2]) }, 0, "it is part 1 of 0"},
		"a tensor twice":    {func(dir string) { write(t, name(dir, 1, 3), entries(1, 3, 3), all[:1]) }, 0, `tensor "a" is in m-00001-of-00003.gguf too`},
		"a tensor too few":  {func(dir string) { write(t, name(dir, 1, 3), entries(1, 3, 3), nil) }, 0, "its 3 parts have 2 tensors, not the 3 of split.tensors.count"},
		"a negative number": {func(dir string) { write(t, name(dir, 0, 3), []KV{{keyParts, Int32(-3)}}, nil) }, 0, "split.count is -3"},
		"too many":          {func(dir string) { write(t, name(dir, 0, 3), []KV{{keyParts, Int32(1 << 30)}}, nil) }, 0, "more than 4096"},
		"truncated": {func(dir string) {
			require.NoError(t, os.Truncate(name(dir, 2, 3), 20))
		}, 0, "m-00003-of-00003.gguf"},
	} {
		dir := made(t, 0, 1, 2)
		c.spoil(dir)
		_, err := Open(name(dir, c.open, 3))
		require.ErrorContains(t, err, c.fails, title)
	}
	renamed := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.Rename(name(made(t, 0, 1), 0, 2), renamed))
	_, err := Open(renamed)
	require.ErrorContains(t, err, "the first of 2 parts has a name such as")
}
