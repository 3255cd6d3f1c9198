//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/tools/limits"
	"github.com/smelt-ml/smelt/kernels/native"
	"github.com/smelt-ml/smelt/models/synth"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "peer:", err)
		}
		stop()
		os.Exit(1)
	}
}

// options are the values of the flags.
type options struct {
	dir, models, only, cells, peer string
	shapes, formats                string
	smelt                          string
	isa                            string
	pairs, threads                 int
	repeats, patience              time.Duration
	probe                          int
	add                            bool
	from, json, markdown, document string
	docs                           string
}

// modelFlags defines the flags that name the models of a comparison.
func (o *options) modelFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.formats, "formats", strings.Join(formats, ","), "types of weights that smelt synth knows, separated by commas")
	flags.StringVar(&o.shapes, "shapes", strings.Join(shapes, ";"), "shapes, separated by semicolons, with changed metadata after commas: gemma3-1b;phi4-mini,block_count=4")
}

var (
	shapes  = []string{"qwen3-0.6b", "llama3.2-1b"}
	formats = []string{"f16", "q8_0", "q4_0", "q4_k_m"}
)

// The extent of a whole comparison, of every shape and format.
const (
	wholeCells = "pp512,tg64,tg64@4096"
	wholePairs = 7
)

// whole reports whether the comparison is complete, so that it can be published.
func (r *report) whole() bool {
	want := strings.Split(wholeCells, ",")
	for i := range r.Models {
		b := &r.Models[i]
		if !slices.EqualFunc(b.Cells, want, func(s samples, name string) bool { return s.Cell.String() == name && len(s.Pairs) >= wholePairs }) {
			return false
		}
	}
	return r.Peer != nil && r.Pairs >= wholePairs && len(r.Models) == len(shapes)*len(formats)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			if len(args) == 4 {
				threads, _ := strconv.Atoi(args[2])
				slots, _ := strconv.Atoi(args[3])
				return serve(ctx, args[1], threads, slots, os.Stdin, stdout)
			}
		case "guard":
			return guard(ctx, args[1:], stdout, stderr)
		case "parity":
			return writeParity(ctx, args[1:], stderr)
		case "keys":
			return writeKeys(ctx, args[1:], stderr)
		case "pipelines":
			return writePipelines(ctx, args[1:], stderr)
		case "tokens":
			return writeTokens(ctx, args[1:], stderr)
		case "templates":
			return writeTemplates(ctx, args[1:], stderr)
		}
	}
	var o options
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dir, "dir", "build/peer", "folder of llama.cpp, which is fetched if missing")
	flags.StringVar(&o.models, "models-dir", "", "folder of the models, which are written if missing (default: models in --dir)")
	flags.StringVar(&o.only, "models", "*", "patterns of models, separated by commas: qwen3-*,llama3.2-1b-q4_0")
	o.modelFlags(flags)
	flags.StringVar(&o.cells, "cells", wholeCells, "tests of each model: prompts (pp), or tokens generated one at a time (tg), @ a depth")
	flags.StringVar(&o.peer, "peer", "llama.cpp", "rival measured beside smelt: llama.cpp or none")
	flags.StringVar(&o.isa, "isa", "", "instruction set of all engines, a value of SMELT_ISA (default: each engine's choice)")
	flags.StringVar(&o.smelt, "smelt", "", "path of the tool, whose time to the first token is measured; without it that is not measured")
	flags.IntVar(&o.pairs, "pairs", wholePairs, "pairs of samples of each cell")
	flags.IntVar(&o.threads, "threads", device.DefaultThreads(), "threads of each engine")
	flags.DurationVar(&o.repeats, "repeats", 5*time.Minute, "maximum time for repeating disturbed samples")
	flags.DurationVar(&o.patience, "patience", 2*time.Second, "maximum wait of a sample for other load to end")
	flags.IntVar(&o.probe, "probe", 1024, "MiB read by the bandwidth probe, on small pages and on huge ones; at most a sixteenth of the free memory")
	flags.BoolVar(&o.add, "add", false, "add to the report in --json, replacing models that are measured again")
	flags.StringVar(&o.from, "from", "", "print the report in this JSON file without measuring")
	flags.StringVar(&o.json, "json", "", "file of the samples (default: report.json in --dir)")
	flags.StringVar(&o.markdown, "markdown", "", "file that the tables are also written to")
	flags.StringVar(&o.docs, "docs", "", "folder that the samples of a whole comparison are also written to")
	flags.StringVar(&o.document, "document", "", "document whose marked lines are replaced by the tables of a whole comparison")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q: flags only", flags.Arg(0))
	}
	r, err := o.report(ctx, func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) })
	if err != nil {
		return err
	}
	if err := r.write(stdout); err != nil {
		return err
	}
	if o.markdown != "" {
		f, err := os.Create(o.markdown)
		if err != nil {
			return err
		}
		if err := errors.Join(r.write(f), f.Close()); err != nil {
			return err
		}
	}
	if faults := r.faults(); len(faults) > 0 {
		return fmt.Errorf("%w: %s", errProbe, faults[0].what)
	}
	if !r.whole() {
		for _, to := range []string{o.docs, o.document} {
			if to != "" {
				fmt.Fprintf(stderr, "%s is not updated: this is not a whole comparison\n", to)
			}
		}
		return nil
	}
	if o.docs != "" {
		if err := r.publish(o.docs); err != nil {
			return err
		}
	}
	if o.document != "" {
		return rewrite(o.document, r)
	}
	return nil
}

// errProbe is wrapped where an engine exceeded the probed limits of the machine. Such a
// comparison is printed but not published.
var errProbe = errors.New("an engine exceeded the probed limits of the machine")

// samplesFolder is the repository's folder of the samples of whole comparisons.
const samplesFolder = "docs/peer"

// fileName returns the file name of a whole comparison's samples, made from time and commit.
func (r *report) fileName() string {
	return r.Date.Format("2006-01-02-1504-") + strings.ReplaceAll(r.Smelt.Version, " ", "-") + ".json"
}

// publish writes the samples into a folder of the repository, one cell per line.
func (r *report) publish(folder string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for _, begin := range []string{`{"model":`, `{"cell":`} {
		text = bytes.ReplaceAll(text, []byte(begin), []byte("\n"+begin))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, r.fileName()), append(text, '\n'), 0o644)
}

// report measures, or reads an earlier report.
func (o *options) report(ctx context.Context, say func(string, ...any)) (*report, error) {
	if o.from != "" {
		return readReport(o.from)
	}
	m := &measurement{options: o, say: say, machine: thisMachine()}
	if err := m.plan(); err != nil {
		return nil, err
	}
	return m.run(ctx)
}

func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

// measurement is a run over all models.
type measurement struct {
	*options
	say     func(string, ...any)
	machine machine
	tests   []cell
	named   [][2]string // pairs of shape and format
	slots   int         // of each engine's cache
	depth   int         // the largest depth of a cell
	rival   rival
	read    *limits.Reader
	began   time.Time
}

// rival starts llama.cpp on a model of a shape, with weights mapped from the file or read into
// memory; nil without a rival.
type rival func(ctx context.Context, shape, model string, mapped bool) (engine, error)

// plan checks the flags and resolves the cells and models.
func (m *measurement) plan() error {
	if m.pairs < 1 || m.threads < 1 || m.probe < 1 {
		return fmt.Errorf("--pairs %d --threads %d --probe %d: want 1 or more", m.pairs, m.threads, m.probe)
	}
	if _, known := backends[m.isa]; !known {
		return fmt.Errorf("--isa %s: want one of%s", m.isa, strings.Join(slices.Sorted(maps.Keys(backends)), " "))
	}
	longest := 0
	for text := range strings.SplitSeq(m.cells, ",") {
		c, err := parseCell(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("--cells: %w", err)
		}
		m.tests = append(m.tests, c)
		if c.Parallel == 0 {
			m.depth, longest = max(m.depth, c.Depth), max(longest, c.Tokens)
		}
	}
	m.slots = m.depth + max(longest, warmPrompt)
	for shape := range strings.SplitSeq(m.shapes, ";") {
		for format := range strings.SplitSeq(m.formats, ",") {
			for pattern := range strings.SplitSeq(m.only, ",") {
				matches, err := path.Match(strings.TrimSpace(pattern), shape+"-"+format)
				if err != nil {
					return fmt.Errorf("--models %q: %w", pattern, err)
				}
				if matches {
					m.named = append(m.named, [2]string{shape, format})
					break
				}
			}
		}
	}
	if len(m.named) == 0 {
		return fmt.Errorf("--models %q: no model matches (shapes %s, formats %s)", m.only, m.shapes, m.formats)
	}
	m.models = cmp.Or(m.models, filepath.Join(m.dir, "models"))
	m.json = cmp.Or(m.json, filepath.Join(m.dir, "report.json"))
	for _, dir := range []string{m.dir, m.models} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// choose sets up the rival.
func (m *measurement) choose(ctx context.Context) error {
	switch bench := os.Getenv("LLAMA_BENCH"); {
	case m.peer == "none":
	case m.peer != "llama.cpp":
		return fmt.Errorf("--peer %s: want llama.cpp or none", m.peer)
	case bench != "":
		m.rival = func(ctx context.Context, _, model string, mapped bool) (engine, error) {
			return startLlamaBench(ctx, bench, model, m.threads, mapped)
		}
	default:
		in, err := install(ctx, m.dir, m.isa, m.say)
		if err != nil {
			return err
		}
		m.rival = func(ctx context.Context, shape, model string, mapped bool) (engine, error) {
			return in.start(ctx, model, m.threads, m.slots, m.state(shape), mapped)
		}
	}
	return nil
}

func (m *measurement) run(ctx context.Context) (*report, error) {
	m.began = time.Now()
	if err := m.choose(ctx); err != nil {
		return nil, err
	}
	if err := m.makeModels(ctx); err != nil {
		return nil, err
	}
	m.read = limits.NewReader(int(min(int64(m.probe)<<20, freeMemory()/16)), m.threads)
	defer m.read.Close()
	r := &report{Date: m.began.UTC(), Machine: m.machine.describe(), Threads: m.threads, Pairs: m.pairs}
	if m.add {
		old, err := readReport(m.json)
		if err != nil {
			return nil, fmt.Errorf("--add: %w", err)
		}
		if old.Machine != r.Machine || old.Threads != r.Threads || old.Pairs != r.Pairs || (old.Peer == nil) != (m.rival == nil) || old.Fork != nil {
			return nil, fmt.Errorf("--add: %s was measured on another machine, with other threads, pairs or rivals", m.json)
		}
		r = old
	}
	before := r.Elapsed
	for _, n := range m.named {
		if err := m.model(ctx, r, n[0], n[1]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", n[0], n[1], err)
		}
		r.Elapsed = before + time.Since(m.began).Seconds()
		if err := m.keep(r); err != nil { // later models may fail
			return nil, err
		}
	}
	if err := m.starts(ctx, r); err != nil {
		return nil, err
	}
	m.say("%.0f minutes; samples in %s", r.Elapsed/60, m.json)
	return r, nil
}

// startupModel is the shape and format whose time to the first token is measured. startupRuns
// runs are measured after one that loads the files into the page cache.
var startupModel = [2]string{"qwen3-0.6b", "q4_0"}

const startupRuns = 9

// starts measures the time of the tool from its start to the end of the first token.
func (m *measurement) starts(ctx context.Context, r *report) error {
	if m.smelt == "" || !slices.Contains(m.named, startupModel) {
		return nil
	}
	path := m.path(startupModel[0], startupModel[1])
	r.Startup = nil
	for i := range startupRuns + 1 {
		if err := m.machine.silence(ctx, m.patience); err != nil {
			return err
		}
		began := time.Now()
		if err := command(ctx, m.smelt, "run", path, "-p", "hi", "-n", "1", "--threads", strconv.Itoa(m.threads)); err != nil {
			return err
		}
		if i > 0 {
			r.Startup = append(r.Startup, startup{startupModel[0] + " " + startupModel[1], time.Since(began).Seconds()})
		}
	}
	return m.keep(r)
}

// keep writes the measurements so far.
func (m *measurement) keep(r *report) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.json, append(text, '\n'), 0o644)
}

func (m *measurement) path(shape, format string) string {
	return filepath.Join(m.models, shape+"-"+format+".gguf")
}

// state returns the prefix of the files in which llama.cpp keeps filled caches. Models of one
// shape share them, whatever their weight types, because the caches hold random tokens.
func (m *measurement) state(shape string) string {
	if m.depth == 0 {
		return ""
	}
	return filepath.Join(m.models, shape+".state")
}

// makeModels writes the missing models.
func (m *measurement) makeModels(ctx context.Context) error {
	for _, n := range m.named {
		path := m.path(n[0], n[1])
		if exists(path) {
			continue
		}
		m.say("writing %s", path)
		if err := synthesise(ctx, n[0], n[1], path); err != nil {
			return err
		}
	}
	return nil
}

// synthesise writes a model of a real shape with random weights. The file is renamed into place
// once it is complete.
func synthesise(ctx context.Context, shape, format, path string) (err error) {
	model, err := smelt.Open("arch:"+shape, format)
	if err != nil {
		return err
	}
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	err = synth.Write(w, model.File(), format, 1, func(int64, int64) error { return ctx.Err() })
	if err = errors.Join(err, w.Flush(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Each engine is warmed up before its samples, so that pages of weights and cache are resident
// and first-step preparations are done.
const (
	warmPrompt = 512
	warmTokens = 4
)

// model measures all cells of one model and adds them to the report.
func (m *measurement) model(ctx context.Context, r *report, shape, format string) error {
	path := m.path(shape, format)
	b := &bench{Model: shape, Format: format}
	file, err := smelt.Open(path, "")
	if err != nil {
		return err
	}
	b.Work = workloadOf(file.File())
	if err := file.Close(); err != nil {
		return err
	}
	ours, err := m.serveSelf(ctx, path)
	if err != nil {
		return err
	}
	defer ours.close()
	if err := r.meet(ours.hello(), &r.Smelt); err != nil {
		return err
	}
	bout := &bout{smelt: ours, machine: m.machine, read: m.read, patience: m.patience, repeats: &m.repeats}
	if m.rival != nil {
		if bout.peer, err = m.rival(ctx, shape, path, true); err != nil {
			return err
		}
		defer bout.peer.close()
		if r.Peer == nil {
			r.Peer = &hello{}
		}
		if err := r.meet(bout.peer.hello(), r.Peer); err != nil {
			return err
		}
	}
	for _, e := range bout.engines(false) {
		for _, c := range []cell{{Test: prompting, Tokens: warmPrompt}, {Test: generating, Tokens: warmTokens}} {
			if _, err := e.sample(ctx, c); err != nil {
				return err
			}
		}
	}
	if err := m.machine.silence(ctx, m.patience); err != nil {
		return err
	}
	isa := cmp.Or(m.isa, native.ISA())
	peaks := limits.Probe(isa, m.threads)
	b.Float, b.Int8, b.Read = brief(peaks.F32GOPs), brief(peaks.Int8GOPs), brief(m.read.Try(1)[0].GBs)
	b.Nibbles = brief(peaks.NibbleGOPs)
	if slices.ContainsFunc(native.Libraries(), func(l native.Library) bool { return l.ISA() == isa && l.HalfIntegers() }) {
		b.Half = brief(peaks.Int8GOPs / 2) // an instruction has half as many elements
	}
	for _, c := range m.tests {
		flash, err := bout.choose(ctx, c)
		if err != nil {
			return err
		}
		pairs, err := bout.pairs(ctx, c, m.pairs)
		if err != nil {
			return err
		}
		s := samples{Cell: c, Flash: flash, Pairs: pairs}
		b.Cells = append(b.Cells, s)
		limit := r.ceiling(b.products())
		limit = ceiling{max(limit.read, b.read()), max(limit.ops, b.peak(b.products()))}
		f := b.Cells[len(b.Cells)-1].figures(&b.Work, limit, m.pairs)
		m.say("%3.0f min  %-18s %-10v %7.1f %7.1f tokens/s, ratio %.2f, of the limit %3.0f %% and %3.0f %%, %5.1f GB/s, %d/%d undisturbed",
			time.Since(m.began).Minutes(), b.name(), c, f.Smelt, f.Peer, f.Ratio, 100*f.SmeltShare, 100*f.PeerShare, f.Read, f.Clean, f.Pairs)
	}
	if slices.ContainsFunc(m.tests, func(c cell) bool { return c.Parallel > 0 }) {
		r.enter(b) // engines for several sequences would distort the comparison of memory
		return nil
	}
	if b.SmeltPeak, err = ours.peak(ctx); err != nil {
		return err
	}
	if bout.peer != nil {
		ours.close()
		bout.peer.close()
		for _, mapped := range []bool{true, false} {
			into := &b.PeerRead
			if mapped {
				into = &b.PeerMapped
			}
			if *into, err = m.memory(ctx, shape, path, mapped); err != nil {
				return err
			}
		}
	}
	r.enter(b)
	return nil
}

// memory returns the rival's peak memory in bytes in a new process that has run the work of all
// cells with one cache.
func (m *measurement) memory(ctx context.Context, shape, path string, mapped bool) (int64, error) {
	e, err := m.rival(ctx, shape, path, mapped)
	if err != nil {
		return 0, err
	}
	defer e.close()
	for _, c := range []cell{{Test: prompting, Tokens: warmPrompt}, {Test: generating, Tokens: warmTokens, Depth: m.depth}} {
		if err := e.fill(ctx, c.Depth); err != nil {
			return 0, err
		}
		if _, err := e.sample(ctx, c); err != nil {
			return 0, err
		}
	}
	return e.peak(ctx)
}

// meet records an engine's identity, and returns an error if it differs from that of earlier
// models.
func (r *report) meet(h hello, as *hello) error {
	if len(r.Models) > 0 && (h.Version != as.Version || h.Detail != as.Detail) {
		return fmt.Errorf("%s is %s, and other models were measured with %s", h.Name, versionOf(&h), versionOf(as))
	}
	*as = h
	return nil
}

// enter adds a model to the report, replacing an earlier entry, in the order of a whole
// comparison.
func (r *report) enter(b *bench) {
	r.Models = slices.DeleteFunc(r.Models, func(o bench) bool { return o.name() == b.name() })
	r.Models = append(r.Models, *b)
	rank := func(b bench) int { // shapes and formats outside a whole comparison come last
		place := func(list []string, name string) int {
			if i := slices.Index(list, name); i >= 0 {
				return i
			}
			return len(list)
		}
		return place(shapes, b.Model)*(len(formats)+1) + place(formats, b.Format)
	}
	slices.SortStableFunc(r.Models, func(x, y bench) int { return rank(x) - rank(y) })
}

// serveSelf starts this program again as smelt's engine.
func (m *measurement) serveSelf(ctx context.Context, path string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "serve", path, strconv.Itoa(m.threads), strconv.Itoa(m.slots))
	cmd.Env = append(os.Environ(), versionVariable+"="+commit(ctx), "SMELT_TUNED=off")
	if m.isa != "" {
		cmd.Env = append(cmd.Env, "SMELT_ISA="+m.isa)
	}
	return start(cmd)
}

// commit returns the commit of the working folder, and whether anything but documents has
// changed since.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "an unknown commit"
	}
	name := strings.TrimSpace(string(out))
	if exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD", "--", ":!*.md").Run() != nil {
		name += " with changes"
	}
	return name
}
