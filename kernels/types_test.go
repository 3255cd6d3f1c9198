package kernels_test

import (
	"fmt"
	"go/format"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/models/quant"
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

// TestTypes makes what the kernels know of types of weights from their table: types.gen.h, and
// decode.gen.h, which quant.h includes.
func TestTypes(t *testing.T) {
	golden.Check(t, "abi/types.gen.h", typesHeader(dtype.Weights()))
	golden.Check(t, "decode.gen.h", decodeHeader(dtype.Weights()))
}

const typesGenerated = "// clang-format off\n// Code generated from ir/dtype by go test ./kernels -run Types -update. DO NOT EDIT.\n"

func upper(d dtype.Type) string { return strings.ToUpper(d.String()) }

func typesHeader(types []dtype.Type) string {
	var b strings.Builder
	b.WriteString(typesGenerated + `//
// Types of weights: their numbers, which function constants have, and their blocks, for native
// kernels; and the numbers that codes name, of models/quant.
#ifndef SMELT_KERNELS_TYPES_GEN_H
#define SMELT_KERNELS_TYPES_GEN_H

#define SMELT_NONE 0
`)
	for _, d := range types {
		fmt.Fprintf(&b, "#define SMELT_%s %d\n", upper(d), d)
	}
	fmt.Fprintf(&b, "\n#define SMELT_LINES %d // is added to a type\n\n// X(name, elements of a block, bytes of one)\n#define SMELT_TYPES(X)", kernels.Lines)
	for _, d := range types {
		fmt.Fprintf(&b, " \\\n    X(%s, %d, %d)", upper(d), d.BlockElems(), d.BlockBytes())
	}
	b.WriteString("\n")
	for _, table := range quant.Tables() {
		fmt.Fprintf(&b, "\n#define SMELT_%s_VALUES", strings.ToUpper(table.Name))
		for i, v := range table.Values {
			if i%16 == 0 {
				b.WriteString(" \\\n    ")
			} else {
				b.WriteString(" ")
			}
			fmt.Fprintf(&b, "%d", v)
			if i+1 < len(table.Values) {
				b.WriteString(",")
			}
		}
	}
	b.WriteString("\n\n#endif\n")
	return b.String()
}

func decodeHeader(types []dtype.Type) string {
	var b strings.Builder
	b.WriteString(typesGenerated + `//
// What differs by the type of a weight. A decoder decode_<type> of quant.h takes the block that
// holds a run and the run's number in it, or, of a type that has lines, codes and scales, which
// in a block are one, with what the codes' addresses are multiples of as a template argument.

`)
	for _, d := range types {
		fmt.Fprintf(&b, "static_assert(sizeof(block_%s) == %d, \"layout of %s\");\n", d, d.BlockBytes(), upper(d))
		if line := d.Row().Codes.Len(); line != 0 {
			fmt.Fprintf(&b, "static_assert(sizeof(codes_%s) == %d, \"layout of %s\");\n", d, line, upper(d))
			fmt.Fprintf(&b, "static_assert(sizeof(scales_%s) == %d, \"layout of %s\");\n", d, d.BlockBytes()-line, upper(d))
		}
	}
	b.WriteString(`
// stored_type is a type without where its scales stand.
inline uint stored_type(uint type) { return type & ~uint(SMELT_LINES); }
`)
	function := func(doc, result, name, otherwise string, value func(dtype.Row) string) {
		fmt.Fprintf(&b, "\n// %s %s\ninline %s %s(uint type) {\n    switch (stored_type(type)) {\n", name, doc, result, name)
		of := lo.GroupBy(types, func(d dtype.Type) string { return value(d.Row()) })
		for _, v := range lo.Uniq(lo.Map(types, func(d dtype.Type, _ int) string { return value(d.Row()) })) {
			if v == otherwise {
				continue
			}
			for _, d := range of[v] {
				fmt.Fprintf(&b, "    case SMELT_%s:\n", upper(d))
			}
			fmt.Fprintf(&b, "        return %s;\n", v)
		}
		fmt.Fprintf(&b, "    default:\n        return %s;\n    }\n}\n", otherwise)
	}
	function("returns the elements of a block.", "uint", "block_elems", "256", func(r dtype.Row) string { return fmt.Sprint(r.Elems) })
	function("returns the bytes of a block.", "uint", "block_bytes", "0", func(r dtype.Row) string { return fmt.Sprint(r.Bytes) })
	function("returns the bytes of codes that a block has in lines.", "uint", "line_bytes", "0", func(r dtype.Row) string { return fmt.Sprint(r.Codes.Len()) })
	function("reports whether weights have offsets.", "bool", "has_offset", "false", func(r dtype.Row) string { return fmt.Sprint(r.Offset) })
	function("reports whether a weight has less than four bits.", "bool", "has_few_bits", "false", func(r dtype.Row) string {
		return fmt.Sprint(2*r.Bytes < r.Elems)
	})
	function("returns the factor of the codes of the second group of a run.", "float", "second_place", "1.0f", func(r dtype.Row) string {
		if r.Up == 0 {
			return "1.0f"
		}
		return fmt.Sprintf("1.0f / %d.0f", 1<<r.Up)
	})
	b.WriteString(`
// decode_run decodes run r of a row, all of whose elements exist.
inline Run decode_run(uint type, thread const Stored &row, uint r) {
    switch (type) {
`)
	decoder := func(typ, decode string) {
		fmt.Fprintf(&b, "#if SMELT_DECODES(%s)\n    case %s:\n        return %s;\n#endif\n", typ, typ, decode)
	}
	for _, d := range types {
		typ, n := "SMELT_"+upper(d), max(d.BlockElems()/16, 1)
		block := fmt.Sprintf("block<block_%s, %d>(row.at, r)", d, n)
		switch {
		case !d.IsQuantized():
			decoder(typ, fmt.Sprintf("decode_plain((device const block_%s *)row.at, r)", d))
		case d.Row().Codes.Len() == 0:
			decoder(typ, fmt.Sprintf("decode_%s(%s, r %% %d)", d, block, n))
		default:
			align := min(d.BlockBytes()&-d.BlockBytes(), 4)
			decoder(typ, fmt.Sprintf("decode_%s<%d>(%s, %s, r %% %d)", d, align, block, block, n))
			decoder(typ+" + SMELT_LINES", fmt.Sprintf("decode_%s<8>(block<codes_%s, %d>(row.at, r), block<scales_%s, %d>(row.scales, r), r %% %d)", d, d, n, d, n, n))
		}
	}
	b.WriteString(`    default:
        break;
    }
    Run none;
    same(0.0f, 0.0f, none);
    return none;
}
`)
	return b.String()
}
