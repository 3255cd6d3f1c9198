package serve

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/openai"
)

// books are models on a shelf that hold nothing, and see whether the shelf keeps its laws.
type books struct {
	t     *testing.T
	shelf *shelf
	held  atomic.Int64 // bytes
	fails atomic.Bool
	took  time.Duration // a load
}

func newBooks(t *testing.T, bound int64) *books {
	return &books{t: t, shelf: &shelf{bound: bound}, took: time.Millisecond}
}

// add puts a model of known size on the shelf.
func (b *books) add(name string, bytes int64) *entry {
	p := &entry{name: name, waiters: 1000, bytes: bytes}
	p.load = func() (*openai.Model, Resident, error) {
		if held := b.held.Add(bytes); held > b.shelf.bound {
			b.t.Errorf("%d bytes are held, of %d", held, b.shelf.bound)
		}
		time.Sleep(b.took)
		if b.fails.Load() && rand.IntN(3) == 0 {
			b.held.Add(-bytes)
			return nil, Resident{}, errors.New("a file is gone")
		}
		m := &openai.Model{ID: name}
		return m, Resident{Memory: bytes, Close: func() error {
			time.Sleep(b.took)
			m.ID = "" // nobody may have it any more
			b.held.Add(-bytes)
			return nil
		}}, nil
	}
	b.shelf.add(p)
	return p
}

// use takes a model for a while.
func (b *books) use(ctx context.Context, p *entry, lasts time.Duration) error {
	m, release, err := b.shelf.take(ctx, p)
	if err != nil {
		return err
	}
	defer release()
	for range 3 {
		if m.ID != p.name {
			b.t.Errorf("%q is no longer what it was", p.name)
		}
		time.Sleep(lasts / 3)
	}
	return nil
}

// TestShelf: whatever is asked for by whom, and whoever goes, the bound is kept, who has a model
// keeps it, who waits gets it, and nothing is left.
func TestShelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for round := range 20 {
			b := newBooks(t, 10)
			b.fails.Store(round%2 == 1)
			entries := []*entry{b.add("a", 3), b.add("b", 4), b.add("c", 6), b.add("d", 10)}
			var all sync.WaitGroup
			var served atomic.Int64
			for range 12 {
				all.Go(func() {
					for range 40 {
						ctx, cancel := context.WithCancel(t.Context())
						gone := rand.IntN(4) == 0
						if gone {
							time.AfterFunc(time.Duration(rand.IntN(4000))*time.Microsecond, cancel)
						}
						err := b.use(ctx, entries[rand.IntN(len(entries))], time.Duration(rand.IntN(3000))*time.Microsecond)
						cancel()
						var told *openai.Error
						switch {
						case err == nil:
							served.Add(1)
						case gone && errors.Is(err, context.Canceled), b.fails.Load() && errors.As(err, &told) && told.Code == "model_not_loaded":
						default:
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			require.Greater(t, served.Load(), int64(50))
			b.shelf.mu.Lock()
			require.Empty(t, b.shelf.queue)
			b.shelf.mu.Unlock()
			b.shelf.close()
			require.Zero(t, b.held.Load())
			require.Zero(t, b.shelf.used)
			_, _, err := b.shelf.take(t.Context(), entries[0])
			require.ErrorAs(t, err, new(*openai.Error))
		}
	})
}

// TestLongestUnused: the model that was not used for the longest makes room, and no more go than
// have to.
func TestLongestUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks(t, 10)
		a, c, d, e := b.add("a", 3), b.add("c", 3), b.add("d", 3), b.add("e", 4)
		for _, p := range []*entry{a, c, d, a, d, e} {
			require.NoError(t, b.use(t.Context(), p, time.Millisecond))
		}
		states := func() (list []entryState) {
			for _, p := range b.shelf.entries {
				list = append(list, p.state)
			}
			return list
		}
		require.Equal(t, []entryState{ready, away, ready, ready}, states())
		require.Equal(t, []int64{0, 1, 0, 0}, []int64{a.evictions, c.evictions, d.evictions, e.evictions})

		// One in use stays, though it is the one that was used longest ago.
		m, release, err := b.shelf.take(t.Context(), a)
		require.NoError(t, err)
		require.NoError(t, b.use(t.Context(), d, 0))
		require.NoError(t, b.use(t.Context(), e, 0))
		require.NoError(t, b.use(t.Context(), c, 0))
		require.Equal(t, []entryState{ready, ready, away, ready}, states())
		require.Equal(t, "a", m.ID)
		release()
		b.shelf.close()
	})
}

// TestTurns: a model that is always in use is put away for one that others wait for, after the
// requests that have begun; those that come later wait behind them.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks(t, 10)
		busy, other, beside := b.add("busy", 6), b.add("other", 5), b.add("beside", 3)
		require.NoError(t, b.use(t.Context(), beside, 0))
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var turns, besides atomic.Int64
		for i := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for b.use(ctx, busy, 10*time.Millisecond) == nil {
					turns.Add(1)
				}
			})
		}
		all.Go(func() {
			for b.use(ctx, beside, time.Millisecond) == nil {
				besides.Add(1)
			}
		})
		time.Sleep(100 * time.Millisecond)
		for range 5 {
			before, others := turns.Load(), besides.Load()
			began := time.Now()
			require.NoError(t, b.use(t.Context(), other, 0))
			require.LessOrEqual(t, turns.Load()-before, int64(3), "what had begun")
			require.LessOrEqual(t, time.Since(began), 15*time.Millisecond)
			require.Greater(t, besides.Load(), others, "what need not make room goes on")
			time.Sleep(50 * time.Millisecond)
			require.Greater(t, turns.Load()-before, int64(3), "the busy one comes back")
		}
		// Who waited and is gone makes no room.
		gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		loads := busy.loads
		require.ErrorIs(t, b.use(gone, other, 0), context.DeadlineExceeded)
		time.Sleep(50 * time.Millisecond)
		require.Equal(t, loads, busy.loads)
		stop()
		all.Wait()
		b.shelf.close()
		require.Zero(t, b.held.Load())
	})
}

// TestShelfFull: as many wait as may, and the next one is told to come again.
func TestShelfFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks(t, 10)
		p := b.add("a", 10)
		p.waiters = 2
		var all sync.WaitGroup
		var refused atomic.Int64
		for range 5 {
			all.Go(func() {
				var told *openai.Error
				if err := b.use(t.Context(), p, 0); errors.As(err, &told) && told.Code == "queue_full" {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.Equal(t, int64(3), refused.Load())
		b.shelf.close()
	})
}

// TestCloseWhileLoading: what is being loaded is waited for and closed; who waits is told.
func TestCloseWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks(t, 10)
		b.took = time.Second
		p, q := b.add("a", 6), b.add("b", 6)
		var all sync.WaitGroup
		for _, of := range []*entry{p, p, q} {
			all.Go(func() {
				var told *openai.Error
				if err := b.use(t.Context(), of, 0); !errors.As(err, &told) || told.Code != "shutting_down" {
					t.Error(err)
				}
			})
		}
		time.Sleep(b.took / 2)
		require.Equal(t, int64(6), b.held.Load())
		b.shelf.close()
		all.Wait()
		require.Zero(t, b.held.Load())
	})
}

// TestGrown: a model that takes more than it did is not let in.
func TestGrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks(t, 10)
		p, q := b.add("a", 4), b.add("b", 10)
		p.bytes = 3
		var told *openai.Error
		require.ErrorAs(t, b.use(t.Context(), p, 0), &told)
		require.Equal(t, "model_not_loaded", told.Code)
		require.ErrorIs(t, p.failed, ErrMemory)
		require.NoError(t, b.use(t.Context(), q, 0))
		b.shelf.close()
	})
}
