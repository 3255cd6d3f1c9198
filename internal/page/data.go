package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/smelt-ml/smelt/internal/picture"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

// Data is a page's graphs and schedule, for programs that draw them themselves.
type Data struct {
	Model      string             `json:"model"`
	Phase      string             `json:"phase"`
	Target     string             `json:"target"`
	Prediction predict.Prediction `json:"prediction"`
	Pictures   []Picture          `json:"pictures"`
	Dispatches []Dispatch         `json:"dispatches"`
	Buffers    []CommandBuffer    `json:"command_buffers"`
	Rules      map[string]string  `json:"rules"`  // documentation of the passes and rules that dispatches name
	Legend     []Colour           `json:"legend"` // of Dispatch.Colour
}

// Colour is an entry of a legend.
type Colour struct {
	Colour string `json:"colour"`
	Text   string `json:"text"`
}

// Picture is the laid out graph of a stage. Lengths are in points from the upper left corner.
type Picture struct {
	Name   string  `json:"name"` // "source", "fused" or "plan"
	Text   string  `json:"text"`
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
	Boxes  []Box   `json:"boxes"`
	Arrows []Arrow `json:"arrows"`
}

// Box is a vertex: an op or a dispatch. X and Y are its centre.
type Box struct {
	X          float64  `json:"x"`
	Y          float64  `json:"y"`
	Width      float64  `json:"width"`
	Height     float64  `json:"height"`
	Lines      []string `json:"lines"`
	Size       int      `json:"size"`   // font size
	Colour     string   `json:"colour"` // "" for none
	Dashed     bool     `json:"dashed"`
	Dispatches []int    `json:"dispatches"` // dispatches that compute it, possibly with other boxes
}

// Arrow is a path of Bézier curves: a start point, then three points for each curve. Its head lies
// beyond the last point.
type Arrow struct {
	Points [][2]float64 `json:"points"`
}

// Dispatch is one launch of a kernel in the predicted step. Times are in µs from the start of the
// step.
type Dispatch struct {
	Kernel  string    `json:"kernel"`
	Summary string    `json:"summary"` // of the kernel
	Label   string    `json:"label"`
	Layer   int       `json:"layer"` // ir.NoLayer outside of the layers
	Grid    [3]int64  `json:"grid"`  // threadgroups
	Group   [3]uint32 `json:"group"` // threads of a threadgroup
	Barrier bool      `json:"barrier"`
	Buffers []Binding `json:"buffers"`
	Read    int64     `json:"read"` // bytes
	Written int64     `json:"written"`
	Ops     int64     `json:"ops"`
	Start   float64   `json:"start"`
	End     float64   `json:"end"`
	Lane    int       `json:"lane"` // row of the timeline; concurrent dispatches have different ones
	Rules   []string  `json:"rules"`
	Colour  string    `json:"colour"`
}

// Binding is a buffer that a dispatch reads or writes.
type Binding struct {
	Index  uint32 `json:"index"`
	Name   string `json:"name"`   // of the kernel's argument
	Buffer string `json:"buffer"` // kind of the buffer, and its name if it has one
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Access string `json:"access"` // "read", "write" or "read and write"
}

// CommandBuffer is the time and the first dispatch of a command buffer.
type CommandBuffer struct {
	First int     `json:"first"`
	Start float64 `json:"start"`
	End   float64 `json:"end"`
}

// NewData returns the data of the page of an input.
func NewData(in *Input) (*Data, error) {
	if in.Trace == nil || len(in.Trace.steps) == 0 {
		return nil, ErrNoTrace
	}
	paint := in.Trace.paint()
	d := &Data{
		Model: in.Plan.Model, Phase: in.Phase.Name, Target: in.Plan.Target, Prediction: in.Timeline.Predict(),
		Rules: map[string]string{}, Dispatches: in.launches(),
	}
	for _, s := range in.legend() {
		d.Legend = append(d.Legend, Colour(s))
	}
	for _, b := range in.Timeline.Buffers {
		d.Buffers = append(d.Buffers, CommandBuffer{b.First, b.Start, b.End})
	}
	docs := docs()
	for i := range d.Dispatches {
		for _, rule := range d.Dispatches[i].Rules {
			d.Rules[rule] = docs[rule]
		}
	}
	for _, of := range in.drawings(paint) {
		p, err := in.layOut(of)
		if err != nil {
			return nil, fmt.Errorf("drawing %s: %s: %w", in.Plan.Model, of.name, err)
		}
		d.Pictures = append(d.Pictures, p)
	}
	return d, nil
}

func (in *Input) launches() []Dispatch {
	rules, lanes := in.Trace.rules(), in.lanes()
	out := make([]Dispatch, len(in.Phase.Dispatches))
	for i := range out {
		d := &in.Phase.Dispatches[i]
		cost := predict.CostOf(in.Plan, d, in.Sizes)
		kernel, _ := kernels.Lookup(d.Kernel) // found: the plan was lowered by this program
		to := &out[i]
		*to = Dispatch{
			Kernel: d.Kernel, Summary: kernel.Summary, Label: d.Label(), Layer: d.Layer, Group: d.Group, Barrier: d.Barrier,
			Read: cost.Read, Written: cost.Written, Ops: cost.Ops,
			Start: in.Timeline.Spans[i].Start, End: in.Timeline.Spans[i].End, Lane: lanes[i], Colour: picture.ColourOf(d),
			Rules: append([]string{}, rules[ir.ID(d.Value)]...),
		}
		for axis := range d.Grid {
			to.Grid[axis] = d.Grid[axis].Eval(in.Sizes)
		}
		for k := range d.Bindings {
			to.Buffers = append(to.Buffers, in.binding(kernel, &d.Bindings[k]))
		}
	}
	return out
}

func (in *Input) binding(kernel *kernels.Kernel, b *plan.Binding) Binding {
	buffer := &in.Plan.Buffers[b.Buffer]
	out := Binding{Index: b.Index, Buffer: buffer.Kind.String(), Offset: b.Offset, Bytes: b.Bytes.Eval(in.Sizes), Access: "read"}
	if buffer.Name != "" {
		out.Buffer += " " + buffer.Name
	}
	if arg, ok := kernel.Arg(int(b.Index)); ok {
		out.Name = arg.Name
	}
	switch {
	case b.Write && b.Read:
		out.Access = "read and write"
	case b.Write:
		out.Access = "write"
	}
	return out
}

// laidOut is Graphviz's JSON output: https://graphviz.org/docs/outputs/json/.
type laidOut struct {
	Box     string `json:"bb"`
	Objects []struct {
		Name, Pos, Width, Height string
	}
	Edges []struct{ Pos string }
}

// layOut lays out a drawing with Graphviz, whose lengths are in points from the lower left corner,
// and in inches for the sizes of boxes.
func (in *Input) layOut(d *drawing) (Picture, error) {
	p := Picture{Name: d.name, Text: d.text, Boxes: make([]Box, len(d.vertices))}
	raw, err := in.Draw(d.dot(), "json0")
	if err != nil {
		return p, err
	}
	var g laidOut
	if err := json.Unmarshal(raw, &g); err != nil {
		return p, fmt.Errorf("reading the layout: %w", err)
	}
	corners, err := coordinates(g.Box)
	if err != nil || len(corners) != 4 {
		return p, cmp.Or(err, fmt.Errorf("the layout has the box %q", g.Box))
	}
	p.Width, p.Height = corners[2], corners[3]
	if len(g.Objects) != len(d.vertices) {
		return p, fmt.Errorf("the layout has %d boxes of %d", len(g.Objects), len(d.vertices))
	}
	computedBy := map[ir.ID][]int{}
	for i := range in.Phase.Dispatches {
		v := ir.ID(in.Phase.Dispatches[i].Value)
		computedBy[v] = append(computedBy[v], i)
	}
	delete(computedBy, 0)
	for _, o := range g.Objects {
		at, err := coordinates(o.Pos)
		width, err2 := strconv.ParseFloat(o.Width, 64)
		height, err3 := strconv.ParseFloat(o.Height, 64)
		i, err4 := strconv.Atoi(o.Name)
		if err := cmp.Or(err, err2, err3, err4); err != nil || len(at) != 2 || i < 0 || i >= len(p.Boxes) {
			return p, cmp.Or(err, fmt.Errorf("the layout has a box %q at %q", o.Name, o.Pos))
		}
		v := &d.vertices[i]
		p.Boxes[i] = Box{
			X: at[0], Y: p.Height - at[1], Width: width * pointsPerInch, Height: height * pointsPerInch,
			Lines: v.lines, Size: v.size(), Colour: v.colour, Dashed: v.dashed, Dispatches: append([]int{}, computedBy[v.value]...),
		}
	}
	for _, e := range g.Edges {
		points := strings.Fields(e.Pos)
		if len(points) > 0 && strings.HasPrefix(points[0], "e,") { // the tip of the arrow
			points = points[1:]
		}
		numbers, err := coordinates(strings.Join(points, ","))
		if err != nil || len(numbers)%6 != 2 {
			return p, cmp.Or(err, fmt.Errorf("the layout has an arrow %q", e.Pos))
		}
		a := Arrow{}
		for k := 0; k < len(numbers); k += 2 {
			a.Points = append(a.Points, [2]float64{numbers[k], p.Height - numbers[k+1]})
		}
		p.Arrows = append(p.Arrows, a)
	}
	return p, nil
}

const pointsPerInch = 72

// coordinates parses numbers separated by commas.
func coordinates(text string) (list []float64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return nil, fmt.Errorf("the layout has %q: %w", text, err)
		}
		list = append(list, x)
	}
	return list, nil
}
