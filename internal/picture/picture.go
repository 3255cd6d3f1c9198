// Package picture draws graphs and Plans in DOT, with values and dispatches as boxes. Boxes are
// sized to hold their text in any of [Fonts], and coloured by category of op.
package picture

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
)

// Fonts is the font list of pictures, in order of preference. Boxes hold their text in each of
// them.
const Fonts = "Helvetica,Arial,Liberation Sans,DejaVu Sans,sans-serif"

// FontSize is the font size of pictures, in points.
const FontSize = 14

// advances are the widths of the printable ASCII characters, in thousandths of the
// font's size: in DejaVu Sans, the widest of the fonts that stand in for Helvetica, or in
// Liberation Sans where that is wider. Graphviz itself uses Helvetica's widths.
var advances = [...]uint16{
	318, 401, 460, 838, 637, 951, 780, 275, 391, 391, 500, 838, 318, 361, 318, 337,
	637, 637, 637, 637, 637, 637, 637, 637, 637, 637, 337, 337, 838, 838, 838, 556,
	1016, 685, 687, 723, 771, 667, 611, 778, 752, 295, 500, 667, 558, 863, 749, 788,
	667, 788, 723, 667, 611, 732, 685, 989, 686, 667, 686, 391, 337, 391, 838, 557,
	500, 613, 635, 550, 635, 616, 353, 635, 634, 278, 278, 580, 278, 975, 634, 612,
	635, 635, 412, 521, 393, 634, 592, 818, 592, 592, 525, 637, 337, 637, 838,
}

// TextWidth returns the width of a line of text in the widest of Fonts, in points.
func TextWidth(line string, size float64) float64 {
	thousandths := 0
	for _, r := range line {
		if i := int(r - ' '); i >= 0 && i < len(advances) {
			thousandths += int(advances[i])
		} else {
			thousandths += 1200 // no letter is wider
		}
	}
	return float64(thousandths) / 1000 * size
}

// BoxWidth returns the minimum width of a box, in inches, that holds its lines with a margin
// in points on either side.
func BoxWidth(lines []string, size, margin float64) float64 {
	widest := 0.0
	for _, l := range lines {
		widest = max(widest, TextWidth(l, size))
	}
	return (widest + 2*margin) / pointsPerInch
}

const (
	boxMargin     = 8 // points
	pointsPerInch = 72
)

// Box is a vertex of a Picture.
type Box struct {
	Lines  []string
	Colour string // "#rrggbb"; "": white
	Dashed bool
	// Stub marks an end of an edge outside the picture: an omitted operand, reader or result.
	Stub bool
}

func (b *Box) attributes() map[string]string {
	a := map[string]string{
		"label":     strings.Join(lo.Map(b.Lines, func(l string, _ int) string { return EscapeDOT(l) }), `\n`),
		"shape":     "box",
		"style":     "rounded,filled",
		"fillcolor": cmp.Or(b.Colour, "#ffffff"),
		"fontname":  Fonts,
		"width":     fmt.Sprintf("%.2f", BoxWidth(b.Lines, FontSize, boxMargin)),
	}
	if b.Dashed {
		a["style"] += ",dashed"
	}
	if b.Stub {
		a["style"], a["color"], a["fontcolor"] = "filled,dotted", stubInk, stubInk
	}
	return a
}

// stubInk is grey.
const stubInk = "#57606a"

// mostReaders is the maximum number of lines of a stub that list readers.
const mostReaders = 3

// Shorten returns the first lines of a stub and a count of the others.
func Shorten(lines []string) []string {
	if len(lines) <= mostReaders+1 {
		return lines
	}
	return append(lines[:mostReaders:mostReaders], fmt.Sprintf("and to %d others", len(lines)-mostReaders))
}

// Picture is a directed graph of boxes, laid out from top to bottom. Boxes are numbered from 1.
type Picture struct {
	Title string
	boxes map[int]Box
	edges map[[2]int]bool
}

// Box adds a box; it ignores a number that has one.
func (p *Picture) Box(number int, b Box) {
	if p.boxes == nil {
		p.boxes = map[int]Box{}
	}
	if _, ok := p.boxes[number]; !ok {
		p.boxes[number] = b
	}
}

// Edge adds an arrow between two boxes; it ignores a duplicate.
func (p *Picture) Edge(from, to int) {
	if p.edges == nil {
		p.edges = map[[2]int]bool{}
	}
	p.edges[[2]int{from, to}] = true
}

// largePicture is the number of boxes from which Graphviz's best layout takes minutes.
const largePicture = 150

// WriteDOT writes the picture in DOT: vertices by number, then edges by target, since
// Graphviz draws neighbours in input order. Output is deterministic.
func (p *Picture) WriteDOT(w io.Writer) error {
	widest := 0.0
	for _, b := range p.boxes {
		widest = max(widest, BoxWidth(b.Lines, FontSize, boxMargin))
	}
	attributes := map[string]string{"label": EscapeDOT(p.Title), "rankdir": "TB", "fontname": Fonts}
	// The title is outside the boxes: one wider than the picture needs a margin.
	if beside := (BoxWidth([]string{p.Title}, FontSize, boxMargin) - widest) / 2; beside > 0 {
		attributes["pad"] = fmt.Sprintf("%.2f,0.06", beside)
	}
	if len(p.boxes) >= largePicture { // bound the iterations, draw straight lines
		maps.Copy(attributes, map[string]string{"nslimit": "2", "nslimit1": "2", "mclimit": "0.1", "splines": "line"})
	}
	var dot strings.Builder
	fmt.Fprintf(&dot, "strict digraph {\n\t%s;\n", strings.Join(pairs(attributes), ";\n\t"))
	for _, number := range slices.Sorted(maps.Keys(p.boxes)) {
		b := p.boxes[number]
		fmt.Fprintf(&dot, "\t\"%d\" [ %s ];\n", number, strings.Join(pairs(b.attributes()), ", "))
	}
	byEnd := func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[1], b[1]), cmp.Compare(a[0], b[0])) }
	for _, e := range slices.SortedFunc(maps.Keys(p.edges), byEnd) {
		for _, end := range e {
			if _, ok := p.boxes[end]; !ok {
				return fmt.Errorf("drawing %s: the arrow from %d to %d has no box %d", p.Title, e[0], e[1], end)
			}
		}
		fmt.Fprintf(&dot, "\t\"%d\" -> \"%d\";\n", e[0], e[1])
	}
	dot.WriteString("}\n")
	_, err := io.WriteString(w, dot.String())
	return err
}

// pairs returns attributes as name="value", sorted by name and escaped.
func pairs(attributes map[string]string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		list = append(list, fmt.Sprintf("%s=\"%s\"", name, attributes[name]))
	}
	return list
}

var dotEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", "", "\x00", "\uFFFD")

// EscapeDOT escapes text for a quoted string of DOT.
func EscapeDOT(s string) string { return dotEscaper.Replace(s) }
