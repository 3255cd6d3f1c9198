//go:build cgo && (linux || darwin)

package mapped

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCut: a file that is shortened reads as zeros where it ends now, in any number of threads, and
// stays marked when it has grown again. Views beside it, and faults elsewhere, are as before.
func TestCut(t *testing.T) {
	page := os.Getpagesize()
	open := func() (*File, string) {
		path := filepath.Join(t.TempDir(), "f")
		content := make([]byte, 8*page-100)
		for i := range content {
			content[i] = 1
		}
		require.NoError(t, os.WriteFile(path, content, 0o600))
		f, err := Open(path)
		require.NoError(t, err)
		require.NoError(t, f.Intact())
		return f, path
	}
	f, path := open()
	beside, _ := open()
	sum := func(b []byte) (n int) {
		for _, x := range b {
			n += int(x)
		}
		return n
	}
	require.NoError(t, os.Truncate(path, int64(3*page)))
	var readers sync.WaitGroup
	for i := range 8 {
		readers.Go(func() {
			if i < 3 {
				require.Equal(t, page, sum(f.Bytes()[i*page:][:page]))
			} else {
				require.Zero(t, sum(f.Bytes()[i*page:min(len(f.Bytes()), (i+1)*page)]))
			}
		})
	}
	readers.Wait()
	require.ErrorIs(t, f.Intact(), ErrCut)
	require.ErrorContains(t, f.Intact(), path)
	require.NoError(t, os.Truncate(path, int64(8*page)))
	require.ErrorIs(t, f.Intact(), ErrCut)
	require.NoError(t, beside.Intact())
	require.Equal(t, 8*page-100, sum(beside.Bytes()))

	require.NoError(t, f.Close())
	again, path := open() // takes the place of f's record
	require.NoError(t, os.Truncate(path, int64(8*page-101)))
	require.ErrorIs(t, again.Intact(), ErrCut, "a byte, which causes no fault")
	require.NoError(t, again.Close())
	require.NoError(t, again.Intact())
	require.NoError(t, beside.Close())

	g, path := open()
	g.watch.end()
	require.NoError(t, os.Truncate(path, 0))
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	require.Panics(t, func() { require.Zero(t, sum(g.Bytes())) }, "Go's handler has the fault of a view that is not watched")
}
