package abi_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goPackage holds the fields that the test reads of go list.
type goPackage struct {
	ImportPath, Dir                            string
	CgoFiles, CFiles, CXXFiles, MFiles         []string
	HFiles, EmbedFiles, CgoCFLAGS, CgoCXXFLAGS []string
	Imports                                    []string
	Module                                     *struct{ Dir string }
}

// TestHeadersAreInTheBuildGraph checks that every quoted include of C or C++ lies in the package's
// own folder, or is embedded by the package or one that it imports itself. Go does not recompile the
// package when any other header changes.
func TestHeadersAreInTheBuildGraph(t *testing.T) {
	for _, build := range [][]string{{"amd64", ""}, {"arm64", ""}, {"amd64", "fakemetal,openblas"}} {
		packages := list(t, "GOARCH="+build[0], build[1])
		for _, p := range packages {
			if len(p.CgoFiles) == 0 {
				continue
			}
			seen := p.files()
			for _, dep := range p.Imports {
				if d := packages[dep]; d != nil {
					seen = append(seen, d.files()...)
				}
			}
			for _, file := range p.included(t) {
				require.Contains(t, seen, file, "%s includes it, and no package that it imports itself embeds it", p.ImportPath)
			}
		}
	}
}

// list returns the module's packages by path, as built for an architecture with some tags.
func list(t *testing.T, arch, tags string) map[string]*goPackage {
	cmd := exec.Command("go", "list", "-e", "-deps", "-json", "-tags", tags, "github.com/smelt-ml/smelt/...")
	cmd.Env = append(os.Environ(), arch, "CGO_ENABLED=1", "GOOS=linux")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	packages := map[string]*goPackage{}
	for d := json.NewDecoder(out); ; {
		p := &goPackage{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if strings.HasPrefix(p.ImportPath+"/", "github.com/smelt-ml/smelt/") {
			packages[p.ImportPath] = p
		}
	}
	require.NoError(t, cmd.Wait())
	require.NotEmpty(t, packages)
	return packages
}

// files returns the files whose changes Go's build cache tracks.
func (p *goPackage) files() (out []string) {
	for _, f := range slices.Concat(p.HFiles, p.EmbedFiles, p.CFiles, p.CXXFiles) {
		out = append(out, filepath.Join(p.Dir, f))
	}
	return out
}

var quotedInclude = regexp.MustCompile(`(?m)^(?://)?\s*#\s*(?:include|import)\s+"([^"]+)"`)

// included returns all files that a package's sources include by quoted names, directly or not.
func (p *goPackage) included(t *testing.T) (out []string) {
	folders := []string{p.Dir}
	for _, flag := range slices.Concat(p.CgoCFLAGS, p.CgoCXXFLAGS) {
		if folder, ok := strings.CutPrefix(flag, "-I"); ok {
			folders = append(folders, filepath.Join(p.Dir, folder))
		}
	}
	var visit func(file string)
	visit = func(file string) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range quotedInclude.FindAllStringSubmatch(string(text), -1) {
			for _, folder := range append([]string{filepath.Dir(file)}, folders...) {
				found := filepath.Join(folder, m[1])
				if _, err := os.Stat(found); err != nil {
					continue
				}
				if !slices.Contains(out, found) {
					out = append(out, found)
					visit(found)
				}
				break
			}
		}
	}
	for _, f := range slices.Concat(p.CgoFiles, p.CFiles, p.CXXFiles, p.MFiles) {
		visit(filepath.Join(p.Dir, f))
	}
	return out
}

// TestChangedHeader shows on a module of two packages that Go recompiles C when a header that an
// imported package embeds changes.
func TestChangedHeader(t *testing.T) {
	dir := t.TempDir()
	write := func(file, text string) {
		path := filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("go.mod", "module toy\n\ngo 1.24\n")
	write("headers/headers.go", "package headers\n\nimport \"embed\"\n\n//go:embed *.h\nvar Headers embed.FS\n")
	write("main.go", "package main\n\n// #include \"headers/number.h\"\nimport \"C\"\n\nimport _ \"toy/headers\"\n\nfunc main() { println(C.NUMBER) }\n")
	for _, number := range []string{"41", "42"} {
		write("headers/number.h", "#define NUMBER "+number+"\n")
		cmd := exec.Command("go", "run", ".")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, number, strings.TrimSpace(string(out)))
	}
}
