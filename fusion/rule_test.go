package fusion_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/ir"
)

// TestRules runs each rule on the graphs in testdata/RULE. A file named not_…
// holds a graph that looks like a match and must stay as it is.
func TestRules(t *testing.T) {
	for _, rule := range fusion.All() {
		files, err := filepath.Glob(filepath.Join("testdata", rule.Name, "*.txtar"))
		require.NoError(t, err)
		require.Greater(t, len(files), 3, rule.Name)
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".txtar")
			t.Run(rule.Name+"/"+name, func(t *testing.T) { checkRule(t, rule, file, strings.HasPrefix(name, "not_")) })
		}
	}
}

func checkRule(t *testing.T, rule *fusion.Rule, file string, stays bool) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	archive := txtar.Parse(text)
	require.Equal(t, "in", archive.Files[0].Name)
	in := string(archive.Files[0].Data)
	f, err := ir.Parse(in)
	require.NoError(t, err)
	f.Sweep() // a dead reader blocks a match
	before := f.String()

	counts, err := fusion.Apply(f, rule)
	require.NoError(t, err)
	require.NoError(t, f.Verify(), "before the sweep")
	f.Sweep()
	require.NoError(t, f.Verify())
	if stays {
		require.Equal(t, []int{0}, counts)
		require.Equal(t, before, f.String())
	} else {
		require.Positive(t, counts[0])
	}
	again, err := fusion.Apply(f, rule)
	require.NoError(t, err)
	require.Equal(t, []int{0}, again, "the rule must be done")

	archive.Files = []txtar.File{archive.Files[0], {Name: "out", Data: []byte(f.String())}}
	golden.Check(t, file, string(txtar.Format(archive)))
}
