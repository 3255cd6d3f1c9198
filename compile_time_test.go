//go:build unix

package smelt

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// layered returns the shape of qwen3-0.6b with another number of layers.
func layered(tb testing.TB, layers int) *Model {
	shape, err := checkpoint.Arch("qwen3-0.6b", "q4_0")
	require.NoError(tb, err)
	c := shape.Config
	c.Layers = layers
	file, err := checkpoint.Synthetic(c, "q4_0")
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

// compiled is a number of layers and the slots of their cache.
type compiled struct{ layers, context int }

// compileTimes are the processor times of compiling all phases, every check included: of
// each the least of some runs, which take turns, so that a machine's slow seconds are
// nobody's. The collector rests meanwhile, as its work is that of all which other tests keep.
func compileTimes(tb testing.TB, all ...compiled) []time.Duration {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := slices.Repeat([]time.Duration{time.Hour}, len(all))
	models := lo.Map(all, func(c compiled, _ int) *Model { return layered(tb, c.layers) })
	for range 12 {
		for i, c := range all {
			runtime.GC()
			before := processorTime(tb)
			_, err := models[i].Compile(Options{Target: "metal", Level: 1, Context: c.context})
			require.NoError(tb, err)
			least[i] = min(least[i], processorTime(tb)-before)
		}
	}
	return least
}

// TestCompileTime bounds the time to compile and its growth, which is that of the
// layers: half as much again is allowed, and quadratic growth would be four times it.
func TestCompileTime(t *testing.T) {
	times := compileTimes(t, compiled{28, compiler.DefaultContext}, compiled{32, 512}, compiled{80, 512}, compiled{128, 512})
	known, few, some, many := times[0], times[1], times[2], times[3]
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
