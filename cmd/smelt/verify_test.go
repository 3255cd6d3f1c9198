package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/internal/verify"
)

// tool runs a verb in this process and splits what it printed on standard output
// into fields.
func tool(ctx context.Context, args ...string) (status int, fields []string, stderr string) {
	var out, problems strings.Builder
	status = run(ctx, args, strings.NewReader(""), &out, &problems)
	return status, strings.Fields(out.String()), problems.String()
}

// narrow returns the path of a model that takes little time to emulate.
func narrow(t *testing.T, weightType string) string {
	c := tiny.Narrow()
	c.Context = 512
	return tiny.Random(t, c, weightType)
}

func TestVerifyVerb(t *testing.T) {
	model := narrow(t, "f16")
	status, fields, problems := tool(t.Context(), "verify", model, "--json", "--threads", "1")
	require.Zero(t, status, problems)
	require.Empty(t, problems)
	var f struct {
		OK     bool
		Steps  []int
		Checks []struct {
			Name, What, Verdict       string
			Against                   verify.Against
			Absolute, Relative, Bound float64
		}
		Kernels []struct {
			Kernel, Verdict, Device string
			Native                  bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(strings.Join(fields, " ")), &f))
	require.True(t, f.OK)
	require.NotEmpty(t, f.Steps)
	require.NotEmpty(t, f.Kernels)
	for _, c := range f.Checks {
		require.Equal(t, string(verify.Within), c.Verdict, c.Name)
		require.LessOrEqual(t, c.Relative, c.Bound)
		require.Contains(t, []verify.Against{verify.AgainstBits, verify.AgainstFloat64, verify.AgainstOther}, c.Against, c.Name)
	}
	for _, k := range f.Kernels {
		require.Equal(t, string(verify.Within), k.Verdict, k.Kernel)
		require.Equal(t, k.Native, k.Device == "cpu", k.Kernel)
	}

	status, fields, problems = tool(t.Context(), "verify", model, "--bisect", "--kv", "f32", "--device", "emu")
	require.Zero(t, status, problems)
	text := strings.Join(fields, " ")
	for _, want := range []string{"source / fused", "native / emulated", "prefill / decode", "linear_mat_f32_f32", "gated_activation", "float64 / emu f16 float64", "shuffled order bits 0 0 0 ok", "No pass changes", "No op is off", "No element is NaN"} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, string(verify.Beyond))
}

// TestVerifyBroken verifies a model with a NaN among its weights.
func TestVerifyBroken(t *testing.T) {
	broken := tiny.Spoilt(t, narrow(t, "f16"), "blk.1.attn_output.weight", 0)
	status, fields, problems := tool(t.Context(), "verify", broken, "--bisect")
	require.Equal(t, exitFailure, status)
	require.Equal(t, 1, strings.Count(problems, "\n"), problems)
	require.Contains(t, problems, broken)
	text := strings.Join(fields, " ")
	for _, want := range []string{"not finite", "of layer 1, is the first value that is no number: NaN at row 0, element 0", "blk.1.attn_output.weight, row 0"} {
		require.Contains(t, text, want)
	}
	status, fields, _ = tool(t.Context(), "verify", broken, "--json")
	require.Equal(t, exitFailure, status)
	require.True(t, json.Valid([]byte(strings.Join(fields, " "))))
}

func TestVerifyPlan(t *testing.T) {
	model := narrow(t, "q4_0")
	for target, device := range map[string]string{"cpu": "cpu", "metal": "emu"} {
		plan := filepath.Join(t.TempDir(), target+".plan")
		status, _, problems := tool(t.Context(), "compile", model, "-o", plan, "--target", target)
		require.Zero(t, status, problems)
		status, fields, problems := tool(t.Context(), "verify", plan, "--weights", model, "--device", device)
		require.Zero(t, status, problems)
		_, row, ok := strings.Cut(strings.Join(fields, " "), "model / plan bits 0 0 0 ok ")
		require.True(t, ok)
		require.Contains(t, row[:60], "on "+device)

		status, _, problems = tool(t.Context(), "verify", plan, "--weights", model, "--kv", "f32")
		require.Equal(t, exitUsage, status)
		require.Contains(t, problems, "--kv")
	}
}

func TestVerifyCalls(t *testing.T) {
	model := testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf")
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{}, exitUsage, "one MODEL"},
		{[]string{model, "--type", "q4_0"}, exitUsage, "--type"},
		{[]string{model, "-O", "2"}, exitUsage, "-O 2"},
		{[]string{model, "--device", "abacus"}, exitUsage, "abacus"},
		{[]string{model, "--ctx", "16"}, exitFailure, "context has 16"},
		{[]string{"absent.gguf"}, exitFailure, "absent.gguf"},
	} {
		status, fields, problems := tool(t.Context(), append([]string{"verify"}, tt.args...)...)
		require.Equal(t, tt.status, status, tt.args)
		require.Empty(t, fields)
		require.Contains(t, problems, tt.want)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	status, _, _ := tool(stopped, "verify", model)
	require.Equal(t, exitStopped, status)
}
