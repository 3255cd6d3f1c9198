//go:build asan

package emulated_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
)

// AddressSanitizer ends the process, so that each overrun gets one of its own.
func TestOverrunsNameTheSource(t *testing.T) {
	if mode := os.Getenv("SMELT_TEST_OVERRUN"); mode != "" {
		n, err := strconv.Atoi(mode)
		require.NoError(t, err)
		require.NoError(t, best.Run(emulated.Launch{
			Kernel: "overrun", Buffers: [][]byte{make([]byte, 60*4), words(n)}, Group: [3]uint32{60},
		}, emulated.Options{}))
		return
	}
	for mode, want := range []string{"", "kernels/emulated/testdata/wrong.metal:82", "kernels/emulated/testdata/wrong.metal:84"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOverrunsNameTheSource$")
		cmd.Env = append(os.Environ(), "SMELT_TEST_OVERRUN="+strconv.Itoa(mode))
		out, err := cmd.CombinedOutput()
		if want == "" {
			require.NoError(t, err, string(out))
			continue
		}
		require.Error(t, err, "an overrun went unnoticed")
		require.Contains(t, string(out), "AddressSanitizer")
		require.Contains(t, string(out), want)
	}
}
