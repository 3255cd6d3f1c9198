package lint_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/smelt-ml/smelt/internal/tools/lint"
	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
)

// TestMistakes checks that each source of testdata/mistakes.txtar, which has one mistake each,
// is rejected by the checker that its first line names, and that the correct one passes.
// mslgen's errors give file and line.
func TestMistakes(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/mistakes.txtar")
	require.NoError(t, err)
	for _, file := range archive.Files {
		t.Run(file.Name, func(t *testing.T) {
			text := string(file.Data)
			first, _, _ := strings.Cut(text, "\n")
			checker, want, _ := strings.Cut(strings.TrimPrefix(first, "// "), ": ")
			_, refusal := mslgen.Parse("x.metal", func(string) ([]byte, error) { return file.Data, nil })
			if checker == "mslgen" {
				var at *mslgen.Error
				require.ErrorAs(t, refusal, &at)
				require.Contains(t, at.Error(), want)
				require.Regexp(t, `^x\.metal:[0-9]+: `, at.Error())
				return
			}
			require.NoError(t, refusal)
			if !lint.Available() {
				t.Skip("clang-19 is not installed")
			}
			complaints, err := lint.Check("x.metal", text)
			require.NoError(t, err)
			switch checker {
			case "lint":
				require.Contains(t, strings.Join(complaints, "\n"), want)
			case "none":
				require.Empty(t, complaints)
			default:
				t.Fatalf("the first line is %q", first)
			}
		})
	}
}

// TestInstancesAreChecked checks that a template's body is checked with the types of each
// instance, and that errors give the right line.
func TestInstancesAreChecked(t *testing.T) {
	if !lint.Available() {
		t.Skip("clang-19 is not installed")
	}
	complaints, err := lint.Check("twice.metal", `#include <metal_stdlib>
using namespace metal;
template <typename A>
kernel void twice(device A *x [[buffer(0)]],
                  uint i [[thread_position_in_grid]]) {
    threadgroup float *shared = x;
    x[i] = A(2) * shared[i];
}
template [[host_name("twice_f32")]] kernel decltype(twice<float>) twice<float>;
template [[host_name("twice_f16")]] kernel decltype(twice<half>) twice<half>;
`)
	require.NoError(t, err)
	require.Len(t, complaints, 2)
	for _, c := range complaints {
		require.Contains(t, c, "twice.metal:6:")
	}
}
