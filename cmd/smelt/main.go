// Smelt compiles transformer models and runs them.
//
// Usage:
//
//	smelt pull NAME|URL          fetch a model
//	smelt run MODEL -p TEXT      continue a text
//	smelt chat MODEL             chat with a model
//	smelt batch MODEL            answer a file of requests in batches
//	smelt serve MODEL…           serve models over OpenAI's HTTP API
//	smelt dot MODEL              draw the source graph, fused graph or plan
//	smelt explain MODEL          report the compiler's fusions, dispatches and memory
//	smelt compile MODEL -o PLAN  compile ahead of time
//	smelt bench MODEL            measure tokens per second
//	smelt tune MODEL             time kernel variants on this device and keep the fastest
//	smelt logits MODEL           write the logits at every position
//	smelt embed MODEL            write embeddings of lines of text
//	smelt perplexity MODEL       measure the perplexity of a text
//	smelt verify MODEL           compare all ways to run a model
//	smelt tokenize MODEL         convert text to token ids, and back
//	smelt constrain MODEL        test texts against a schema, an expression or a grammar
//	smelt inspect FILE           list what a file holds
//	smelt quantize IN OUT        convert a model's weights to another type
//	smelt synth arch:NAME        write a model of a known shape with random weights
//	smelt kernels                list the kernels, or profile one's memory accesses
//
// MODEL is a .gguf file, a folder with config.json and *.safetensors, a compiled
// .plan, or arch:NAME for a known shape without weights; or the name or URL of a model
// that smelt pull or one of Hugging Face's tools has fetched: org/name, org/name:Q4_K_M,
// org/name/file.gguf. Every verb lists its flags with --help.
//
// Standard output carries data only; notes and progress go to standard error. The
// exit status is 2 for wrong usage, 1 for a failure, 130 after Ctrl-C.
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
	// Exit even while uninterruptible work, such as the layout of a graph, still runs.
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { os.Exit(exitStopped) }) })
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// grace is the time after Ctrl-C in which a verb must stop and clean up.
const grace = time.Second

// Exit statuses, which scripts rely on.
const (
	exitFailure = 1
	exitUsage   = 2
	exitStopped = 130
)

// usageError is wrong usage: a flag, an argument or their combination.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// errStopped is returned by a verb that handles Ctrl-C itself.
var errStopped = errors.New("stopped")

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs the tool and returns its exit status.
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

// noteRun makes ran report whether a command's own code was reached; earlier errors are
// usage errors from the parsing of flags and arguments.
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

// subcommand returns a usage error for an argument that is no subcommand.
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

// missing prints the help of a command that requires a subcommand, and returns a usage error.
func missing(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(cmd.ErrOrStderr())
	_ = cmd.Help()
	return usagef("%s what?", cmd.CommandPath())
}

// flagError adds the nearest known flag to the error about an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usagef("%w%s", err, suggestion(unknown.GetSpecifiedName(), "--", names))
}

// flagValues are the shell completions of flags' values.
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

// verbs are constructors, so that tests can run several commands in one process.
var verbs = []func() *cobra.Command{
	pullVerb, runVerb, chatVerb, batchVerb, serveVerb, dotVerb, explainVerb, compileVerb, benchVerb, tuneVerb, logitsVerb, embedVerb, perplexityVerb, verifyVerb, tokenizeVerb, constrainVerb, inspectVerb, quantizeVerb, synthVerb, kernelsVerb,
}

// modelArg requires exactly one argument, a model; --debug=help needs none.
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
