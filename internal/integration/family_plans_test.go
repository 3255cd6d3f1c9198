package integration_test

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
)

// TestFamilies keeps the table of docs/families.md, which tells how many dispatches a layer
// of each family takes.
func TestFamilies(t *testing.T) {
	const head = "|---|---|---|---|--:|--:|\n"
	path := testfiles.Path(t, "docs/families.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	document, _, ok := strings.Cut(string(text), head)
	require.True(t, ok)
	document += head
	for _, family := range families.All() {
		shape, ok := lo.Find(checkpoint.Archs(), func(name string) bool {
			m, err := checkpoint.Arch(name, "f16")
			require.NoError(t, err)
			return m.Config.Family == family.Name
		})
		require.True(t, ok, "no shape is of the family %s", family.Name)
		m, err := smelt.Open("arch:"+shape+",block_count=6", "q4_k_m")
		require.NoError(t, err)
		p, err := m.Compile(smelt.Options{Target: "metal", Level: 1, KV: dtype.F16, Context: 512})
		require.NoError(t, err)
		document += fmt.Sprintf("| %s | `%s` | %s | `arch:%s` |", family.Title, family.Name,
			cmp.Or(strings.Join(append(lo.Compact([]string{family.HF}), family.Alias...), ", "), "·"), shape)
		for _, phase := range []string{"decode", "prefill"} {
			e, err := p.Explain(phase)
			require.NoError(t, err)
			document += fmt.Sprintf(" %d, %d |", e.DispatchesPerLayer, e.DispatchesOutsideLayers)
		}
		document += "\n"
	}
	golden.Check(t, path, document)
}

// TestFilesOfAFamily holds the page that shows how a family is added to the files that it names:
// there are four at most, each knows the example, and no other source of Go does.
func TestFilesOfAFamily(t *testing.T) {
	page, err := os.ReadFile(testfiles.Path(t, "docs/guides/add-a-family.md"))
	require.NoError(t, err)
	section, _, found := strings.Cut(string(page), "\n## ")
	require.True(t, found)
	listed := lo.Map(regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1), func(m []string, _ int) string { return m[1] })
	require.LessOrEqual(t, len(listed), 4)
	var know []string
	root := testfiles.Root(t)
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "family_plans_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if regexp.MustCompile(`"arcee"|\barceeFamily\b`).Match(text) {
			know = append(know, path)
		}
		return err
	}))
	require.ElementsMatch(t, listed, know)
}
