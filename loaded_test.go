package smelt_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// TestManySessions runs sixteen sequences on one copy of the weights at once: each has
// the bits that it has alone, and costs no more than its cache and its arena.
func TestManySessions(t *testing.T) {
	const sessions, steps = 16, 6
	for on := range fixture.Bounds {
		t.Run(on, func(t *testing.T) {
			opts := fixture.Options(t, on, dtype.F16)
			opts.Context = 64
			l := fixture.Load(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"), opts, smelt.Device{Name: on, Threads: 2})
			run := func(s *smelt.Session, i int) (rows [][]float32, err error) {
				ids := make([]int32, 1+3*i%20) // prompts of different lengths
				for k := range ids {
					ids[k] = int32(7*i + 3*k)
				}
				for range steps {
					logits, err := s.Feed(t.Context(), ids)
					if err != nil {
						return nil, err
					}
					rows = append(rows, slices.Clone(logits))
					next, err := smelt.Greedy(logits)
					if err != nil {
						return nil, err
					}
					ids = []int32{next}
				}
				return rows, nil
			}
			var alone [sessions][][]float32
			for i := range sessions {
				s, err := l.NewSession()
				require.NoError(t, err)
				alone[i], err = run(s, i)
				require.NoError(t, err)
				require.NoError(t, s.Close())
			}
			weights := l.OnDevice().Memory()
			var wait sync.WaitGroup
			var together [sessions][][]float32
			var failed [sessions]error
			for i := range sessions {
				s, err := l.NewSession()
				require.NoError(t, err)
				wait.Go(func() { together[i], failed[i] = run(s, i) })
			}
			wait.Wait()
			for i := range sessions {
				require.NoError(t, failed[i])
				require.Equal(t, alone[i], together[i], "session %d", i)
			}
			require.Equal(t, weights, l.OnDevice().Memory(), "weights are bound, converted and rearranged once")
		})
	}
}

// TestMemory holds what is said of a session to what the device allocates for one: where
// there is memory for the weights' copies and three sessions, a fourth finds none, and
// finds some when one is closed.
func TestMemory(t *testing.T) {
	const sessions = 3
	for on := range fixture.Bounds {
		for _, block := range []int{0, 16} {
			opts := fixture.Options(t, on, dtype.F16)
			opts.Context, opts.Block = 96, block
			path := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
			l := fixture.Load(t, path, opts, smelt.Device{Name: on})
			said, weights := l.Memory(), l.OnDevice().Memory()
			require.Equal(t, said.Weights, weights.Weights)
			limit := weights.Converted + weights.Rearranged + sessions*(said.Cache+said.Arena+said.Inputs+said.Outputs)
			l = fixture.Load(t, path, opts, smelt.Device{Name: on, Options: device.Options{MemoryLimit: limit}})
			var last *smelt.Session
			for range sessions {
				s, err := l.NewSession()
				require.NoError(t, err)
				has := s.OnDevice().Memory()
				require.Equal(t, said.Cache+said.Arena+said.Inputs+said.Outputs, has.Cache+has.Arena+has.Inputs+has.Outputs)
				last = s
			}
			_, err := l.NewSession()
			var memory *device.MemoryError
			require.ErrorAs(t, err, &memory)
			require.NoError(t, last.Close())
			_, err = l.NewSession()
			require.NoError(t, err)
		}
	}
}

// TestClose closes what belongs together in every order: nothing breaks, and what is used
// afterwards says so.
func TestClose(t *testing.T) {
	names := []string{"model", "loaded", "session"}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(names[order[0]], names[order[1]], names[order[2]]), func(t *testing.T) {
			m, err := smelt.Open(testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"), "")
			require.NoError(t, err)
			p, err := m.Compile(smelt.Options{Target: "cpu", Level: 1, Context: 32})
			require.NoError(t, err)
			l, err := p.Load(smelt.Device{Name: "cpu"})
			require.NoError(t, err)
			s, err := l.NewSession()
			require.NoError(t, err)
			closes := []func() error{m.Close, l.Close, s.Close}
			closed := map[int]bool{}
			for _, i := range order {
				require.NoError(t, closes[i]())
				require.NoError(t, closes[i](), "twice does no harm")
				closed[i] = true
				_, err := s.Feed(t.Context(), []int32{1, 2, 3})
				if closed[1] || closed[2] {
					require.ErrorIs(t, err, smelt.ErrClosed)
				} else {
					require.NoError(t, err, "the weights stay as long as somebody runs")
				}
				s.Reset()
				if closed[1] {
					_, err = l.NewSession()
					require.ErrorIs(t, err, smelt.ErrClosed)
				}
				if closed[0] {
					_, err = p.Load(smelt.Device{Name: "cpu"})
					require.ErrorIs(t, err, smelt.ErrClosed)
					_, err = m.Compile(smelt.Options{Target: "cpu"})
					require.ErrorIs(t, err, smelt.ErrClosed)
				}
			}
		})
	}
}

// TestLoadFails: a device that cannot be opened keeps nothing of the model.
func TestLoadFails(t *testing.T) {
	m, err := smelt.Open(testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"), "")
	require.NoError(t, err)
	p, err := m.Compile(smelt.Options{Target: "cpu", Level: 1, Context: 32})
	require.NoError(t, err)
	_, err = p.Load(smelt.Device{Name: "cpu", Options: device.Options{MemoryLimit: 1}})
	var memory *device.MemoryError
	require.ErrorAs(t, err, &memory)
	_, err = p.Load(smelt.Device{Name: "gpu"})
	require.ErrorIs(t, err, device.ErrDevice)
	require.NoError(t, m.Close())
}
