package smelt_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
)

// TestSamePlan compiles twice: the same bytes.
func TestSamePlan(t *testing.T) {
	var first []byte
	for range 3 {
		m, err := smelt.Open("arch:llama3.2-1b", "q4_0")
		require.NoError(t, err)
		p, err := m.Compile(smelt.Options{Target: "cpu", Level: 1})
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, p.Save(&b))
		if first == nil {
			first = b.Bytes()
		}
		require.Equal(t, first, b.Bytes())
	}
}
