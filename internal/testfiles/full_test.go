package testfiles_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

func TestFull(t *testing.T) {
	for full, want := range map[string]bool{"": false, "models": false, "kernels": true, "models,kernels": true, "all": true} {
		t.Setenv("SMELT_FULL", full)
		require.Equal(t, want, testfiles.Full("kernels"), full)
	}
	t.Setenv("SMELT_FULL", "kernels,modles")
	require.PanicsWithValue(t, `SMELT_FULL: no part of the tests is named "modles"; there are models, isa, kernels, histories, barriers, accuracy, load, deployed, browser, clients, and all`,
		func() { testfiles.Full("kernels") })
	require.Panics(t, func() { testfiles.Full("kernel") })
}
