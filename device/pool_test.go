//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/lower/plan"
)

func emptySketch(dispatches int, groups int64) *sketch {
	s := newSketch(1)
	s.input("tokens", perToken)
	for range dispatches {
		s.run("empty", nil).Grid[0] = plan.Number(groups)
	}
	return s
}

// Threads that have nothing to do sleep.
func TestIdleThreadsSleep(t *testing.T) {
	instance := emptySketch(10, 64).start(t, "emu", device.Options{Threads: 4})
	step := device.Step{Sizes: sizes(1), Inputs: map[string][]int32{"tokens": {0}}}
	require.NoError(t, instance.Run(t.Context(), &step))
	time.Sleep(20 * time.Millisecond)
	used := func() time.Duration {
		var u unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	time.Sleep(300 * time.Millisecond)
	require.Less(t, used()-before, 60*time.Millisecond, "of 300 ms")
}

// Many steps with pauses of every length around the time that workers spin.
func TestStepsWithPauses(t *testing.T) {
	s := sumSketch(600, 4)
	instance := s.start(t, "emu", device.Options{Threads: 3})
	out := make([]float32, 600)
	step := device.Step{Sizes: sizes(600), Inputs: map[string][]int32{"tokens": make([]int32, 600)}, Outputs: map[string][]float32{"sums": out}}
	for i := range 300 {
		clear(out)
		require.NoError(t, instance.Run(t.Context(), &step))
		require.Equal(t, float32(4), out[599])
		for end := time.Now().Add(time.Duration(i) * 8 * time.Microsecond); time.Now().Before(end); {
		}
	}
}

// What one dispatch costs beside its kernel: empty kernels, each after a barrier.
func BenchmarkDispatch(b *testing.B) {
	const dispatches = 1000
	for _, threads := range []int{1, 2} {
		for _, groups := range []int64{1, 64} {
			b.Run(fmt.Sprintf("threads=%d/groups=%d", threads, groups), func(b *testing.B) {
				instance := emptySketch(dispatches, groups).start(b, "emu", device.Options{Threads: threads})
				step := device.Step{Sizes: sizes(1), Inputs: map[string][]int32{"tokens": {0}}}
				for b.Loop() {
					if err := instance.Run(b.Context(), &step); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/dispatches, "ns/dispatch")
			})
		}
	}
}

// Independent small dispatches: how much a run without barriers gains over one
// with a barrier before each.
func BenchmarkOverlap(b *testing.B) {
	for _, barriers := range []bool{true, false} {
		b.Run(fmt.Sprintf("barriers=%t", barriers), func(b *testing.B) {
			s := newSketch(2048)
			for range 64 {
				s.fill(1, s.value()).Barrier = barriers
			}
			instance := s.start(b, "emu", device.Options{Threads: 2})
			step := device.Step{Sizes: sizes(2048)}
			for b.Loop() {
				if err := instance.Run(b.Context(), &step); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
