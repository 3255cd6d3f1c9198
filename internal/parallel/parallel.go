// Package parallel measures how fast an engine generates for several sequences at once, for
// smelt bench --parallel and for the comparison with llama.cpp.
//
// What counts is the time of steps that have one token of each sequence and nothing else.
// Prompts come before the clock starts: as they are fed in pieces, beside tokens of those that
// were fed already, the sequences are not equally long when it does; they differ by the number
// of these steps, which Ahead bounds.
package parallel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/smelt-ml/smelt"
)

// Context returns how many tokens of each sequence must fit into the cache, so that n can be
// timed after prompts of so many.
func Context(sequences, prompt, n int) int { return prompt + n + ahead(sequences, prompt) }

// ahead bounds the tokens that the first sequence has when all generate: a step for each piece
// of the others' prompts.
func ahead(sequences, prompt int) int {
	return sequences*prompt/(smelt.DefaultPrefill-min(sequences, smelt.DefaultPrefill/2)) + sequences + 4
}

// Options are those of a program for so many sequences of such lengths, one row of logits
// each.
func Options(o smelt.Options, sequences, prompt, n int) smelt.Options {
	o.Context, o.Sequences, o.Block, o.Rows = Context(sequences, prompt, n), sequences, smelt.DefaultBlock, 1
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

// Time lets all prompts be continued, and times n tokens of the first one from when all
// generate: the steps that have these have one of each other, too. The tokens are any, and
// the clock is read where the engine takes them. Prompts are not empty, and of one length.
func Time(ctx context.Context, e *smelt.Engine, prompts [][]int32, n int) (elapsed time.Duration, err error) {
	if need := Context(len(prompts), len(prompts[0]), n); e.Context() < need {
		return 0, fmt.Errorf("the measurement needs a context of %d, and there are %d", need, e.Context())
	}
	before := e.Stats().Preempted
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wait     sync.WaitGroup
		start    time.Time
		begun    int
		measured = errors.New("measured")
		ticks    = -1 // tokens of the first since all generate
		most     = n + ahead(len(prompts), len(prompts[0]))
	)
	// note is called for each token, by the engine.
	note := func(sequence, token int) {
		if token == 0 {
			begun++
		}
		if sequence != 0 || begun < len(prompts) {
			return
		}
		if ticks++; ticks == 0 {
			start = time.Now()
		} else if ticks == n {
			elapsed = time.Since(start)
			cancel(measured)
		}
	}
	// All are to begin in the same step, so the engine is kept busy until all wait.
	entered, release := make(chan struct{}), make(chan struct{})
	first := func([]float32) (int32, error) {
		close(entered)
		<-release
		return 0, nil
	}
	wait.Go(func() {
		for _, err := range e.Generate(ctx, smelt.Request{Tokens: []int32{0}, Generation: smelt.Generation{N: 1, Sampler: first}}) {
			if err != nil {
				cancel(err)
			}
		}
	})
	select {
	case <-entered:
	case <-ctx.Done():
	}
	for i, ids := range prompts {
		tokens := 0
		choose := func([]float32) (int32, error) {
			note(i, tokens)
			tokens++
			return ids[tokens%len(ids)], nil
		}
		wait.Go(func() {
			for _, err := range e.Generate(ctx, smelt.Request{Tokens: ids, Generation: smelt.Generation{N: most, IgnoreStop: true, Sampler: choose}}) {
				if err != nil {
					cancel(err) // without effect on what is measured
				}
			}
		})
	}
	for ctx.Err() == nil && e.Stats().Waiting < len(prompts) {
		time.Sleep(time.Millisecond)
	}
	close(release)
	wait.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, measured) {
		return 0, cause
	}
	if elapsed == 0 {
		return 0, fmt.Errorf("%d sequences did not generate at once", len(prompts))
	}
	if e.Stats().Preempted > before {
		return 0, fmt.Errorf("the cache is too small for %d sequences of %d tokens", len(prompts), e.Context())
	}
	return elapsed, nil
}
