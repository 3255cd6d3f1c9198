package budget_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tools/budget"
)

func TestCheck(t *testing.T) {
	b := budget.Bound{Name: "age of the cheese", Unit: "days", Want: 100, Room: 0.25}
	require.NoError(t, b.Check(100))
	require.NoError(t, b.Check(125))
	require.EqualError(t, b.Check(126), "age of the cheese: 126.0 days, want 100.0 and at most 125.0")
}
