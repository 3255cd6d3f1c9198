package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
)

// TestSwaps exchanges arguments, function constants and parameters of all kernels at once.
// The table must agree with its sources and with Check, lower must make Plans that agree
// with the table, and three sources, compiled on their own, must pass the tests of their
// kernels, which notice a fault in each. All of them are compiled by `make swaps`.
func TestSwaps(t *testing.T) {
	if testing.Short() {
		t.Skip("builds test binaries")
	}
	dir := t.TempDir()
	c, err := newCopy(dir)
	require.NoError(t, err)
	for _, file := range kernels.Files() {
		requireChanged(t, dir, file)
	}
	requireChanged(t, dir, "params.h")
	require.NoError(t, c.command("go", "test", "-vet=off", "-run",
		"^(TestTableMatchesSources|TestParamsMatchHeader|TestGridsMatchSources|TestCheck|TestBind)$", "./kernels"))
	require.NoError(t, c.command("go", "test", "-vet=off", "-skip", "Arena|Lifetimes|Timeline|Prediction|CommandBuffers|Overlap|Placement|FindChip", "./lower"))
	require.NoError(t, c.command("go", "run", "./kernels/internal/mutants", "-run", "RMSNorm: eps left out|V read by K's stride|mul: b by a's stride"))
}

func requireChanged(t *testing.T, dir, file string) {
	t.Helper()
	before, err := os.ReadFile(filepath.Join("..", "..", file))
	require.NoError(t, err)
	after, err := os.ReadFile(filepath.Join(dir, "kernels", file))
	require.NoError(t, err)
	require.NotEqual(t, string(before), string(after), file)
}

// The edits, on texts small enough to see.
func TestEdits(t *testing.T) {
	for before, after := range map[string]string{
		"0 q read $0; 1 k read $0; 2 out write $0?": "2 q read $0; 1 k read $0; 0 out write $0?",
		"0 x read float":                    "0 x read float",
		"5 %s write $0; 8 sums write float": "8 %s write $0; 5 sums write float",
		"of 3 tokens by 4 read":             "of 3 tokens by 4 read",
	} {
		require.Equal(t, after, swapEnds(before, bufferEntry))
	}
	require.Equal(t, "1 fc_a bool; 0 fc_b uint?", swapEnds("0 fc_a bool; 1 fc_b uint?", constantEntry))

	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	write("params.h", "struct P {\n    uint32_t a; // one\n    uint32_t n0, n1;\n    float eps;\n};\n")
	write("params.go", "type P struct {\n\tA uint32\n\tN0 uint32\n\tN1 uint32\n\tEps float32\n}\n")
	require.NoError(t, swapParams(dir))
	require.Equal(t, "struct P {\n    uint32_t n0, n1;\n    uint32_t a; // one\n    float eps;\n};\n", read("params.h"))
	require.Equal(t, "type P struct {\n\tN0 uint32\n\tN1 uint32\n\tA uint32\n\tEps float32\n}\n", read("params.go"))
}
