// Smelt compiles transformer models and runs them.
//
// Usage:
//
//	smelt pull NAME|URL          fetch a model
//	smelt run MODEL -p TEXT      continue a text
//	smelt chat MODEL             talk with a model
//	smelt batch MODEL            answer a file of requests, many at a time
//	smelt serve MODEL…           answer HTTP requests in the form of OpenAI's API
//	smelt dot MODEL              draw the graph, as written, fused or scheduled
//	smelt explain MODEL          say what the compiler did
//	smelt compile MODEL -o PLAN  compile ahead of time
//	smelt bench MODEL            measure tokens per second
//	smelt tune MODEL             measure what is chosen by size, and keep the best
//	smelt logits MODEL           write the logits at every position
//	smelt perplexity MODEL       measure how well it predicts a text
//	smelt verify MODEL           check that every way to run it agrees
//	smelt tokenize MODEL         turn text into token ids, and back
//	smelt constrain MODEL        say what a schema, an expression or a grammar lets through
//	smelt inspect FILE           say what a file holds
//	smelt quantize IN OUT        write a model with another type of weights
//	smelt synth arch:NAME        make a model of real shape with random weights
//	smelt kernels                list the kernels, or count what one does
//
// MODEL is a .gguf file, a folder with config.json and *.safetensors, a compiled
// .plan, or arch:NAME for a known shape without weights; or the name or URL of a model
// that smelt pull, or one of Hugging Face's tools, has fetched: org/name, org/name:Q4_K_M,
// org/name/file.gguf. Every verb explains its flags with --help.
//
// Standard output carries data only; notes and progress go to standard error. The
// exit status is 2 for a wrong call, 1 for a failure, 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/samber/lo"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Work that cannot be interrupted, such as the layout of a graph, is left behind.
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { os.Exit(exitStopped) }) })
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// grace is how long a verb has to stop, and to clean up, after Ctrl-C.
const grace = time.Second

// Exit statuses of the contract.
const (
	exitFailure = 1
	exitUsage   = 2
	exitStopped = 130
)

// usageError is a wrong call: a flag, an argument, or how they go together.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// errStopped is the end of a verb that takes Ctrl-C for itself.
var errStopped = errors.New("stopped")

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run is main, testable.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	defer func() {
		if r := recover(); r != nil { // a broken invariant of ours
			fmt.Fprintf(stderr, "smelt: internal error: %v\n", r)
			status = exitFailure
		}
	}()
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil && errors.Is(err, context.Canceled), errors.Is(err, errStopped):
		return exitStopped
	case errors.As(err, &usage) || !ran(cmd):
		fmt.Fprintf(stderr, "smelt: %v (see %s --help)\n", err, cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(stderr, "smelt: %s: %v\n", cmd.Name(), err)
	return exitFailure
}

// noteRun makes ran report whether a command's own code was reached; what fails
// before is the parsing of its flags and arguments.
func noteRun(cmd *cobra.Command) {
	body := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Annotations == nil {
			cmd.Annotations = map[string]string{}
		}
		cmd.Annotations["ran"] = "yes"
		return body(cmd, args)
	}
}

func ran(cmd *cobra.Command) bool { return cmd.Annotations["ran"] != "" }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "smelt VERB",
		Short:         "Compile transformer models and run them",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          subcommand,
		RunE:          missing,
	}
	root.SetFlagErrorFunc(flagError)
	for _, verb := range verbs {
		cmd := verb()
		noteRun(cmd)
		completeFlags(cmd)
		root.AddCommand(cmd)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = subcommand, missing
			for _, shell := range cmd.Commands() {
				noteRun(shell)
			}
		case "help":
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return subcommand(found, rest)
				}
				return nil
			}
		}
	}
	return root
}

// subcommand reports words that are not below a command.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := lo.FilterMap(cmd.Commands(), func(c *cobra.Command, _ int) (string, bool) { return c.Name(), c.IsAvailableCommand() })
	if len(names) == 0 {
		return usagef("%s takes no %q", cmd.CommandPath(), args[0])
	}
	return known(lo.Ternary(cmd.HasParent(), "shell", "verb"), args[0], names)
}

// missing shows what could stand below a command that is nothing by itself.
func missing(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	_ = cmd.Help()
	return usagef("%s what?", cmd.CommandPath())
}

// flagError adds to an unknown flag the one that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usagef("%w%s", err, suggestion(unknown.GetSpecifiedName(), "--", names))
}

// flagValues are completed in the shell.
var flagValues = map[string][]string{
	"device": {"auto", "metal", "cpu", "emu"}, "target": {"metal", "cpu"},
	"stage": {"source", "fused", "plan"}, "phase": {"prefill", "decode", "copy"},
	"kv": cacheTypes(), "act": {"f16", "f32"}, "optimize": {"0", "1"}, "debug": {"help"}, "speculate": {"ngram", "off"},
	"order": {"schema", "any"},
}

func completeFlags(cmd *cobra.Command) {
	for name, values := range flagValues {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// verbs makes each command afresh, so that tests can run several in one process.
var verbs = []func() *cobra.Command{
	pullVerb, runVerb, chatVerb, batchVerb, serveVerb, dotVerb, explainVerb, compileVerb, benchVerb, tuneVerb, logitsVerb, embedVerb, perplexityVerb, verifyVerb, tokenizeVerb, constrainVerb, inspectVerb, quantizeVerb, synthVerb, kernelsVerb,
}

// modelArg asks for exactly one argument, a model; --debug=help needs none.
func modelArg(cmd *cobra.Command, args []string) error {
	if f := cmd.Flags().Lookup("debug"); len(args) == 0 && f != nil && f.Value.String() == "help" {
		return nil
	}
	if len(args) != 1 {
		return usagef("%s takes one MODEL, not %d arguments", cmd.Name(), len(args))
	}
	if args[0] == "" {
		return usagef("MODEL is empty")
	}
	return nil
}
