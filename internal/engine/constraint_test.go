package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/lower"
)

// jumps is a constraint that forces tokens which the model would not choose, is ready at times, and
// guesses right and wrong.
type jumps struct {
	*rand.Rand
	tokens  []int32 // of the sequence
	forced  []int32 // behind the last that was chosen
	jumped  int     // how many were forced
	unready int     // how often it was not ready
	denied  int     // how many guesses were
}

func (j *jumps) Prepare() {}
func (j *jumps) Ready() bool {
	ready := j.IntN(4) > 0
	if !ready {
		j.unready++
	}
	return ready
}
func (j *jumps) Known() bool     { return j.IntN(4) > 0 }
func (j *jumps) Forced() []int32 { return j.forced }

func (j *jumps) Guess(dst []int32, most int) []int32 {
	last := j.tokens[len(j.tokens)-1]
	for range min(most, j.IntN(4)) {
		if last = safe(successor(last)); j.IntN(5) == 0 {
			last = int32(j.IntN(vocab - 1))
		}
		dst = append(dst, last)
	}
	return dst
}

func (j *jumps) Allows(tokens []int32) int {
	n := len(tokens) / 2
	j.denied += len(tokens) - n
	return n
}

func (j *jumps) Limit([]Proposal, []float32) (bool, error) { return true, nil }

// safe is a token with something to follow it.
func safe(id int32) int32 {
	if id == vocab-1 {
		return 0
	}
	return id
}

// next chooses what follows row, and what is forced after that.
func (j *jumps) next(row Row, n int) (int32, bool, error) {
	if row.Length != len(j.tokens) {
		return 0, false, fmt.Errorf("a row after %d tokens: want %d", row.Length, len(j.tokens))
	}
	id, err := row.Chosen()
	if want := successor(j.tokens[len(j.tokens)-1]); err == nil && id != want {
		err = fmt.Errorf("after %v: %d, want %d", j.tokens, id, want)
	}
	if row.Logits()[id] != 1 {
		err = fmt.Errorf("after %d tokens the logits are of another row", row.Length)
	}
	id = safe(id)
	j.tokens, j.forced = append(j.tokens, id), nil
	for range j.IntN(6) - 2 {
		j.forced = append(j.forced, int32(j.IntN(vocab-1)))
	}
	j.tokens = append(j.tokens, j.forced...)
	j.jumped += len(j.forced)
	return id, len(j.tokens) < n, err
}

// TestConstraints: what is forced takes no row, and what follows it is what follows it; those that
// are not ready are waited for by nobody, and guesses are those that the constraint allows.
func TestConstraints(t *testing.T) {
	weights := tables(func(after, token int) float32 {
		if int32(token) == successor(int32(after)) {
			return 1
		}
		return 0
	})
	for name, g := range map[string]Guessing{"plain": {}, "with guesses": {Lookup: true, Choose: Eagerly}} {
		t.Run(name, func(t *testing.T) {
			options := lower.Options{Context: 256, Sequences: 4, Rows: 12}
			plan, program := loadFollowing(t, "cpu", weights, true, options, lower.Range{Name: "any", MinT: 1, MaxT: 12})
			if g.Lookup {
				g.Rows = GuessesOf(plan, 4)
			}
			e, err := New(plan, program, Limits{4, 12}, 6, g)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			rows := 0
			e.Observe(func(r Ran) { rows += r.Rows - r.Drafted })
			var mu sync.Mutex
			var wait sync.WaitGroup
			var all jumps
			generated := 0
			for i := range 40 {
				wait.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), 7))
					j := &jumps{Rand: r, tokens: []int32{int32(r.IntN(vocab - 1)), int32(r.IntN(vocab - 1))}}
					over := make(chan struct{})
					n := 20 + r.IntN(160)
					var failed error
					require.NoError(t, e.Submit(t.Context(), Request{
						Tokens: slices.Clone(j.tokens), Chooser: Sampled, Constraint: j,
						Next: func(row Row) (int32, bool, error) { return j.next(row, n) },
						Ended: func(_ Usage, err error) {
							failed = err
							close(over)
						},
					}))
					<-over
					require.NoError(t, failed)
					mu.Lock()
					defer mu.Unlock()
					all.jumped, all.unready, all.denied, generated = all.jumped+j.jumped, all.unready+j.unready, all.denied+j.denied, generated+len(j.tokens)-2
				})
			}
			wait.Wait()
			require.Eventually(t, func() bool { s := e.Stats(); return s.Running+s.Waiting == 0 && s.Free == s.Blocks }, time.Minute, time.Millisecond)
			s := e.Stats()
			require.NoError(t, e.Close())
			t.Logf("%d tokens, %d of them forced, %d rows; %d times unready, %d guesses denied, %d of %d right", generated, all.jumped, rows, all.unready, all.denied, s.Accepted, s.Drafted)
			require.Positive(t, all.jumped)
			require.Positive(t, all.unready)
			if !g.Lookup {
				require.Equal(t, generated-all.jumped, rows)
				return
			}
			require.Positive(t, s.Accepted)
			require.Positive(t, all.denied)
		})
	}
}
