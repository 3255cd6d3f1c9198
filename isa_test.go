//go:build cgo

package smelt_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/kernels/native"
)

// wholeModels are the tests that TestInstructionSets repeats; SMELT_ISA_TESTS names others.
const wholeModels = `TestLogits/.*/.*/^cpu$|(TestStepByStep|TestNextMatchesLogits|TestQuantizedCache)/.*/^cpu$`

// TestInstructionSets runs whole models under every set of native kernels but the best,
// which the other tests take. The set is chosen once for a process, so each has its own.
func TestInstructionSets(t *testing.T) {
	if os.Getenv("SMELT_ISA") != "" {
		t.Skip("SMELT_ISA has chosen one")
	}
	testfiles.Model(t, trained[0])
	run := wholeModels
	if tests := os.Getenv("SMELT_ISA_TESTS"); tests != "" {
		run = tests
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, l := range native.Libraries()[1:] {
		t.Run(l.ISA(), func(t *testing.T) {
			c := exec.CommandContext(t.Context(), self, "-test.run", run, "-test.v", "-test.timeout", "60m")
			if testing.Short() {
				c.Args = append(c.Args, "-test.short")
			}
			c.Env = append(os.Environ(), "SMELT_ISA="+l.ISA())
			out, err := c.CombinedOutput()
			if errors.Is(err, syscall.ENOEXEC) {
				t.Skip("a program of an emulated system can't be started again")
			}
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "--- PASS", "no test has run")
		})
	}
}
