package src

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// g++ removes functions and loops that only call __builtin_prefetch, so headers must prefetch
// with base.h's prefetch.
func TestPrefetch(t *testing.T) {
	sources, err := filepath.Glob("*.h")
	require.NoError(t, err)
	var bare []string
	for _, f := range sources {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		if strings.Contains(string(text), "__builtin_prefetch") {
			bare = append(bare, f)
		}
	}
	require.Equal(t, []string{"base.h"}, bare)
}
