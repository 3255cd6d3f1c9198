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

// hello is what an engine says once it is loaded, on its first line.
type hello struct {
	Name    string  `json:"name"`
	Version string  `json:"version"`
	Detail  string  `json:"detail,omitempty"` // which of its kernels run here
	Threads int     `json:"threads"`
	Load    float64 `json:"load"` // seconds from opening the model to here
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
// pp and tg drop what is longer than DEPTH first, and that is not timed. bench-guard asks
// other commits' programs: what stands here stays.
type answer struct {
	Seconds float64 `json:"seconds,omitempty"`
	CPU     float64 `json:"cpu,omitempty"`  // processor seconds of all threads
	Peak    int64   `json:"peak,omitempty"` // bytes
	Error   string  `json:"error,omitempty"`
}

// engine is one of the two rivals with a model loaded.
type engine interface {
	hello() hello
	// fill readies the engine for samples after so many tokens.
	fill(ctx context.Context, depth int) error
	// sample runs a cell once. CPU also counts what the engine does around the timed
	// part, since the answer is compared with what the whole machine did meanwhile.
	sample(ctx context.Context, c cell) (answer, error)
	peak(ctx context.Context) (int64, error)
	close()
}

// flasher is an engine that can do without flash attention. It starts with it.
type flasher interface {
	flash(ctx context.Context, on bool) error
}

// child is an engine in a process that speaks the protocol.
type child struct {
	cmd      *exec.Cmd
	requests io.WriteCloser
	answers  *bufio.Reader
	said     *lastWords
	first    hello
}

// start runs a command that speaks the protocol, and waits until its model is loaded.
// The command ends with the context.
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
		return nil, fmt.Errorf("%s: its first line names no engine", cmd.Path)
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
		err = fmt.Errorf("%s does not know its memory", c.first.Name)
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
	if ctx.Err() != nil { // the process ended because it was told to
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

// errEnded is wrapped where an engine ended on its own.
var errEnded = errors.New("the process has ended")

// died adds to a broken pipe what the process said last.
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

// close ends the process. Nothing that it could still do matters, and neither does the
// status of one that was killed.
func (c *child) close() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// lastWords keeps the end of what is written.
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
