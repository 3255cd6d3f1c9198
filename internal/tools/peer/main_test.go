//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// fakeVariable makes this test's own program an engine with a fault of that name.
const fakeVariable = "SMELT_PEER_FAKE"

func TestMain(m *testing.M) {
	if fault := os.Getenv(fakeVariable); fault != "" {
		fake(fault)
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "run" { // what starts runs as the tool
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "serve" { // what serveSelf starts
		if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fake speaks the protocol: each token takes it 1 ms, by its own account.
func fake(fault string) {
	if fault == "mute" {
		fmt.Fprintln(os.Stderr, "cannot load the model")
		os.Exit(1)
	}
	if fault == "nameless" {
		fmt.Println("{}")
	} else {
		fmt.Println(`{"name":"fake","version":"1","threads":2,"load":0.5}`)
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var verb string
		var n, depth int
		_, _ = fmt.Sscan(in.Text(), &verb, &n, &depth)
		switch {
		case fault == "dies":
			fmt.Fprintln(os.Stderr, "out of memory")
			os.Exit(1)
		case fault == "babbles":
			fmt.Println("hello there")
		case fault == "timeless":
			fmt.Println("{}")
		case depth > 4096:
			fmt.Println(`{"error":"too deep"}`)
		case verb == "peak":
			fmt.Println(`{"peak":1000000}`)
		default:
			token := 0.001
			if fault == "slow" {
				token = 0.002
			}
			fmt.Printf("{\"seconds\":%g,\"cpu\":%g}\n", token*float64(n), 2*token*float64(n))
		}
	}
}

func TestWrongCalls(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.json")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o644))
	for _, test := range []struct{ args, want string }{
		{"--pairs 0", "--pairs 0"},
		{"--threads 0", "--threads 0"},
		{"--cells pp512,tg", `--cells: "tg" is not a cell`},
		{"--models gpt-*", `--models "gpt-*": no model matches`},
		{"--models [", `--models "[": syntax error`},
		{"--peer mlx", "--peer mlx: want llama.cpp or none"},
		{"extra", `"extra": flags only`},
		{"--isa avx9", "--isa avx9: want one of"},
		{"--from " + filepath.Join(dir, "none.json"), "none.json: no such file"},
		{"--from " + broken, "broken.json: unexpected end"},
	} {
		args := append([]string{"--dir", dir}, strings.Fields(test.args)...)
		var out, said bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &said), test.want)
		require.Empty(t, out.String())
	}
}

// Without npm and without a llama-bench there is nobody to compare with, and the error
// says what to do.
func TestNoPeer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("LLAMA_BENCH", "")
	err := run(t.Context(), []string{"--dir", t.TempDir()}, &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorIs(t, err, errPeer)
	require.ErrorContains(t, err, "npm")
	require.ErrorContains(t, err, "LLAMA_BENCH")
	require.ErrorContains(t, err, "--peer none")
}

// Smelt alone, from the flags to the tables: a trained model stands in for one of the
// synthetic ones.
func TestSmeltAlone(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "models"), 0o755))
	model, err := filepath.Abs(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(model, filepath.Join(dir, "models/qwen3-0.6b-q4_0.gguf")))
	document, table := filepath.Join(dir, "document.md"), filepath.Join(dir, "table.md")
	require.NoError(t, os.WriteFile(document, []byte("as it was"), 0o644))
	self, err := os.Executable()
	require.NoError(t, err)
	var out, said bytes.Buffer
	args := []string{"--dir", dir, "--smelt", self, "--peer", "none", "--models", "qwen3*q4_0", "--cells", "pp16,tg2@8", "--pairs", "2", "--threads", "1",
		"--repeats", "0", "--patience", "1ms", "--probe", "64", "--markdown", table, "--document", document}
	require.NoError(t, run(t.Context(), args, &out, &said), "%s", &said)
	require.Contains(t, out.String(), "| qwen3-0.6b q4_0 | pp16 |")
	require.Contains(t, out.String(), "| qwen3-0.6b q4_0 | tg2@8 |")
	require.Contains(t, out.String(), "ms (median of 9)")
	require.NotContains(t, out.String(), "llama.cpp of the limit")
	kept, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Equal(t, out.String(), string(kept))
	kept, err = os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, "as it was", string(kept), "two pairs of one model are nothing to publish")

	var again bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"--from", filepath.Join(dir, "report.json")}, &again, &said))
	require.Equal(t, out.String(), again.String())

	// Measured once more, the model is in the report once.
	out.Reset()
	require.NoError(t, run(t.Context(), append(args, "--add"), &out, &said), "%s", &said)
	require.Equal(t, 1, strings.Count(out.String(), "| pp16 |"))
	require.ErrorContains(t, run(t.Context(), append(args, "--add", "--pairs", "3"), &out, &said), "other threads, pairs or rivals")
}
