//go:build fakemetal && linux

package fakemetal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// TestMisuse runs programs that Metal's validation layer would stop, and a right one.
func TestMisuse(t *testing.T) {
	fakemetal.AddLibraries()
	fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider(), Collect: true, Poison: true, Unwritten: true})
	for i := 0; ; i++ {
		fakemetal.Reset()
		name := fakemetal.Program(i)
		if name == "" {
			require.Greater(t, i, 20)
			break
		}
		s := fakemetal.Read()
		t.Logf("%s: %s", name, s.Misuse)
		if i == 0 {
			require.Zero(t, s.Misuses, s.Misuse)
		} else {
			require.Positive(t, s.Misuses, name)
		}
	}
}
