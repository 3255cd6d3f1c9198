package smelt

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/models"
)

// layered returns the shape of qwen3-0.6b with another number of layers.
func layered(tb testing.TB, layers int) *Model {
	shape, err := models.Arch("qwen3-0.6b", "q4_0")
	require.NoError(tb, err)
	c := shape.Config
	c.Layers = layers
	file, err := models.Synthetic(c, "q4_0")
	require.NoError(tb, err)
	return fromFile(fmt.Sprintf("%d layers", layers), "", file)
}

// TestCompileManyLayers compiles 80 layers and compares 128 with 16: the time grows
// as the layers do. The fastest of some runs counts: others may have the machine. For
// the same reason the growth may be twice what it should; were it quadratic, it would
// be eight times that.
func TestCompileManyLayers(t *testing.T) {
	fastest := func(layers int) time.Duration {
		m, best := layered(t, layers), time.Hour
		for range 8 {
			p, err := m.Compile(Options{Target: "metal", Level: 1, Context: 512})
			require.NoError(t, err)
			best = min(best, p.Elapsed)
		}
		return best
	}
	few, some, many := fastest(16), fastest(80), fastest(128)
	t.Logf("16 layers %v, 80 layers %v, 128 layers %v", few, some, many)
	require.Less(t, some, 100*time.Millisecond)
	require.Less(t, many, 2*8*few)
}

func BenchmarkCompileLayers(b *testing.B) {
	for _, layers := range []int{8, 16, 32, 64, 128} {
		b.Run(fmt.Sprint(layers), func(b *testing.B) {
			m := layered(b, layers)
			for b.Loop() {
				_, err := m.Compile(Options{Target: "metal", Level: 1, Context: 512})
				require.NoError(b, err)
			}
		})
	}
}
