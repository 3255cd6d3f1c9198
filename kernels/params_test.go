package kernels_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/kernels"
)

// TestParamsHeader makes abi/params.gen.h from the structs of params.go.
func TestParamsHeader(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "params.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("// Code generated from kernels/params.go by go test ./kernels -run Params -update. DO NOT EDIT.\n")
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.TYPE {
			continue
		}
		spec := general.Specs[0].(*ast.TypeSpec)
		if fields, ok := spec.Type.(*ast.StructType); ok {
			writeStruct(t, &b, spec.Name.Name, general.Doc.Text(), fields)
		}
	}
	golden.Check(t, "abi/params.gen.h", b.String())
}

// writeStruct writes a struct as C has it, the comments of consecutive lines below each other.
func writeStruct(t *testing.T, b *strings.Builder, name, doc string, fields *ast.StructType) {
	doc = strings.TrimPrefix(doc, name+" ")
	first, size := utf8.DecodeRuneInString(doc)
	fmt.Fprintf(b, "\n// %c%s\nstruct %s {\n", unicode.ToUpper(first), strings.ReplaceAll(strings.TrimSpace(doc[size:]), "\n", "\n// "), name)
	var commented [][2]string
	flush := func() {
		width := 0
		for _, line := range commented {
			width = max(width, len(line[0]))
		}
		for _, line := range commented {
			fmt.Fprintf(b, "    %-*s // %s\n", width, line[0], line[1])
		}
		commented = nil
	}
	for _, field := range fields.Fields.List {
		typ, array := field.Type, ""
		if a, ok := typ.(*ast.ArrayType); ok {
			typ, array = a.Elt, "["+a.Len.(*ast.BasicLit).Value+"]"
		}
		c, ok := map[string]string{"uint32": "uint32_t", "float32": "float"}[typ.(*ast.Ident).Name]
		require.True(t, ok, "%s has a field that is not 32 bits wide", name)
		var names []string
		for _, n := range field.Names {
			names = append(names, kernels.Snake(n.Name)+array)
		}
		line := c + " " + strings.Join(names, ", ") + ";"
		if field.Comment != nil {
			commented = append(commented, [2]string{line, strings.TrimSpace(field.Comment.Text())})
			continue
		}
		flush()
		fmt.Fprintf(b, "    %s\n", line)
	}
	flush()
	b.WriteString("};\n")
}
