package picture

import (
	"fmt"
	"io"

	"github.com/smelt-ml/smelt/lower/plan"
)

// Dispatches draws the dispatches of a phase for which keep returns true, with an edge from
// each to the readers of its results. A dashed border means that the dispatch waits at a
// barrier. Stubs stand for inputs, caches, and omitted dispatches that write operands or
// read results.
func Dispatches(w io.Writer, p *plan.Plan, ph *plan.Phase, keep func(*plan.Dispatch) bool) error {
	picture := Picture{Title: fmt.Sprintf("%s: %s on %s", p.Model, ph.Name, p.Target)}
	// Boxes by number: dispatches, from 1; stubs of their readers; stubs of buffers.
	n := len(ph.Dispatches)
	number := func(dispatch int) int { return 1 + dispatch }
	leaving := func(dispatch int) int { return 1 + n + dispatch }
	buffer := func(i int32) int { return 1 + 2*n + int(i) }

	readers := make([][]string, n) // omitted readers of kept dispatches
	for i, from := range p.Dependencies(ph) {
		d := &ph.Dispatches[i]
		if keep(d) {
			picture.Box(number(i), box(i, d))
		}
		for _, j := range from {
			source := &ph.Dispatches[j]
			switch {
			case keep(d) && !keep(source):
				picture.Box(number(j), Box{Lines: []string{fmt.Sprintf("%d: %s", j, source.Kernel), source.Label()}, Stub: true})
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
			case buf.Kind == plan.Input, buf.Kind == plan.Const, buf.Kind.Kept() && !cached[b.Buffer]:
				cached[b.Buffer] = true // later dispatches read what the first one left
				picture.Box(buffer(b.Buffer), Box{Lines: []string{buf.Kind.String() + " " + buf.Name}, Stub: true})
				picture.Edge(buffer(b.Buffer), number(i))
			case buf.Kind == plan.Output && b.Write:
				readers[i] = append(readers[i], "output "+buf.Name)
			}
		}
	}
	for i, to := range readers {
		if len(to) == 0 {
			continue
		}
		picture.Box(leaving(i), Box{Lines: Shorten(to), Stub: true})
		picture.Edge(number(i), leaving(i))
	}
	return picture.WriteDOT(w)
}

func box(i int, d *plan.Dispatch) Box {
	return Box{
		Lines:  []string{fmt.Sprintf("%d: %s", i, d.Kernel), d.Label(), fmt.Sprintf("grid %s × %s × %s", d.Grid[0], d.Grid[1], d.Grid[2])},
		Colour: ColourOf(d),
		Dashed: d.Barrier,
	}
}
