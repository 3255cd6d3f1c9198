package lint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/internal/lint"
	"github.com/smelt-ml/smelt/kernels/internal/mslgen"
)

// TestMistakes checks that each file of testdata, which holds one mistake each, is
// refused by the lint or by mslgen, and that the one without mistake is not.
func TestMistakes(t *testing.T) {
	if !lint.Available() {
		t.Skip("clang-19 is not installed")
	}
	files, err := filepath.Glob("testdata/*.metal")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".metal"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			complaints, err := lint.Check(file, string(text))
			require.NoError(t, err)
			if _, err := mslgen.Parse(file, mslgen.ReadFile(".")); err != nil {
				complaints = append(complaints, err.Error())
			}
			if filepath.Base(file) == "ok.metal" {
				require.Empty(t, complaints)
			} else {
				require.NotEmpty(t, complaints)
			}
		})
	}
}

// TestInstancesAreChecked checks that a template's body is seen with the types of
// each instance, on the right line.
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
