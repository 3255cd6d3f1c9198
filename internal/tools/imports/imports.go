// Package imports draws which packages of the module import which.
//
// The module is built of rooms: the root package, ir, passes, models and so on, each a
// folder with all below it. Data flow through them in one direction, from a model's file
// to what a device runs, and a law keeps imports to that direction (law_test.go of the root
// package): ir knows nothing of ours, so that a pass can be read without the kernels; device
// knows Plans and no models; nothing imports the tool. A law says what may be. What there
// is, and which room rests on which, a picture shows at a glance:
//
//	packages, err := imports.List(".")
//	picture, err := imports.Draw(packages)
//	err = picture.WriteDOT(w) // docs/imports.dot, by make imports
//
// Imports are those of all that is compiled anywhere, but for tests: what one platform
// leaves out, another has ([List]).
package imports

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Module is the module's path.
const Module = "github.com/smelt-ml/smelt"

// Package is one of the module's. Paths are those within the module: "" is the root
// package.
type Package struct {
	Path    string
	Command bool     // package main
	Imports []string // of the module, sorted; without those of tests
}

// platforms are those that together compile every file.
var platforms = [][]string{
	{"GOOS=linux", "GOARCH=amd64"},
	{"GOOS=linux", "GOARCH=arm64"},
	{"GOOS=darwin", "GOARCH=arm64"},
	{"GOOS=linux", "GOARCH=amd64", "GOFLAGS=-tags=fakemetal,openblas"},
}

// List returns the packages of the module in folder, sorted by path, but for those that are
// tests alone.
func List(folder string) ([]Package, error) {
	found := map[string]*Package{}
	for _, platform := range platforms {
		c := exec.Command("go", "list", "-f", `{{if or .GoFiles .CgoFiles}}{{.ImportPath}} {{.Name}} {{join .Imports " "}}{{end}}`, "./...")
		c.Dir = folder
		c.Env = append(append(os.Environ(), "CGO_ENABLED=1"), platform...)
		var problems strings.Builder
		c.Stderr = &problems
		out, err := c.Output()
		if err != nil {
			return nil, fmt.Errorf("go list on %s: %w\n%s", strings.Join(platform, " "), err, &problems)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			path, _ := inModule(fields[0])
			p := found[path]
			if p == nil {
				p = &Package{Path: path, Command: fields[1] == "main"}
				found[path] = p
			}
			for _, dep := range fields[2:] {
				if to, ours := inModule(dep); ours {
					p.Imports = append(p.Imports, to)
				}
			}
		}
	}
	var list []Package
	for _, p := range found {
		slices.Sort(p.Imports)
		p.Imports = slices.Compact(p.Imports)
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Package) int { return cmp.Compare(a.Path, b.Path) })
	return list, nil
}

func inModule(path string) (string, bool) {
	if path == Module {
		return "", true
	}
	return strings.CutPrefix(path, Module+"/")
}

// name is what people call a package.
func name(path string) string { return cmp.Or(path, "smelt") }

// reached returns the packages that a package needs, itself included.
func reached(packages []Package, from string) map[string]bool {
	imports := map[string][]string{}
	for _, p := range packages {
		imports[p.Path] = p.Imports
	}
	seen := map[string]bool{}
	var visit func(string)
	visit = func(path string) {
		if !seen[path] {
			seen[path] = true
			for _, dep := range imports[path] {
				visit(dep)
			}
		}
	}
	visit(from)
	return seen
}

// rooms returns what the rooms import of each other.
func rooms(packages []Package) map[string][]string {
	sets := map[string]map[string]bool{}
	for _, p := range packages {
		from := Room(p.Path)
		if sets[from] == nil {
			sets[from] = map[string]bool{}
		}
		for _, dep := range p.Imports {
			if to := Room(dep); to != from {
				sets[from][to] = true
			}
		}
	}
	out := map[string][]string{}
	for from, set := range sets {
		out[from] = slices.Sorted(maps.Keys(set))
	}
	return out
}

// Room returns the room of a package: a folder with all below it, of internal/ each
// folder in it. The root package is a room by itself, "".
func Room(pkg string) string {
	parts := strings.SplitN(pkg, "/", 3)
	if parts[0] == "internal" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}
