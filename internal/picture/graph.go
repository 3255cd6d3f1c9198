package picture

import (
	"fmt"
	"io"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// Graph writes the values for which keep returns true as a directed graph in DOT, from
// operand to user. Weights appear in the labels of their users, not as vertices. Stubs
// stand for omitted operands, omitted readers and results. Output is deterministic.
func Graph(w io.Writer, f *ir.Func, keep func(*ir.Value) bool) error {
	p := &Picture{Title: f.Name + " (" + f.Stage.String() + ")"}
	readers := map[*ir.Value][]*ir.Value{} // of kept values, outside
	for _, v := range f.Values {
		if v.Op == ir.OpWeight {
			continue
		}
		if keep(v) {
			p.Box(int(v.ID), Box{Lines: linesOf(v), Colour: Colour(v.Op)})
		}
		for _, a := range lo.Uniq(v.Args) {
			switch {
			case a.Op == ir.OpWeight:
			case !keep(v) && keep(a):
				readers[a] = append(readers[a], v)
			case keep(v) && !keep(a):
				p.Box(int(a.ID), Box{Lines: entering(a), Stub: true})
				fallthrough
			case keep(v):
				p.Edge(int(a.ID), int(v.ID))
			}
		}
	}
	results := map[*ir.Value][]string{}
	for _, r := range f.Results {
		results[r.Value] = append(results[r.Value], r.Name)
	}
	for _, v := range f.Values {
		if v.Op == ir.OpWeight || !keep(v) || readers[v] == nil && results[v] == nil {
			continue
		}
		stub := int(f.MaxID() + v.ID) // above every value's ID
		p.Box(stub, Box{Lines: leaving(v, readers[v], results[v]), Stub: true})
		p.Edge(int(v.ID), stub)
	}
	return p.WriteDOT(w)
}

// linesOf returns the lines of a value's label.
func linesOf(v *ir.Value) []string {
	lines := []string{fmt.Sprintf("%s %s", v, v.Op)}
	if name := v.Name(); name != "" {
		lines = append(lines, name)
	}
	for _, a := range v.Args {
		if a.Op == ir.OpWeight {
			lines = append(lines, a.Name()+" "+a.Type.String())
		}
	}
	switch a := v.Attr.(type) {
	case ir.ActivationAttr:
		lines[0] += " " + a.Activation.String()
	case ir.LinearAttr:
		lines = append(lines, extras(a)...)
	case ir.AttentionWriteAttr: // the ops fused into it
		lines = append(lines, strings.TrimSuffix(v.Op.String(), "_attention")+", attention")
	}
	return append(lines, v.Type.String())
}

// entering returns the label of the stub of an omitted operand.
func entering(v *ir.Value) []string {
	words := []string{v.String(), v.Op.String()}
	if name := v.Name(); name != "" {
		words = append(words, name)
	}
	if v.Layer != ir.NoLayer {
		words = append(words, fmt.Sprintf("of layer %d", v.Layer))
	}
	return []string{strings.Join(words, " "), v.Type.String()}
}

// leaving returns the label of a stub: the omitted readers of a value and the results that it is.
func leaving(v *ir.Value, readers []*ir.Value, results []string) []string {
	lines := lo.Map(results, func(name string, _ int) string { return "result " + name })
	for _, r := range readers {
		to := fmt.Sprintf("to %s %s", r, r.Op)
		if r.Layer != ir.NoLayer {
			to += fmt.Sprintf(" of layer %d", r.Layer)
		}
		lines = append(lines, to)
	}
	return append(Shorten(lines), v.String()+" "+v.Type.String())
}

// extras returns a phrase for each part of a fused_linear's prologue and epilogue.
func extras(a ir.LinearAttr) []string {
	norm := map[ir.NormKind]string{ir.RMSNorm: "RMSNorm before", ir.LayerNorm: "LayerNorm before"}[a.Norm]
	activation := lo.Ternary(a.Activation == ir.NoActivation, "", a.Activation.Title())
	if a.Gated {
		activation = lo.CoalesceOrEmpty(activation, "gate") + " · mul"
	}
	words := lo.Compact([]string{lo.Ternary(a.Gather, "rows of x", ""), norm, lo.Ternary(a.Bias, "+ bias", ""), activation, lo.Ternary(a.HasGate(), "· gate", ""), lo.Ternary(a.Residual, "+ residual", "")})
	if len(words) == 0 {
		return nil
	}
	return []string{strings.Join(words, ", ")}
}
