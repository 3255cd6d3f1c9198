//go:build asan

package emulated_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
)

// AddressSanitizer ends the process, so each overrun runs in its own.
func TestOverrunsNameTheSource(t *testing.T) {
	if mode := os.Getenv("SMELT_TEST_OVERRUN"); mode != "" {
		n, err := strconv.Atoi(mode)
		require.NoError(t, err)
		require.NoError(t, library.Run(emulated.Launch{
			Kernel: "overrun", Buffers: [][]byte{make([]byte, 60*4), words(n)}, Group: [3]uint32{60},
		}, emulated.Options{}))
		return
	}
	const file = "kernels/emulated/testdata/wrong.metal"
	source, err := os.ReadFile(filepath.Join(root(t), file))
	require.NoError(t, err)
	for mode, statement := range []string{"", "out[i + 1] = s[i];", "out[i] = s[i + 1 + (64 - n)];"} {
		before, _, found := strings.Cut(string(source), statement)
		require.True(t, found)
		want := fmt.Sprintf("%s:%d", file, strings.Count(before, "\n")+1)
		cmd := exec.Command(os.Args[0], "-test.run=^TestOverrunsNameTheSource$")
		cmd.Env = append(os.Environ(), "SMELT_TEST_OVERRUN="+strconv.Itoa(mode))
		out, err := cmd.CombinedOutput()
		if mode == 0 {
			require.NoError(t, err, string(out))
			continue
		}
		require.Error(t, err, "an overrun went unnoticed")
		require.Contains(t, string(out), "AddressSanitizer")
		require.Contains(t, string(out), want)
	}
}
