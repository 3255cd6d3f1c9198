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
		Long: `Measures a prompt of -p tokens (pp) and the generation of -n tokens, one at a time
(tg), each -r times after a warm-up, at a sequence that is --depth tokens long
already. On cpu weights are rearranged before, which run and serve do between the
first steps. arch:NAME is measured with random weights of --type.

With --parallel, as many sequences as each of its numbers says generate -n tokens at
once, each after a prompt of its own of -p tokens, which is fed before the clock starts;
the rate is that of all together.

With --profile, the prompt and one token are run -r times more with each dispatch
timed, and a table tells by kernel and op where the time goes: beside it the bytes and
operations that the dispatches need at least, the rates reached, and how near these
come to what the machine could do. That is measured on cpu, and looked up for Apple's
chips. Dispatches then run one after the other, so the times can add up to more than
a usual step takes.`,
		Example: `  smelt bench arch:qwen3-0.6b --type q4_0 --threads 2
  smelt bench model.gguf -p 128 -n 16 --profile`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	on.add(flags)
	on.addWeights(flags)
	flags.IntVarP(&prompt, "prompt", "p", 512, "tokens of the prompt; 0 leaves it out")
	flags.IntVarP(&n, "n", "n", 64, "tokens to generate; 0 leaves it out")
	flags.IntVar(&depth, "depth", 0, "tokens in the cache before either, of random contents")
	flags.IntVarP(&runs, "runs", "r", 3, "repetitions")
	flags.IntSliceVar(&parallel, "parallel", nil, "also with so many sequences at once: 1,4,16")
	flags.BoolVar(&profile, "profile", false, "also say where the time goes, by kernel and op")
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
		// Else runs would be measured while weights are still being rearranged.
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
			if err := s.Loaded().Close(); err != nil { // its memory is for the engine
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
	Parallel int       `json:"parallel,omitempty"` // sequences, where there may be several
	Depth    int       `json:"depth"`
	Median   float64   `json:"tps_median"` // of all together
	TPS      []float64 `json:"tps"`
}

// openBench is openSession, but gives a shape random weights.
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

// measure times run on random tokens, each time at the same depth.
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

// fillTo makes the sequence depth tokens long. What they are does not change the time of what
// follows, and a prompt of them would take minutes.
func fillTo(s *smelt.Session, depth int) error {
	return s.FillRandom(depth, rand.New(rand.NewPCG(1, 3)))
}

// randomTokens returns a source of token ids, the same each time.
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
