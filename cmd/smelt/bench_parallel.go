package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/exp/stats"

	"github.com/smelt-ml/smelt"
)

// benchParallel measures the generation of n tokens by several sequences at once, each after
// a prompt of its own, for each number of sequences.
func benchParallel(cmd *cobra.Command, p *smelt.Program, device *deviceFlags, parallel []int, prompt, n, runs int) ([]result, error) {
	prompt = max(prompt, 1)
	most := slices.Max(parallel)
	// Those that are fed first go on while the others are fed, a step for each piece of a
	// prompt; tokens are counted from when all generate.
	ahead := most*prompt/(smelt.DefaultPrefill-min(most, smelt.DefaultPrefill/2)) + most + 4
	if p.Stages != nil {
		opts := p.Options()
		opts.Context, opts.Sequences, opts.Block, opts.Rows = prompt+n+ahead, most, smelt.DefaultBlock, 1
		opts.Prefill = max(opts.Prefill, 2*most)
		var err error
		if p, err = p.Model().Compile(opts); err != nil {
			return nil, err
		}
	}
	l, err := load(cmd, p, device)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var results []result
	for _, sequences := range parallel {
		r := result{Test: fmt.Sprintf("tg%dx%d", n, sequences), Parallel: sequences}
		e, err := l.NewEngine(smelt.EngineOptions{Sequences: sequences})
		if err != nil {
			return nil, err
		}
		if need := prompt + n + ahead; e.Context() < need {
			return nil, errors.Join(fmt.Errorf("the measurement needs a context of %d, and there are %d", need, e.Context()), e.Close())
		}
		rng := rand.New(rand.NewPCG(1, 2))
		vocab := e.Vocab()
		for i := range runs + 1 { // the first warms up
			prompts := make([][]int32, sequences)
			for k := range prompts {
				for range prompt {
					prompts[k] = append(prompts[k], int32(rng.IntN(vocab)))
				}
			}
			elapsed, err := generateParallel(cmd.Context(), e, prompts, n, n+ahead)
			if err != nil {
				return nil, errors.Join(err, e.Close())
			}
			if i > 0 {
				r.TPS = append(r.TPS, float64(n*sequences)/elapsed.Seconds())
			}
		}
		if e.Stats().Preempted > 0 {
			err = fmt.Errorf("%s: the cache is too small for so many sequences", r.Test)
		}
		if err = errors.Join(err, e.Close()); err != nil {
			return nil, err
		}
		r.Median = stats.Median(r.TPS)
		results = append(results, r)
	}
	return results, nil
}

// generateParallel lets all prompts be continued, and times n tokens of the first one from
// when all generate: the steps that have these have one of each other, too. The tokens are
// any, and the clock is read where the engine takes them.
func generateParallel(ctx context.Context, e *smelt.Engine, prompts [][]int32, n, most int) (elapsed time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wait     sync.WaitGroup
		start    time.Time
		begun    int
		measured = errors.New("measured")
		ticks    = -1 // tokens of the first since all generate
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
	return elapsed, nil
}
