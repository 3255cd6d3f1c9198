//go:build unix

package smelt

import (
	"fmt"
	"go/parser"
	"go/token"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
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

// compiled is a number of layers, the slots of their cache, and how often in a row they are
// compiled: what is compared takes about as long, since a longer time is disturbed sooner.
type compiled struct{ layers, context, times int }

// parsed has Go's own parser read a source of 20,000 functions: work of a compiler's kind,
// which tells how fast this machine is while others use it.
func parsed(tb testing.TB) {
	const function = "func f(a, b int) []int {\n\tif a < b {\n\t\treturn append([]int{a}, f(a+1, b)...)\n\t}\n\treturn nil\n}\n"
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+strings.Repeat(function, 20_000), parser.SkipObjectResolution)
	require.NoError(tb, err)
}

// quietly is what parsed takes on a Zen 5 that does nothing else, where the times that
// TestCompileTime bounds are half of their bounds.
const quietly = 57 * time.Millisecond

// compileTimes are the processor times of compiling all phases, every check included, and
// of parsed: of each the least of some runs, which take turns, so that a machine's slow
// seconds are nobody's. The collector rests meanwhile, as its work is that of all which
// other tests keep.
func compileTimes(tb testing.TB, all ...compiled) (compiles []time.Duration, parse time.Duration) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	work := append(lo.Map(all, func(c compiled, _ int) func() {
		m := layered(tb, c.layers)
		return func() {
			for range c.times {
				_, err := m.Compile(Options{Target: "metal", Level: 1, Context: c.context})
				require.NoError(tb, err)
			}
		}
	}), func() { parsed(tb) })
	least := slices.Repeat([]time.Duration{time.Hour}, len(work))
	for range 12 {
		for i, do := range work {
			runtime.GC()
			before := processorTime(tb)
			do()
			least[i] = min(least[i], processorTime(tb)-before)
		}
	}
	return least[:len(all)], least[len(all)]
}

// TestCompileTime bounds the time to compile, on a slower machine as much more as it is
// slower, and its growth, which is that of the layers: half as much again is allowed, and
// quadratic growth would be four times it.
func TestCompileTime(t *testing.T) {
	times, parse := compileTimes(t, compiled{28, compiler.DefaultContext, 1}, compiled{80, 512, 1}, compiled{32, 512, 4}, compiled{128, 512, 1})
	known, some, few, many := times[0], times[1], times[2], times[3]
	slower := max(1, float64(parse)/float64(quietly))
	t.Logf("28 layers %v; for a short context: 80 layers %v, four times 32 layers %v, 128 layers %v; Go's parser %v, slower %.2f", known, some, few, many, parse, slower)
	if !testfiles.UnderQEMU() {
		require.Less(t, known.Seconds(), 0.050*slower)
		require.Less(t, some.Seconds(), 0.100*slower)
	}
	require.Less(t, many, few*3/2)
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
