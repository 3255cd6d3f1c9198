package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/internal/lint"
)

// TestSourcesAreStrict runs the lint over what Metal's compiler will be given.
func TestSourcesAreStrict(t *testing.T) {
	if !lint.Available() {
		t.Skip("clang-19 is not installed")
	}
	for _, file := range kernels.Files() {
		t.Run(file, func(t *testing.T) {
			complaints, err := lint.Check(file, kernels.Source(file))
			require.NoError(t, err)
			require.Empty(t, complaints)
		})
	}
}
