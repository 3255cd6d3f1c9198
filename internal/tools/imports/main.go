// Imports draws which rooms of the module import which, into docs/imports.dot and
// docs/imports.svg:
//
//	go run ./internal/tools/imports
//
// TestImportLaw checks the permitted imports; the drawing shows the actual ones, without tests.
// A room is a top-level folder with everything below it, each folder of internal/, and each of
// [apart]. Arrows implied by others are left out. An import cycle between rooms is an error.
package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/dominikbraun/graph"

	"github.com/smelt-ml/smelt/internal/graphviz"
)

const module = "github.com/smelt-ml/smelt"

// apart are rooms within rooms.
var apart = []string{"ir/dtype", "ir/sym", "kernels/published", "lower/plan", "lower/predict"}

// colours of rooms: the tool and the API, models, the compiler, execution.
var colours = map[string]string{
	"cmd": "#c9b6e4", "smelt": "#c9b6e4", "models": "#dfe7f2",
	"ir": "#cfe3d4", "fusion": "#cfe3d4", "passes": "#cfe3d4", "lower": "#cfe3d4",
	"kernels": "#f6cf7f", "device": "#f6cf7f", "metal": "#f6cf7f",
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("imports: ", err)
	}
}

func run() error {
	dot, err := draw(".")
	if err != nil {
		return err
	}
	svg, err := graphviz.Render(context.Background(), dot, "svg")
	if err != nil {
		return err
	}
	if err := os.WriteFile("docs/imports.dot", dot, 0o644); err != nil {
		return err
	}
	return os.WriteFile("docs/imports.svg", svg, 0o644)
}

// draw returns the drawing of the module in a folder, as DOT.
func draw(folder string) ([]byte, error) {
	rooms := graph.New(graph.StringHash, graph.Directed(), graph.PreventCycles())
	// Together these platforms compile every file.
	for _, platform := range []string{"GOARCH=amd64", "GOARCH=arm64", "GOOS=darwin", "GOFLAGS=-tags=fakemetal,openblas"} {
		list := exec.Command("go", "list", "-f", `{{if or .GoFiles .CgoFiles}}{{.ImportPath}} {{join .Imports " "}}{{end}}`, "./...")
		list.Dir, list.Stderr = folder, os.Stderr
		list.Env = append(os.Environ(), "CGO_ENABLED=1", "GOOS=linux", platform)
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			packages := strings.Fields(line)
			from, _ := room(packages[0])
			_ = rooms.AddVertex(from) // an error means that the vertex exists
			for _, p := range packages[1:] {
				to, ours := room(p)
				if !ours || to == from {
					continue
				}
				_ = rooms.AddVertex(to)
				if err := rooms.AddEdge(from, to); err != nil && err != graph.ErrEdgeAlreadyExists {
					return nil, fmt.Errorf("the import of %s by %s: %w", to, from, err)
				}
			}
		}
	}
	few, err := graph.TransitiveReduction(rooms)
	if err != nil {
		return nil, err
	}
	arrows, err := few.AdjacencyMap()
	if err != nil {
		return nil, err
	}
	var dot bytes.Buffer
	dot.WriteString("digraph {\n\tnode [shape=box style=\"rounded,filled\" fillcolor=white fontname=\"Helvetica,Arial,sans-serif\"]\n")
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		fmt.Fprintf(&dot, "\t%q [fillcolor=%q]\n", from, cmp.Or(colours[from], colours[strings.Split(from, "/")[0]], "white"))
		for _, to := range slices.Sorted(maps.Keys(arrows[from])) {
			fmt.Fprintf(&dot, "\t%q -> %q\n", from, to)
		}
	}
	dot.WriteString("}\n")
	return dot.Bytes(), nil
}

// room returns the room of a package. ours reports whether the package is in this module.
func room(pkg string) (name string, ours bool) {
	path, ours := strings.CutPrefix(pkg+"/", module+"/")
	parts := strings.SplitN(path, "/", 3)
	if parts[0] == "" {
		return "smelt", ours
	}
	if two := strings.Join(parts[:2], "/"); parts[0] == "internal" || slices.Contains(apart, two) {
		return two, ours
	}
	return parts[0], ours
}
