package kernels_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/internal/mslgen"
)

func parse(t *testing.T, file string) *mslgen.Unit {
	t.Helper()
	unit, err := mslgen.Parse(file, mslgen.ReadFile("."))
	require.NoError(t, err)
	return unit
}

// TestTableMatchesSources compares every kernel of every file with the table.
func TestTableMatchesSources(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range kernels.Files() {
		unit := parse(t, file)
		for _, source := range unit.Kernels {
			t.Run(source.Name, func(t *testing.T) {
				require.False(t, seen[source.Name], "host name twice")
				seen[source.Name] = true
				k, ok := kernels.Lookup(source.Name)
				require.True(t, ok, "not in the table")
				require.Equal(t, file, k.File)
				require.Equal(t, source.ThreadgroupBytes(), k.ThreadgroupBytes)
				require.LessOrEqual(t, k.ThreadgroupBytes, kernels.MaxThreadgroupBytes)
				require.Equal(t, signature(unit, source), tableSignature(k))
			})
		}
	}
	for _, k := range kernels.All() {
		require.True(t, seen[k.Name], "%s is in the table but in no source", k.Name)
	}
}

// signature writes what a source says about a kernel, one line a binding.
func signature(unit *mslgen.Unit, k *mslgen.Kernel) []string {
	var out []string
	for _, a := range k.Args {
		switch {
		case a.Kind == mslgen.Position:
		case a.Kind == mslgen.Threadgroup:
			out = append(out, fmt.Sprintf("threadgroup(%d) %s", a.Index, a.Name))
		case a.Space == "constant":
			out = append(out, fmt.Sprintf("buffer(%d) constant %s", a.Index, a.Type))
		default:
			out = append(out, fmt.Sprintf("buffer(%d) %s %s const=%v", a.Index, a.Name, a.Type, a.Const))
		}
	}
	for _, c := range unit.Constants {
		if slices.Contains(k.Constants, c.Index) {
			out = append(out, fmt.Sprintf("constant(%d) %s %s required=%v", c.Index, c.Name, c.Type, slices.Contains(k.Required, c.Index)))
		}
	}
	slices.Sort(out)
	return out
}

func tableSignature(k *kernels.Kernel) []string {
	out := []string{fmt.Sprintf("buffer(%d) constant %s", k.ParamsIndex, k.Params)}
	for _, a := range k.Args {
		out = append(out, fmt.Sprintf("buffer(%d) %s %s const=%v", a.Index, a.Name, a.Element, a.Access == kernels.Read))
	}
	for _, c := range k.Constants {
		out = append(out, fmt.Sprintf("constant(%d) %s %s required=%v", c.Index, c.Name, c.Type, !c.Optional))
	}
	slices.Sort(out)
	return out
}

// mirrors are the Go sides of params.h.
var mirrors = []kernels.Params{
	kernels.PagedAttentionParams{}, kernels.PagedWriteParams{}, kernels.CopyBlocksParams{},
	kernels.EmbedParams{}, kernels.NormParams{}, kernels.LinearParams{}, kernels.RopeParams{},
	kernels.CacheWriteParams{}, kernels.CacheReadParams{}, kernels.RopeWriteParams{},
	kernels.AttentionParams{}, kernels.ElementParams{}, kernels.RepeatParams{},
	kernels.TransposeParams{}, kernels.MatmulParams{}, kernels.MaskParams{}, kernels.ReduceParams{}, kernels.TopKParams{},
	kernels.FlashParams{},
}

var (
	structPattern = regexp.MustCompile(`(?s)struct (\w+) \{(.*?)\};`)
	fieldPattern  = regexp.MustCompile(`(?m)^\s*(uint32_t|float) ([^;]+);`)
	namePattern   = regexp.MustCompile(`(\w+)(?:\[(\d+)\])?`)
)

// TestParamsMatchHeader compares the fields of every struct, by name, type and order,
// with params.h: all are four bytes wide, so equal lists mean equal memory.
func TestParamsMatchHeader(t *testing.T) {
	text, err := os.ReadFile("params.h")
	require.NoError(t, err)
	header := map[string][]string{}
	for _, s := range structPattern.FindAllStringSubmatch(string(text), -1) {
		for _, field := range fieldPattern.FindAllStringSubmatch(s[2], -1) {
			for _, name := range strings.Split(field[2], ",") {
				m := namePattern.FindStringSubmatch(name)
				typ := map[string]string{"uint32_t": "uint32", "float": "float32"}[field[1]]
				if m[2] != "" {
					typ = "[" + m[2] + "]" + typ
				}
				header[s[1]] = append(header[s[1]], camel(m[1])+" "+typ)
			}
		}
	}
	goSide := map[string][]string{}
	for _, p := range mirrors {
		typ := reflect.TypeOf(p)
		for i := range typ.NumField() {
			goSide[typ.Name()] = append(goSide[typ.Name()], typ.Field(i).Name+" "+typ.Field(i).Type.String())
		}
		require.Len(t, kernels.Encode(p), int(typ.Size()), typ.Name())
	}
	require.Equal(t, header, goSide)
}

// camel turns x_stride into XStride.
func camel(name string) string {
	var b strings.Builder
	upper := true
	for _, r := range name {
		if r == '_' {
			upper = true
			continue
		}
		if upper {
			r = unicode.ToUpper(r)
		}
		upper = false
		b.WriteRune(r)
	}
	return b.String()
}

func TestEncodeParams(t *testing.T) {
	require.Equal(t, []uint32{1, 2, 3, 0x3f800000}, kernels.Words(kernels.NormParams{Rows: 1, Width: 2, XStride: 3, Eps: 1}))
	require.Equal(t, []uint32{1, 2, 3, 4, 5, 6},
		kernels.Words(kernels.TransposeParams{Size: [3]uint32{1, 2, 3}, Stride: [3]uint32{4, 5, 6}}))
	require.Equal(t, []byte{1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0},
		kernels.Encode(kernels.EmbedParams{Tokens: 1, Width: 0x200, Vocab: 0x30000}))
}

// TestSourceIsSelfContained checks what Metal's compiler is given.
func TestSourceIsSelfContained(t *testing.T) {
	include := regexp.MustCompile(`(?m)^\s*#\s*include.*$`)
	hashes := map[string]string{}
	for _, file := range kernels.Files() {
		text := kernels.Source(file)
		for _, line := range include.FindAllString(text, -1) {
			require.Regexp(t, `<(metal_stdlib|stdint\.h)>`, line, file)
		}
		require.Equal(t, 1, strings.Count(text, "struct EmbedParams {"), "%s: params.h once", file)
		require.NotContains(t, hashes, kernels.Hash(file))
		hashes[kernels.Hash(file)] = file
	}
	onDisk, err := filepath.Glob("*.metal")
	require.NoError(t, err)
	require.Equal(t, onDisk, kernels.Files())
}

func TestLookup(t *testing.T) {
	k, ok := kernels.Lookup("linear_vec_f16_f32")
	require.True(t, ok)
	require.Equal(t, "linear_vec", k.Family)
	x, ok := k.Arg(0)
	require.True(t, ok)
	require.Equal(t, kernels.Arg{Index: 0, Name: "x", Access: kernels.Read, Element: kernels.Half}, x)
	out, _ := k.Arg(4)
	require.Equal(t, kernels.Float, out.Element)
	_, ok = k.Arg(5)
	require.False(t, ok, "the parameters are no argument")
	_, ok = kernels.Lookup("linear_vec")
	require.False(t, ok)
}
