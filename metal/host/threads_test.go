//go:build cgo && linux && (amd64 || arm64)

package host

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// What several threads share, under the sanitizers that Go's tests cannot use.
func TestUnderSanitizers(t *testing.T) {
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
	for _, program := range []string{"pool", "rearranged"} {
		for _, kind := range []string{"thread", "address,leak,undefined"} {
			t.Run(program+"/"+kind, func(t *testing.T) {
				source := "testdata/" + program + ".cc"
				require.FileExists(t, source) // go test remembers for which one it has passed
				executable := filepath.Join(t.TempDir(), program)
				out, err := exec.Command(compiler, "-std=c++17", "-O1", "-g", "-I.", "-I../..", "-fsanitize="+kind,
					"-fno-sanitize-recover=all", "-o", executable, source, "pool.cc", "rearranged.cc", "-lpthread").CombinedOutput()
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
}
