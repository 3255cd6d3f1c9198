package native

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the list of kernels")

// TestNames holds the list of package kernels, which builds without C++ read as well,
// to the kernels that every set of this machine has.
func TestNames(t *testing.T) {
	names := slices.Sorted(slices.Values(Names()))
	for _, l := range Libraries() {
		require.Equal(t, names, slices.Sorted(slices.Values(l.Names())), l.ISA())
	}
	var b strings.Builder
	b.WriteString(`// Code generated from what package native has by go test ./kernels/native -run TestNames -update. DO NOT EDIT.

package kernels

// natives are the kernels that package native has for every processor.
var natives = []string{
`)
	for _, name := range names {
		fmt.Fprintf(&b, "\t%q,\n", name)
	}
	b.WriteString("}\n")
	const file = "../natives.gen.go"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(got), "the kernels have changed: run go test ./kernels/native -run TestNames -update")
}

// TestVersion: what runs was compiled under the hash that every set carries, which package
// src holds to the sources.
func TestVersion(t *testing.T) {
	stamps, err := filepath.Glob("*/stamp.go")
	require.NoError(t, err)
	require.NotEmpty(t, stamps)
	for _, file := range stamps {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), fmt.Sprintf("const Stamp = %q\n", Version), file)
	}
}
