package emulated_test

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
)

// An OS thread that ends frees the stacks of its fibres.
func TestThreadsGiveTheirMemoryBack(t *testing.T) {
	size := func() int {
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Skip("no /proc")
		}
		pages := 0
		_, err = fmt.Sscan(string(b), &pages)
		require.NoError(t, err)
		return pages * os.Getpagesize()
	}
	const n = 64
	round := func() {
		for range n {
			var wg sync.WaitGroup
			wg.Go(func() {
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				l := emulated.Launch{Kernel: "reverse", Buffers: [][]byte{make([]byte, 256), make([]byte, 256)}, Group: [3]uint32{64}}
				if err := library.Run(l, emulated.Options{}); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
		}
	}
	round()
	before := size()
	round()
	require.Less(t, size()-before, n/2*(128<<20))
}
