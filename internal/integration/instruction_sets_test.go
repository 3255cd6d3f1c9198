//go:build cgo

package integration_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/kernels/native"
)

// wholeModels are the tests that TestInstructionSets repeats.
const wholeModels = `TestLogits/.*/.*/^cpu$|(TestStepByStep|TestNextMatchesLogits|TestQuantizedCache)/.*/^cpu$`

// TestInstructionSets runs whole models under every set of native kernels but the best,
// which the other tests take; with SMELT_FULL=isa all tests here and of the root package.
// The set is chosen once for a process, so each has its own.
func TestInstructionSets(t *testing.T) {
	if os.Getenv("SMELT_ISA") != "" {
		t.Skip("SMELT_ISA has chosen one")
	}
	testfiles.Model(t, fixture.Trained[0])
	run, binaries := wholeModels, []string{""}
	var err error
	binaries[0], err = os.Executable()
	require.NoError(t, err)
	if testfiles.Full("isa") {
		root := filepath.Join(t.TempDir(), "root.test")
		out, err := exec.Command("go", "test", "-c", "-o", root, module).CombinedOutput()
		require.NoError(t, err, "%s", out)
		run, binaries = ".", append(binaries, root)
	}
	for _, l := range native.Libraries()[1:] {
		t.Run(l.ISA(), func(t *testing.T) {
			for _, binary := range binaries {
				c := exec.CommandContext(t.Context(), binary, "-test.run", run, "-test.v", "-test.timeout", "60m")
				if testing.Short() {
					c.Args = append(c.Args, "-test.short")
				}
				c.Env = append(os.Environ(), "SMELT_ISA="+l.ISA())
				if binary != binaries[0] {
					c.Dir = testfiles.Root(t)
				}
				out, err := c.CombinedOutput()
				if errors.Is(err, syscall.ENOEXEC) {
					t.Skip("a program of an emulated system can't be started again")
				}
				require.NoError(t, err, "%s", out)
				require.Contains(t, string(out), "--- PASS", "no test has run")
			}
		})
	}
}
