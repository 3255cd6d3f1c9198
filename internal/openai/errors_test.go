package openai

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
)

// TestLimit: a bound that a constraint exceeds is the request's fault, also within a text.
func TestLimit(t *testing.T) {
	v, err := constrain.New([][]byte{[]byte("a")}, nil)
	require.NoError(t, err)
	_, err = v.Regexp("(" + strings.Repeat("a", 5<<20) + ")")
	require.ErrorIs(t, err, constrain.ErrLimit)
	e := errorOf(fmt.Errorf("after 9 tokens: %w", err))
	require.Equal(t, http.StatusBadRequest, e.Status)
	require.Equal(t, "constraint_too_large", e.Code)
}
