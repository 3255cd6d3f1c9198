package testfiles_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// target is a rule of the Makefile.
type target struct {
	needs []string
	help  string
}

var (
	rule = regexp.MustCompile(`(?m)^([a-z0-9-]+):([^=#\n]*)(?:## (.*))?\n((?:\t.*\n)*)`)
	made = regexp.MustCompile(`\$\(MAKE\)((?: [a-z0-9-]+)+)\n`) // by the recipe, after make's own flags
)

func targets(t *testing.T) map[string]target {
	text, err := os.ReadFile(filepath.Join(testfiles.Root(t), "Makefile"))
	require.NoError(t, err)
	found := map[string]target{}
	for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
		needs := strings.Fields(m[2])
		for _, recipe := range made.FindAllStringSubmatch(m[4], -1) {
			needs = append(needs, slices.DeleteFunc(strings.Fields(recipe[1]), func(w string) bool { return strings.HasPrefix(w, "-") })...)
		}
		found[m[1]] = target{needs: needs, help: m[3]}
	}
	require.Greater(t, len(found), 20)
	return found
}

// unchecked are the targets that neither make test nor make soak reaches.
var unchecked = map[string]string{
	"help": "prints", "help-all": "prints", "native": "an edit-test loop", "clean": "removes", "generate": "writes sources", "profile": "writes a document", "imports": "writes a document",
	"build": "make cold makes it", "demo": "make cold makes it", "bench-peer": "measures, and writes a document", "bench-guard": "measures", "parity": "writes what tests compare with", "tokens": "likewise", "templates": "likewise", "clients": "needs packages of npm; make test runs it where they are",
	"metallib": "needs a Mac", "test-metal": "needs a Mac",
}

// TestTargets checks that make test and make soak together reach every target, and that make
// help-all lists every documented target.
func TestTargets(t *testing.T) {
	all := targets(t)
	reached := map[string]bool{}
	var reach func(name string)
	reach = func(name string) {
		require.Contains(t, all, name)
		reached[name] = true
		for _, n := range all[name].needs {
			reach(n)
		}
	}
	reach("test")
	reach("soak")
	for name, r := range all {
		_, excused := unchecked[name]
		require.NotEqual(t, reached[name], excused, "%s: in make test or make soak, or among unchecked", name)
		if name != "tests" {
			require.NotEmpty(t, r.help, "make help-all leaves out %s", name)
		}
	}
}

// TestHelp checks that make help lists a dozen targets.
func TestHelp(t *testing.T) {
	c := exec.Command("make", "-s", "-C", testfiles.Root(t), "help")
	c.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=") // make test runs this test, and its jobs are not for this make
	out, err := c.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 12)
	for _, line := range lines {
		fields := strings.Fields(line)
		require.Greater(t, len(fields), 1, line)
		require.Contains(t, targets(t), fields[0])
	}
}

// TestTargetsInDocs checks each target that a document or the workflow names.
func TestTargetsInDocs(t *testing.T) {
	root, all := testfiles.Root(t), targets(t)
	documents := []string{filepath.Join(root, ".github", "workflows", "ci.yml")}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/guides/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		documents = append(documents, found...)
	}
	named := regexp.MustCompile("(?m)(?:`|^ {4}|run: )make ([a-z0-9-]+)")
	matrix := regexp.MustCompile(`(?m)^ +target: \[(.*)\]$`)
	count := 0
	for _, path := range documents {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, all, m[1], path)
			count++
		}
		for _, m := range matrix.FindAllStringSubmatch(string(text), -1) {
			// platforms is part of every run of the workflow.
			listed := append(strings.Split(m[1], ", "), "platforms")
			want := slices.Clone(all["soak"].needs)
			slices.Sort(listed)
			slices.Sort(want)
			require.Equal(t, want, listed, path)
			count++
		}
	}
	require.Greater(t, count, 15)
}
