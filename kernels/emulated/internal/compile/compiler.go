package compile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// compiler is the command line of a C++ compiler, without its arguments.
type compiler struct {
	command []string
	id      string // changes where the compiler does
}

// findCompiler returns $CXX if it is set, as cgo does, else the system's C++ compiler.
func findCompiler(ctx context.Context) (*compiler, error) {
	command := strings.Fields(os.Getenv("CXX"))
	if len(command) == 0 {
		command = []string{"g++"}
		if runtime.GOOS == "darwin" {
			command = []string{"clang++"}
		}
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not to be found (CXX names another)", ErrNoCompiler, command[0])
	}
	command[0] = program
	version, err := exec.CommandContext(ctx, command[0], append(slices.Clone(command[1:]), "--version")...).Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s --version: %w", ErrNoCompiler, strings.Join(command, " "), err)
	}
	return &compiler{command: command, id: strings.Join(command, " ") + "\n" + string(version)}, nil
}

// run calls the compiler in a folder. The error has the first line of its output.
func (c *compiler) run(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.command[0], append(slices.Clone(c.command[1:]), args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	said := bytes.TrimSpace(out)
	for line := range bytes.Lines(said) {
		if bytes.Contains(line, []byte("error:")) {
			said = line
			break
		}
	}
	said, _, _ = bytes.Cut(bytes.TrimSpace(said), []byte("\n"))
	return fmt.Errorf("%s: %w: %s", c.command[0], err, said)
}
