package metal_test

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOtherPlatforms type-checks this package as other systems build it: no compiler
// for them is at hand. What cgo makes of C is taken on trust.
func TestOtherPlatforms(t *testing.T) {
	if testing.Short() {
		t.Skip("type-checks its imports from source")
	}
	if build.Default.GOROOT == "" { // go test -trimpath forgets it
		root, err := exec.Command("go", "env", "GOROOT").Output()
		require.NoError(t, err)
		build.Default.GOROOT = strings.TrimSpace(string(root))
		defer func() { build.Default.GOROOT = "" }()
	}
	from := importer.ForCompiler(token.NewFileSet(), "source", nil)
	for _, row := range []struct {
		goos, goarch string
		cgo          bool
		want         string // a file that must be part of it
	}{
		{"darwin", "arm64", true, "apple_cgo.go"},
		{"darwin", "arm64", false, "provider_none.go"},
		{"windows", "amd64", false, "provider_none.go"},
		{"linux", "amd64", false, "provider_none.go"},
		{"linux", "riscv64", true, "provider_none.go"},
	} {
		name := row.goos + "/" + row.goarch
		if row.cgo {
			name += "/cgo"
		}
		t.Run(name, func(t *testing.T) {
			ctx := build.Default
			ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled = row.goos, row.goarch, row.cgo
			pkg, err := ctx.ImportDir(".", 0)
			require.NoError(t, err)
			names := append(pkg.GoFiles, pkg.CgoFiles...)
			require.Contains(t, names, row.want)
			if row.goos == "darwin" && row.cgo {
				require.Subset(t, pkg.MFiles, []string{"apple.m", "apple_session.m"})
			} else {
				require.Empty(t, pkg.MFiles)
			}
			fset := token.NewFileSet()
			var files []*ast.File
			for _, n := range names {
				f, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, n), nil, 0)
				require.NoError(t, err)
				files = append(files, f)
			}
			config := types.Config{FakeImportC: true, Importer: from}
			_, err = config.Check(pkg.ImportPath, fset, files, nil)
			require.NoError(t, err)
		})
	}
}
