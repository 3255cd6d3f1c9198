package smelt_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAPI keeps the package small enough to be read: few names, none of them an alias, and
// nothing exported that a program outside could not name.
func TestAPI(t *testing.T) {
	var names []string
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		require.Empty(t, internals(file), path)
		for _, d := range file.Decls {
			names = append(names, exported(t, d)...)
		}
	}
	t.Logf("%d names", len(names))
	require.LessOrEqual(t, len(names), 40, "%v", names)

	doc, err := exec.Command("go", "doc", ".").Output()
	require.NoError(t, err)
	lines := strings.Count(string(doc), "\n")
	t.Logf("%d lines of go doc", lines)
	require.LessOrEqual(t, lines, 100)
}

// exported lists the names of a package that a declaration adds.
func exported(t *testing.T, d ast.Decl) (names []string) {
	add := func(name *ast.Ident) {
		if name.IsExported() {
			names = append(names, name.Name)
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				add(spec.Name)
				require.False(t, spec.Assign.IsValid() && spec.Name.IsExported(), "%s is an alias", spec.Name)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					add(name)
				}
			}
		}
	}
	return names
}

// internals lists where the exported declarations of a file name a package that only this module
// may import.
func internals(file *ast.File) (found []string) {
	var closed []string
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err == nil && strings.Contains(path, "/internal/") {
			closed = append(closed, filepath.Base(path))
		}
	}
	look := func(where string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok && len(f.Names) > 0 && !f.Names[0].IsExported() && !strings.HasPrefix(where, "func ") {
				return false
			}
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && slices.Contains(closed, x.Name) {
					found = append(found, where+": "+x.Name+"."+s.Sel.Name)
				}
			}
			return true
		})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				look("func "+d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						look(spec.Name.Name, spec.Type)
					}
				case *ast.ValueSpec:
					if spec.Type != nil && spec.Names[0].IsExported() {
						look(spec.Names[0].Name, spec.Type)
					}
				}
			}
		}
	}
	return found
}
