//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// writeParity writes llama.cpp's results for the models of package parity: the logits of each
// family in F32, [geometries, Tokens, Vocab], the distance of its results with other weight
// types from them, and hashes of the blocks that it quantizes weights to.
func writeParity(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer parity", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "build/peer", "folder of llama.cpp, which is fetched if missing")
	out := flags.String("out", "testdata/parity", "folder of the logits")
	only := flags.String("families", "*", "pattern of families")
	if err := flags.Parse(args); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	in, err := install(ctx, *dir, "", say)
	if err != nil {
		return err
	}
	o := oracle{installed: in, out: *out}
	if o.program, err = in.build(ctx, "logits", logitsSource, say); err != nil {
		return err
	}
	if o.scratch, err = os.MkdirTemp("", "smelt-parity-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.scratch)
	if err := o.blocks(ctx, say); err != nil {
		return err
	}
	for _, family := range slices.Concat(parity.Families(), parity.Embedders(), parity.Rankers()) {
		if match, err := filepath.Match(*only, family); err != nil || !match {
			if err != nil {
				return err
			}
			continue
		}
		say("%s", family)
		write := o.family
		switch {
		case slices.Contains(parity.Embedders(), family):
			write = o.embedder
		case slices.Contains(parity.Rankers(), family):
			write = o.ranker
		}
		if err := write(ctx, family); err != nil {
			return err
		}
	}
	return nil
}

// oracle is llama.cpp in the program that writes a model's logits.
type oracle struct {
	*installed
	program, scratch, out string
}

func (o *oracle) family(ctx context.Context, family string) error {
	cases, types := parity.Cases(family), parity.Types(family)
	var all []float32
	var far []parity.Distance
	for _, c := range cases {
		exact, err := o.logits(ctx, c, types[0])
		if err != nil {
			return err
		}
		all = append(all, exact...)
		for _, t := range types[1:] {
			logits, err := o.logits(ctx, c, t)
			if err != nil {
				return err
			}
			far = append(far, parity.Distance{Case: c.Name, Type: t, Far: parity.Spread(exact, logits)})
		}
	}
	if err := npy.WriteFile(filepath.Join(o.out, family+".npy"), []int{len(cases), parity.Tokens, parity.Vocab}, all); err != nil {
		return err
	}
	return parity.WriteDistances(filepath.Join(o.out, family+".txt"), far)
}

// embedder writes the array that [parity.SplitEmbeddings] splits, and the distances of hidden
// states with other weight types.
func (o *oracle) embedder(ctx context.Context, family string) error {
	types := parity.Types(family)
	var all []float32
	var far []parity.Distance
	for _, c := range parity.Cases(family) {
		states, err := o.compute(ctx, c, types[0], []int{parity.Tokens, c.Config.Width}, "embed")
		if err != nil {
			return err
		}
		pooled, err := o.compute(ctx, c, types[0], []int{1, c.Config.Width}, "pool")
		if err != nil {
			return err
		}
		all = slices.Concat(all, states, pooled)
		for _, t := range types[1:] {
			other, err := o.compute(ctx, c, t, []int{parity.Tokens, c.Config.Width}, "embed")
			if err != nil {
				return err
			}
			far = append(far, parity.Distance{Case: c.Name, Type: t, Far: parity.Spread(states, other)})
		}
	}
	if err := npy.WriteFile(filepath.Join(o.out, family+".npy"), []int{len(all)}, all); err != nil {
		return err
	}
	return parity.WriteDistances(filepath.Join(o.out, family+".txt"), far)
}

// ranker writes the scores of the text in F32, [Classes] of each case.
func (o *oracle) ranker(ctx context.Context, family string) error {
	var all []float32
	for _, c := range parity.Cases(family) {
		scores, err := o.compute(ctx, c, parity.Types(family)[0], []int{1, c.Config.Classifier.Classes}, "pool")
		if err != nil {
			return err
		}
		all = append(all, scores...)
	}
	return npy.WriteFile(filepath.Join(o.out, family+".npy"), []int{len(all)}, all)
}

func (o *oracle) logits(ctx context.Context, c parity.Case, weightType string) ([]float32, error) {
	return o.compute(ctx, c, weightType, []int{parity.Tokens, parity.Vocab})
}

// compute returns llama.cpp's result for a case, an array of the given shape.
func (o *oracle) compute(ctx context.Context, c parity.Case, weightType string, shape []int, mode ...string) ([]float32, error) {
	model, result := filepath.Join(o.scratch, "model.gguf"), filepath.Join(o.scratch, "logits.npy")
	f, err := os.Create(model)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.Write(f, weightType), f.Close()); err != nil {
		return nil, err
	}
	ids := strings.Join(lo.Map(parity.Text(), func(id int32, _ int) string { return fmt.Sprint(id) }), ",")
	if err := command(ctx, o.program, append([]string{model, o.libraries, result, ids}, mode...)...); err != nil {
		return nil, fmt.Errorf("%s in %s: %w", c.Name, weightType, err)
	}
	array, err := npy.ReadFile[float32](result)
	if err == nil && !slices.Equal(array.Shape, shape) {
		err = fmt.Errorf("%s in %s: an array of shape %v", c.Name, weightType, array.Shape)
	}
	return array.Data, err
}

// blocks writes hashes of the blocks that GGML quantizes parity's weights to, in each type.
func (o *oracle) blocks(ctx context.Context, say func(string, ...any)) error {
	program, err := o.build(ctx, "blocks", blocksSource, say)
	if err != nil {
		return err
	}
	var floats []byte
	for _, x := range parity.Weights() {
		floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(x))
	}
	var lines strings.Builder
	for _, d := range dtype.All() {
		number, ok := d.GGUF()
		if !ok || !d.IsQuantized() {
			continue
		}
		cmd := exec.CommandContext(ctx, program, fmt.Sprint(number))
		cmd.Stdin = bytes.NewReader(floats)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s of %s: %w", program, d, err)
		}
		size := d.Bytes(int64(len(floats) / 4))
		fmt.Fprintln(&lines, d, parity.Hash(out[:size]), parity.Hash(out[size:]))
	}
	return os.WriteFile(filepath.Join(o.out, "blocks.txt"), []byte(lines.String()), 0o644)
}
