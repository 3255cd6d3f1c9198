package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/openai"
	"github.com/smelt-ml/smelt/lower"
)

func runVerb() *cobra.Command {
	var (
		compile compileFlags
		device  deviceFlags
		prompt  string
		g       smelt.Generation
		form    constraintFlags
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "run MODEL -p TEXT",
		Short: "Continue a text",
		Long: `Streams the continuation of a text. Special tokens in the text are recognised, and the
start token is added if the model has one. Without -p, on a terminal, each typed line
is continued separately.`,
		Example: `  smelt run model.gguf -p 'Once upon a time' -n 200 --temp 0.8 --seed 1
  smelt run model.plan -p 'Once upon a time' --json`,
		Args: modelArg,
	}
	flags := cmd.Flags()
	compile.add(flags)
	device.add(flags)
	device.addWeights(flags)
	flags.StringVarP(&prompt, "prompt", "p", "", "the text to continue")
	addLength(flags, &g, openai.Length.Default, openai.Length.Doc)
	addSampling(flags, &g, "", openai.Parameters()...)
	form.add(flags)
	flags.BoolVar(&asJSON, "json", false, "print one JSON object instead of the text")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if compile.help(cmd) {
			return nil
		}
		given := cmd.Flags().Changed("prompt")
		if !given && (asJSON || !isTerminal(cmd.InOrStdin())) {
			return usagef("-p TEXT is missing")
		}
		if err := form.check(); err != nil {
			return err
		}
		p, err := openProgram(cmd, args[0], &compile, &device)
		if err != nil {
			return err
		}
		defer p.Close()
		l, err := load(cmd, p, &device)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		defer l.Close()
		var times laps
		e, err := engineOfOne(l, &times)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		m, on := e.OnDevice().Memory(), l.Info()
		fmt.Fprintf(cmd.ErrOrStderr(), "smelt: weights %d bytes, cache %d bytes, arena %d bytes, on %s with %s\n",
			l.Memory().Weights, m.Cache, m.Arena, on.Name, on.Workers())
		if g.Constraint, err = form.constraint(cmd.ErrOrStderr(), l.Vocabulary, answers); err != nil {
			return err
		}
		switch {
		case asJSON:
			err = runJSON(cmd, e, p, &times, prompt, g)
		case given:
			err = continueText(cmd.Context(), cmd.OutOrStdout(), e, prompt, g)
		default:
			err = continueLines(cmd, e, g)
		}
		return hintNaN(args[0], err)
	}
	return cmd
}

// engineOfOne starts an engine for one sequence at a time, with a cache of one context.
func engineOfOne(l *smelt.Loaded, times *laps) (*smelt.Engine, error) {
	plan := l.Program().Plan
	m, err := engine.ContextMemory(plan, l.OnDevice())
	if err != nil {
		return nil, err
	}
	return l.NewEngine(smelt.EngineOptions{Sequences: 1, BlockSize: plan.Block(), CacheBytes: m.Cache, Metrics: times})
}

// laps are the times of a request as the engine measures them, without the consumer's delays.
type laps struct{ prefill, decode time.Duration }

func (l *laps) FirstToken(t time.Duration) { l.prefill += t }
func (l *laps) NextToken(t time.Duration)  { l.decode += t }
func (l *laps) Stepped(smelt.EngineStep)   {}
func (l *laps) Ended(smelt.Usage, error)   {}

// continuation continues a prompt, and returns the prompt's number of tokens.
func continuation(ctx context.Context, e *smelt.Engine, prompt string, g smelt.Generation) (int, iter.Seq2[smelt.Token, error], error) {
	ids, err := e.Encode(prompt)
	if err == nil && len(ids) > e.Context() { // the engine does not check where N < 0
		err = fmt.Errorf("%w: the prompt has %d tokens, and there is room for %d of %d", smelt.ErrContext, len(ids), e.Context(), e.Context())
	}
	return len(ids), e.Generate(ctx, smelt.Request{Tokens: ids, Generation: g}), err
}

// hintNaN adds the command that finds the source of NaNs to an error about them.
func hintNaN(path string, err error) error {
	if !errors.Is(err, smelt.ErrNaN) {
		return err
	}
	return fmt.Errorf("%s: %w; smelt verify --bisect finds their source", path, err)
}

// executionOptions validates the flags of a verb that executes, resolves the device and
// returns the compile options.
func executionOptions(cmd *cobra.Command, path string, compile *compileFlags, on *deviceFlags) (smelt.Options, error) {
	if err := checkPlan(cmd.Flags(), path); err != nil {
		return smelt.Options{}, err
	}
	opts, err := compile.options(cmd.ErrOrStderr())
	if err != nil {
		return opts, err
	}
	asked := on.device
	if err = on.resolve(&opts); err != nil {
		return opts, err
	}
	if on.device == "cpu" {
		if why := device.Fallback(asked); why != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "smelt: running on the CPU: %v\n", why)
		}
	}
	return opts, checkProducts(opts)
}

// openSession compiles MODEL for the chosen device and loads it there.
func openSession(cmd *cobra.Command, path string, compile *compileFlags, device *deviceFlags) (*smelt.Session, *smelt.Program, error) {
	p, err := openProgram(cmd, path, compile, device)
	if err != nil {
		return nil, nil, err
	}
	s, err := loadSession(cmd, p, device)
	if err != nil {
		p.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, p, nil
}

// openProgram compiles MODEL for the chosen device.
func openProgram(cmd *cobra.Command, path string, compile *compileFlags, device *deviceFlags) (*smelt.Program, error) {
	opts, err := executionOptions(cmd, path, compile, device)
	if err != nil {
		return nil, err
	}
	if !isPlan(path) {
		useTuning(cmd.ErrOrStderr(), smelt.Device{Name: device.device, Threads: device.threads}, &opts)
	}
	p, err := program(path, opts, compile, device.weights)
	if err != nil {
		return nil, err
	}
	if !p.Model().HasWeights() {
		return nil, fmt.Errorf("%s: %w; smelt synth writes a file with random ones", path, smelt.ErrNoWeights)
	}
	return p, nil
}

// draftProgram compiles a draft with the options and device of its model, or loads it if it is a
// plan.
func draftProgram(cmd *cobra.Command, path string, compile compileFlags, device *deviceFlags) (*smelt.Program, error) {
	compile.guesses, compile.debug = false, ""
	opts, err := compile.options(cmd.ErrOrStderr())
	if err == nil {
		err = device.resolve(&opts)
	}
	if err != nil {
		return nil, err
	}
	compiler.KnobsOf(&opts).Tuning, _ = compiler.LoadTuning(device.device, device.threads) // useTuning reported the error
	p, err := program(path, opts, &compileFlags{}, "")
	if err == nil && !p.Model().HasWeights() {
		err = fmt.Errorf("%s: %w", path, smelt.ErrNoWeights)
	}
	return p, err
}

// hintDevice adds a device that works to an error about a device that is missing or does not
// fit the program.
func hintDevice(p *smelt.Program, err error) error {
	target, unknown := lower.NewTarget(p.Plan.Target)
	switch {
	case unknown != nil, !errors.Is(err, smelt.ErrTarget) && !errors.Is(err, device.ErrAbsent):
		return err
	case p.Stages != nil:
		return fmt.Errorf("%w; --device cpu and --device emu run it on the CPU", err)
	case target.GPU:
		return fmt.Errorf("%w; --device emu runs it on the emulator, and smelt compile --target cpu makes one for the CPU", err)
	}
	return fmt.Errorf("%w; --device %s runs it", err, p.Plan.Target)
}

// loadSession loads a program for one sequence.
func loadSession(cmd *cobra.Command, p *smelt.Program, device *deviceFlags) (*smelt.Session, error) {
	l, err := load(cmd, p, device)
	if err != nil {
		return nil, err
	}
	s, err := l.NewSession()
	if err != nil {
		l.Close()
	}
	return s, err
}

// load loads a program, and shows a spinner if that takes long.
func load(cmd *cobra.Command, p *smelt.Program, on *deviceFlags) (*smelt.Loaded, error) {
	done := sync.OnceFunc(spin(cmd.ErrOrStderr(), "loading "+p.Plan.Model))
	defer done()
	l, err := p.Load(smelt.Device{Name: on.device, Threads: on.threads, Options: device.Options{Rearrange: on.rearrange}})
	if err != nil {
		return nil, hintDevice(p, err)
	}
	if c := l.OnDevice().Compiled(); c.Pipelines > 0 {
		done()
		fmt.Fprintf(cmd.ErrOrStderr(), "compiled %d kernels in %.1f s, %d of them kept from before\n", c.Pipelines, c.Time.Seconds(), c.Kept)
	}
	return l, nil
}

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// continueText streams a continuation, followed by a newline.
func continueText(ctx context.Context, out io.Writer, e *smelt.Engine, prompt string, g smelt.Generation) error {
	_, tokens, err := continuation(ctx, e, prompt, g)
	if err != nil {
		return err
	}
	printed := false
	for token, err := range tokens {
		if _, writeErr := io.WriteString(out, token.Text); writeErr != nil {
			return errors.Join(err, writeErr)
		}
		printed = printed || token.Text != ""
		if err != nil {
			if printed {
				_, writeErr := io.WriteString(out, "\n")
				err = errors.Join(err, writeErr)
			}
			return err
		}
	}
	_, err = io.WriteString(out, "\n")
	return err
}

// continueLines continues each typed line separately.
func continueLines(cmd *cobra.Command, e *smelt.Engine, g smelt.Generation) error {
	lines := make(chan string)
	go func() { // a read cannot be interrupted; Ctrl-C exits the process
		defer close(lines)
		in := bufio.NewReader(cmd.InOrStdin())
		for {
			line, err := in.ReadString('\n')
			if line != "" {
				lines <- strings.TrimRight(line, "\r\n")
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		fmt.Fprint(cmd.ErrOrStderr(), "> ")
		select {
		case <-cmd.Context().Done():
			fmt.Fprintln(cmd.ErrOrStderr())
			return cmd.Context().Err()
		case line, ok := <-lines:
			if !ok {
				fmt.Fprintln(cmd.ErrOrStderr())
				return nil
			}
			if line == "" {
				continue
			}
			err := continueText(cmd.Context(), cmd.OutOrStdout(), e, line, g)
			if errors.Is(err, smelt.ErrContext) { // the next line may be shorter
				fmt.Fprintf(cmd.ErrOrStderr(), "smelt: %v\n", err)
			} else if err != nil {
				return err
			}
		}
	}
}

type timings struct {
	Load       float64 `json:"load_ms"`
	Compile    float64 `json:"compile_ms"`
	Prefill    float64 `json:"prefill_ms"`
	PrefillTPS float64 `json:"prefill_tps"`
	Decode     float64 `json:"decode_ms"`
	DecodeTPS  float64 `json:"decode_tps"`
}

func runJSON(cmd *cobra.Command, e *smelt.Engine, p *smelt.Program, times *laps, prompt string, g smelt.Generation) error {
	var (
		ids  = []int32{}
		text strings.Builder
	)
	promptTokens, tokens, err := continuation(cmd.Context(), e, prompt, g)
	if err != nil {
		return err
	}
	for token, err := range tokens {
		if err != nil {
			return err
		}
		ids = append(ids, token.ID)
		text.WriteString(token.Text)
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(struct {
		PromptTokens int     `json:"prompt_tokens"`
		Tokens       []int32 `json:"tokens"`
		Text         string  `json:"text"`
		Device       string  `json:"device"`
		Timings      timings `json:"timings"`
	}{
		promptTokens, ids, text.String(), e.Loaded().Info().Name,
		timings{
			Load: ms(e.Loaded().LoadTime()), Compile: ms(p.Elapsed),
			Prefill: ms(times.prefill), PrefillTPS: perSecond(promptTokens, times.prefill),
			Decode: ms(times.decode), DecodeTPS: perSecond(len(ids)-1, times.decode),
		},
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// perSecond returns the rate of n in d, 0 if either is 0, since JSON has no infinity.
func perSecond(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
