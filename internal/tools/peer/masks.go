//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

//go:embed masks/masks.mjs
var masksNode []byte

// grammarVersion pins the npm package @mlc-ai/web-xgrammar: XGrammar as WebAssembly.
const grammarVersion = "0.1.27"

// maskTask is a schema with the tokens of texts that it accepts.
type maskTask struct {
	Schema string    `json:"schema"`
	Texts  [][]int32 `json:"texts"`
}

// maskAnswer is what a side makes of a task; times in microseconds.
type maskAnswer struct {
	Error   string     `json:"error"`
	Compile float64    `json:"compile"`
	Texts   []maskText `json:"texts"`
}

type maskText struct {
	Accepted bool      `json:"accepted"`
	Masks    []float64 `json:"masks"`
}

// compareMasks prints what masks take smelt and XGrammar for the same schemas of MaskBench and
// the same texts, in turns, each on one thread.
func compareMasks(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer masks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "build/peer", "folder of the npm package, fetched there if it is missing")
	data := flags.String("data", "../shared/data", "folder of MaskBench and of Llama 3's vocabulary")
	nth := flags.Int("nth", 40, "of the files of MaskBench, each of so many")
	rounds := flags.Int("rounds", 3, "how often each side is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	tok, err := checkpoint.OpenTokenizer(filepath.Join(*data, "tokenizers/ggml-vocab/ggml-vocab-llama-bpe.gguf"))
	if err != nil {
		return err
	}
	tasks, err := maskTasks(filepath.Join(*data, "maskbench/schemas.tar.xz"), tok, *nth)
	if err != nil {
		return err
	}
	script, err := installScript(ctx, *dir, "@mlc-ai/web-xgrammar", grammarVersion, "masks.mjs", masksNode)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "masks")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	in, out := filepath.Join(work, "in.json"), filepath.Join(work, "out.json")
	raw, err := json.Marshal(map[string]any{"tokens": tok.Spec().Tokens, "stops": tok.StopIDs(), "schemas": tasks})
	if err == nil {
		err = os.WriteFile(in, raw, 0o644)
	}
	if err != nil {
		return err
	}
	var ratios [3][]float64
	for range *rounds {
		own, err := ownMasks(tok, tasks)
		if err != nil {
			return err
		}
		if err := command(ctx, "node", script, in, out); err != nil {
			return err
		}
		var other []maskAnswer
		raw, err := os.ReadFile(out)
		if err == nil {
			err = json.Unmarshal(raw, &other)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
		a, b := maskFigures(own, other), maskFigures(other, own)
		fmt.Fprintf(stdout, "smelt: %v\nXGrammar: %v\n", a, b)
		for i, r := range []float64{b.mean / a.mean, b.p99 / a.p99, b.first / a.first} {
			ratios[i] = append(ratios[i], r)
		}
	}
	for i, of := range []string{"mean of masks", "99th percentile", "first mask with compilation, mean"} {
		slices.Sort(ratios[i])
		fmt.Fprintf(stdout, "%s: smelt is %.1f times as fast (%.1f)\n", of, ratios[i][len(ratios[i])/2], ratios[i])
	}
	return nil
}

// maskTasks reads each nth file, with its valid instances.
func maskTasks(archive string, tok *tokenizer.Tokenizer, nth int) (tasks []maskTask, err error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	x, err := xz.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	texts := map[string][]byte{}
	for r := tar.NewReader(x); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && strings.HasSuffix(h.Name, ".json") {
			texts[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", archive, err)
		}
	}
	names := make([]string, 0, len(texts))
	for name := range texts {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := 0; i < len(names); i += nth {
		var sample struct {
			Schema json.RawMessage
			Tests  []struct {
				Valid bool
				Data  json.RawMessage
			}
		}
		if err := json.Unmarshal(texts[names[i]], &sample); err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
		task := maskTask{Schema: string(sample.Schema)}
		for _, test := range sample.Tests {
			var text bytes.Buffer
			if err := json.Compact(&text, test.Data); err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			if test.Valid {
				task.Texts = append(task.Texts, tok.Encode(text.String(), false))
			}
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// ownMasks measures smelt, with a vocabulary that no schema has been asked of before.
func ownMasks(tok *tokenizer.Tokenizer, tasks []maskTask) (all []maskAnswer, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	v, err := constrain.New(tok.Texts(), tok.StopIDs())
	if err != nil {
		return nil, err
	}
	mask := make([]uint64, v.Words())
	since := func(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / 1000 }
	for _, task := range tasks {
		start := time.Now()
		c, err := v.JSONSchema([]byte(task.Schema), constrain.Options{})
		if err != nil {
			all = append(all, maskAnswer{Error: err.Error()})
			continue
		}
		a := maskAnswer{Compile: since(start)}
		for _, ids := range task.Texts {
			t, s := maskText{Accepted: true}, c.Start()
			for _, id := range ids {
				start := time.Now()
				if err := s.Mask(mask); err != nil {
					return nil, err
				}
				t.Masks = append(t.Masks, since(start))
				if t.Accepted, err = s.Accept(id); err != nil {
					return nil, err
				} else if !t.Accepted {
					break
				}
			}
			t.Accepted = t.Accepted && s.CanStop()
			a.Texts = append(a.Texts, t)
		}
		all = append(all, a)
	}
	return all, nil
}

// figures of masks, in microseconds.
type maskTimes struct {
	schemas, masks   int
	mean, p99, first float64
}

func (m maskTimes) String() string {
	return fmt.Sprintf("%d schemas, %d masks: mean %.1f µs, 99th percentile %.1f µs; first with compilation %.0f µs", m.schemas, m.masks, m.mean, m.p99, m.first)
}

// maskFigures takes the texts that both sides accept.
func maskFigures(of, other []maskAnswer) (m maskTimes) {
	var masks []float64
	first := 0.0
	for i := range of {
		if of[i].Error != "" || other[i].Error != "" {
			continue
		}
		begun := false
		for k, t := range of[i].Texts {
			if t.Accepted && other[i].Texts[k].Accepted && len(t.Masks) > 0 {
				if !begun {
					begun = true
					first += of[i].Compile + of[i].Texts[0].Masks[0]
					m.schemas++
				}
				masks = append(masks, t.Masks...)
			}
		}
	}
	slices.Sort(masks)
	for _, x := range masks {
		m.mean += x / float64(len(masks))
	}
	if m.masks = len(masks); m.masks > 0 {
		m.p99 = masks[(m.masks-1)*99/100]
		m.first = first / float64(m.schemas)
	}
	return m
}
