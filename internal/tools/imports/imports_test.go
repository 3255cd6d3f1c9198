package imports_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/graphviz"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/imports"
)

var list = sync.OnceValues(func() ([]imports.Package, error) { return imports.List("../..") })

func packages(t *testing.T) []imports.Package {
	all, err := list()
	require.NoError(t, err)
	require.Greater(t, len(all), 50)
	// What go list reads, the cache of test results does not know of; this it sees.
	for _, p := range all {
		files, err := filepath.Glob(filepath.Join("../..", p.Path, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			_, err := os.Stat(file)
			require.NoError(t, err)
		}
	}
	return all
}

var (
	vertex = regexp.MustCompile(`(?m)^\s*"(\d+)" \[.*label="((?:[^"\\]|\\.)*)"`)
	arrow  = regexp.MustCompile(`(?m)^\s*"(\d+)" -> "(\d+)"`)
)

// drawn reads rooms, packages and arrows from the drawing in docs.
func drawn(t *testing.T) (packages map[string]bool, arrows map[string]map[string]bool) {
	dot, err := os.ReadFile(filepath.Join(testfiles.Root(t), "docs", "imports.dot"))
	require.NoError(t, err)
	packages, arrows = map[string]bool{}, map[string]map[string]bool{}
	rooms := map[int]string{}
	for _, m := range vertex.FindAllStringSubmatch(string(dot), -1) {
		number, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		lines := strings.Split(m[2], `\n`)
		room := lines[0]
		rooms[number], arrows[room] = room, map[string]bool{}
		packages[room] = true
		for _, line := range lines[1:] {
			for part := range strings.SplitSeq(line, ", ") {
				packages[room+"/"+part] = true
			}
		}
	}
	for _, m := range arrow.FindAllStringSubmatch(string(dot), -1) {
		from, _ := strconv.Atoi(m[1])
		to, _ := strconv.Atoi(m[2])
		arrows[rooms[from]][rooms[to]] = true
	}
	return packages, arrows
}

// follows tells whether arrows lead from one room to another.
func follows(arrows map[string]map[string]bool, from, to string) bool {
	for next := range arrows[from] {
		if next == to || follows(arrows, next, to) {
			return true
		}
	}
	return false
}

// TestDrawing: the drawing has every package, arrows lead to all that a room imports and
// to nothing else, so that it obeys the law as the packages do, and none follows from others.
func TestDrawing(t *testing.T) {
	const advice = "the drawing is old: run make imports"
	shown, arrows := drawn(t)
	called := func(path string) string {
		if path == "" {
			return "smelt"
		}
		return path
	}
	real := map[string]map[string]bool{}
	for _, p := range packages(t) {
		require.True(t, shown[called(p.Path)], "%s is not drawn: %s", called(p.Path), advice)
		from := called(imports.Room(p.Path))
		if real[from] == nil {
			real[from] = map[string]bool{}
		}
		for _, dep := range p.Imports {
			if to := called(imports.Room(dep)); to != from {
				real[from][to] = true
			}
		}
	}
	require.Len(t, arrows, len(real), advice)
	for from := range real {
		for to := range real[from] {
			require.True(t, follows(arrows, from, to), "%s imports %s: %s", from, to, advice)
		}
		for to := range arrows[from] {
			require.True(t, real[from][to], "%s does not import %s: %s", from, to, advice)
			delete(arrows[from], to)
			require.False(t, follows(arrows, from, to), "the arrow from %s to %s follows from others: %s", from, to, advice)
			arrows[from][to] = true
		}
	}

	// And its files are what make imports makes.
	picture, err := imports.Draw(packages(t))
	require.NoError(t, err)
	var dot bytes.Buffer
	require.NoError(t, picture.WriteDOT(&dot))
	svg, err := graphviz.Render(t.Context(), dot.Bytes(), "svg")
	require.NoError(t, err)
	for file, want := range map[string][]byte{"imports.dot": dot.Bytes(), "imports.svg": svg} {
		got, err := os.ReadFile(filepath.Join(testfiles.Root(t), "docs", file))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s: %s", file, advice)
	}
}
