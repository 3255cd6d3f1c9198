package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIndices checks that the table of indices has every argument that a kernel reads integers from,
// and no other.
func TestIndices(t *testing.T) {
	used := map[string]bool{}
	for i := range all {
		k := &all[i]
		for j := range k.Args {
			a := &k.Args[j]
			if a.Element != Int || a.Access != Read {
				_, ok := k.Index(a)
				require.False(t, ok, "%s of %s", a.Name, k.Name)
				continue
			}
			index, ok := k.Index(a)
			require.True(t, ok, "%s of %s", a.Name, k.Name)
			require.NotEqual(t, index.Checked, index.Takes() != "", "%s of %s", a.Name, k.Name)
			used[a.Name], used[k.Family+"."+a.Name] = true, true
		}
	}
	for name := range indices {
		require.True(t, used[name], "no kernel has %s", name)
	}
	group, ok := Lookup(GroupByExpert)
	require.True(t, ok)
	for name, index := range indices {
		if index.Made == "" {
			continue
		}
		a, ok := group.Named(index.Made)
		require.True(t, ok, name)
		require.Equal(t, Write, a.Access)
	}
}
