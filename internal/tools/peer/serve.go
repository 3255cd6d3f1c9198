//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/parallel"
)

// serve answers requests for smelt with one session on "cpu", until the input ends.
func serve(ctx context.Context, path string, threads, slots int, in io.Reader, out io.Writer) error {
	began := time.Now()
	m, err := smelt.Open(path, "")
	if err != nil {
		return err
	}
	defer m.Close()
	opts := smelt.DefaultOptions()
	opts.Target, opts.Context = "cpu", slots
	p, err := m.Compile(opts)
	if err != nil {
		return err
	}
	loaded, err := p.Load(smelt.Device{Name: "cpu", Threads: threads})
	if err != nil {
		return err
	}
	defer loaded.Close()
	s, err := loaded.NewSession()
	if err != nil {
		return err
	}
	encode := json.NewEncoder(out)
	if err := encode.Encode(hello{
		Name: "smelt", Version: os.Getenv(versionVariable), Detail: loaded.Info().ISA, Threads: loaded.Info().Threads, Load: time.Since(began).Seconds(),
	}); err != nil {
		return err
	}
	served := &served{program: p, threads: threads, session: s, rng: rand.New(rand.NewPCG(1, 2))}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		a, err := served.answer(ctx, lines.Text())
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := encode.Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// versionVariable is the environment variable with the commit that a served smelt reports.
const versionVariable = "SMELT_PEER_VERSION"

type served struct {
	program *smelt.Program
	threads int
	session *smelt.Session
	rng     *rand.Rand

	many   cell // the cell that engine is for
	engine *smelt.Engine
	clock  parallel.Clock // metrics of engine
}

var errRequest = errors.New("no such request")

func (v *served) answer(ctx context.Context, request string) (a answer, err error) {
	words := strings.Fields(request)
	if len(words) == 1 && words[0] == "peak" {
		a.Peak, err = residentPeak()
		return a, err
	}
	if len(words) > 0 && words[0] == "many" {
		return v.sequences(ctx, request)
	}
	if len(words) != 3 {
		return a, fmt.Errorf("%q: %w", request, errRequest)
	}
	var n, depth int
	for i, into := range []*int{&n, &depth} {
		if *into, err = strconv.Atoi(words[i+1]); err != nil || *into < 0 || *into > v.session.Context() {
			return a, fmt.Errorf("%q: want 0 to %d tokens", request, v.session.Context())
		}
	}
	switch words[0] {
	case "fill":
		if v.session.Length() >= n {
			v.session.Truncate(n)
			return a, nil
		}
		return v.timed(func() error { return v.session.FillRandom(n, v.rng) })
	case "pp", "tg":
		if depth > v.session.Length() || n > v.session.Context()-depth {
			return a, fmt.Errorf("%q: the sequence has %d tokens, the cache %d", request, v.session.Length(), v.session.Context())
		}
		v.session.Truncate(depth)
		if words[0] == "pp" {
			return v.timed(func() error { return v.prompt(ctx, n) })
		}
		return v.timed(func() error { return v.generate(ctx, n) })
	}
	return a, fmt.Errorf("%q: %w", request, errRequest)
}

// Bounds on requests for several sequences.
const (
	mostParallel = 999
	mostTokens   = 1 << 20
)

// sequences answers a "many" request. The engine stays for further samples of the cell.
func (v *served) sequences(ctx context.Context, request string) (a answer, err error) {
	c := cell{Test: generating}
	if n, err := fmt.Sscanf(request, "many %d %d %d", &c.Tokens, &c.Depth, &c.Parallel); n != 3 || err != nil ||
		min(c.Tokens, c.Depth, c.Parallel) < 1 || max(c.Tokens, c.Depth) > mostTokens || c.Parallel > mostParallel {
		return a, fmt.Errorf("%q: %w", request, errRequest)
	}
	if c != v.many {
		if err := v.prepare(c); err != nil {
			return a, err
		}
	}
	cpu := processorSeconds()
	elapsed, err := v.clock.Time(ctx, v.engine, parallel.Prompts(v.rng, c.Parallel, c.Depth, v.engine.Vocab()), c.Tokens)
	return answer{Seconds: elapsed.Seconds(), CPU: processorSeconds() - cpu}, err
}

// prepare replaces the engine by one for a cell.
func (v *served) prepare(c cell) error {
	v.many = cell{}
	if v.engine != nil {
		if err := v.engine.Loaded().Close(); err != nil {
			return err
		}
	}
	p, err := v.program.Model().Compile(parallel.Options(v.program.Options(), c.Parallel, c.Depth, c.Tokens))
	if err != nil {
		return err
	}
	l, err := p.Load(smelt.Device{Name: "cpu", Threads: v.threads})
	if err != nil {
		return err
	}
	if v.engine, err = l.NewEngine(smelt.EngineOptions{Metrics: &v.clock}); err != nil {
		return errors.Join(err, l.Close())
	}
	v.many = c
	return nil
}

func (v *served) prompt(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	_, err := v.session.Feed(ctx, v.random(n))
	return err
}

func (v *served) generate(ctx context.Context, n int) error {
	ids := v.random(n)
	for i := range ids {
		if _, err := v.session.Feed(ctx, ids[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (v *served) random(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(v.rng.IntN(v.session.Vocab()))
	}
	return ids
}

func (v *served) timed(work func() error) (answer, error) {
	cpu, began := processorSeconds(), time.Now()
	err := work()
	return answer{Seconds: time.Since(began).Seconds(), CPU: processorSeconds() - cpu}, err
}

// processorSeconds returns the processor time of all threads of this process.
func processorSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // cannot fail for the own process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// residentPeak returns the peak resident memory of this process in bytes, including pages of
// mapped files.
func residentPeak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}
