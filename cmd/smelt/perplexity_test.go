package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

func TestPerplexityVerb(t *testing.T) {
	model := testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf")
	file := filepath.Join(t.TempDir(), "text.txt")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("Once upon a time there was a little fox. ", 20)), 0o600))

	status, fields, problems := tool(t.Context(), "perplexity", model, "--file", file, "--window", "32", "--json")
	require.Zero(t, status, problems)
	var result map[string]float64
	require.NoError(t, json.Unmarshal([]byte(strings.Join(fields, " ")), &result))
	require.Len(t, result, 3)
	require.Zero(t, math.Mod(result["tokens"], 31)) // whole windows, all but the start token of each
	require.InEpsilon(t, math.Exp(result["nll"]), result["perplexity"], 1e-12)

	status, fields, problems = tool(t.Context(), "perplexity", model, "--file", file, "--window", "32")
	require.Zero(t, status, problems)
	require.Equal(t, "perplexity", fields[0])

	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{}, exitUsage, "--file F is missing"},
		{[]string{"--file", file, "--window", "1"}, exitUsage, "--window 1"},
		{[]string{"--file", file, "--window", "64", "--ctx", "32"}, exitUsage, "--ctx 32"},
		{[]string{"--file", file + "x"}, exitFailure, file + "x"},
		{[]string{"--file", file, "--window", "5000"}, exitFailure, "too short"},
	} {
		status, fields, problems := tool(t.Context(), append([]string{"perplexity", model}, tt.args...)...)
		require.Equal(t, tt.status, status, tt.args)
		require.Empty(t, fields)
		require.Contains(t, problems, tt.want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, _, _ = tool(ctx, "perplexity", model, "--file", file, "--window", "32")
	require.Equal(t, exitStopped, status)
}
