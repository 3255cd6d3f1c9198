//go:build unix

package smelt

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models"
)

// layered returns the shape of qwen3-0.6b with another number of layers.
func layered(tb testing.TB, layers int) *Model {
	shape, err := models.Arch("qwen3-0.6b", "q4_0")
	require.NoError(tb, err)
	c := shape.Config
	c.Layers = layers
	file, err := models.Synthetic(c, "q4_0")
	require.NoError(tb, err)
	return fromFile(fmt.Sprintf("%d layers", layers), "", file)
}

// processorTime is what the process has used of the processors: unlike the time of
// day it leaves out what others had of them.
func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compileTime is the processor time of compiling all phases, every check included:
// the least of some runs. The collector rests meanwhile, as its work is that of all which
// other tests keep.
func compileTime(tb testing.TB, layers, context int) time.Duration {
	m, best := layered(tb, layers), time.Hour
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for range 12 {
		runtime.GC()
		before := processorTime(tb)
		_, err := m.Compile(Options{Target: "metal", Level: 1, Context: context})
		require.NoError(tb, err)
		best = min(best, processorTime(tb)-before)
	}
	return best
}

// TestCompileTime bounds the time to compile and its growth, which is that of the
// layers: half as much again is allowed, and quadratic growth would be four times it.
func TestCompileTime(t *testing.T) {
	known := compileTime(t, 28, DefaultContext)
	few, some, many := compileTime(t, 32, 512), compileTime(t, 80, 512), compileTime(t, 128, 512)
	t.Logf("28 layers %v; for a short context: 32 layers %v, 80 layers %v, 128 layers %v", known, few, some, many)
	if !testfiles.UnderQEMU() {
		require.Less(t, known, 50*time.Millisecond)
		require.Less(t, some, 100*time.Millisecond)
	}
	require.Less(t, many, 4*few*3/2)
}

func BenchmarkCompile(b *testing.B) {
	for _, layers := range []int{8, 16, 28, 32, 64, 128} {
		b.Run(fmt.Sprint(layers), func(b *testing.B) {
			m := layered(b, layers)
			for b.Loop() {
				_, err := m.Compile(Options{Target: "metal", Level: 1})
				require.NoError(b, err)
			}
		})
	}
}
