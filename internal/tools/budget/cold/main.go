// Command cold runs a Makefile target with an empty build cache, and fails if it takes longer
// than package budget allows.
//
//	go run ./internal/tools/budget/cold demo
//	go run ./internal/tools/budget/cold test
//
// Modules and Debian's packages are fetched before the clock starts.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"time"

	"github.com/smelt-ml/smelt/internal/tools/budget"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cold:", err)
		os.Exit(1)
	}
}

// bounds of the targets; nil: no bound.
var bounds = map[string]struct{ cpu, wall *budget.Bound }{
	"demo": {&budget.DemoCPU, &budget.DemoWall},
	"test": {nil, &budget.TestWall},
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("arguments %q: want one target, demo or test", args)
	}
	bound, ok := bounds[args[0]]
	if !ok {
		return fmt.Errorf("target %q has no bound", args[0])
	}
	for _, needed := range [][]string{{"make", "setup"}, {"go", "mod", "download"}} {
		if err := command(needed...).Run(); err != nil {
			return fmt.Errorf("%v: %w", needed, err)
		}
	}
	cache, err := os.MkdirTemp("", "smelt-cold")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	interrupted := make(chan os.Signal, 1) // make gets the signal too, so the cache is removed
	signal.Notify(interrupted, os.Interrupt)

	target := command("make", args[0])
	target.Env = append(os.Environ(), "GOCACHE="+cache)
	began := time.Now()
	if err := target.Run(); err != nil {
		return fmt.Errorf("make %s: %w", args[0], err)
	}
	wall := time.Since(began).Seconds()
	cpu := (target.ProcessState.UserTime() + target.ProcessState.SystemTime()).Seconds() // of make and its children
	fmt.Printf("make %s from nothing: %.0f s of processor time, %.0f s of wall time on %d cores of %s\n",
		args[0], cpu, wall, runtime.NumCPU(), processor())
	if bound.cpu != nil {
		if err := bound.cpu.Check(cpu); err != nil {
			return err
		}
	}
	if runtime.NumCPU() < 2 {
		return nil // the bounds on wall time are for two cores
	}
	return bound.wall.Check(wall)
}

func command(words ...string) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd
}
