package smelt_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
)

// TestCompileTime compiles 28 layers, both phases, every check included. The
// fastest of some runs counts: others may have the machine.
func TestCompileTime(t *testing.T) {
	m, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	fastest := time.Hour
	for range 10 {
		p, err := m.Compile(smelt.Options{Target: "metal", Level: 1})
		require.NoError(t, err)
		fastest = min(fastest, p.Elapsed)
	}
	t.Logf("%v", fastest)
	require.Less(t, fastest, 50*time.Millisecond)
}

func BenchmarkCompile(b *testing.B) {
	m, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(b, err)
	for b.Loop() {
		_, err := m.Compile(smelt.Options{Target: "metal", Level: 1})
		require.NoError(b, err)
	}
}

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
