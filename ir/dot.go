package ir

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/dominikbraun/graph/draw"
	"github.com/samber/lo"
)

// colours groups ops by what they do, for pictures.
var colours = map[Op]string{
	OpInput: "#dfe7f2", OpCache: "#f3e3c3", OpConst: "#eeeeee",
	OpCacheWrite: "#f3e3c3", OpCacheRead: "#f3e3c3",
	OpLinear: "#cfe3d4", OpMatmul: "#cfe3d4", OpEmbed: "#cfe3d4",
	OpFusedLinear: "#8fc7a0", OpAttention: "#f2b5a7", OpSiLUMul: "#c9b6e4",
	OpRopeQKVWrite: "#f6cf7f", OpHeadNormRopeKVWrite: "#f6cf7f",
}

// WriteDOT writes the values that keep admits as a directed graph in DOT, from
// operand to user. Weights stand in the labels of their users rather than as
// vertices. The same graph gives the same bytes.
func (f *Func) WriteDOT(w io.Writer, keep func(*Value) bool) error {
	shown := lo.Filter(f.Values, func(v *Value, _ int) bool { return v.Op != OpWeight && keep(v) })
	var raw bytes.Buffer
	err := draw.DOT(f.graphOf(shown, dotAttributes), &raw,
		draw.GraphAttribute("label", EscapeDOT(f.Name+" ("+f.Stage.String()+")")),
		draw.GraphAttribute("rankdir", "TB"),
		draw.GraphAttribute("fontname", "Helvetica"))
	if err != nil {
		return fmt.Errorf("drawing %s: %w", f.Name, err)
	}
	_, err = io.WriteString(w, SortDOT(raw.String()))
	return err
}

// SortDOT orders the statements of a graph written by the drawing library, which
// lists them as its maps happen to: attributes, vertices, edges, by number, since
// Graphviz draws neighbours in the order it meets them. It drops blank lines and
// the library's weights, with which Graphviz would not keep edges short.
func SortDOT(text string) string {
	lines := lo.Filter(strings.Split(text, "\n"), func(l string, _ int) bool { return strings.TrimSpace(l) != "" })
	if len(lines) < 2 {
		return text
	}
	for i, l := range lines {
		lines[i] = strings.Replace(strings.Replace(l, ",  weight=0", "", 1), " [  weight=0 ]", "", 1)
	}
	sort.Slice(lines[1:len(lines)-1], func(i, j int) bool {
		a, b := statement(lines[i+1]), statement(lines[j+1])
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from), cmp.Compare(lines[i+1], lines[j+1])) < 0
	})
	return strings.Join(lines, "\n") + "\n"
}

// place is where a statement stands: edges by their ends, vertices have to = 0,
// attributes both.
type place struct{ from, to int }

func statement(line string) (p place) {
	_, _ = fmt.Sscanf(strings.TrimSpace(line), `"%d" -> "%d"`, &p.from, &p.to) // stops where it is no edge
	return p
}

func dotAttributes(v *Value) map[string]string {
	label := []string{fmt.Sprintf("%s %s", v, v.Op)}
	if name := v.Name(); name != "" {
		label = append(label, name)
	}
	for _, a := range v.Args {
		if a.Op == OpWeight {
			label = append(label, a.Name()+" "+a.Type.String())
		}
	}
	if a, ok := v.Attr.(LinearAttr); ok {
		label = append(label, a.extras()...)
	}
	label = append(label, v.Type.String())
	colour, ok := colours[v.Op]
	if !ok {
		colour = "#ffffff"
	}
	return map[string]string{
		"label":     strings.Join(lo.Map(label, func(l string, _ int) string { return EscapeDOT(l) }), `\n`),
		"shape":     "box",
		"style":     "rounded,filled",
		"fillcolor": colour,
		"fontname":  "Helvetica",
	}
}

// extras says in words what a fused_linear does besides multiplying.
func (a LinearAttr) extras() []string {
	words := lo.Compact([]string{
		lo.Ternary(a.Norm, "RMSNorm before", ""), lo.Ternary(a.SiLUPair, "SiLU · mul", ""), lo.Ternary(a.Residual, "+ residual", ""),
	})
	if len(words) == 0 {
		return nil
	}
	return []string{strings.Join(words, ", ")}
}

var dotEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", "", "\x00", "\uFFFD")

// EscapeDOT makes text safe inside a quoted string of DOT.
func EscapeDOT(s string) string { return dotEscaper.Replace(s) }
