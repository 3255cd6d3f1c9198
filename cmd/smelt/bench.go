package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"golang.org/x/exp/stats"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
)

func benchVerb() *cobra.Command {
	var (
		compile                compileFlags
		on                     deviceFlags
		prompt, n, depth, runs int
		parallel               []int
		profile, asJSON        bool
	)
	cmd := &cobra.Command{
		Use:   "bench MODEL",
		Short: "Measure tokens per second",
		Long: `Measures prefill of -p tokens (pp) and decoding of -n tokens (tg), each -r times after
a warm-up, in a sequence of --depth tokens. On cpu it rearranges weights first, as run
and serve do between the first steps. arch:NAME gets random weights of --type.

With --parallel, each of its numbers of sequences decodes -n tokens concurrently, each
sequence after a prompt of -p tokens that is fed before the clock starts; the rate is
the sum over sequences.

With --profile, prefill and one decode step run -r times more with each dispatch timed.
A table lists by kernel and op the time, the minimum bytes and operations of the
dispatches, the rates achieved, and their share of the machine's limits, which are
probed on cpu and looked up for Apple's chips. Dispatches then run without overlap, so
the times can add up to more than a normal step takes.`,
		Example: `  smelt bench arch:qwen3-0.6b --type q4_0 --threads 2
  smelt bench model.gguf -p 128 -n 16 --profile`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	on.add(flags)
	on.addWeights(flags)
	flags.IntVarP(&prompt, "prompt", "p", 512, "tokens of the prompt; 0 skips prefill")
	flags.IntVarP(&n, "n", "n", 64, "tokens to generate; 0 skips decoding")
	flags.IntVar(&depth, "depth", 0, "tokens in the cache before each test, with random contents")
	flags.IntVarP(&runs, "runs", "r", 3, "repetitions")
	flags.IntSliceVar(&parallel, "parallel", nil, "also measure n concurrent sequences, for each n, such as 1,4,16")
	flags.BoolVar(&profile, "profile", false, "also profile by kernel and op")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		switch {
		case prompt < 0 || n < 0 || depth < 0 || prompt+n == 0:
			return usagef("-p %d -n %d --depth %d: want 0 or more, and something to measure", prompt, n, depth)
		case runs < 1:
			return usagef("-r %d: want 1 or more", runs)
		case depth > maxContext || prompt > maxContext || n > maxContext:
			return usagef("-p %d -n %d --depth %d: want at most %d each", prompt, n, depth, maxContext)
		}
		for _, sequences := range parallel {
			if sequences < 1 || sequences > maxSequences {
				return usagef("--parallel %d: want 1 to %d", sequences, maxSequences)
			}
		}
		if len(parallel) > 0 && n == 0 {
			return usagef("--parallel measures the generation of -n tokens, and -n is 0")
		}
		if need := depth + max(prompt, n); compile.context == 0 && !isPlan(args[0]) {
			compile.context = need
		} else if compile.context != 0 && compile.context < need {
			return usagef("--ctx %d: the measurement needs %d", compile.context, need)
		}
		// Rearrange now, so that it does not overlap the measured runs.
		on.rearrange = device.RearrangeNow
		s, p, err := openBench(cmd, args[0], &compile, &on)
		if err != nil {
			return err
		}
		defer p.Close()
		defer s.Loaded().Close()
		if need := depth + max(prompt, n); need > s.Context() {
			return fmt.Errorf("%s: the measurement needs a context of %d, and the plan has %d", args[0], need, s.Context())
		}
		var results []result
		for _, test := range []struct {
			name   string
			tokens int
			run    func(context.Context, *smelt.Session, []int32) error
		}{
			{fmt.Sprintf("pp%d", prompt), prompt, prefill},
			{fmt.Sprintf("tg%d", n), n, decode},
		} {
			if test.tokens == 0 {
				continue
			}
			r, err := measure(cmd.Context(), s, test.name, depth, test.tokens, runs, test.run)
			if err != nil {
				return err
			}
			results = append(results, *r)
		}
		info := s.Loaded().Info()
		var (
			tests []*timedTest
			limit *ceilings
		)
		if profile {
			if tests, err = profileTests(cmd.Context(), s, p.Plan, prompt, n, depth, runs); err != nil {
				return err
			}
			limit = ceilingsOf(info)
		}
		if len(parallel) > 0 {
			if err := s.Loaded().Close(); err != nil { // free its memory for the engine
				return err
			}
			more, err := benchParallel(cmd, p, &on, parallel, depth+prompt, n, runs)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			for i := range more {
				more[i].Depth = depth
			}
			results = append(results, more...)
		}
		if asJSON {
			object := map[string]any{"results": results}
			if profile {
				object["profile"] = lo.FlatMap(tests, func(t *timedTest, _ int) []*timedRow { return t.rows })
				object["limits"] = limit
				fmt.Fprintln(cmd.ErrOrStderr(), profileNote(info, limit))
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(object)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s on %s (%s), %s, median of %d\n", p.Plan.Model, info.Name, info.ISA, info.Workers(), runs)
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "TEST\tDEPTH\tTOKENS/S\tLOWEST\tHIGHEST\t\n")
		for _, r := range results {
			q := stats.Quantiles(r.TPS, 0.0, 1.0)
			fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t\n", r.Test, r.Depth, r.Median, q[0], q[1])
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if !profile {
			return nil
		}
		fmt.Fprintln(cmd.ErrOrStderr(), profileNote(info, limit))
		return printProfiles(cmd.OutOrStdout(), tests, limit)
	}
	return cmd
}

type result struct {
	Test     string    `json:"test"`
	Parallel int       `json:"parallel,omitempty"` // sequences; 0: a test of one session
	Depth    int       `json:"depth"`
	Median   float64   `json:"tps_median"` // the sum over sequences
	TPS      []float64 `json:"tps"`
}

// openBench is openSession that also gives an arch:NAME random weights.
func openBench(cmd *cobra.Command, path string, compile *compileFlags, device *deviceFlags) (*smelt.Session, *smelt.Program, error) {
	if !isArch(path) {
		return openSession(cmd, path, compile, device)
	}
	opts, err := executionOptions(cmd, path, compile, device)
	if err != nil {
		return nil, nil, err
	}
	useTuning(cmd.ErrOrStderr(), smelt.Device{Name: device.device, Threads: device.threads}, &opts)
	m, err := weighed(cmd, path, compile)
	if err != nil {
		return nil, nil, err
	}
	p, err := m.Compile(opts)
	if err != nil {
		return nil, nil, err
	}
	s, err := loadSession(cmd, p, device)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, p, nil
}

func prefill(ctx context.Context, s *smelt.Session, ids []int32) error {
	_, err := s.Feed(ctx, ids)
	return err
}

func decode(ctx context.Context, s *smelt.Session, ids []int32) error {
	for i := range ids {
		if _, err := s.Feed(ctx, ids[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// measure times repetitions of run on random tokens, all at the same depth.
func measure(ctx context.Context, s *smelt.Session, name string, depth, tokens, runs int, run func(context.Context, *smelt.Session, []int32) error) (*result, error) {
	if err := fillTo(s, depth); err != nil {
		return nil, err
	}
	random := randomTokens(s)
	r := &result{Test: name, Depth: depth}
	for i := range runs + 1 { // the first warms up
		ids := random(tokens)
		start := time.Now()
		if err := run(ctx, s, ids); err != nil {
			return nil, err
		}
		elapsed := time.Since(start)
		s.Truncate(depth)
		if i > 0 {
			r.TPS = append(r.TPS, float64(tokens)/elapsed.Seconds())
		}
	}
	r.Median = stats.Median(r.TPS)
	return r, nil
}

// fillTo makes the sequence depth tokens long, with random contents, since a prompt of them
// would take minutes and later times do not depend on the contents.
func fillTo(s *smelt.Session, depth int) error {
	return s.FillRandom(depth, rand.New(rand.NewPCG(1, 3)))
}

// randomTokens returns a source of token ids with a fixed seed.
func randomTokens(s *smelt.Session) func(n int) []int32 {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(rng.IntN(s.Vocab()))
		}
		return ids
	}
}
