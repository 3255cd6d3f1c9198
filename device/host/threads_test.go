//go:build cgo && linux && (amd64 || arm64)

package host

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What several threads share, under the sanitizers that Go's tests cannot use.
func TestUnderSanitizers(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("needs the sanitizers' runtime of this machine")
	}
	for _, kind := range []string{"thread", "address,leak,undefined"} {
		build := compile(t, "-fsanitize="+kind, "-fno-sanitize-recover=all")
		for _, program := range []string{"pool", "rearranged"} {
			t.Run(program+"/"+kind, func(t *testing.T) { run(t, build(t, program)) })
		}
	}
}

// TestMachines simulates machines with more threads and memory nodes than this one has.
func TestMachines(t *testing.T) { t.Log(run(t, compile(t)(t, "machines"))) }

// compile compiles what the programs in testdata share, and returns a function that compiles one
// of them and returns the executable's path.
func compile(t *testing.T, flags ...string) func(t *testing.T, program string) string {
	if testing.Short() {
		t.Skip("compiles with g++")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	made := func(t *testing.T, name string, args ...string) string {
		for _, source := range args {
			if strings.HasSuffix(source, ".cc") {
				require.FileExists(t, source) // go test remembers for which one it has passed
			}
		}
		name = filepath.Join(dir, name)
		args = append(args, "-std=c++17", "-O1", "-g", "-I.", "-I../..", "-o", name)
		out, err := exec.Command(compiler, append(args, flags...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return name
	}
	shared := made(t, "shared.o", "-r", "nodes.cc", "pool.cc", "rearranged.cc")
	return func(t *testing.T, program string) string {
		return made(t, program, "testdata/"+program+".cc", shared, "-lpthread")
	}
}

// run runs an executable, which must succeed, and returns what it prints.
func run(t *testing.T, executable string) string {
	// Without address space randomisation, which the thread sanitizer of
	// older compilers cannot place its shadow in.
	command := exec.Command(executable)
	if setarch, err := exec.LookPath("setarch"); err == nil {
		command = exec.Command(setarch, "-R", executable)
	}
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}
