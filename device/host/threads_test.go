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
	if runtime.GOARCH != "amd64" {
		t.Skip("needs the sanitizers' runtime of this machine")
	}
	for _, program := range []string{"pool", "rearranged"} {
		for _, kind := range []string{"thread", "address,leak,undefined"} {
			t.Run(program+"/"+kind, func(t *testing.T) {
				run(t, program, "-fsanitize="+kind, "-fno-sanitize-recover=all")
			})
		}
	}
}

// TestMachines simulates machines with more threads and memory nodes than this one has.
func TestMachines(t *testing.T) { t.Log(run(t, "machines")) }

// run compiles and runs a program, which must succeed, and returns what it prints.
func run(t *testing.T, program string, flags ...string) string {
	if testing.Short() {
		t.Skip("compiles with g++")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip(err)
	}
	source := "testdata/" + program + ".cc"
	require.FileExists(t, source) // go test remembers for which one it has passed
	executable := filepath.Join(t.TempDir(), program)
	args := append([]string{"-std=c++17", "-O1", "-g", "-I.", "-I../.."}, flags...)
	args = append(args, "-o", executable, source, "nodes.cc", "pool.cc", "rearranged.cc", "-lpthread")
	out, err := exec.Command(compiler, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	// Without address space randomisation, which the thread sanitizer of
	// older compilers cannot place its shadow in.
	command := exec.Command(executable)
	if setarch, err := exec.LookPath("setarch"); err == nil {
		command = exec.Command(setarch, "-R", executable)
	}
	out, err = command.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}
