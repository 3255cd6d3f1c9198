package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/gguf"
)

// TestModelInParts splits a model into four files; the first file holds no tensors. The parts run, are
// inspected, quantised and served as the whole model is.
func TestModelInParts(t *testing.T) {
	whole := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf")
	f, err := gguf.Open(whole)
	require.NoError(t, err)
	defer f.Close()
	const parts = 4
	dir, n := t.TempDir(), len(f.Tensors)
	part := func(i int) string { return filepath.Join(dir, fmt.Sprintf("story-%05d-of-%05d.gguf", i+1, parts)) }
	for i := range parts {
		metadata := []gguf.KV{{Key: "split.no", Value: gguf.Uint32(uint32(i))}, {Key: "split.count", Value: gguf.Uint32(parts)}, {Key: "split.tensors.count", Value: gguf.Int32(int32(n))}}
		var tensors []gguf.TensorWriter
		if i == 0 {
			metadata = append(metadata, f.Metadata...)
		} else {
			for _, tensor := range f.Tensors[n*(i-1)/(parts-1) : n*i/(parts-1)] {
				tensors = append(tensors, tensor.Writer())
			}
		}
		require.NoError(t, gguf.WriteFile(part(i), metadata, tensors))
	}
	_, want, problems := call(t, "run", whole, "-p", "Once upon a time", "-n", "6")
	status, text, more := call(t, "run", part(0), "-p", "Once upon a time", "-n", "6")
	require.Zero(t, status, problems+more)
	require.Equal(t, want, text)

	status, text, problems = call(t, "inspect", part(0), "--json")
	require.Zero(t, status, problems)
	var have sheet
	require.NoError(t, json.Unmarshal([]byte(text), &have))
	require.Equal(t, lo.Map(f.Tensors, func(t gguf.Tensor, _ int) string { return t.Name }), lo.Map(have.Tensors, func(r tensorRow, _ int) string { return r.Name }))

	var quantised [2][]byte
	for i, model := range []string{whole, part(0)} {
		out := filepath.Join(t.TempDir(), "quantised.gguf")
		status, _, problems := call(t, "quantize", model, out, "--type", "q4_0")
		require.Zero(t, status, problems)
		quantised[i], err = os.ReadFile(out)
		require.NoError(t, err)
	}
	require.Equal(t, quantised[0], quantised[1])

	s := startServer(t, part(0), "--name", "story", "--parallel", "1", "--ctx", "512")
	status, text, err = s.post("/v1/completions", "", `{"model": "story", "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	var answer struct{ Choices []struct{ Text string } }
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	require.Len(t, answer.Choices, 1)
	require.Contains(t, want, answer.Choices[0].Text)

	require.NoError(t, os.Remove(part(2)))
	status, _, problems = call(t, "run", part(0), "-p", "Once", "-n", "1")
	require.Equal(t, exitFailure, status)
	require.Contains(t, problems, "part 3 of 4")
}
