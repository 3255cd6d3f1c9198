//go:build cgo && linux && (amd64 || arm64)

package host

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pool by itself, under the sanitizers that Go's tests cannot use.
func TestPoolUnderSanitizers(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles with g++")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("needs the sanitizers' runtime of this machine")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip(err)
	}
	for _, kind := range []string{"thread", "address,leak,undefined"} {
		t.Run(kind, func(t *testing.T) {
			executable := filepath.Join(t.TempDir(), "stress")
			out, err := exec.Command(compiler, "-std=c++17", "-O1", "-g", "-I.", "-fsanitize="+kind,
				"-fno-sanitize-recover=all", "-o", executable, "testdata/stress.cc", "pool.cc", "-lpthread").CombinedOutput()
			require.NoError(t, err, string(out))
			// Without address space randomisation, which the thread sanitizer of
			// older compilers cannot place its shadow in.
			run := exec.Command(executable)
			if setarch, err := exec.LookPath("setarch"); err == nil {
				run = exec.Command(setarch, "-R", executable)
			}
			out, err = run.CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
}
