package device

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

// TestKnowsNoKernel looks for the names of kernels in the sources: what a dispatch means
// is the Plan's to say and the table's to check.
func TestKnowsNoKernel(t *testing.T) {
	families := map[string]bool{}
	for _, k := range kernels.All() {
		families[k.Family] = true
		families[k.Name] = true
	}
	text, imports := regexp.MustCompile(`"(\w+)"`), regexp.MustCompile(`(?m)^import .*$`)
	seen := 0
	for _, pattern := range []string{"*.go", "*/*.go", "*/*.cc", "*/*.h", "../metal/*.go", "../metal/*/*.go", "../metal/*/*.m", "../metal/*/*.h"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			seen++
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range text.FindAllSubmatch(imports.ReplaceAll(source, nil), -1) {
				require.False(t, families[strings.TrimSuffix(string(m[1]), "_")], "%s names the kernel %s", file, m[1])
			}
		}
	}
	require.NotZero(t, seen)
}
