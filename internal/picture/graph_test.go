package picture_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/internal/picture"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

func dot(t *testing.T, f *ir.Func, keep func(*ir.Value) bool) string {
	var b bytes.Buffer
	require.NoError(t, picture.Graph(&b, f, keep))
	return b.String()
}

func all(*ir.Value) bool { return true }

// buildTiny returns the graph of a layer.
func buildTiny(t *testing.T) *ir.Func {
	text, err := os.ReadFile("../../ir/testdata/tiny.golden")
	require.NoError(t, err)
	f, err := ir.Parse(string(text))
	require.NoError(t, err)
	return f
}

// anyWeights holds every tensor that is asked for, as F32.
type anyWeights struct{}

func (anyWeights) Weight(_ string, want []int) (dtype.Type, []int, bool) {
	return dtype.F32, want, true
}

func TestGraph(t *testing.T) {
	f := buildTiny(t)
	text := dot(t, f, all)
	golden.Check(t, "testdata/tiny.dot.golden", text)
	for range 5 {
		require.Equal(t, text, dot(t, f, all), "the same graph gives the same bytes")
	}
}

func TestGraphKeepsSome(t *testing.T) {
	text := dot(t, buildTiny(t), func(v *ir.Value) bool { return v.Op == ir.OpSoftmax || v.Op == ir.OpMask })
	golden.Check(t, "testdata/part.dot.golden", text)
}

// statement is what a line between the braces may look like in DOT's grammar: an
// attribute of the graph, a vertex or an edge, with every string quoted.
var statement = regexp.MustCompile(`^\s*("\d+" -> "\d+";|("\d+" \[ *)?(\w+=("([^"\\\n]|\\.)*"|\d+)[,;]? *)*(\];)?)$`)

// TestGraphEscapes draws a graph whose names try to break out of the labels.
func TestGraphEscapes(t *testing.T) {
	for _, name := range []string{`quo"te`, `back\slash`, `ends in \`, `\"`, "two\nlines", "two\r\nlines", "tab\tzero\x00", "}]; x", "<b>&amp;</b>", `\N \G \l`} {
		f, err := ir.Build("t", anyWeights{}, ir.Options{}, func(b *ir.Builder) {
			x := b.Embed(b.Input(sym.Tokens), b.Weight(name, 4, 4))
			b.Return("x", b.Linear(x, b.Weight(name+"2", 4, 4)))
		})
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(dot(t, f, all)), "\n")
		require.Equal(t, "strict digraph {", lines[0])
		require.Equal(t, "}", lines[len(lines)-1])
		for _, line := range lines[1 : len(lines)-1] {
			require.Regexp(t, statement, line, "%q", name)
			require.NotContains(t, line, "\x00", "C programs end there")
		}
	}
}
