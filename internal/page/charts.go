package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/internal/picture"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

// chart is a bar chart over an axis, in pixels.
type chart struct {
	Title, Note   string
	Width, Height int
	Bars          []bar
	Lines         []rule
	Labels        []label
}

type bar struct {
	X, Y, W, H    float64
	Colour, Title string
	Text          string // inside the bar if it fits
}

// rule is a line: a barrier, a tick or a bound.
type rule struct {
	X1, Y1, X2, Y2 float64
	Class          string
}

type label struct {
	X, Y  float64
	Text  string
	Class string
}

// legend returns the colours used in the charts of a phase.
func (in *Input) legend() []swatch {
	used := map[ir.Category]bool{}
	for i := range in.Phase.Dispatches {
		used[picture.CategoryOf(&in.Phase.Dispatches[i])] = true
	}
	var out []swatch
	for _, c := range ir.Categories() {
		if used[c] {
			out = append(out, swatch{picture.OfCategory(c), c.String()})
		}
	}
	return out
}

const (
	chartWidth = 1240
	margin     = 150 // for labels on the left
	lane       = 22
)

// schedule returns the chart of the step, and an enlargement up to the end of layer 1.
func (in *Input) schedule() []chart {
	t := in.Timeline
	end := t.Total
	out := []chart{in.timeline("The step", 0, end)}
	closer := 0.0
	for i := range in.Phase.Dispatches {
		if l := in.Phase.Dispatches[i].Layer; l == 0 || l == 1 {
			closer = max(closer, t.Spans[i].End)
		}
	}
	if closer > 0 && closer < end/2 {
		out = append(out, in.timeline("Enlarged: up to the end of layer 1", 0, closer*1.02))
	}
	return out
}

func (in *Input) timeline(title string, from, to float64) chart {
	t := in.Timeline
	scale := (chartWidth - margin - 10) / (to - from)
	x := func(us float64) float64 { return margin + (min(max(us, from), to)-from)*scale }
	c := chart{Title: title, Width: chartWidth}
	add := func(y, start, end float64, colour, text, title string) {
		if end < from || start > to {
			return
		}
		b := bar{X: x(start), Y: y, W: max(x(end)-x(start), 0.4), H: lane - 4, Colour: colour, Title: title}
		if float64(len(text))*6.2 < b.W {
			b.Text = text
		}
		c.Bars = append(c.Bars, b)
	}
	y := 24.0
	row := func(name string) float64 {
		at := y
		c.Labels = append(c.Labels, label{X: 4, Y: y + lane - 9, Text: name})
		y += lane
		return at
	}
	cpu, gpu := row("CPU encodes"), row("command buffers")
	for i, b := range t.Buffers {
		title := fmt.Sprintf("command buffer %d: %d dispatches, encoded %s, runs %s", i, b.Count, span(b.EncodeStart, b.EncodeEnd), span(b.Start, b.End))
		add(cpu, b.EncodeStart, b.EncodeEnd, "#c3ccd6", fmt.Sprint(i), title)
		add(gpu, b.Start, b.End, "#9fb3c8", fmt.Sprintf("%d: %d dispatches", i, b.Count), title)
	}
	lanes := in.lanes()
	first := row("dispatches")
	for range slices.Max(append(lanes, 0)) {
		row("")
	}
	bottom := y
	for i, s := range t.Spans {
		d := &in.Phase.Dispatches[i]
		cost := predict.CostOf(in.Plan, d, in.Sizes)
		add(first+float64(lanes[i])*lane, s.Start, s.End, picture.ColourOf(d), d.Kernel,
			fmt.Sprintf("%d %s\n%s\n%s, %s, %s operations", i, d.Kernel, d.Label(), span(s.Start, s.End), size(cost.Bytes()), amount(cost.Ops)))
		if d.Barrier && s.Start >= from && s.Start <= to {
			c.Lines = append(c.Lines, rule{x(s.Start), first - 2, x(s.Start), bottom, "barrier"})
		}
	}
	c.ticks(from, to, bottom, x)
	c.Height = int(bottom) + 24
	return c
}

// lanes assigns concurrent dispatches to different rows.
func (in *Input) lanes() []int {
	lanes := make([]int, len(in.Phase.Dispatches))
	var busy []float64
	for i, s := range in.Timeline.Spans {
		at := slices.IndexFunc(busy, func(end float64) bool { return end <= s.Start })
		if at < 0 {
			at = len(busy)
			busy = append(busy, 0)
		}
		busy[at], lanes[i] = s.End, at
	}
	return lanes
}

func (c *chart) ticks(from, to, bottom float64, x func(float64) float64) {
	stride := math.Pow(10, math.Floor(math.Log10((to-from)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (to-from)/(stride*m) <= 12 {
			stride *= m
			break
		}
	}
	for at := math.Ceil(from/stride) * stride; at <= to; at += stride {
		c.Lines = append(c.Lines, rule{x(at), 20, x(at), bottom, "tick"})
		c.Labels = append(c.Labels, label{X: x(at) + 3, Y: bottom + 14, Text: clock(at, to), Class: "axis"})
	}
}

// clock formats a time on an axis that ends at to.
func clock(us, to float64) string {
	if to >= 5000 {
		return fmt.Sprintf("%g ms", us/1000)
	}
	return fmt.Sprintf("%g µs", us)
}

func span(start, end float64) string { return fmt.Sprintf("%.1f–%.1f µs", start, end) }

// arena returns the chart of the arena: the address range of each value over its lifetime in
// dispatches.
func (in *Input) arena() chart {
	const height = 300
	ph := in.Phase
	c := chart{Width: chartWidth, Height: height + 54, Title: "Values in the arena"}
	if ph.ArenaBytes == 0 || len(ph.Dispatches) == 0 {
		return c
	}
	column := float64(chartWidth-margin-10) / float64(len(ph.Dispatches))
	x := func(i int) float64 { return margin + float64(i)*column }
	y := func(offset int64) float64 { return 12 + height*float64(offset)/float64(ph.ArenaBytes) }
	lifetimes := in.Plan.Lifetimes(ph)
	slices.SortStableFunc(lifetimes, func(a, b plan.Lifetime) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, l := range lifetimes {
		d := &ph.Dispatches[l.First]
		b := bar{
			X: x(l.First), W: max(float64(l.Last-l.First+1)*column-0.5, 0.5), Y: y(l.Offset), H: max(y(l.Offset+l.Bytes)-y(l.Offset)-0.5, 0.8),
			Colour: picture.ColourOf(d),
			Title:  fmt.Sprintf("%s at %d\nwritten by dispatch %d, %s\nlast read by %d", size(l.Bytes), l.Offset, l.First, d.Label(), l.Last),
		}
		c.Bars = append(c.Bars, b)
	}
	for _, m := range []struct {
		bytes int64
		text  string
	}{{0, "0"}, {ph.ArenaBytes, size(ph.ArenaBytes) + " arena"}} {
		c.Lines = append(c.Lines, rule{margin, y(m.bytes), chartWidth - 10, y(m.bytes), "tick"})
		c.Labels = append(c.Labels, label{X: 4, Y: y(m.bytes) + 4, Text: m.text})
	}
	c.Lines = append(c.Lines, rule{margin, y(ph.MinArenaBytes), chartWidth - 10, y(ph.MinArenaBytes), "bound"})
	c.Note = fmt.Sprintf("lower bound %s: the maximum of bytes live at one dispatch", size(ph.MinArenaBytes))
	layer := -1
	for i := range ph.Dispatches {
		if l := ph.Dispatches[i].Layer; l > layer {
			layer = l
			if l%max(1, len(in.Plan.Caches)/14) == 0 {
				c.Lines = append(c.Lines, rule{x(i), 12, x(i), 12 + height, "tick"})
				c.Labels = append(c.Labels, label{X: x(i) + 2, Y: height + 28, Text: fmt.Sprint("layer ", l), Class: "axis"})
			}
		}
	}
	return c
}
