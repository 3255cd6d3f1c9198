//go:build unix

package mapped

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNoRegularFile: a FIFO without a writer and a device without an end are refused at once.
func TestNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	fifo, zero := filepath.Join(dir, "fifo"), filepath.Join(dir, "zero")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	require.NoError(t, os.Symlink("/dev/zero", zero))
	for _, path := range []string{fifo, zero} {
		_, err := ReadFile(path, 9)
		require.EqualError(t, err, "open "+path+": not a regular file")
		_, err = Open(path)
		require.EqualError(t, err, "open "+path+": not a regular file")
	}
}
