package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/lower"
)

// successor is what follows a token in the model of these tests.
func successor(id int32) int32 { return (id*5 + 3) % vocab }

// counting starts an engine of a model in which each token has one successor; after token
// 39 everything is NaN.
func counting(t *testing.T, context int, limits Limits, blocks int) *Engine {
	weights := tables(func(after, token int) float32 {
		if int32(token) == successor(int32(after)) {
			return 1
		}
		return 0
	})
	plan, program := loadFollowing(t, "cpu", func(name string, i, j int) float32 {
		if name == "embedding" && i == vocab-1 {
			return float32(math.NaN())
		}
		return weights(name, i, j)
	}, true, lower.Options{Context: context, Sequences: 4}, lower.Range{Name: "any", MinT: 1, MaxT: 12})
	e, err := New(plan, program, limits, blocks, Guessing{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// asked is what came of a request.
type asked struct {
	ids   []int32
	usage Usage
	err   error
}

// ask continues a prompt by n tokens.
func ask(ctx context.Context, e *Engine, prompt []int32, n int, look func(Row) error) asked {
	return askBy(ctx, e, Chosen, prompt, n, look)
}

func askBy(ctx context.Context, e *Engine, by Chooser, prompt []int32, n int, look func(Row) error) asked {
	return askAs(ctx, e, Request{Tokens: prompt, Chooser: by}, n, look)
}

func askAs(ctx context.Context, e *Engine, r Request, n int, look func(Row) error) asked {
	var a asked
	over := make(chan struct{})
	prompt := len(r.Tokens)
	r.Tokens = slices.Clone(r.Tokens)
	r.Next = func(row Row) (int32, bool, error) {
		if row.Length != prompt+len(a.ids) {
			return 0, false, fmt.Errorf("row after %d tokens: want %d", row.Length, prompt+len(a.ids))
		}
		id, err := row.Chosen()
		if err == nil && look != nil {
			err = look(row)
		}
		a.ids = append(a.ids, id)
		return id, len(a.ids) < n, err
	}
	r.Ended = func(u Usage, err error) {
		a.usage, a.err = u, err
		close(over)
	}
	err := e.Submit(ctx, r)
	if err != nil {
		return asked{err: err}
	}
	<-over
	return a
}

// TestEngine: requests from many goroutines each get the successors of their own tokens, and
// what goes wrong with one is its own.
func TestEngine(t *testing.T) {
	e := counting(t, 64, Limits{4, 12}, 3)
	broken := errors.New("broken")
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			prompt := []int32{int32(i % 39)}
			for range i % 7 {
				prompt = append(prompt, successor(prompt[len(prompt)-1]))
			}
			var want []int32
			last, nan := prompt[len(prompt)-1], false
			for range 1 + i%9 {
				if nan = nan || last == vocab-1; !nan {
					last = successor(last)
					want = append(want, last)
				}
			}
			a := askBy(t.Context(), e, Chooser(i%3), prompt, 1+i%9, func(row Row) error {
				if l := row.Logits(); len(l) != vocab {
					return fmt.Errorf("%d logits", len(l))
				}
				if i == 8 {
					return broken
				}
				if i%12 == 5 { // comes late
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				}
				return nil
			})
			switch {
			case i == 8:
				require.ErrorIs(t, a.err, broken)
			case nan:
				require.ErrorIs(t, a.err, ErrNaN)
				require.Equal(t, want, a.ids[:len(a.ids)-1])
			default:
				require.NoError(t, a.err)
				require.Equal(t, want, a.ids)
				require.Equal(t, len(prompt), a.usage.Prompt)
			}
		})
	}
	wait.Wait()
	require.Eventually(t, func() bool { s := e.Stats(); return s.Running+s.Waiting == 0 && s.Free == s.Blocks }, time.Minute, time.Millisecond)
	require.Positive(t, e.Stats().Steps)
}

// TestRefused: what cannot be computed is refused before anything is.
func TestRefused(t *testing.T) {
	e := counting(t, 64, Limits{2, 8}, 1)
	require.ErrorContains(t, ask(t.Context(), e, nil, 1, nil).err, "no tokens")
	require.ErrorIs(t, ask(t.Context(), e, make([]int32, 65), 1, nil).err, ErrContext)
	require.ErrorContains(t, ask(t.Context(), e, []int32{3, vocab}, 1, nil).err, "token 1 has the id 40")
	require.ErrorContains(t, ask(t.Context(), e, []int32{-1}, 1, nil).err, "token 0 has the id -1")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, ask(ended, e, []int32{1}, 1, nil).err, context.Canceled)
	full := ask(t.Context(), e, slices.Repeat([]int32{8}, 62), 99, nil) // of 64; the last need not fit
	require.ErrorIs(t, full.err, ErrContext)
	require.Len(t, full.ids, 3)

	plan, program := loadFollowing(t, "cpu", tables(func(after, token int) float32 { return 0 }), true, lower.Options{Context: 64, Sequences: 4}, lower.Range{Name: "any", MinT: 1, MaxT: 12})
	require.Equal(t, Limits{4, 12}, LimitsOf(plan))
	for limits, want := range map[Limits]string{{5, 12}: "5 sequences at once", {0, 12}: "0 sequences", {4, 13}: "steps of 13 tokens", {4, 3}: "steps of 3 tokens"} {
		_, err := New(plan, program, limits, 1, Guessing{})
		require.ErrorContains(t, err, want)
	}
	_, err := New(plan, program, Limits{4, 12}, 0, Guessing{})
	require.Error(t, err)
}

// TestCancelled: a request ends with its context, at any step, and the others go on. When
// the engine is closed all end, and nothing is left of it.
func TestCancelled(t *testing.T) {
	before := runtime.NumGoroutine()
	e := counting(t, 1<<16, Limits{2, 8}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for i := range 3 { // the third waits
		wait.Go(func() {
			require.ErrorIs(t, askBy(ctx, e, Chooser(i), []int32{0}, 1<<30, forever).err, context.Canceled)
		})
	}
	late, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	require.ErrorIs(t, ask(late, e, []int32{0}, 1<<30, forever).err, context.DeadlineExceeded)
	cancel()
	wait.Wait()
	a := ask(t.Context(), e, []int32{0}, 3, nil)
	require.NoError(t, a.err)
	require.Equal(t, []int32{3, 18, 13}, a.ids)

	for i := range 3 {
		wait.Go(func() {
			require.ErrorIs(t, askBy(t.Context(), e, Chooser(i), []int32{0}, 1<<30, forever).err, device.ErrClosed)
		})
	}
	require.Eventually(t, func() bool { return e.Stats().Running == 2 }, time.Minute, time.Millisecond)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	wait.Wait()
	require.ErrorIs(t, ask(t.Context(), e, []int32{1}, 1, nil).err, device.ErrClosed)
	gone(t, before)
}

// forever makes a request take its time.
func forever(Row) error {
	time.Sleep(100 * time.Microsecond)
	return nil
}

// TestDeviceIsGone: where steps fail, requests end with the reason.
func TestDeviceIsGone(t *testing.T) {
	e := counting(t, 64, Limits{2, 8}, 2)
	require.NoError(t, e.Instance().Close())
	for range 3 {
		require.ErrorIs(t, ask(t.Context(), e, []int32{1, 2}, 4, nil).err, device.ErrClosed)
	}
}

// TestSlowChooser: who chooses slowly, or never, is waited for a little. The others go on, and
// it has the row that it was given, whatever the device computes meanwhile.
func TestSlowChooser(t *testing.T) {
	e := counting(t, 1<<16, Limits{3, 8}, 8)
	const others = 200
	begun, release := make(chan struct{}), make(chan struct{})
	steps := make(chan int64, 1)
	var wait sync.WaitGroup
	wait.Go(func() {
		seen := 0
		a := askBy(t.Context(), e, Outside, []int32{0}, 3, func(row Row) error {
			if seen++; seen == 2 {
				was := slices.Clone(row.Logits())
				close(begun)
				<-release
				if !slices.Equal(was, row.Logits()) {
					return errors.New("the row has changed")
				}
				id, err := Greedy(row.Logits())
				if chosen, _ := row.Chosen(); err != nil || id != chosen {
					return fmt.Errorf("the device has chosen %d of the row of %d: %w", chosen, id, err)
				}
				row.Logits()[0] = 1 // nobody's but its own
			}
			return nil
		})
		require.NoError(t, a.err)
		require.Equal(t, []int32{3, 18, 13}, a.ids)
		steps <- e.Stats().Steps
	})
	<-begun
	for range 2 {
		wait.Go(func() {
			a := ask(t.Context(), e, []int32{0}, others, nil)
			require.NoError(t, a.err)
			require.Len(t, a.ids, others)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var never sync.WaitGroup
	stuck := make(chan struct{})
	unstick := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(unstick) // before the engine is closed, which waits
	never.Go(func() {
		a := askBy(ctx, e, Outside, []int32{0}, 3, func(Row) error { <-stuck; return nil })
		require.ErrorIs(t, a.err, context.Canceled)
	})
	require.Eventually(t, func() bool { return e.Stats().Steps > others }, time.Minute, time.Millisecond)
	cancel() // it ends when its chooser comes back
	close(release)
	wait.Wait()
	require.Greater(t, <-steps, int64(others))
	require.Eventually(t, func() bool { s := e.Stats(); return s.Running == 0 && s.Free == 8 }, time.Minute, time.Millisecond)
	unstick()
	never.Wait()
}

// TestSampledAtOnce: the rows of a step are chosen among at the same time.
func TestSampledAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // even where there is one processor
	e := counting(t, 64, Limits{2, 8}, 2)
	var inside atomic.Int32
	var met atomic.Bool
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			a := askBy(t.Context(), e, Sampled, []int32{0}, 40, func(row Row) error {
				inside.Add(1)
				for start := time.Now(); !met.Load() && time.Since(start) < 100*time.Millisecond; time.Sleep(10 * time.Microsecond) {
					if inside.Load() == 2 {
						met.Store(true)
					}
				}
				inside.Add(-1)
				return nil
			})
			require.NoError(t, a.err)
		})
	}
	wait.Wait()
	require.True(t, met.Load())
}

// TestStepsAllocateNothing: neither do those who choose among rows, but for their own.
func TestStepsAllocateNothing(t *testing.T) {
	e := counting(t, 1<<16, Limits{4, 12}, 8)
	const warm, most = 1000, 6000
	var from, to runtime.MemStats
	var first, last int64
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			n := 0
			over := make(chan struct{})
			ids := make([]int32, 1, most+2)
			err := e.Submit(t.Context(), Request{
				Tokens: ids, Chooser: Chooser(i % 3),
				Next: func(row Row) (int32, bool, error) {
					n++
					if i == 0 && n == warm {
						runtime.ReadMemStats(&from)
						first = e.Stats().Steps
					}
					if i == 0 && n == most-warm {
						runtime.ReadMemStats(&to)
						last = e.Stats().Steps
					}
					id, err := row.Chosen()
					return id, n < most, err
				},
				Ended: func(_ Usage, err error) {
					require.NoError(t, err)
					close(over)
				},
			})
			require.NoError(t, err)
			<-over
		})
	}
	wait.Wait()
	steps, allocations := last-first, to.Mallocs-from.Mallocs
	t.Logf("%d allocations in %d steps", allocations, steps)
	require.GreaterOrEqual(t, steps, int64(most-2*warm-1))
	require.Less(t, allocations, uint64(steps)/20, "what histories need, and the runtime itself")
}

// TestFailedStep: those that run end with the reason, and who waits goes on.
func TestFailedStep(t *testing.T) {
	e := counting(t, 256, Limits{2, 8}, 4)
	prompt := slices.Repeat([]int32{8}, 66)
	plan := e.runner.plan
	failing := func(row Row) error {
		if row.Length == 68 {
			none := *plan
			none.Phases = nil
			e.runner.plan = &none
		}
		return nil
	}
	waits := make(chan asked)
	begun := make(chan struct{})
	over := make(chan struct{})
	require.NoError(t, e.Submit(t.Context(), Request{
		Tokens: slices.Clone(prompt),
		Next: func(row Row) (int32, bool, error) {
			if row.Length == 66 {
				close(begun)
				for e.Stats().Waiting < 3 { // which those two are that come next
					time.Sleep(time.Millisecond)
				}
			}
			id, err := row.Chosen()
			return id, true, errors.Join(err, failing(row))
		},
		Ended: func(_ Usage, err error) {
			require.ErrorContains(t, err, "no phase")
			e.runner.plan = plan
			close(over)
		},
	}))
	<-begun
	for range 3 {
		go func() { waits <- ask(t.Context(), e, append(slices.Clone(prompt), 1, 2), 3, nil) }()
	}
	<-over
	failed := 0
	for range 3 {
		if a := <-waits; a.err != nil { // ran beside it
			require.ErrorContains(t, a.err, "no phase")
			failed++
		} else {
			require.Equal(t, []int32{13, 28, 23}, a.ids)
		}
	}
	require.Equal(t, 1, failed)
	require.Eventually(t, func() bool { return e.Stats().Free == 4 }, time.Minute, time.Millisecond)
}

// gone waits until no more goroutines run than before.
func gone(t *testing.T, before int) {
	for start := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(start), time.Minute, "%d goroutines, of %d", runtime.NumGoroutine(), before)
	}
}
