package lower

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/dominikbraun/graph"
	"github.com/dominikbraun/graph/draw"

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
			a := access{b.Buffer, b.Offset, b.Offset + b.Bytes.Eval(&ph.Bounds), b.Write}
			for _, w := range live {
				reads := b.Read || p.Buffers[b.Buffer].Kind == CacheK || p.Buffers[b.Buffer].Kind == CacheV
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
			a := access{b.Buffer, b.Offset, b.Offset + b.Bytes.Eval(&ph.Bounds), true}
			var kept []write
			for _, w := range live { // a write hides what older ones left there
				if w.buffer != a.buffer || w.end <= a.begin || a.end <= w.begin {
					kept = append(kept, w)
					continue
				}
				if w.begin < a.begin {
					kept = append(kept, write{access{w.buffer, w.begin, a.begin, true}, w.by})
				}
				if a.end < w.end {
					kept = append(kept, write{access{w.buffer, a.end, w.end, true}, w.by})
				}
			}
			live = append(kept, write{a, i})
		}
	}
	return deps
}

// kernelColours gives kernels the colours of the ops they compute.
var kernelColours = []struct{ prefix, colour string }{
	{"linear_", "#8fc7a0"}, {"attention_", "#f2b5a7"}, {"rope_qkv_write", "#f6cf7f"}, {"head_norm_rope", "#f6cf7f"},
	{"silu_mul", "#c9b6e4"}, {"cache_", "#f3e3c3"}, {"", "#ffffff"},
}

// WriteDOT draws the dispatches of a phase that keep admits, with an edge from
// each to those that read what it wrote. A dashed border means that the dispatch
// waits at a barrier.
func (p *Plan) WriteDOT(w io.Writer, ph *Phase, keep func(*Dispatch) bool) error {
	g := graph.New(func(i int) int { return i }, graph.Directed())
	for i := range ph.Dispatches {
		if d := &ph.Dispatches[i]; keep(d) {
			if err := g.AddVertex(i+1, vertex(i, d)); err != nil { // vertices from 1: the library mishandles 0
				return fmt.Errorf("drawing dispatch %d: %w", i, err)
			}
		}
	}
	for i, from := range p.Dependencies(ph) {
		for _, j := range from {
			if keep(&ph.Dispatches[i]) && keep(&ph.Dispatches[j]) {
				if err := g.AddEdge(j+1, i+1); err != nil {
					return fmt.Errorf("drawing dispatch %d: %w", i, err)
				}
			}
		}
	}
	var raw bytes.Buffer
	err := draw.DOT(g, &raw, draw.GraphAttribute("label", ir.EscapeDOT(fmt.Sprintf("%s: %s on %s", p.Model, ph.Name, p.Target))),
		draw.GraphAttribute("rankdir", "TB"), draw.GraphAttribute("fontname", "Helvetica"))
	if err != nil {
		return fmt.Errorf("drawing the plan: %w", err)
	}
	_, err = io.WriteString(w, ir.SortDOT(raw.String()))
	return err
}

func vertex(i int, d *Dispatch) func(*graph.VertexProperties) {
	style := "rounded,filled"
	if d.Barrier {
		style += ",dashed"
	}
	lines := []string{fmt.Sprintf("%d: %s", i, d.Kernel), d.Label, fmt.Sprintf("grid %s × %s × %s", d.Grid[0], d.Grid[1], d.Grid[2])}
	for i, l := range lines {
		lines[i] = ir.EscapeDOT(l)
	}
	colour := ""
	for _, k := range kernelColours {
		if strings.HasPrefix(d.Kernel, k.prefix) {
			colour = k.colour
			break
		}
	}
	return graph.VertexAttributes(map[string]string{
		"label": strings.Join(lines, `\n`), "shape": "box", "style": style, "fillcolor": colour, "fontname": "Helvetica",
	})
}
