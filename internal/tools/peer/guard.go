//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/smelt-ml/smelt/device"
)

// The slowdown of a commit that is accepted: of the geometric mean of all cells, and of any
// single cell.
const (
	lostMean = 0.01
	lostCell = 0.04
)

// A cell is compared in pairs, as rivals are. Its tokens are generated in short pieces, so that
// variations of the machine affect both commits alike.
const (
	guardPiece  = 16   // tokens
	guardPairs  = 4    // of pieces
	guardPrompt = 2    // pairs of prompts
	settled     = 0.03 // share by which a prompt is faster than the one before, below which an engine has settled
	guardAgain  = 3    // further passes, each with new processes; with the first pass an equal number of each order
)

// compared is one cell of a model in two commits.
type compared struct {
	model string
	cell  cell
	pairs [2][]pair // A is the peer, B is smelt; index 0 with A loaded first, index 1 with B first
}

// ratio returns B / A: the geometric mean over both loading orders of the median of the pairs'
// ratios, of undisturbed pairs if there are any. On machines with several memory nodes the
// engine loaded second may get the farther memory: a commit measured 10 % slower than itself.
func (c *compared) ratio() float64 {
	var ratios []float64
	for _, pairs := range c.pairs {
		clean := 0
		for i := range pairs {
			if pairs[i].clean() {
				clean++
			}
		}
		if len(pairs) > 0 {
			s := samples{Cell: c.cell, Pairs: pairs}
			ratios = append(ratios, s.figures(&workload{}, ceiling{}, cmp.Or(clean, len(pairs))).Ratio)
		}
	}
	return geometric(ratios)
}

// balance is the comparison of two commits.
type balance struct {
	cells []*compared
}

func (b *balance) mean() float64 {
	var ratios []float64
	for _, c := range b.cells {
		ratios = append(ratios, c.ratio())
	}
	return geometric(ratios)
}

// lost returns the slowdowns of B that exceed what is accepted.
func (b *balance) lost() []string {
	var list []string
	if mean := b.mean(); mean < 1-lostMean {
		list = append(list, fmt.Sprintf("the geometric mean is %.3f", mean))
	}
	for _, c := range b.cells {
		if r := c.ratio(); r < 1-lostCell {
			list = append(list, fmt.Sprintf("%s %v is %.3f", c.model, c.cell, r))
		}
	}
	return list
}

// again returns the cells to measure again: outliers in both directions, because repeating only
// losses would hide them, and all cells where only the mean is lost.
func (b *balance) again() []*compared {
	var outliers []*compared
	for _, c := range b.cells {
		if math.Abs(c.ratio()-1) > lostCell {
			outliers = append(outliers, c)
		}
	}
	if len(outliers) == 0 && b.mean() < 1-lostMean {
		return b.cells
	}
	return outliers
}

func (b *balance) write(w io.Writer, nameA, nameB string) error {
	p := &printer{w: w}
	p.row("model", "test", nameA, nameB, "ratio", "undisturbed")
	p.row("---", "---", "---:", "---:", "---:", "---:")
	for _, c := range b.cells {
		s := samples{Cell: c.cell, Pairs: slices.Concat(c.pairs[:]...)}
		f := s.figures(&workload{}, ceiling{}, len(s.Pairs))
		text := fmt.Sprintf("%.3f", c.ratio())
		if c.ratio() < 1-lostCell {
			text = "**" + text + "**"
		}
		p.row(c.model, c.cell.String(), speed(f.Peer), speed(f.Smelt), text, fmt.Sprintf("%d/%d", f.Clean, f.Pairs))
	}
	p.line("")
	p.line("Geometric mean: %.3f; at least %.2f is wanted, and %.2f of each cell.", b.mean(), 1-lostMean, 1-lostCell)
	return p.err
}

// errLost is wrapped where B is too slow.
var errLost = errors.New("speed is lost")

// guard compares the speed of two commits.
func guard(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{patience: 500 * time.Millisecond, peer: "none", pairs: 1, probe: 1, repeats: 30 * time.Second}
	flags := flag.NewFlagSet("peer guard", flag.ContinueOnError)
	flags.SetOutput(stderr)
	a := flags.String("a", "HEAD~1", "the commit that B must not be slower than")
	b := flags.String("b", "HEAD", "the commit to judge")
	environment := flags.String("b-env", "", "an environment variable for B only, to compare settings: NAME=VALUE")
	flags.StringVar(&o.dir, "dir", "build/peer", "folder of the models and of the built commits")
	o.modelFlags(flags)
	flags.StringVar(&o.only, "models", "*", "patterns of models, separated by commas")
	flags.StringVar(&o.cells, "cells", wholeCells, "tests of each model, separated by commas")
	flags.IntVar(&o.threads, "threads", device.DefaultThreads(), "threads of each engine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q: flags only", flags.Arg(0))
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	m := &measurement{options: &o, say: say, machine: thisMachine()}
	if err := m.plan(); err != nil {
		return err
	}
	g := &guarding{measurement: m}
	for i, revision := range []string{*a, *b} {
		s := &g.sides[i]
		var err error
		if s.name, s.path, err = m.build(ctx, revision); err != nil {
			return err
		}
	}
	if *environment != "" {
		if !strings.Contains(*environment, "=") {
			return fmt.Errorf("--b-env %s: want NAME=VALUE", *environment)
		}
		g.sides[1].environment = []string{*environment}
		g.sides[1].name += " " + *environment
	}
	if err := m.makeModels(ctx); err != nil {
		return err
	}
	m.began = time.Now()
	sheet, err := g.run(ctx)
	if err != nil {
		return err
	}
	say("%.1f minutes", time.Since(m.began).Minutes())
	if err := sheet.write(stdout, g.sides[0].name, g.sides[1].name); err != nil {
		return err
	}
	if lost := sheet.lost(); len(lost) > 0 {
		return fmt.Errorf("%w: %s", errLost, strings.Join(lost, ", "))
	}
	return nil
}

// build builds this program at a commit and returns the commit's short name. Its serve command
// is measured. Earlier builds are reused.
func (m *measurement) build(ctx context.Context, revision string) (name, path string, err error) {
	hash, err := output(ctx, "git", "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return "", "", fmt.Errorf("%s is not a commit: %w", revision, err)
	}
	if name, err = output(ctx, "git", "rev-parse", "--short", hash); err != nil {
		return "", "", err
	}
	dir, err := filepath.Abs(filepath.Join(m.dir, "guard"))
	if err != nil {
		return "", "", err
	}
	if path = filepath.Join(dir, hash); exists(path) {
		return name, path, nil
	}
	m.say("building %s", name)
	source := path + ".src"
	if err := errors.Join(os.RemoveAll(source), os.MkdirAll(source, 0o755)); err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source), os.RemoveAll(source+".tar")) }()
	// A worktree would be recorded in the repository.
	if err := command(ctx, "git", "archive", "--format=tar", "-o", source+".tar", hash); err != nil {
		return "", "", err
	}
	if err := command(ctx, "tar", "-xf", source+".tar", "-C", source); err != nil {
		return "", "", err
	}
	program := "./internal/tools/peer"
	if !exists(filepath.Join(source, program)) { // of commits before internal/tools
		program = "./internal/peer"
	}
	// Without the folder's name in the output, commits share the build cache.
	if err := command(ctx, cmp.Or(os.Getenv("GO"), "go"), "build", "-C", source, "-trimpath", "-o", path, program); err != nil {
		return "", "", err
	}
	return name, path, nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out)), err
}

// side is a built commit.
type side struct {
	name, path  string
	environment []string
}

type guarding struct {
	*measurement
	sides [2]side
}

// run measures all cells, and then those that are in doubt again.
func (g *guarding) run(ctx context.Context) (*balance, error) {
	b := &balance{}
	for _, n := range g.named {
		for _, c := range g.tests {
			b.cells = append(b.cells, &compared{model: n[0] + " " + n[1], cell: c})
		}
	}
	pending := b.cells
	for pass := 0; len(pending) > 0 && pass <= guardAgain; pass++ {
		for _, n := range g.named {
			model := n[0] + " " + n[1]
			cells := slices.DeleteFunc(slices.Clone(pending), func(c *compared) bool { return c.model != model })
			if len(cells) == 0 {
				continue
			}
			if err := g.compare(ctx, g.path(n[0], n[1]), cells, pass%2); err != nil {
				return nil, fmt.Errorf("%s: %w", model, err)
			}
		}
		pending = b.again()
	}
	return b, nil
}

// settle runs prompts on an engine until they get no faster. Weights are rearranged between
// steps after the first, and the disk waits in between would look like silence.
func (g *guarding) settle(ctx context.Context, e engine) error {
	if err := g.machine.silence(ctx, 10*g.patience); err != nil {
		return err
	}
	for before := 0.0; ; {
		a, err := e.sample(ctx, cell{Test: prompting, Tokens: warmPrompt})
		if err != nil {
			return err
		}
		if before != 0 && a.Seconds > before*(1-settled) {
			return nil
		}
		before = a.Seconds
	}
}

// compare adds pairs to cells of one model, with side first loaded first.
func (g *guarding) compare(ctx context.Context, path string, cells []*compared, first int) error {
	var engines [2]*child
	for _, i := range []int{first, 1 - first} {
		s := g.sides[i]
		cmd := exec.CommandContext(ctx, s.path, "serve", path, strconv.Itoa(g.threads), strconv.Itoa(g.slots))
		cmd.Env = append(os.Environ(), append(s.environment, versionVariable+"="+s.name, "SMELT_TUNED=off")...)
		e, err := start(cmd)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer e.close()
		for _, c := range []cell{{Test: prompting, Tokens: warmPrompt}, {Test: generating, Tokens: warmTokens}} {
			if _, err := e.sample(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		engines[i] = e
	}
	for _, e := range engines {
		if err := g.settle(ctx, e); err != nil {
			return err
		}
	}
	bout := &bout{smelt: engines[1], peer: engines[0], machine: g.machine, patience: g.patience, repeats: &g.repeats}
	for _, c := range cells {
		piece, n := c.cell, guardPrompt
		if piece.Test == generating {
			piece.Tokens, n = min(piece.Tokens, guardPiece), guardPairs
		}
		pairs, err := bout.pairs(ctx, piece, n)
		if err != nil {
			return err
		}
		c.pairs[first] = append(c.pairs[first], pairs...)
		g.say("%4.1f min  %-18s %-10v %.3f", time.Since(g.began).Minutes(), c.model, c.cell, c.ratio())
	}
	return nil
}
