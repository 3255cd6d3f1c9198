package page

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/smelt-ml/smelt/internal/picture"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

// stagePicture is the graph of a stage as SVG.
type stagePicture struct {
	Name, Text string
	SVG        string
}

func (in *Input) pictures(p *paint) (out []stagePicture, err error) {
	for _, d := range in.drawings(p) {
		svg, err := in.Draw(d.dot(), "svg")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		out = append(out, stagePicture{d.name, d.text, embed(svg)})
	}
	return out, nil
}

// drawings returns the drawings of the stages.
func (in *Input) drawings(p *paint) []*drawing {
	source, fused, plan := graphOf(in.Trace.first(), p), graphOf(in.Trace.last(), p), in.dispatches(p)
	source.name, source.text = "source", "The graph of the model's definition. Ops of one colour become one dispatch."
	fused.name, fused.text = "fused", "After the passes: every op in colour is one dispatch."
	plan.name, plan.text = "plan", "The dispatches and their data dependences. A dispatch with a dashed border waits at a barrier."
	return []*drawing{source, fused, plan}
}

// drawing is a graph to draw; the vertex "rest" stands for the layers that are not shown.
type drawing struct {
	name, text string

	vertices []vertex
	edges    map[[2]string]bool
	ordered  [][2]string
}

type vertex struct {
	id, colour string
	lines      []string
	small      bool
	dashed     bool
	value      ir.ID // the value of the fused graph that the vertex is, or is part of; 0: none
}

const rest = "rest"

// size returns the font size of a vertex.
func (v *vertex) size() int {
	if v.small {
		return smallSize
	}
	return fontSize
}

// Font sizes and horizontal padding in points.
const (
	fontSize  = 11
	smallSize = 9
	boxMargin = 6
)

func (d *drawing) edge(from, to string) {
	key := [2]string{from, to}
	if from == to || d.edges[key] {
		return
	}
	if d.edges == nil {
		d.edges = map[[2]string]bool{}
	}
	d.edges[key] = true
	d.ordered = append(d.ordered, key)
}

// numbers returns the numbers of vertices in DOT.
func (d *drawing) numbers() map[string]int {
	number := make(map[string]int, len(d.vertices))
	for i, v := range d.vertices {
		number[v.id] = i
	}
	return number
}

// dot encodes the drawing; vertices and edges keep their order.
func (d *drawing) dot() []byte {
	number := d.numbers()
	var b bytes.Buffer
	b.WriteString("digraph {\n  rankdir=TB; nodesep=0.22; ranksep=0.28; bgcolor=\"transparent\";\n")
	fmt.Fprintf(&b, "  node [shape=box, fontname=%q, fontsize=%d, margin=\"0.10,0.05\", height=0.2, color=\"#57606a\", penwidth=0.8];\n", picture.Fonts, fontSize)
	b.WriteString("  edge [color=\"#8c959f\", arrowsize=0.5, penwidth=0.8];\n")
	for i, v := range d.vertices {
		style, colour := "rounded,filled", v.colour
		if v.dashed {
			style += ",dashed"
		}
		if colour == "" {
			colour = "#ffffff"
		}
		lines := make([]string, len(v.lines))
		for i, l := range v.lines {
			lines[i] = picture.EscapeDOT(l)
		}
		fmt.Fprintf(&b, "  %d [label=\"%s\", style=%q, fillcolor=%q, width=%.2f", i, strings.Join(lines, `\n`), style, colour,
			picture.BoxWidth(v.lines, float64(v.size()), boxMargin))
		if v.small {
			fmt.Fprintf(&b, ", fontsize=%d, color=\"#b0b7be\"", smallSize)
		}
		b.WriteString("];\n")
	}
	for _, e := range d.ordered {
		fmt.Fprintf(&b, "  %d -> %d;\n", number[e[0]], number[e[1]])
	}
	b.WriteString("}\n")
	return b.Bytes()
}

// graphOf draws the values of a graph. Weights are shown in the labels of their readers. Inputs
// that every layer reads are omitted, since their edges would cross the whole picture.
func graphOf(f *ir.Func, p *paint) *drawing {
	d := &drawing{}
	hidden := func(v *ir.Value) bool {
		return v.Op == ir.OpWeight || v.Op == ir.OpConst || v.Op == ir.OpInput && v.Name() != sym.Tokens
	}
	id := func(v *ir.Value) string {
		if shown(v) {
			return v.String()
		}
		return rest
	}
	rested := false
	addRest := func() {
		if !rested && f.Layers() > 1 {
			d.vertices = append(d.vertices, vertex{id: rest, lines: others(f.Layers()), colour: "#eaeef2"})
		}
		rested = true
	}
	for _, v := range f.Values {
		if hidden(v) {
			continue
		}
		if v.Layer > 0 {
			addRest()
		}
		if shown(v) {
			d.vertices = append(d.vertices, valueVertex(v, p))
		}
		for _, a := range v.Args {
			if !hidden(a) && (shown(a) || shown(v)) {
				d.edge(id(a), id(v))
			}
		}
	}
	for _, r := range f.Results {
		if !shown(r.Value) {
			continue
		}
		d.vertices = append(d.vertices, vertex{id: "return " + r.Name, lines: []string{"return " + r.Name}, small: true})
		d.edge(id(r.Value), "return "+r.Name)
	}
	return d
}

func others(layers int) []string {
	if layers == 2 {
		return []string{"layer 1"}
	}
	return []string{fmt.Sprintf("layers 1–%d", layers-1)}
}

func valueVertex(v *ir.Value, p *paint) vertex {
	x := vertex{id: v.String(), colour: p.colours[v.ID], value: p.fused[v.ID], lines: []string{fmt.Sprintf("%s %s", v, v.Op)}}
	if name := v.Name(); name != "" {
		x.lines[0] += " " + name
	}
	x.small = v.Op.Category() == ir.MoveOps || v.Op == ir.OpCache
	if x.small {
		return x
	}
	var weights []string
	for _, a := range v.Args {
		if a.Op == ir.OpWeight {
			weights = append(weights, weight(a))
		}
	}
	if len(weights) > 0 {
		x.lines = append(x.lines, strings.Join(weights, ", "))
	}
	x.lines = append(x.lines, v.Type.String())
	return x
}

// dispatches draws the plan.
func (in *Input) dispatches(p *paint) *drawing {
	d := &drawing{}
	visible := func(i int) bool { return in.Phase.Dispatches[i].Layer <= 0 }
	id := func(i int) string {
		if visible(i) {
			return fmt.Sprint("d", i)
		}
		return rest
	}
	deps := in.Plan.Dependencies(in.Phase)
	rested, layers := false, len(in.Plan.Caches)
	for i := range in.Phase.Dispatches {
		x := &in.Phase.Dispatches[i]
		switch {
		case visible(i):
			v := vertex{id: id(i), colour: p.colours[ir.ID(x.Value)], value: ir.ID(x.Value), dashed: x.Barrier, lines: []string{
				fmt.Sprintf("%d %s", i, x.Kernel), x.Label(),
				fmt.Sprintf("%s × %s × %s groups of %d", x.Grid[0], x.Grid[1], x.Grid[2], x.Group[0]*x.Group[1]*x.Group[2]),
			}}
			d.vertices = append(d.vertices, v)
		case !rested:
			rested = true
			d.vertices = append(d.vertices, vertex{id: rest, lines: others(layers), colour: "#eaeef2"})
		}
		for _, j := range deps[i] {
			if visible(i) || visible(j) {
				d.edge(id(j), id(i))
			}
		}
	}
	return d
}

// svgEdits adapt Graphviz's SVG for embedding: without the prologue and without ids, which several
// pictures would share, and with sizes in pixels.
var svgEdits = sync.OnceValue(func() (list []svgEdit) {
	for _, e := range [][2]string{
		{`(?s)^.*?<svg`, "<svg"},
		{`(?s)<!--.*?-->\n?`, ""},
		{` id="[^"]*"`, ""},
		{`(?s)<title>.*?</title>\n?`, ""},
		{`(<svg[^>]*?) width="([\d.]+)pt" height="([\d.]+)pt"`, `$1 width="$2" height="$3"`},
	} {
		list = append(list, svgEdit{regexp.MustCompile(e[0]), []byte(e[1])})
	}
	return list
})

type svgEdit struct {
	find *regexp.Regexp
	put  []byte
}

func embed(svg []byte) string {
	for _, e := range svgEdits() {
		svg = e.find.ReplaceAll(svg, e.put)
	}
	return string(svg)
}
