//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
)

// weighed is a balance of two models whose cells have these ratios, B / A.
func weighed(ratios ...float64) *balance {
	b := &balance{}
	for i, r := range ratios {
		c := &compared{model: shapes[i/3%2] + " " + formats[i/6%4], cell: []cell{{Test: prompting, Tokens: 512}, {Test: generating, Tokens: 64}, {Test: generating, Tokens: 64, Depth: 4096}}[i%3]}
		for _, noise := range []float64{0.97, 1, 1.02} {
			c.pairs[0] = append(c.pairs[0], pair{Smelt: 50 * r * noise, Peer: 50})
		}
		c.pairs[0] = append(c.pairs[0], pair{Smelt: 1, Peer: 50, Others: 0.5})
		b.cells = append(b.cells, c)
	}
	return b
}

// A loss is noticed in the mean and in one cell, and a gain elsewhere hides neither.
func TestLost(t *testing.T) {
	even := weighed(1, 1.01, 0.99, 1, 0.97, 1.03)
	require.Empty(t, even.lost())
	require.Empty(t, even.again())

	cell := weighed(1, 1.02, 0.95, 1.02, 1.01, 1)
	require.Equal(t, []string{"qwen3-0.6b f16 tg64@4096 is 0.950"}, cell.lost())
	require.Equal(t, cell.cells[2:3], cell.again())

	hidden := weighed(1.5, 1, 0.9, 1, 1, 1)
	require.Len(t, hidden.lost(), 1)
	require.Equal(t, []*compared{hidden.cells[0], hidden.cells[2]}, hidden.again(), "a gain may be noise as well")

	mean := weighed(0.98, 0.985, 0.98, 0.99, 0.985, 0.985)
	require.Equal(t, []string{"the geometric mean is 0.984"}, mean.lost())
	require.Equal(t, mean.cells, mean.again())
}

// What the order of loading does to a commit beside itself is no loss, and hides none.
func TestOrders(t *testing.T) {
	for _, real := range []float64{1, 0.93} {
		b := weighed(0.9 * real)
		require.Len(t, b.again(), 1)
		b.cells[0].pairs[1] = weighed(real / 0.9).cells[0].pairs[0]
		require.InDelta(t, real, b.cells[0].ratio(), 1e-6)
		require.Equal(t, real < 1, len(b.lost()) > 0)
	}
}

func TestSheet(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, weighed(1, 1.02, 0.95, 1.02, 1.01, 1).write(&out, "abc1234", "def5678 SMELT_ISA=avx2"))
	golden.Check(t, "testdata/guard.md", out.String())
}

func TestGuardWrongCalls(t *testing.T) {
	for want, args := range map[string][]string{
		`"extra": flags only`:                  {"extra"},
		"none-such is not a commit":            {"--a", "none-such", "--models", "qwen3-0.6b-q4_0"},
		"no-commit is not a commit":            {"--a", "no-commit", "--shapes", "gemma3-1b", "--models", "gemma3-*"},
		`--models "gpt": no model`:             {"--models", "gpt"},
		`--cells: "tg" is not a cell`:          {"--cells", "tg"},
		"flag provided but not defined: -pair": {"--pair", "3"},
	} {
		require.ErrorContains(t, guard(t.Context(), append([]string{"--dir", t.TempDir()}, args...), io.Discard, io.Discard), want)
	}
}

// Two programs that answer the protocol are compared, as two commits' would be: the same
// one is even, and one that takes twice as long has lost.
func TestCompare(t *testing.T) {
	g := &guarding{measurement: &measurement{options: &options{patience: 1, threads: 2}, say: t.Logf, machine: thisMachine()}}
	for i, fault := range []string{"none", "slow"} {
		self, err := os.Executable()
		require.NoError(t, err)
		g.sides[i] = side{name: fault, path: self, environment: []string{fakeVariable + "=" + fault}}
	}
	b := &balance{cells: []*compared{{model: "m", cell: cell{Test: generating, Tokens: 64, Depth: 4096}}, {model: "m", cell: cell{Test: prompting, Tokens: 512}}}}
	require.NoError(t, g.compare(t.Context(), "m.gguf", b.cells, 1))
	require.GreaterOrEqual(t, len(b.cells[0].pairs[1]), guardPairs)
	require.InDelta(t, 0.5, b.cells[0].ratio(), 1e-6)
	require.Len(t, b.lost(), 3)

	g.sides[1] = g.sides[0]
	even := &balance{cells: []*compared{{model: "m", cell: cell{Test: generating, Tokens: 64, Depth: 4096}}}}
	require.NoError(t, g.compare(t.Context(), "m.gguf", even.cells, 0))
	require.InDelta(t, 1, even.cells[0].ratio(), 1e-6)
	require.Empty(t, even.lost())
}
