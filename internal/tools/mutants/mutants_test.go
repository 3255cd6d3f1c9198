package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMutantsApply checks that every fault applies to its file.
func TestMutantsApply(t *testing.T) {
	require.GreaterOrEqual(t, len(mutants), 40)
	seen := map[string]bool{}
	for _, m := range mutants {
		require.False(t, seen[m.file+m.fault], "%s: %s twice", m.file, m.fault)
		seen[m.file+m.fault] = true
		text, err := os.ReadFile("../../../kernels/" + m.file)
		require.NoError(t, err)
		_, err = m.spoilt(text)
		assert.NoError(t, err)
	}
}

// TestEnvironment sets SMELT_FULL, as make kernels does: mutants are still tested on the small
// grid of shapes.
func TestEnvironment(t *testing.T) {
	t.Setenv("SMELT_FULL", "kernels")
	t.Setenv("SMELT_KERNELS_DEVICE", "metal")
	t.Setenv("SMELT_KERNELS_LIBRARY", "other.so")
	var orders []string
	for _, v := range environment("SMELT_KERNELS_LIBRARY=mutant.so") {
		if strings.HasPrefix(v, "SMELT_") {
			orders = append(orders, v)
		}
	}
	require.Equal(t, []string{"SMELT_KERNELS_LIBRARY=mutant.so"}, orders)
	require.Contains(t, environment("SMELT_KERNELS_LIBRARY=mutant.so"), "PATH="+os.Getenv("PATH"))
}

// TestQuickMutants tests a few mutants.
func TestQuickMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a test binary")
	}
	quick := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !m.quick })
	require.Len(t, quick, 3)
	results, err := try(quick, 2)
	require.NoError(t, err)
	for i, r := range results {
		require.True(t, r.caught, "%s: %s", quick[i].file, quick[i].fault)
	}
}
