package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStart holds down what every verb pays before it does anything: what packages
// make when they are initialised. Bytes are counted, which do not depend on what else
// the machine does; a library that compiles or parses something takes megabytes.
func TestStart(t *testing.T) {
	const most = 2 << 20 // of the whole program

	self, err := os.Executable()
	require.NoError(t, err)
	smelt := filepath.Join(t.TempDir(), "smelt") // TestMain goes by the name
	require.NoError(t, os.Symlink(self, smelt))
	cmd := exec.Command(smelt, "--help")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	require.NoError(t, cmd.Run(), trace.String())

	total, packages := 0, 0
	for lines := bufio.NewScanner(&trace); lines.Scan(); {
		// init internal/bytealg @0.008 ms, 0 ms clock, 0 bytes, 0 allocs
		if !strings.HasPrefix(lines.Text(), "init ") {
			continue
		}
		var name string
		var at, clock float64
		var size, allocations int
		_, err := fmt.Sscanf(lines.Text(), "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &name, &at, &clock, &size, &allocations)
		require.NoError(t, err, lines.Text())
		require.Less(t, size, 1<<20, "%s takes %.1f ms and %d bytes when it is initialised: leave that to whoever needs it", name, clock, size)
		total += size
		packages++
	}
	require.Greater(t, packages, 10)
	require.Less(t, total, most)
}
