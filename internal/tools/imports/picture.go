package imports

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dominikbraun/graph"

	"github.com/smelt-ml/smelt/ir"
)

// tool is what people run.
const tool = "cmd/smelt"

// colours tell what the rooms do: tools and API, models, the compiler, execution.
var colours = map[string]string{
	"cmd": "#c9b6e4", "": "#c9b6e4", "models": "#dfe7f2",
	"ir": "#cfe3d4", "fusion": "#cfe3d4", "passes": "#cfe3d4", "lower": "#cfe3d4",
	"kernels": "#f6cf7f", "device": "#f6cf7f",
}

// lineWidth is how many characters a line of packages has.
const lineWidth = 34

// Draw draws a box for each room, with the packages in it, and arrows to the rooms that
// it imports. What follows from other arrows is left out. Dashed is what the tool does
// without: it is there for tests and for making the rest.
func Draw(packages []Package) (*ir.Picture, error) {
	between := rooms(packages)
	names := slices.Sorted(maps.Keys(between))
	all := graph.New(graph.StringHash, graph.Directed(), graph.PreventCycles())
	for _, room := range names {
		if err := all.AddVertex(room); err != nil {
			return nil, fmt.Errorf("drawing %s: %w", name(room), err)
		}
	}
	for _, from := range names {
		for _, to := range between[from] {
			if err := all.AddEdge(from, to); err != nil {
				return nil, fmt.Errorf("drawing the imports of %s by %s: %w", name(to), name(from), err)
			}
		}
	}
	few, err := graph.TransitiveReduction(all)
	if err != nil {
		return nil, err
	}
	edges, err := few.Edges()
	if err != nil {
		return nil, err
	}
	p := &ir.Picture{Title: "Rooms and what they import. What follows from other arrows is left out; dashed is what smelt itself does without"}
	needed := reached(packages, tool)
	number := map[string]int{}
	for i, room := range names {
		number[room] = i + 1
		lines, used := label(packages, room, needed)
		p.Box(i+1, ir.Box{Lines: lines, Colour: colours[room], Dashed: !used})
	}
	for _, e := range edges {
		p.Edge(number[e.Source], number[e.Target])
	}
	return p, nil
}

// label names what is in a room: its name, its packages that are needed, and the others. used tells
// whether there are any of the first.
func label(packages []Package, room string, needed map[string]bool) (lines []string, used bool) {
	var inside, beside []string
	for _, p := range packages {
		if Room(p.Path) != room {
			continue
		}
		used = used || needed[p.Path]
		switch part := strings.TrimPrefix(strings.TrimPrefix(p.Path, room), "/"); {
		case part == "":
		case needed[p.Path]:
			inside = append(inside, part)
		default:
			beside = append(beside, part)
		}
	}
	lines = append(lines, name(room))
	lines = append(lines, wrapped(inside)...)
	if used && beside != nil {
		lines = append(lines, "and for tests and making")
	}
	return append(lines, wrapped(beside)...), used
}

// wrapped sets names in lines.
func wrapped(names []string) (lines []string) {
	line := ""
	for _, n := range names {
		switch {
		case line == "":
			line = n
		case len(line)+2+len(n) > lineWidth:
			lines, line = append(lines, line), n
		default:
			line += ", " + n
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
