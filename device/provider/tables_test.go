package provider

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMasks(t *testing.T) {
	require.Equal(t, []uint{5, 2}, maskOf([]int{2, 0, 65}))
	require.Nil(t, maskOf(nil))
}
