// Smelt compiles transformer models and runs them.
//
// Usage:
//
//	smelt run MODEL -p TEXT      continue a text
//	smelt dot MODEL              draw the graph, as written, fused or scheduled
//	smelt explain MODEL          say what the compiler did
//	smelt compile MODEL -o PLAN  compile ahead of time
//	smelt bench MODEL            measure tokens per second
//	smelt logits MODEL           write the logits at every position
//	smelt tokenize MODEL         turn text into token ids, and back
//	smelt inspect FILE           say what a file holds
//	smelt synth arch:NAME        make a model of real shape with random weights
//	smelt kernels                list the kernels
//
// MODEL is a .gguf file, a folder with config.json and *.safetensors, a compiled
// .plan, or arch:NAME for a known shape without weights. Every verb explains its
// flags with --help.
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

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first Ctrl-C the default action is back, so that a second one ends
	// a program that does not stop.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

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
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exitStopped
	case errors.As(err, &usage) || !ran(cmd):
		fmt.Fprintf(stderr, "smelt: %v (see %s --help)\n", err, cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(stderr, "smelt: %s: %v\n", cmd.Name(), err)
	return exitFailure
}

// ran reports whether a command's own code was reached; what fails before is the
// parsing of its flags and arguments.
func ran(cmd *cobra.Command) bool { return cmd.Annotations["ran"] != "" }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "smelt",
		Short:         "Compile transformer models and run them",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usagef("which verb?")
		},
	}
	for _, verb := range verbs {
		cmd := verb()
		body := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if cmd.Annotations == nil {
				cmd.Annotations = map[string]string{}
			}
			cmd.Annotations["ran"] = "yes"
			return body(cmd, args)
		}
		root.AddCommand(cmd)
	}
	return root
}

// verbs makes each command afresh, so that tests can run several in one process.
var verbs = []func() *cobra.Command{
	runVerb, dotVerb, explainVerb, compileVerb, benchVerb, logitsVerb, tokenizeVerb, inspectVerb, synthVerb, kernelsVerb,
}

// modelArg asks for exactly one argument, a model.
func modelArg(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s takes one MODEL, not %d arguments", cmd.Name(), len(args))
	}
	return nil
}
