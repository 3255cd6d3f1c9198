package passes_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/passes"
)

// FuzzCompile: whatever graph verifies can be compiled, or else holds an op that
// the target lacks.
func FuzzCompile(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.txtar", "../fusion/testdata/*/*.txtar"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(string(txtar.Parse(text).Files[0].Data), true)
			f.Add(string(txtar.Parse(text).Files[0].Data), false)
		}
	}
	f.Fuzz(func(t *testing.T, text string, fused bool) {
		g, err := ir.Parse(text)
		if err != nil {
			return
		}
		tgt := target(t, dtype.F16)
		if !fused {
			tgt = sourceTarget(t, dtype.F16)
		}
		if _, err := passes.Compile(g, tgt, decoding, passes.Options{Level: 1}); err != nil && !errors.Is(err, passes.ErrUnsupported) {
			t.Fatalf("%v\n%s", err, g)
		}
	})
}
