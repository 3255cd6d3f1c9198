package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// TestSize keeps the product smaller than it was at c37c657.
func TestSize(t *testing.T) {
	root := testfiles.Root(t)
	if _, err := os.Stat(filepath.Join(root, ".git")); os.IsNotExist(err) {
		t.Skip("sources without their repository, which lists the files")
	}
	rooms, err := count(root)
	require.NoError(t, err)
	require.Greater(t, len(rooms), 20)
	require.Less(t, lo.Sum(lo.Values(rooms)), most)
}

func TestCounted(t *testing.T) {
	for file, want := range map[string]string{
		"engine.go": "smelt", "engine_test.go": "", "lower/plan/file.go": "lower", "internal/ref/run.go": "internal/ref",
		"kernels/linear.metal": "kernels", "kernels/published/flash.metal": "kernels/published", "kernels/params.gen.h": "",
		"testdata/server/main.go": "", "kernels/native/avx2/rows.cpp": "",
	} {
		got := ""
		if isProduct(file) {
			got = room(file)
		}
		require.Equal(t, want, got, file)
	}
}
