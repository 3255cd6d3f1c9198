package page

import (
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// Trace records the graph before the first pass and after each pass.
type Trace struct{ steps []step }

type step struct {
	pass string // "" before the first pass
	f    *ir.Func
	byID map[ir.ID]*ir.Value
}

// Observe records a graph. It is called with an empty name before the first pass and with the name
// of each pass after it; another empty name clears the trace.
func (t *Trace) Observe(pass string, f *ir.Func) {
	if pass == "" {
		t.steps = nil
	}
	s := step{pass: pass, f: f.Clone(), byID: make(map[ir.ID]*ir.Value, len(f.Values))}
	for _, v := range s.f.Values {
		s.byID[v.ID] = v
	}
	t.steps = append(t.steps, s)
}

func (t *Trace) first() *ir.Func { return t.steps[0].f }

func (t *Trace) last() *ir.Func { return t.steps[len(t.steps)-1].f }

// regions divides the values of all steps into classes: the values that a pass removed are in one
// class with those that it added in their place.
type regions struct{ parent []ir.ID }

func (r *regions) of(id ir.ID) ir.ID {
	for r.parent[id] != id {
		r.parent[id] = r.parent[r.parent[id]]
		id = r.parent[id]
	}
	return id
}

func (r *regions) join(a, b ir.ID) { r.parent[r.of(b)] = r.of(a) }

func (t *Trace) regions() *regions {
	r := &regions{parent: make([]ir.ID, t.last().MaxID())}
	for id := range r.parent {
		r.parent[id] = ir.ID(id)
	}
	for i := 1; i < len(t.steps); i++ {
		r.follow(&t.steps[i-1], &t.steps[i])
	}
	return r
}

// follow joins removed values with their replacements. Removed or added values are joined if one
// reads the other, and a kept value joins a removed operand with the operand that replaced it.
func (r *regions) follow(before, after *step) {
	joinNew := func(from, other *step) (some bool) {
		for _, v := range from.f.Values {
			if other.byID[v.ID] != nil {
				continue
			}
			some = true
			for _, a := range v.Args {
				if other.byID[a.ID] == nil && a.Layer == v.Layer {
					r.join(v.ID, a.ID)
				}
			}
		}
		return some
	}
	if !added(before, after) {
		return
	}
	joinNew(before, after)
	joinNew(after, before)
	replaced := func(old, now *ir.Value) {
		if after.byID[old.ID] == nil && before.byID[now.ID] == nil {
			r.join(now.ID, old.ID)
		}
	}
	for _, v := range after.f.Values {
		old := before.byID[v.ID]
		if old == nil || len(old.Args) != len(v.Args) {
			continue
		}
		for i := range v.Args {
			replaced(old.Args[i], v.Args[i])
		}
	}
	for i, res := range after.f.Results {
		if i < len(before.f.Results) {
			replaced(before.f.Results[i].Value, res.Value)
		}
	}
}

func added(before, after *step) bool {
	for _, v := range after.f.Values {
		if before.byID[v.ID] == nil {
			return true
		}
	}
	return false
}

// paint assigns a colour to every fused op and to the source ops that it replaces.
type paint struct {
	colours map[ir.ID]string // by value of any stage
	fused   map[ir.ID]ir.ID  // the fused value that a value is, or is part of
	legend  []swatch
}

type swatch struct {
	Colour string
	Text   string
}

// palette is a list of light, easily distinguished colours.
var palette = []string{
	"#a6cee3", "#fdbf6f", "#b2df8a", "#fb9a99", "#cab2d6", "#ffe58f", "#9fe0d6", "#e0b9a0", "#d0d7de", "#f4b6e0",
}

// kind classifies source ops by the parts of fused ops.
type kind struct {
	op   ir.Op
	rank int
}

func kindOf(v *ir.Value) kind { return kind{v.Op, len(v.Type.Shape)} }

func (t *Trace) paint() *paint {
	p := &paint{colours: map[ir.ID]string{}, fused: map[ir.ID]ir.ID{}}
	r := t.regions()
	fused := map[ir.ID][]*ir.Value{} // by region
	for _, v := range t.last().Values {
		if shown(v) && v.Op.CanDecompose() {
			fused[r.of(v.ID)] = append(fused[r.of(v.ID)], v)
			colour := palette[len(p.legend)%len(palette)]
			p.colours[v.ID] = colour
			p.legend = append(p.legend, swatch{colour, fmt.Sprintf("%s %s%s", v, v.Op, describe(v))})
		}
	}
	for _, v := range t.last().Values {
		p.fused[v.ID] = v.ID
	}
	of := map[ir.ID]*ir.Value{} // source value → the fused value that it is part of
	for _, v := range t.first().Values {
		if c := t.partOf(v, fused[r.of(v.ID)], of); c != nil && p.colours[v.ID] == "" {
			of[v.ID], p.colours[v.ID], p.fused[v.ID] = c, p.colours[c.ID], c.ID
		}
	}
	return p
}

// partOf returns the fused value of its region that a source value is part of: the one that reads
// the same weight; else that of an operand, the later the better; else the first. The fused op must
// contain the kind of op.
func (t *Trace) partOf(v *ir.Value, candidates []*ir.Value, of map[ir.ID]*ir.Value) *ir.Value {
	if v.Op.IsLeaf() {
		return nil
	}
	var fit []*ir.Value
	for _, c := range candidates {
		if parts(t.last(), c)[kindOf(v)] {
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		fit = candidates
	}
	var operand *ir.Value
	for _, a := range v.Args {
		for _, c := range fit {
			if a.Op == ir.OpWeight && slices.ContainsFunc(c.Args, func(w *ir.Value) bool { return w.ID == a.ID }) {
				return c
			}
			if of[a.ID] == c && (operand == nil || a.ID > operand.ID) {
				operand = a
			}
		}
	}
	switch {
	case operand != nil:
		return of[operand.ID]
	case len(fit) > 0:
		return fit[0]
	}
	return nil
}

// parts returns the kinds of source ops that a fused op replaces.
func parts(f *ir.Func, v *ir.Value) map[kind]bool {
	f = f.Clone()
	kinds := map[kind]bool{}
	for _, c := range f.Values {
		if c.ID != v.ID {
			continue
		}
		before := len(f.Values)
		if _, err := c.Op.Decompose(f, c); err == nil {
			for _, part := range f.Values[before:] {
				kinds[kindOf(part)] = true
			}
		}
		break
	}
	return kinds
}

// describe returns the description of a fused product.
func describe(v *ir.Value) string {
	a, ok := v.Attr.(ir.LinearAttr)
	if !ok {
		return ""
	}
	text := ": "
	if a.Norm != ir.NoNorm {
		text += "norm, "
	}
	text += fmt.Sprintf("%d weights", a.Weights)
	if a.Weights == 1 {
		text = text[:len(text)-1]
	}
	if a.Bias {
		text += ", bias"
	}
	if a.Activation != ir.NoActivation {
		text += ", " + a.Activation.Title()
	}
	if a.Gated {
		text += "·mul"
	}
	if a.HasGate() {
		text += ", ·gate"
	}
	if a.Residual {
		text += ", residual"
	}
	return text
}

// shown reports whether pictures and columns show a value: those outside of the layers, and layer
// 0.
func shown(v *ir.Value) bool { return v.Layer == ir.NoLayer || v.Layer == 0 }

// rules returns for values of the last graph the passes that changed them, in order: those that
// added the value, added it in place of another, or changed its operands or attributes.
func (t *Trace) rules() map[ir.ID][]string {
	removed := make([]map[int][]*ir.Value, len(t.steps)) // by step and layer
	for i := 1; i < len(t.steps); i++ {
		removed[i] = map[int][]*ir.Value{}
		for _, v := range t.steps[i-1].f.Values {
			if t.steps[i].byID[v.ID] == nil && !v.Op.IsLeaf() {
				removed[i][v.Layer] = append(removed[i][v.Layer], v)
			}
		}
	}
	out := map[ir.ID][]string{}
	for _, v := range t.last().Values {
		if v.Op.IsLeaf() {
			continue
		}
		ancestors := map[ir.ID]bool{v.ID: true}
		for i := len(t.steps) - 1; i > 0; i-- {
			made := false
			for _, id := range slices.Collect(maps.Keys(ancestors)) {
				w := t.steps[i].byID[id]
				if w == nil { // a value of an earlier graph
					continue
				}
				old := t.steps[i-1].byID[w.ID]
				made = made || old == nil || len(old.Args) != len(w.Args) || fmt.Sprint(old.Attr) != fmt.Sprint(w.Attr)
				if old == nil {
					replacedBy(w, removed[i][w.Layer], ancestors)
				}
			}
			if made {
				out[v.ID] = append([]string{t.steps[i].pass}, out[v.ID]...)
			}
		}
	}
	return out
}

// replacedBy adds the removed values that a new one replaces: those that read one of its operands,
// or another replaced value.
func replacedBy(v *ir.Value, removed []*ir.Value, to map[ir.ID]bool) {
	inside := map[ir.ID]bool{}
	for _, a := range v.Args {
		inside[a.ID] = a.Op == ir.OpWeight || !a.Op.IsLeaf()
	}
	for _, r := range removed { // in the order of reading
		for _, a := range r.Args {
			if inside[a.ID] {
				to[r.ID], inside[r.ID] = true, true
			}
		}
	}
}
