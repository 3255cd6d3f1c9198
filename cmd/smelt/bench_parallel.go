package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/exp/stats"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/parallel"
)

// benchParallel measures the decoding of n tokens by concurrent sequences, each after a prompt of
// its own, for each number of sequences.
func benchParallel(cmd *cobra.Command, p *smelt.Program, device *deviceFlags, sequences []int, prompt, n, runs int) ([]result, error) {
	prompt = max(prompt, 1)
	if p.Stages != nil {
		var err error
		if p, err = p.Model().Compile(parallel.Options(p.Options(), slices.Max(sequences), prompt, n)); err != nil {
			return nil, err
		}
	}
	l, err := load(cmd, p, device)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var results []result
	for _, count := range sequences {
		r := result{Test: fmt.Sprintf("tg%dx%d", n, count), Parallel: count}
		clock := new(parallel.Clock)
		e, err := l.NewEngine(smelt.EngineOptions{Sequences: count, Metrics: clock})
		if err != nil {
			return nil, err
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range runs + 1 { // the first warms up
			elapsed, err := clock.Time(cmd.Context(), e, parallel.Prompts(rng, count, prompt, e.Vocab()), n)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", r.Test, err), e.Close())
			}
			if i > 0 {
				r.TPS = append(r.TPS, float64(n*count)/elapsed.Seconds())
			}
		}
		if err := e.Close(); err != nil {
			return nil, err
		}
		r.Median = stats.Median(r.TPS)
		results = append(results, r)
	}
	return results, nil
}
