//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// hello is an engine's first line, printed once its model is loaded.
type hello struct {
	Name    string  `json:"name"`
	Version string  `json:"version"`
	Detail  string  `json:"detail,omitempty"` // the engine's kernel set
	Threads int     `json:"threads"`
	Load    float64 `json:"load"` // seconds to open and load the model
}

// A request is one line, and so is its answer:
//
//	pp N DEPTH   time a prompt of N random tokens after DEPTH others
//	tg N DEPTH   time N random tokens, one at a time, after DEPTH others
//	many N DEPTH COUNT  time N tokens of each of COUNT sequences, a token of each at a time,
//	             after prompts of DEPTH random tokens that are not shared
//	fill N       make the sequence N tokens long, however that is quickest
//	peak         the most memory that was ever resident
//	flash N      from now on a sequence with flash attention (1) or without (0); llama.cpp only
//
// pp and tg first drop tokens beyond DEPTH, which is not timed. bench-guard sends requests to
// programs of other commits, so the protocol must not change.
type answer struct {
	Seconds float64 `json:"seconds,omitempty"`
	CPU     float64 `json:"cpu,omitempty"`  // processor seconds of all threads
	Peak    int64   `json:"peak,omitempty"` // bytes
	Error   string  `json:"error,omitempty"`
}

// engine is one of the two rivals with a model loaded.
type engine interface {
	hello() hello
	// fill prepares the engine for samples after a context of depth tokens.
	fill(ctx context.Context, depth int) error
	// sample runs a cell once. CPU includes the engine's work around the timed part, because it
	// is compared with the load of the whole machine.
	sample(ctx context.Context, c cell) (answer, error)
	peak(ctx context.Context) (int64, error)
	close()
}

// flasher is an engine that can run without flash attention. It starts with it.
type flasher interface {
	flash(ctx context.Context, on bool) error
}

// child is an engine in a process that answers the protocol.
type child struct {
	cmd      *exec.Cmd
	requests io.WriteCloser
	answers  *bufio.Reader
	said     *lastWords
	first    hello
}

// start runs a command that answers the protocol, and waits until its model is loaded.
// Cancelling the command's context ends it.
func start(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, said: &lastWords{}}
	cmd.Stderr = c.said
	var err error
	if c.requests, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.answers = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.read(&c.first); err != nil {
		c.close()
		return nil, err
	}
	if c.first.Name == "" {
		c.close()
		return nil, fmt.Errorf("%s: its first line does not name an engine", cmd.Path)
	}
	return c, nil
}

func (c *child) hello() hello { return c.first }

func (c *child) fill(ctx context.Context, depth int) error {
	_, err := c.ask(ctx, fmt.Sprintf("fill %d 0", depth))
	return err
}

func (c *child) sample(ctx context.Context, test cell) (answer, error) {
	request := fmt.Sprintf("%s %d %d", test.Test, test.Tokens, test.Depth)
	if test.Parallel > 0 {
		request = fmt.Sprintf("many %d %d %d", test.Tokens, test.Depth, test.Parallel)
	}
	a, err := c.ask(ctx, request)
	if err == nil && a.Seconds <= 0 {
		err = fmt.Errorf("%s: %v took %g s", c.first.Name, test, a.Seconds)
	}
	return a, err
}

func (c *child) peak(ctx context.Context) (int64, error) {
	a, err := c.ask(ctx, "peak")
	if err == nil && a.Peak <= 0 {
		err = fmt.Errorf("%s reported no peak memory", c.first.Name)
	}
	return a.Peak, err
}

func (c *child) flash(ctx context.Context, on bool) error {
	_, err := c.ask(ctx, "flash "+digit(on))
	return err
}

func (c *child) ask(ctx context.Context, request string) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	var a answer
	_, err := fmt.Fprintln(c.requests, request)
	if err != nil {
		err = c.died(err)
	} else {
		err = c.read(&a)
	}
	if ctx.Err() != nil { // the process ended by the cancellation
		return a, ctx.Err()
	}
	if err != nil {
		return a, fmt.Errorf("%s, asked for %q: %w", c.first.Name, request, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s, asked for %q: %s", c.first.Name, request, a.Error)
	}
	return a, nil
}

func (c *child) read(into any) error {
	line, err := c.answers.ReadBytes('\n')
	if err != nil {
		return c.died(err)
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("%s answered %q: %w", c.cmd.Path, line, err)
	}
	return nil
}

// errEnded is wrapped where an engine's process has ended by itself.
var errEnded = errors.New("the process has ended")

// died adds the process's last output to the error of a broken pipe.
func (c *child) died(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) {
		c.close()
		err = errEnded
	}
	if words := c.said.String(); words != "" {
		return fmt.Errorf("%s: %w: %s", c.cmd.Path, err, words)
	}
	return fmt.Errorf("%s: %w", c.cmd.Path, err)
}

// close kills the process. Its exit status does not matter.
func (c *child) close() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// lastWords keeps the end of the text that is written to it.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

const wordsKept = 1 << 10

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-wordsKept):]
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(string(w.text))
}
