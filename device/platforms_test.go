package device_test

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

// TestOtherPlatforms type-checks this package and its providers as other systems build them: no compiler
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
		folder       string
		want         []string // files that must be part of it
	}{
		{"darwin", "arm64", true, ".", []string{"system_darwin.go"}},
		{"darwin", "arm64", true, "provider", []string{"calls.go"}},
		{"darwin", "arm64", true, "host", []string{"host.go", "host.cc", "instance.cc"}},
		{"darwin", "arm64", true, "../metal", []string{"metal.go"}},
		{"darwin", "arm64", true, "../metal/apple", []string{"apple.go", "apple.m", "pipelines.m", "instance.m"}},
		{"darwin", "arm64", false, ".", []string{"system_other.go"}},
		{"darwin", "arm64", false, "provider", []string{"none.go"}},
		{"darwin", "arm64", false, "host", []string{"none.go"}},
		{"darwin", "arm64", false, "../metal/apple", []string{"none.go"}},
		{"windows", "amd64", false, ".", []string{"system_other.go"}},
		{"windows", "amd64", false, "provider", []string{"none.go"}},
		{"windows", "amd64", false, "host", []string{"none.go"}},
		{"windows", "amd64", false, "../metal/apple", []string{"none.go"}},
		{"linux", "amd64", false, "provider", []string{"none.go"}},
		{"linux", "amd64", true, "../metal/apple", []string{"none.go"}},
		{"linux", "arm64", true, "../metal/apple", []string{"none.go"}},
		{"linux", "riscv64", true, "provider", []string{"none.go"}},
		{"linux", "riscv64", true, "host", []string{"none.go"}},
	} {
		name := row.goos + "/" + row.goarch
		if row.cgo {
			name += "/cgo"
		}
		name += "/" + row.folder
		t.Run(name, func(t *testing.T) {
			ctx := build.Default
			ctx.GOOS, ctx.GOARCH, ctx.CgoEnabled = row.goos, row.goarch, row.cgo
			pkg, err := ctx.ImportDir(row.folder, 0)
			require.NoError(t, err)
			names := append(pkg.GoFiles, pkg.CgoFiles...)
			compiled := append(pkg.CXXFiles, pkg.MFiles...)
			require.Subset(t, append(compiled, names...), row.want)
			if len(pkg.CgoFiles) == 0 {
				require.Empty(t, compiled)
			}
			if row.goos == "darwin" && len(pkg.MFiles) > 0 {
				// Without it MTLCreateSystemDefaultDevice is nil in a command-line tool.
				require.Contains(t, strings.Join(pkg.CgoLDFLAGS, " "), "-framework CoreGraphics")
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
