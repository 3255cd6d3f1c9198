//go:build cgo && linux && (amd64 || arm64)

package host

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	for _, c := range []struct {
		program string
		with    []string
		kind    string
	}{
		{"pool", nil, "thread"},
		{"pool", nil, "address,leak,undefined"},
		{"rearranged", []string{"rearranged.cc"}, "thread"},
		{"rearranged", []string{"rearranged.cc"}, "address,leak,undefined"},
	} {
		t.Run(c.program+"/"+c.kind, func(t *testing.T) {
			require.FileExists(t, "testdata/"+c.program+".cc") // go test remembers for which one it has passed
			executable := filepath.Join(t.TempDir(), c.program)
			args := []string{"-std=c++17", "-O1", "-g", "-I.", "-I../..", "-fsanitize=" + c.kind, "-fno-sanitize-recover=all",
				"-o", executable, "testdata/" + c.program + ".cc", "pool.cc"}
			out, err := exec.Command(compiler, slices.Concat(args, c.with, []string{"-lpthread"})...).CombinedOutput()
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
