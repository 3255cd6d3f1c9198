// Package docs_test holds the documents to the tree: their links, the files that they name,
// and the environment variables.
package docs_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// documents returns every Markdown file of the repository, by its path from the root.
func documents(t *testing.T) map[string]string {
	root := testfiles.Root(t)
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			name, err := filepath.Rel(root, file)
			require.NoError(t, err)
			found[filepath.ToSlash(name)] = string(text)
		}
	}
	require.Greater(t, len(found), 20)
	return found
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	quoted  = regexp.MustCompile("`([^`\n]+)`")
)

// anchors returns the fragments by which GitHub names a document's headings.
func anchors(text string) (found []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		id := strings.ToLower(regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1"))
		id = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(id, "")
		found = append(found, strings.ReplaceAll(id, " ", "-"))
	}
	return found
}

// TestLinks follows each relative link to its file and heading. Links from a dated note to
// another are followed; what else a note names is what was there on its day.
func TestLinks(t *testing.T) {
	all := documents(t)
	var broken []string
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := name
			if file != "" {
				to = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(testfiles.Root(t), to)); err != nil || anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
				broken = append(broken, name+": "+m[1])
			}
		}
	}
	require.Empty(t, broken)
}

// TestLengths holds documents that are read first to their length.
func TestLengths(t *testing.T) {
	all := documents(t)
	require.LessOrEqual(t, strings.Count(all["README.md"], "\n"), 170)
	require.LessOrEqual(t, strings.Count(all["docs/performance.md"], "\n"), 300)
}

// unmade are what documents name and the tree lacks: what a build makes, and examples.
var unmade = regexp.MustCompile(`^(bin|build)/|scale_into_rope|YYYY|/NAME\.`)

// TestPaths looks for each file or folder that a document names in code, "fusion/rule.go" or
// "docs/peer/*.json": whatever begins with an entry of the root.
func TestPaths(t *testing.T) {
	root := testfiles.Root(t)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	rooms := map[string]bool{}
	for _, e := range entries {
		rooms[e.Name()] = e.IsDir()
	}
	name := regexp.MustCompile(`^[\w.*-]+(/[\w.*-]*)+$`)
	var missing []string
	count := 0
	for document, text := range documents(t) {
		if dated(document) {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			named := strings.TrimSuffix(m[1], "/...")
			if first, _, _ := strings.Cut(named, "/"); !rooms[first] || !name.MatchString(named) || unmade.MatchString(named) {
				continue
			}
			found, err := filepath.Glob(filepath.Join(root, named))
			require.NoError(t, err)
			if len(found) == 0 {
				missing = append(missing, document+": "+m[1])
			}
			count++
		}
	}
	require.Empty(t, missing)
	require.Greater(t, count, 30)
}

// TestGlossary looks up each word of the glossary where its row says: a package, root for the
// one of the root, and a name that the package declares. Words are in the order of the alphabet.
func TestGlossary(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| ([^|`]+) \\| [^|]+ \\| (?:`([\\w/]+)`|root), `(\\w+)` \\|$").FindAllStringSubmatch(documents(t)["docs/glossary.md"], -1)
	require.Equal(t, strings.Count(documents(t)["docs/glossary.md"], "\n| "), len(rows)+1, "each row but the head has this form")
	require.True(t, slices.IsSortedFunc(rows, func(a, b []string) int { return strings.Compare(strings.ToLower(a[1]), strings.ToLower(b[1])) }))
	for _, row := range rows {
		sources, err := filepath.Glob(filepath.Join(testfiles.Root(t), row[2], "*.go"))
		require.NoError(t, err)
		declares := regexp.MustCompile(`(?m)^(type |func (\([^)]*\) )?|\t)` + row[3] + `\b`)
		require.True(t, slices.ContainsFunc(sources, func(file string) bool {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			return !strings.HasSuffix(file, "_test.go") && declares.Match(text)
		}), "%s: %s declares no %s", row[1], row[2], row[3])
	}
}

// dated reports whether a document is a note of a day, which nobody edits afterwards.
func dated(document string) bool {
	return strings.HasPrefix(document, "docs/lab/") && document != "docs/lab/README.md"
}

var (
	reading = regexp.MustCompile(`(?:Getenv|LookupEnv|folderOf|isTrue)\("([A-Z][A-Z0-9_]+)"`)
	literal = regexp.MustCompile(`"(SMELT_[A-Z_]*[A-Z])"`)
	setting = regexp.MustCompile(`\b(SMELT_[A-Z_]+)=`)
	named   = regexp.MustCompile(`\bSMELT_[A-Z_]*[A-Z]\b`)
	row     = regexp.MustCompile("(?m)^\\| `([A-Z][A-Z0-9_]+)` \\|")
)

// TestEnvironment compares the variables of environment.md with those that sources read.
func TestEnvironment(t *testing.T) {
	read := map[string]bool{}
	take := func(text []byte, patterns ...*regexp.Regexp) {
		for _, p := range patterns {
			for _, m := range p.FindAllSubmatch(text, -1) {
				read[string(m[1])] = true
			}
		}
	}
	sources(t, func(name string, text []byte) {
		switch {
		case path.Ext(name) == ".go":
			take(text, reading, literal)
		case name == "Makefile" || strings.HasPrefix(name, ".ci/"):
			take(text, setting)
		}
	})
	delete(read, "PATH")
	var listed []string
	for _, m := range row.FindAllStringSubmatch(documents(t)["docs/environment.md"], -1) {
		listed = append(listed, m[1])
	}
	for _, name := range []string{"LLAMA_BENCH", "SMELT_ISA"} {
		require.Contains(t, read, name)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(read)), listed)
	for name, text := range documents(t) {
		for _, m := range named.FindAllString(text, -1) {
			require.True(t, read[m] || dated(name), "%s names %s", name, m)
		}
	}
}

// TestNames looks for each test that a document has somebody run.
func TestNames(t *testing.T) {
	var tests []string
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	sources(t, func(name string, text []byte) {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range declared.FindAllSubmatch(text, -1) {
				tests = append(tests, string(m[1]))
			}
		}
	})
	run := regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z]\\w*)`|-(?:run|bench) '?\\^?((?:Test|Benchmark|Fuzz)[A-Z]\\w*)")
	var missing []string
	for document, text := range documents(t) {
		if dated(document) {
			continue
		}
		for _, m := range run.FindAllStringSubmatch(text, -1) {
			prefix := m[1] + m[2]
			if !slices.ContainsFunc(tests, func(s string) bool { return strings.HasPrefix(s, prefix) }) {
				missing = append(missing, document+": "+prefix)
			}
		}
	}
	require.Empty(t, missing)
}

// sources calls f with every source file below the root that is written by hand.
func sources(t *testing.T, f func(name string, text []byte)) {
	root := os.DirFS(testfiles.Root(t))
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if slices.Contains([]string{".git", "bin", "build", "docs", "testdata"}, d.Name()) && name != "." {
				return fs.SkipDir
			}
			return nil
		case path.Ext(name) != ".go" && name != "Makefile" && !strings.HasPrefix(name, ".ci/"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f(name, text)
		return nil
	}))
}
