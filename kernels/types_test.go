package kernels_test

import (
	"fmt"
	"go/format"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/ir"
)

// TestAttributeNameTypes makes attributes.gen.go from ir's tables, which this package may not import.
func TestAttributeNameTypes(t *testing.T) {
	var b strings.Builder
	b.WriteString(`// Code generated from ir's activations and norms by go test ./kernels -run Types -update. DO NOT EDIT.

package kernels

// activations are the values of fc_activation.
var activations = []struct {
	name  string
	gated bool // exists as a gate only
}{
`)
	for i, a := range ir.Activations() {
		require.Equal(t, i, int(a))
		fmt.Fprintf(&b, "{%q, %v},\n", a, a.OnlyGated())
	}
	b.WriteString("}\n\n// norms are the values of fc_norm, and rmsNorm the one that always has a gain.\nvar norms = []string{")
	for i, n := range ir.NormKinds() {
		require.Equal(t, i, int(n))
		fmt.Fprintf(&b, "%q, ", n)
	}
	fmt.Fprintf(&b, "}\n\nconst rmsNorm = %d\n", ir.RMSNorm)
	source, err := format.Source([]byte(b.String()))
	require.NoError(t, err)
	golden.Check(t, "attributes.gen.go", string(source))
}

// TestAttributeTypes makes attributes.gen.h from ir's activations and norms.
func TestAttributeTypes(t *testing.T) {
	var b strings.Builder
	b.WriteString(`// Code generated from ir's activations and norms by go test ./kernels -run Types -update. DO NOT EDIT.
//
// Values of fc_activation and of linear_vec's fc_norm.
#ifndef SMELT_KERNELS_ATTRIBUTES_GEN_H
#define SMELT_KERNELS_ATTRIBUTES_GEN_H

`)
	for _, a := range ir.Activations() {
		fmt.Fprintf(&b, "#define SMELT_ACTIVATION_%s %d", strings.ToUpper(a.String()), a)
		if a.OnlyGated() {
			b.WriteString(" // a gate only")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for _, n := range ir.NormKinds() {
		fmt.Fprintf(&b, "#define SMELT_NORM_%s %d\n", strings.ToUpper(n.String()), n)
	}
	b.WriteString("\n#endif\n")
	golden.Check(t, "abi/attributes.gen.h", b.String())
}
