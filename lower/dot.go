package lower

import (
	"fmt"
	"io"

	"github.com/smelt-ml/smelt/ir"
)

// Dependencies returns, for each dispatch of a phase, the earlier dispatches whose
// results it reads, directly: the last writers of the bytes it is bound to.
func (p *Plan) Dependencies(ph *Phase) [][]int {
	type write struct {
		access
		by int
	}
	var live []write
	deps := make([][]int, len(ph.Dispatches))
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		seen := map[int]bool{}
		for _, b := range d.Bindings {
			a := access{b.Buffer, b.Offset, b.Offset + b.Bytes.Eval(&ph.Bounds), b.Write, d.Value}
			for _, w := range live {
				reads := b.Read || p.Buffers[b.Buffer].Kind.Kept()
				if reads && w.buffer == a.buffer && w.begin < a.end && a.begin < w.end && !seen[w.by] {
					seen[w.by] = true
					deps[i] = append(deps[i], w.by)
				}
			}
		}
		for _, b := range d.Bindings {
			if !b.Write {
				continue
			}
			a := access{b.Buffer, b.Offset, b.Offset + b.Bytes.Eval(&ph.Bounds), true, d.Value}
			var kept []write
			for _, w := range live { // a write hides what older ones left there
				if w.buffer != a.buffer || w.end <= a.begin || a.end <= w.begin || apart(w.value, a.value) {
					kept = append(kept, w)
					continue
				}
				if w.begin < a.begin {
					kept = append(kept, write{access{w.buffer, w.begin, a.begin, true, w.value}, w.by})
				}
				if a.end < w.end {
					kept = append(kept, write{access{w.buffer, a.end, w.end, true, w.value}, w.by})
				}
			}
			live = append(kept, write{a, i})
		}
	}
	return deps
}

// WriteDOT draws the dispatches of a phase that keep admits, with an edge from each to
// those that read what it wrote. A dashed border means that the dispatch waits at a
// barrier. What enters from inputs, caches and dispatches that are left out, and who
// reads outside what is written here, is drawn as stubs.
func (p *Plan) WriteDOT(w io.Writer, ph *Phase, keep func(*Dispatch) bool) error {
	picture := ir.Picture{Title: fmt.Sprintf("%s: %s on %s", p.Model, ph.Name, p.Target)}
	// Boxes by number: dispatches, from 1; stubs of their readers; stubs of buffers.
	n := len(ph.Dispatches)
	number := func(dispatch int) int { return 1 + dispatch }
	leaving := func(dispatch int) int { return 1 + n + dispatch }
	buffer := func(i int32) int { return 1 + 2*n + int(i) }

	readers := make([][]string, n) // outside, of kept dispatches
	for i, from := range p.Dependencies(ph) {
		d := &ph.Dispatches[i]
		if keep(d) {
			picture.Box(number(i), box(i, d))
		}
		for _, j := range from {
			source := &ph.Dispatches[j]
			switch {
			case keep(d) && !keep(source):
				picture.Box(number(j), ir.Box{Lines: []string{fmt.Sprintf("%d: %s", j, source.Kernel), source.Label()}, Stub: true})
				fallthrough
			case keep(d):
				picture.Edge(number(j), number(i))
			case keep(source):
				readers[j] = append(readers[j], fmt.Sprintf("to %d: %s", i, d.Label()))
			}
		}
	}
	cached := map[int32]bool{}
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		if !keep(d) {
			continue
		}
		for _, b := range d.Bindings {
			buf := &p.Buffers[b.Buffer]
			switch {
			case buf.Kind == Input, buf.Kind == Const, buf.Kind.Kept() && !cached[b.Buffer]:
				cached[b.Buffer] = true // those that follow read what the first one left
				picture.Box(buffer(b.Buffer), ir.Box{Lines: []string{buf.Kind.String() + " " + buf.Name}, Stub: true})
				picture.Edge(buffer(b.Buffer), number(i))
			case buf.Kind == Output && b.Write:
				readers[i] = append(readers[i], "output "+buf.Name)
			}
		}
	}
	for i, to := range readers {
		if len(to) == 0 {
			continue
		}
		picture.Box(leaving(i), ir.Box{Lines: ir.Shorten(to), Stub: true})
		picture.Edge(number(i), leaving(i))
	}
	return picture.WriteDOT(w)
}

func box(i int, d *Dispatch) ir.Box {
	return ir.Box{
		Lines:  []string{fmt.Sprintf("%d: %s", i, d.Kernel), d.Label(), fmt.Sprintf("grid %s × %s × %s", d.Grid[0], d.Grid[1], d.Grid[2])},
		Colour: d.Op.Category().Colour(),
		Dashed: d.Barrier,
	}
}
