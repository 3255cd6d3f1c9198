//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samber/lo"
)

// write prints a report as Markdown: the method, the cells, the memory, the criteria.
func (r *report) write(w io.Writer) error {
	p := &printer{w: w}
	rival, joint := "", " beside "
	for _, h := range []*hello{r.Peer, r.Fork} {
		if h != nil {
			rival += fmt.Sprintf("%s%s (%s)", joint, h.Name, versionOf(h))
			joint = " and "
		}
	}
	p.line("smelt (%s)%s, %s, on %s; %d threads each.", versionOf(&r.Smelt), rival, r.Date.Format("2006-01-02 15:04 MST"), r.Machine, r.Threads)
	p.line("Probed beside the samples: memory reads up to %.1f GB/s (%.1f in the median)%s.", r.read(), r.reads(), r.peaks())
	if r.whole() {
		p.line("All samples: `go run ./internal/tools/peer --from %s` prints this.", filepath.Join(samplesFolder, r.fileName()))
	}
	for _, f := range r.faults() {
		p.line("**Probed too low**: above the limit is %s.", f.what)
	}
	p.line("")
	columns := r.columns()
	p.row(lo.Map(columns, func(c column, _ int) string { return c.title })...)
	p.row(lo.Map(columns, func(c column, _ int) string { return c.align })...)
	r.each(func(b *bench, s *samples, f figures) {
		p.row(lo.Map(columns, func(c column, _ int) string { return c.text(b, s, &f) })...)
	})
	if mean := r.mean(toPeer); r.Peer != nil && mean > 0 {
		p.line("")
		p.line("Geometric mean of the ratios: %.2f. A ratio in bold is a loss.", mean)
		if r.Fork != nil {
			p.line("Of those to %s: %.2f; to the best of both in each cell: %.2f.", r.Fork.Name, r.mean(toFork), r.mean(toBest))
		}
	}
	p.line("")
	p.line("Tokens/s are medians, a ratio is the median of the pairs' ratios. The limit is the read")
	p.line("bandwidth for tg (weights and cache, each byte once), as probed between the samples of the same")
	p.line("pair, and for pp the peak of int8 products,")
	if slices.ContainsFunc(r.Models, func(b bench) bool { return b.moreNibbles() }) {
		p.line("that of nibbles for Q4_0 and Q4_K_M, whose criteria are of bytes all the same,")
	}
	half := "of float ones"
	if r.shortens() {
		half = "half of it, which integers of 16 bits have,"
	}
	p.line("%s for F16: the highest that was probed in the run.", half)
	if slices.ContainsFunc(r.Models, func(b bench) bool { return slices.ContainsFunc(b.Cells, samples.parallel) }) {
		p.line("For sequences at once (tg128x16@128: 16 of them, each after a prompt of 128) it is that of the")
		p.line("two which is nearer; tokens are those of all together.")
	}
	if r.Peer != nil {
		p.line("llama.cpp ran with flash attention or without it, whichever was faster in that cell.")
	}
	if r.Fork != nil {
		p.line("%s ran with flash attention, its weights as the file has them or repacked, likewise.", r.Fork.Name)
	}
	if rival != "" && slices.ContainsFunc(r.Models, func(b bench) bool { return slices.ContainsFunc(b.Cells, samples.repeats) }) {
		p.line("Beyond a depth of %d a cache that the others' driver fills is one prompt again and again; smelt's is of random contents.", filled)
	}
	r.memory(p)
	p.line("")
	p.row("wanted", "reached")
	p.row("---", "---")
	for _, c := range r.criteria() {
		p.row(c.Wanted, c.verdict())
	}
	return p.err
}

// column is a column of the table of cells.
type column struct {
	title, align string
	text         func(b *bench, s *samples, f *figures) string
}

const (
	left  = "---"
	right = "---:"
)

// columns returns the columns for the measurements that exist.
func (r *report) columns() []column {
	all := []column{
		{"model", left, func(b *bench, _ *samples, _ *figures) string { return b.name() }},
		{"test", left, func(_ *bench, s *samples, _ *figures) string { return s.Cell.String() }},
	}
	undisturbed := func(_ *bench, _ *samples, f *figures) string { return fmt.Sprintf("%d/%d", f.Clean, f.Pairs) }
	share := func(_ *bench, _ *samples, f *figures) string { return percent(f.SmeltShare) }
	smelt := func(_ *bench, _ *samples, f *figures) string { return speed(f.Smelt) }
	if r.Peer == nil {
		all = append(all, column{"tokens/s", right, smelt})
	} else {
		all = append(all,
			column{"smelt", right, smelt},
			column{"llama.cpp", right, func(_ *bench, _ *samples, f *figures) string { return speed(f.Peer) }},
			column{"flash", left, func(_ *bench, s *samples, _ *figures) string { return s.Flash.String() }},
			column{"ratio", right, func(_ *bench, _ *samples, f *figures) string { return against(f.Ratio) }},
		)
	}
	if r.Fork != nil {
		all = append(all,
			column{r.Fork.Name, right, func(_ *bench, _ *samples, f *figures) string { return speed(f.Fork) }},
			column{"weights", left, func(_ *bench, s *samples, _ *figures) string { return s.Fork.String() }},
			column{"ratio", right, func(_ *bench, _ *samples, f *figures) string { return against(f.ForkRatio) }},
		)
		if r.Peer != nil {
			all = append(all, column{"to the best", right, func(_ *bench, _ *samples, f *figures) string { return against(f.best()) }})
		}
	}
	if r.Peer == nil {
		return append(all, column{"of the limit", right, share}, column{"pairs", right, undisturbed})
	}
	return append(all,
		column{"smelt of the limit", right, share},
		column{"llama.cpp of the limit", right, func(_ *bench, _ *samples, f *figures) string { return percent(f.PeerShare) }},
		column{"undisturbed", right, undisturbed},
	)
}

// against formats a ratio; a loss is in bold.
func against(ratio float64) string {
	switch {
	case ratio == 0:
		return "–"
	case ratio < 1:
		return fmt.Sprintf("**%.2f**", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

// memory prints the peak memory of the processes.
func (r *report) memory(p *printer) {
	header := false
	for i := range r.Models {
		b := &r.Models[i]
		if b.SmeltPeak == 0 {
			continue
		}
		if !header {
			header = true
			p.line("")
			p.row("peak memory of the process, MB", "smelt", "llama.cpp, weights mapped", "llama.cpp, weights read")
			p.row("---", "---:", "---:", "---:")
		}
		mapped, read := "–", "–"
		if b.PeerMapped > 0 {
			mapped = fmt.Sprint(b.PeerMapped / 1e6)
		}
		if b.PeerRead > 0 {
			read = fmt.Sprint(b.PeerRead / 1e6)
		}
		p.row(b.name(), fmt.Sprint(b.SmeltPeak/1e6), mapped, read)
	}
}

// peaks formats the range of the peaks that were probed beside the models.
func (r *report) peaks() string {
	text := ""
	for _, peak := range []struct {
		name string
		of   func(b *bench) float64
	}{
		{"float products reach %s GFLOP/s", func(b *bench) float64 { return b.Float }},
		{"int8 products %s GOP/s", func(b *bench) float64 { return b.Int8 }},
		{"those of nibbles %s GOP/s", func(b *bench) float64 {
			if !b.moreNibbles() {
				return 0
			}
			return b.Nibbles
		}},
	} {
		least, most := 0.0, 0.0
		for i := range r.Models {
			if v := peak.of(&r.Models[i]); v > 0 {
				if least == 0 || v < least {
					least = v
				}
				most = max(most, v)
			}
		}
		if most == 0 {
			continue
		}
		span := fmt.Sprintf("%.0f", most)
		if low := fmt.Sprintf("%.0f", least); low != span {
			span = low + " to " + span
		}
		text += ", " + fmt.Sprintf(peak.name, span)
	}
	return text
}

// String returns the attention's text in the table.
func (a *attention) String() string {
	switch {
	case a == nil:
		return "–"
	case a.flash():
		return "on"
	}
	return "off"
}

// String returns the fork's way as text in the table.
func (v *versus) String() string {
	if v == nil {
		return "–"
	}
	return forkWays[v.way()]
}

func versionOf(h *hello) string {
	if h.Detail == "" {
		return h.Version
	}
	return fmt.Sprintf("%s, %s", h.Version, h.Detail)
}

func speed(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func percent(share float64) string {
	if share == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// printer writes lines and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) row(columns ...string) { p.line("%s", "| "+strings.Join(columns, " | ")+" |") }

// The lines of a document between which the report stands.
const (
	opening = "<!-- make bench-peer writes what follows -->"
	closing = "<!-- up to here -->"
)

// replace replaces the marked lines of a document by a report.
func replace(document []byte, r *report) ([]byte, error) {
	before, rest, found := bytes.Cut(document, []byte(opening))
	_, after, ends := bytes.Cut(rest, []byte(closing))
	if !found || !ends {
		return nil, fmt.Errorf("no lines %q and %q, in this order", opening, closing)
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(opening + "\n\n")
	if err := r.write(&out); err != nil {
		return nil, err
	}
	out.WriteString("\n" + closing)
	out.Write(after)
	return out.Bytes(), nil
}

// rewrite replaces the marked lines of a document file by a report.
func rewrite(path string, r *report) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if document, err = replace(document, r); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, document, 0o644)
}
