// Package parallel measures the speed of an engine that generates for several sequences at once,
// for smelt bench --parallel and for the comparison with llama.cpp.
//
// Only steps that hold one token of each sequence and nothing else are timed. Prompts are
// prefilled before the clock starts, in chunks beside tokens of the sequences that already
// generate, so sequences differ in length by the number of these steps when it starts; [Context]
// reserves room for them.
package parallel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
)

// Context returns the tokens per sequence that the cache must hold to time n tokens after
// prompts of the given length.
func Context(sequences, prompt, n int) int { return prompt + n + ahead(sequences, prompt) }

// ahead bounds the tokens that the first sequence generates before all sequences do: one per
// chunk of the others' prompts, and some until all requests have arrived.
func ahead(sequences, prompt int) int {
	return sequences*prompt/(compiler.DefaultPrefill-min(sequences, compiler.DefaultPrefill/2)) + sequences + 20
}

// Options returns the options of a program for the given number and lengths of sequences, with
// one row of logits each.
func Options(o smelt.Options, sequences, prompt, n int) smelt.Options {
	o.Context, o.Sequences, o.Block, o.Rows = Context(sequences, prompt, n), sequences, compiler.DefaultBlock, 1
	o.Prefill = max(o.Prefill, 2*sequences)
	return o
}

// Prompts returns random prompts of n tokens each.
func Prompts(rng *rand.Rand, sequences, n, vocab int) [][]int32 {
	prompts := make([][]int32, sequences)
	for i := range prompts {
		prompts[i] = make([]int32, n)
		for k := range prompts[i] {
			prompts[i][k] = int32(rng.IntN(vocab))
		}
	}
	return prompts
}

// Clock times the steps of an engine. It must be that engine's metrics.
type Clock struct {
	mu        sync.Mutex
	sequences int // of a step that is timed; 0: no step is timed
	waiting   int // sequences whose first token is outstanding; no step is timed before 0
	left      int // steps left to time; the first timed step starts the clock
	start     time.Time
	elapsed   time.Duration
	measured  func()
}

// Stepped counts a step that holds one token of each sequence and nothing else. It waits for the
// first tokens, because such a step of an earlier measurement may still be running.
func (c *Clock) Stepped(s smelt.EngineStep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sequences == 0 || c.waiting > 0 || s.Tokens != c.sequences || s.Rows != c.sequences {
		return
	}
	now := time.Now()
	if c.start.IsZero() {
		c.start = now
	} else if c.left--; c.left == 0 {
		c.elapsed, c.sequences = now.Sub(c.start), 0
		c.measured()
	}
}

// FirstToken records that one more sequence generates.
func (c *Clock) FirstToken(time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
}

// NextToken does nothing: only steps are timed.
func (c *Clock) NextToken(time.Duration) {}

// Ended does nothing: only steps are timed.
func (c *Clock) Ended(smelt.Usage, error) {}

// begin makes the clock wait until the given number of sequences generate, and then time n of
// their steps.
func (c *Clock) begin(sequences, n int, measured func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences, c.waiting, c.left = sequences, sequences, n
	c.start, c.elapsed, c.measured = time.Time{}, 0, measured
}

// end stops the clock and returns the time of the n steps, 0 if they did not complete.
func (c *Clock) end() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences = 0
	return c.elapsed
}

// tries is the maximum number of attempts to have all sequences generate at once: on a busy
// machine the first may finish before the last arrives.
const tries = 5

// Time continues all prompts greedily and returns the time of n steps from when all sequences
// generate. c must be e's metrics; prompts must be nonempty and equally long.
func (c *Clock) Time(ctx context.Context, e *smelt.Engine, prompts [][]int32, n int) (elapsed time.Duration, err error) {
	if need := Context(len(prompts), len(prompts[0]), n); e.Context() < need {
		return 0, fmt.Errorf("the measurement needs a context of %d tokens; the engine has %d", need, e.Context())
	}
	before := e.Stats().Preempted
	for range tries {
		if elapsed, err = c.try(ctx, e, prompts, n); elapsed > 0 || err != nil {
			break
		}
	}
	switch {
	case err != nil:
		return 0, err
	case e.Stats().Preempted > before:
		return 0, fmt.Errorf("the cache is too small for %d sequences of %d tokens", len(prompts), e.Context())
	case elapsed == 0:
		return 0, fmt.Errorf("%d sequences did not generate at once", len(prompts))
	}
	return elapsed, nil
}

var errMeasured = errors.New("measured")

func (c *Clock) try(ctx context.Context, e *smelt.Engine, prompts [][]int32, n int) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.begin(len(prompts), n, func() { cancel(errMeasured) })
	g := smelt.Generation{N: n + ahead(len(prompts), len(prompts[0])), IgnoreStop: true}
	var wait sync.WaitGroup
	for _, ids := range prompts {
		wait.Go(func() {
			for _, err := range e.Generate(ctx, smelt.Request{Tokens: ids, Generation: g}) {
				if err != nil {
					cancel(err) // does not affect the measurement
				}
			}
		})
	}
	wait.Wait()
	elapsed := c.end()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errMeasured) {
		return 0, cause
	}
	return elapsed, nil
}
