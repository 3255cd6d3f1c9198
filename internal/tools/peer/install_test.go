//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	manifest := filepath.Join(dir, "node_modules/node-llama-cpp/package.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(manifest), 0o755))
	require.NoError(t, os.WriteFile(manifest, []byte(`{"version":"1.2.3"}`), 0o644))
	_, err := install(t.Context(), dir, "", t.Logf)
	require.ErrorContains(t, err, "version 1.2.3, not "+packageVersion)
}

func TestLibrary(t *testing.T) {
	in := &installed{libraries: t.TempDir()}
	for _, name := range []string{"libllama-common.so", "libllama.v0.5.0.so", "libggml-base.so", "libggml-cpu-x64.so", "libggml.v0.5.0.so"} {
		require.NoError(t, os.WriteFile(filepath.Join(in.libraries, name), nil, 0o644))
	}
	for name, want := range map[string]string{"llama": "libllama.v0.5.0.so", "ggml": "libggml.v0.5.0.so", "ggml-base": "libggml-base.so"} {
		path, err := in.library(name)
		require.NoError(t, err)
		require.Equal(t, want, filepath.Base(path))
	}
	_, err := in.library("mtmd")
	require.ErrorIs(t, err, errPeer)
}

// benchScript is a llama-bench that says what it was asked for.
func benchScript(t *testing.T, speak string) string {
	path := filepath.Join(t.TempDir(), "llama-bench")
	script := `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in -p) p=$2 ;; -n) n=$2 ;; -d) d=$2 ;; -fa) fa=$2 ;; -lm) lm=$2 ;; esac
	shift
done
` + speak
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	return path
}

func TestLlamaBench(t *testing.T) {
	path := benchScript(t, `echo "{\"build_commit\":\"abc\",\"build_number\":7,\"n_prompt\":$p,\"n_gen\":$n,\"n_depth\":$d,\"avg_ns\":$((2 - fa))e9}"`)
	b, err := startLlamaBench(t.Context(), path, "m.gguf", 2, true)
	require.NoError(t, err)
	require.Equal(t, "abc (7)", b.hello().Version)
	for _, c := range []cell{{Test: prompting, Tokens: 512}, {Test: generating, Tokens: 64}, {Test: generating, Tokens: 64, Depth: 4096}} {
		a, err := b.sample(t.Context(), c)
		require.NoError(t, err)
		require.InDelta(t, 1, a.Seconds, 1e-9)
		require.NoError(t, b.flash(t.Context(), false))
		a, err = b.sample(t.Context(), c)
		require.NoError(t, err)
		require.InDelta(t, 2, a.Seconds, 1e-9)
		require.NoError(t, b.flash(t.Context(), true))
	}
	peak, err := b.peak(t.Context())
	require.NoError(t, err)
	require.Positive(t, peak)

	path = benchScript(t, `[ "$lm" = none ] && echo "{\"n_prompt\":$p,\"n_gen\":$n,\"n_depth\":$d,\"avg_ns\":1e9}"`)
	_, err = startLlamaBench(t.Context(), path, "m.gguf", 2, false)
	require.NoError(t, err, "weights read into memory")
	_, err = startLlamaBench(t.Context(), path, "m.gguf", 2, true)
	require.Error(t, err)
}

func TestLlamaBenchFaults(t *testing.T) {
	for speak, want := range map[string]string{
		"echo no such model >&2; exit 1":  "no such model",
		"echo nonsense":                   `answered "nonsense`,
		`echo '{"n_prompt":1,"n_gen":9}'`: "asked for pp1",
	} {
		path := benchScript(t, speak)
		_, err := startLlamaBench(t.Context(), path, "m.gguf", 2, true)
		require.ErrorContains(t, err, want)
	}
	_, err := startLlamaBench(t.Context(), "/none/llama-bench", "m.gguf", 2, true)
	require.ErrorIs(t, err, os.ErrNotExist)
}
