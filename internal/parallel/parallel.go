// Package parallel measures how fast an engine generates for several sequences at once, for
// smelt bench --parallel and for the comparison with llama.cpp.
//
// What counts is the time of steps that have one token of each sequence and nothing else.
// Prompts come before the clock starts: as they are fed in pieces, beside tokens of those that
// were fed already, the sequences are not equally long when it does; they differ by the number
// of these steps, for which [Context] leaves room.
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

// Context returns how many tokens of each sequence must fit into the cache, so that n can be
// timed after prompts of so many.
func Context(sequences, prompt, n int) int { return prompt + n + ahead(sequences, prompt) }

// ahead bounds the tokens that the first sequence has when all generate: a step for each piece
// of the others' prompts, and some until all requests have come.
func ahead(sequences, prompt int) int {
	return sequences*prompt/(compiler.DefaultPrefill-min(sequences, compiler.DefaultPrefill/2)) + sequences + 20
}

// Options are those of a program for so many sequences of such lengths, one row of logits
// each.
func Options(o smelt.Options, sequences, prompt, n int) smelt.Options {
	o.Context, o.Sequences, o.Block, o.Rows = Context(sequences, prompt, n), sequences, compiler.DefaultBlock, 1
	o.Prefill = max(o.Prefill, 2*sequences)
	return o
}

// Prompts are random, each of n tokens.
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

// Clock times the steps of an engine, whose metrics it must be.
type Clock struct {
	mu        sync.Mutex
	sequences int // whose steps count; 0: none do
	waiting   int // for the first token of so many, before which no step counts
	left      int // steps to be timed; the first that counts starts the clock
	start     time.Time
	elapsed   time.Duration
	measured  func()
}

// Stepped counts a step that has one token of each sequence and nothing else. One like it, of
// sequences that were measured before, may still be under way when others begin.
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

// FirstToken tells that one more sequence generates.
func (c *Clock) FirstToken(time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting--
}

// NextToken and Ended say nothing of steps.
func (c *Clock) NextToken(time.Duration) {}

// Ended is described at NextToken.
func (c *Clock) Ended(smelt.Usage, error) {}

// begin makes the clock wait for so many sequences, and time n steps of theirs.
func (c *Clock) begin(sequences, n int, measured func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences, c.waiting, c.left = sequences, sequences, n
	c.start, c.elapsed, c.measured = time.Time{}, 0, measured
}

// end stops the clock, and returns what it has measured.
func (c *Clock) end() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sequences = 0
	return c.elapsed
}

// tries is how often it is tried to have all sequences generate at once: on a busy machine
// the first may be done before the last is there.
const tries = 5

// Time lets all prompts be continued by the most likely tokens, and times n steps from when
// all generate. The clock is that of the engine. Prompts are not empty, and of one length.
func (c *Clock) Time(ctx context.Context, e *smelt.Engine, prompts [][]int32, n int) (elapsed time.Duration, err error) {
	if need := Context(len(prompts), len(prompts[0]), n); e.Context() < need {
		return 0, fmt.Errorf("the measurement needs a context of %d, and there are %d", need, e.Context())
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
					cancel(err) // without effect on what is measured
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
