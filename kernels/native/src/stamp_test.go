package src

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the stamps of the sources")

// Go's build cache knows the files of a package's own directory only. So each package
// that is compiled from src carries a hash of it in a Go file, and compiles again when
// that file changes. This test stands apart from these packages: one that is compiled of
// changed sources before its hash is written would serve from then on whoever goes back
// to the sources that the old hash stands for.
func TestStamp(t *testing.T) {
	sources, err := filepath.Glob("*.h")
	require.NoError(t, err)
	h := sha256.New()
	for _, f := range append(sources, "../../abi.h", "../../arguments.gen.h", "../../attributes.gen.h", "../../params.h") {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(f), len(text), text)
	}
	for isa, constraint := range map[string]string{
		"avx512": "//go:build amd64\n\n", "avxvnni": "//go:build amd64\n\n", "avx2": "//go:build amd64\n\n",
		"i8mm": "//go:build arm64\n\n", "dotprod": "//go:build arm64\n\n", "neon": "//go:build arm64\n\n",
		"portable": "", "blas": "",
	} {
		want := fmt.Sprintf("%spackage %s\n\n// Stamp is the hash of the sources, written by `go test ./kernels/native/src -update`.\nconst Stamp = \"%x\"\n", constraint, isa, h.Sum(nil))
		file := filepath.Join("..", isa, "stamp.go")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "the sources have changed: run go test ./kernels/native/src -update")
	}
}
