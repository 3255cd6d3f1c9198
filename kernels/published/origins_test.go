package published_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/published"
)

// TestOrigins checks that every row names a family and constants that all of its
// instances have.
func TestOrigins(t *testing.T) {
	seen := map[[2]string]bool{}
	for _, o := range published.Origins() {
		t.Run(o.By+"/"+o.Name, func(t *testing.T) {
			require.False(t, seen[[2]string{o.By, o.Name}], "twice")
			seen[[2]string{o.By, o.Name}] = true
			found := false
			for _, k := range kernels.All() {
				if k.Family != o.Family {
					continue
				}
				found = true
				constants := map[string]string{}
				for _, c := range k.Constants {
					constants[c.Name] = c.Type
				}
				for c, value := range o.Constants {
					require.Contains(t, constants, c)
					if constants[c] == "bool" {
						require.LessOrEqual(t, value, uint32(1), c)
					}
				}
				for _, c := range k.Constants {
					if !c.Optional {
						require.Contains(t, o.Constants, c.Name, "has no default")
					}
				}
			}
			require.True(t, found, o.Family)
			row, ok := published.OriginOf(o.By, o.Name)
			require.True(t, ok)
			require.Equal(t, o, *row)
		})
	}
	require.NotEmpty(t, seen)
}
