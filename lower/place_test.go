package lower_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

func placed(t *testing.T, place lower.Placement) *plan.Plan {
	t.Helper()
	m, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	p, err := m.Compile(fixture.With(smelt.Options{Target: "metal", Level: 1, Context: 1024}, compiler.Knobs{Products: place}))
	require.NoError(t, err)
	return p.Plan
}

// TestPlacement counts the products that each rule places on the CPU, and checks that command
// buffers end at handovers between the processors.
func TestPlacement(t *testing.T) {
	var seen []lower.Product
	all := func(p lower.Product) bool { seen = append(seen, p); return true }
	rows := []struct {
		name  string
		place lower.Placement
		some  bool
	}{
		{"none", nil, false},
		{"all", all, true},
		{"at least 1e9", lower.AtLeast(1e9), true},
		{"at least everything", lower.AtLeast(math.Inf(1)), false},
		{"every third", func(p lower.Product) bool { return p.Layer%3 == 0 }, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			plan := placed(t, row.place)
			found := false
			for i := range plan.Phases {
				ph := &plan.Phases[i]
				begins := map[int]bool{}
				for _, at := range ph.CommandBuffers {
					begins[at] = true
				}
				for j := range ph.Dispatches {
					d := &ph.Dispatches[j]
					found = found || d.OnCPU
					if j > 0 && d.OnCPU != ph.Dispatches[j-1].OnCPU {
						require.True(t, begins[j], "%s, dispatch %d", ph.Name, j)
					}
				}
			}
			require.Equal(t, row.some, found)
		})
	}
	for _, p := range seen {
		require.Positive(t, p.Work())
		require.Greater(t, p.Bytes, p.K*p.N/2)
	}
}

// TestCheaper checks that the GPU of every chip is predicted to be faster at every size.
func TestCheaper(t *testing.T) {
	for _, name := range predict.Chips() {
		c, err := predict.FindChip(name)
		require.NoError(t, err)
		cheaper := lower.Cheaper(c)
		for tokens := int64(1); tokens <= 4096; tokens *= 4 {
			for width := int64(256); width <= 16384; width *= 4 {
				p := lower.Product{Tokens: tokens, K: width, N: width, Bytes: width * width / 2}
				require.False(t, cheaper(p), "%s: %+v", name, p)
			}
		}
	}
}

func TestParsePlacement(t *testing.T) {
	for _, text := range []string{"", "gpu", "cpu", "auto", "1000000", "1e6"} {
		_, err := lower.ParsePlacement(text, "m4-max")
		require.NoError(t, err, text)
	}
	for _, text := range []string{"amx", "-1", "NaN"} {
		_, err := lower.ParsePlacement(text, "")
		require.ErrorContains(t, err, "want gpu, cpu, auto or a number", text)
	}
	place, err := lower.ParsePlacement("1e6", "")
	require.NoError(t, err)
	require.True(t, place(lower.Product{Tokens: 1, K: 1000, N: 1000}))
	require.False(t, place(lower.Product{Tokens: 1, K: 1000, N: 999}))
}
