package dtype_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
)

func TestTypes(t *testing.T) {
	for _, d := range dtype.All() {
		for _, text := range []string{d.String(), strings.ToUpper(d.String())} {
			parsed, err := dtype.Parse(text)
			require.NoError(t, err)
			require.Equal(t, d, parsed)
		}
		require.Equal(t, int64(3*d.BlockBytes()), d.Bytes(3*int64(d.BlockElems())))
		require.False(t, d.IsFloat() && d.IsQuantized())
	}
	for _, text := range []string{"", "f64", "invalid"} {
		_, err := dtype.Parse(text)
		require.Error(t, err, text)
	}
}
