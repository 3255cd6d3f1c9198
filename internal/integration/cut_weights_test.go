//go:build unix

package integration_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/models/mapped"
	"github.com/smelt-ml/smelt/models/quantize"
)

// cuttable returns a model that the test may cut, and the file to cut.
func cuttable(t *testing.T, weightType string) (path, file string) {
	if weightType == "folder" {
		path = tiny.Folder(t, "tiny-qwen3")
		return path, filepath.Join(path, "model.safetensors")
	}
	path = filepath.Join(t.TempDir(), "tiny.gguf")
	data, err := os.ReadFile(tiny.GGUF(t, "tiny-qwen3", weightType))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path, path
}

// TestCutWeights: a file that is cut short under a model ends loading, or the step that reads it
// and all later ones, with an error that names it.
func TestCutWeights(t *testing.T) {
	generation := smelt.Generation{N: 8, IgnoreStop: true}
	cut := func(t *testing.T, err error, file string) {
		t.Helper()
		require.ErrorIs(t, err, mapped.ErrCut)
		require.ErrorContains(t, err, file)
	}
	for _, weightType := range []string{"F16", "Q4_0", "folder"} {
		for rearrange, when := range []string{"later", "at once", "never"} {
			on := smelt.Device{Name: "cpu", Threads: 2, Options: device.Options{Rearrange: device.Rearrange(rearrange)}}
			t.Run(fmt.Sprintf("%s rearranged %s", weightType, when), func(t *testing.T) {
				for steps := range 2 {
					path, file := cuttable(t, weightType)
					l, err := smelt.Load(path, smelt.Options{Context: 128, Device: on})
					require.NoError(t, err)
					s, err := l.NewSession()
					require.NoError(t, err)
					if steps > 0 {
						_, err = fixture.Generate(t.Context(), s, "Once upon", generation)
						require.NoError(t, err)
					}
					require.NoError(t, os.Truncate(file, 1<<16))
					for range 2 {
						_, err = fixture.Generate(t.Context(), s, "Once upon", generation)
						cut(t, err, file)
					}
					require.NoError(t, l.Close())
				}
			})
			t.Run(fmt.Sprintf("%s loaded and rearranged %s", weightType, when), func(t *testing.T) {
				path, file := cuttable(t, weightType)
				m := fixture.Open(t, path)
				p, err := m.Compile(smelt.Options{Context: 128})
				require.NoError(t, err)
				require.NoError(t, os.Truncate(file, 1<<16))
				_, err = p.Load(on)
				cut(t, err, file)
				_, err = quantize.Write(t.Context(), io.Discard, m.File(), "q8_0", nil)
				cut(t, err, file)
			})
		}
	}
}
