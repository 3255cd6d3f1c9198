//go:build linux

package main

import (
	"bufio"
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
	"regexp"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/tools/parity"
)

// writeKeys writes what llama.cpp makes of each change of a key or a tensor in a small file of each family.
func writeKeys(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer keys", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "build/peer", "folder of llama.cpp, which is fetched if missing")
	out := flags.String("out", "testdata/parity/keys", "folder of the answers")
	only := flags.String("families", "*", "pattern of families")
	if err := flags.Parse(args); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	in, err := install(ctx, *dir, "", say)
	if err != nil {
		return err
	}
	program, err := in.build(ctx, "logits", logitsSource, say)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "smelt-keys-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := tableOf(filepath.Join(in.folder, "src/src/llama-arch.cpp")); err != nil {
		return err
	}
	for _, c := range parity.Bases() {
		family, _, _ := strings.Cut(c.Name, "/")
		if match, err := filepath.Match(*only, family); err != nil || !match {
			if err != nil {
				return err
			}
			continue
		}
		say("%s", family)
		if err := answerChanges(ctx, program, in.libraries, scratch, c, filepath.Join(*out, family+".txt")); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// tableOf returns an error if llama.cpp's table has a key of architectures that no change sets.
func tableOf(source string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	base, err := parity.Bases()[0].Base()
	if err != nil {
		return err
	}
	set := lo.Map(base.Changes(), func(c parity.Change, _ int) string { return c.Of })
	names := lo.Map(regexp.MustCompile(`"%s\.([^"]+)"`).FindAllSubmatch(text, -1), func(m [][]byte, _ int) string { return string(m[1]) })
	if missing := lo.Without(names, set...); len(names) == 0 || len(missing) > 0 {
		return fmt.Errorf("%s: of %d keys no change sets %q", source, len(names), missing)
	}
	return nil
}

// answerChanges writes llama.cpp's answers to all changes of a case's file.
func answerChanges(ctx context.Context, program, libraries, scratch string, c parity.Case, path string) error {
	base, err := c.Base()
	if err != nil {
		return err
	}
	args := []string{"-", libraries, "-", strings.Join(lo.Map(parity.Text(), func(id int32, _ int) string { return fmt.Sprint(id) }), ",")}
	if c.Embeds() {
		args = append(args, "embed")
	}
	cmd := exec.CommandContext(ctx, program, args...)
	ask, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(said)
	compute := func(change parity.Change) ([]float32, error) {
		model, result := filepath.Join(scratch, "model.gguf"), filepath.Join(scratch, "logits.npy")
		f, err := os.Create(model)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(base.Write(f, change), f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", change.Name, err)
		}
		if _, err := fmt.Fprintln(ask, model, result); err != nil {
			return nil, err
		}
		if !lines.Scan() {
			return nil, fmt.Errorf("%s: llama.cpp does not answer: %w", change.Name, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
		}
		switch lines.Text() {
		case "failed":
			return nil, nil
		case "ok":
		default:
			return nil, fmt.Errorf("%s: llama.cpp's driver says %q", change.Name, lines.Text())
		}
		array, err := npy.ReadFile[float32](result)
		return array.Data, err
	}
	want, err := compute(parity.Change{})
	if err == nil && want == nil {
		err = errors.New("llama.cpp refuses the unchanged file")
	}
	if err != nil {
		return err
	}
	answers, changes := parity.Answers{"": parity.Sample(want)}, base.Changes()
	var settle func(list []parity.Change) error
	settle = func(list []parity.Change) error {
		got, err := compute(parity.Together(list))
		n := len(list)
		switch {
		case err != nil || len(got) == len(want) && parity.Largest(want, got) <= parity.Same:
			return err
		case n > 1:
			return errors.Join(settle(list[:n/2]), settle(list[n/2:]))
		case len(got) != len(want): // or none
			answers[list[0].Name] = parity.Answer{Refused: true}
			return nil
		}
		a := parity.Sample(got)
		if math.IsNaN(a.Deviation) {
			a = parity.Answer{Refused: true}
		}
		answers[list[0].Name] = a
		return nil
	}
	for _, group := range base.Groups(changes) {
		if err := settle(group); err != nil {
			return err
		}
	}
	if err := errors.Join(ask.Close(), cmd.Wait()); err != nil {
		return err
	}
	return parity.WriteAnswers(path, changes, answers)
}
