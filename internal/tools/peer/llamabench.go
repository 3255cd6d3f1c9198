//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// llamaBench runs llama.cpp through its own llama-bench. That cannot stay loaded, so each sample
// is one run, and a sample at a depth computes the whole context first.
type llamaBench struct {
	path, model string
	mapped      bool // whether weights are mapped, else read into memory
	plain       bool // without flash attention
	first       hello
	most        int64
}

// benched holds the fields of llama-bench's output that are used.
type benched struct {
	Commit  string  `json:"build_commit"`
	Build   int     `json:"build_number"`
	Prompt  int     `json:"n_prompt"`
	Tokens  int     `json:"n_gen"`
	Depth   int     `json:"n_depth"`
	Average float64 `json:"avg_ns"`
}

// startLlamaBench checks that the program runs on the model.
func startLlamaBench(ctx context.Context, path, model string, threads int, mapped bool) (*llamaBench, error) {
	b := &llamaBench{path: path, model: model, mapped: mapped, first: hello{Name: "llama.cpp", Threads: threads}}
	began := time.Now()
	r, _, err := b.run(ctx, cell{Test: prompting, Tokens: 1})
	if err != nil {
		return nil, err
	}
	b.first.Load = time.Since(began).Seconds()
	b.first.Version = fmt.Sprintf("%s (%d)", r.Commit, r.Build)
	return b, nil
}

func (b *llamaBench) hello() hello                        { return b.first }
func (b *llamaBench) fill(context.Context, int) error     { return nil }
func (b *llamaBench) peak(context.Context) (int64, error) { return b.most, nil }
func (b *llamaBench) close()                              {}
func (b *llamaBench) flash(_ context.Context, on bool) error {
	b.plain = !on
	return nil
}

func (b *llamaBench) sample(ctx context.Context, c cell) (answer, error) {
	r, cpu, err := b.run(ctx, c)
	if err != nil {
		return answer{}, err
	}
	return answer{Seconds: r.Average / 1e9, CPU: cpu}, nil
}

func digit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

func (b *llamaBench) run(ctx context.Context, c cell) (r benched, cpu float64, err error) {
	prompt, tokens := c.Tokens, 0
	if c.Test == generating {
		prompt, tokens = 0, c.Tokens
	}
	cmd := exec.CommandContext(ctx, b.path, "-m", b.model, "-t", strconv.Itoa(b.first.Threads),
		"-p", strconv.Itoa(prompt), "-n", strconv.Itoa(tokens), "-d", strconv.Itoa(c.Depth),
		"-fa", digit(!b.plain), "-ub", "512", "-ngl", "0", "-r", "1", "-o", "jsonl")
	if !b.mapped {
		cmd.Args = append(cmd.Args, "-lm", "none") // its default is mapping
	}
	said := &lastWords{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return r, 0, fmt.Errorf("%s on %s, %v: %w: %s", b.path, b.model, c, err, said)
	}
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		b.most = max(b.most, used.Maxrss<<10)
	}
	if err := json.Unmarshal(bytes.TrimSpace(out), &r); err != nil {
		return r, 0, fmt.Errorf("%s answered %.200q: %w", b.path, out, err)
	}
	if r.Prompt != prompt || r.Tokens != tokens || r.Depth != c.Depth || r.Average <= 0 {
		return r, 0, fmt.Errorf("%s: asked for %v, answered %.200q", b.path, c, out)
	}
	return r, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), nil
}
