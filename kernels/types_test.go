package kernels_test

import (
	"fmt"
	"go/format"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/ir"
)

// TestTypes makes types.gen.go from ir's table of element types, which this package may
// not import, and holds the numbers of params.h to it.
func TestTypes(t *testing.T) {
	var b strings.Builder
	b.WriteString(`// Code generated from ir's element types by go test ./kernels -run Types -update. DO NOT EDIT.

package kernels

// layouts are the types of stored weights by their numbers in params.h.
var layouts = map[uint32]layout{
`)
	header, err := os.ReadFile("params.h")
	require.NoError(t, err)
	for _, d := range ir.DTypes() {
		if !d.IsFloat() && !d.IsQuantised() {
			continue
		}
		fmt.Fprintf(&b, "%d: {%d, %d}, // %s\n", d, d.BlockElems(), d.BlockBytes(), d)
		require.Contains(t, string(header), fmt.Sprintf("#define SMELT_%s %d\n", strings.ToUpper(d.String()), d))
	}
	b.WriteString("}\n")
	source, err := format.Source([]byte(b.String()))
	require.NoError(t, err)
	golden.Check(t, "types.gen.go", string(source))
}
