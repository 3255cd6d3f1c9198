package golden_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
)

// failing records a failure instead of ending the test.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Errorf(string, ...any) { f.failed = true }
func (f *failing) FailNow()              { panic(f) }
func (f *failing) Helper()               {}

func TestCheck(t *testing.T) {
	golden.Check(t, "testdata/words.golden", "a few\nwords\n")
	for name, path := range map[string]string{"other text": "testdata/words.golden", "no file": "testdata/none.golden"} {
		f := &failing{TB: t}
		require.Panics(t, func() { golden.Check(f, path, "other words\n") }, name)
		require.True(t, f.failed, name)
	}
}
