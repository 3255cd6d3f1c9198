//go:build linux

package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/samber/lo"
	"golang.org/x/exp/stats"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
)

//go:embed llama/embed.cpp
var embedSource []byte

// batchesOf are how many tokens llama.cpp gets at once: it computes the scores of all tokens of
// a batch with all others, those of other texts too, so that larger ones are not always better.
var batchesOf = []int{128, 512, 2048}

// embedTexts compares how many texts a second both engines embed, in turns: A B, B A, A B. What
// llama.cpp is given at once, and whether with flash attention, is what was best for it in a
// round of each.
func embedTexts(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer embed MODEL.gguf…", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "build/peer", "folder of llama.cpp, fetched there if it is missing")
	texts := flags.Int("texts", 64, "texts of a sample")
	shortest := flags.Int("shortest", 8, "tokens of the shortest text")
	longest := flags.Int("longest", 128, "tokens of the longest text")
	pairs := flags.Int("pairs", 5, "pairs of samples")
	threads := flags.Int("threads", device.DefaultThreads(), "threads of each engine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *texts < 1 || *shortest < 1 || *longest < *shortest || *longest > batchesOf[len(batchesOf)-1] || *pairs < 1 {
		return fmt.Errorf("%d texts of %d to %d tokens, %d pairs: want one and more, of at most %d tokens", *texts, *shortest, *longest, *pairs, batchesOf[len(batchesOf)-1])
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	in, err := install(ctx, *dir, "", say)
	if err != nil {
		return err
	}
	program, err := in.build(ctx, "embed", embedSource, say)
	if err != nil {
		return err
	}
	lengths := lo.Times(*texts, func(i int) int { return *shortest + i*37%(*longest-*shortest+1) })
	fmt.Fprintf(stdout, "| model | smelt, texts/s | llama.cpp, texts/s | its batch | ratio | least | most |\n|---|--:|--:|---|--:|--:|--:|\n")
	for _, path := range flags.Args() {
		if err := embedPairs(ctx, in, program, path, lengths, *pairs, *threads, stdout); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func embedPairs(ctx context.Context, in *installed, program, path string, lengths []int, pairs, threads int, stdout io.Writer) error {
	rival, err := startEmbedding(ctx, program, path, in.libraries, threads, lengths)
	if err != nil {
		return err
	}
	defer rival.stop()
	best, settings := math.Inf(1), ""
	for _, tokens := range batchesOf {
		if tokens < slices.Max(lengths) {
			continue
		}
		for flash := range 2 {
			ask := fmt.Sprint(tokens, flash)
			took, err := rival.round(ask)
			if err != nil {
				return err
			}
			if took < best {
				best, settings = took, ask
			}
		}
	}
	own, err := newEmbedding(ctx, path, threads, lengths)
	if err != nil {
		return err
	}
	defer own.close()
	if _, err := own.round(ctx); err != nil { // pages of weights and of the arena
		return err
	}
	m := thisMachine()
	var times [2][]float64
	var ratios []float64
	for i := range pairs {
		var pair [2]float64
		for _, k := range [][]int{{0, 1}, {1, 0}}[i%2] {
			if err := m.silence(ctx, 2*time.Second); err != nil {
				return err
			}
			if k == 0 {
				pair[k], err = own.round(ctx)
			} else {
				pair[k], err = rival.round(settings)
			}
			if err != nil {
				return err
			}
			times[k] = append(times[k], float64(len(lengths))/pair[k])
		}
		ratios = append(ratios, pair[1]/pair[0])
	}
	tokens, flash, _ := strings.Cut(settings, " ")
	_, err = fmt.Fprintf(stdout, "| %s | %.1f | %.1f | %s tokens%s | %.2f | %.2f | %.2f |\n", own.model.Name(), stats.Median(times[0]), stats.Median(times[1]),
		tokens, lo.Ternary(flash == "1", ", flash", ""), stats.Median(ratios), slices.Min(ratios), slices.Max(ratios))
	return err
}

// embedding is smelt with a model loaded, and texts.
type embedding struct {
	model    *smelt.Model
	loaded   *smelt.Loaded
	embedder *smelt.Embedder
	texts    [][]int32
}

func newEmbedding(ctx context.Context, path string, threads int, lengths []int) (*embedding, error) {
	m, err := smelt.Open(path, "")
	if err != nil {
		return nil, err
	}
	opts := smelt.Options{Target: "cpu", Level: 1, Embeddings: true, Context: max(512, slices.Max(lengths))}
	p, err := m.Compile(opts)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	e := &embedding{model: m}
	if e.loaded, err = p.Load(smelt.Device{Name: "cpu", Threads: threads}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if e.embedder, err = e.loaded.NewEmbedder(""); err != nil {
		return nil, errors.Join(err, e.loaded.Close(), m.Close())
	}
	vocab := m.File().Config.Vocab
	e.texts = lo.Map(lengths, func(n, text int) []int32 {
		return lo.Times(n, func(i int) int32 { return int32((text*7919 + i*104729) % vocab) })
	})
	return e, ctx.Err()
}

func (e *embedding) close() { _ = errors.Join(e.embedder.Close(), e.loaded.Close(), e.model.Close()) }

// round returns the seconds that all texts take.
func (e *embedding) round(ctx context.Context) (float64, error) {
	start := time.Now()
	_, err := e.embedder.Embed(ctx, e.texts)
	return time.Since(start).Seconds(), err
}

// embeddingRival is llama.cpp with the same texts.
type embeddingRival struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startEmbedding(ctx context.Context, program, path, libraries string, threads int, lengths []int) (*embeddingRival, error) {
	r := &embeddingRival{cmd: exec.CommandContext(ctx, program, path, libraries, strconv.Itoa(threads),
		strings.Join(lo.Map(lengths, func(n, _ int) string { return strconv.Itoa(n) }), ","))}
	said := &lastWords{}
	r.cmd.Stderr = said
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewScanner(out)
	return r, r.cmd.Start()
}

// round returns the seconds that all texts take.
func (r *embeddingRival) round(settings string) (seconds float64, err error) {
	if _, err := fmt.Fprintln(r.in, settings); err != nil {
		return 0, err
	}
	if !r.out.Scan() {
		return 0, fmt.Errorf("llama.cpp gave no answer: %v: %s", r.out.Err(), r.cmd.Stderr)
	}
	_, err = fmt.Sscan(r.out.Text(), &seconds)
	return seconds, err
}

func (r *embeddingRival) stop() {
	_ = r.in.Close()
	_ = r.cmd.Wait()
}
