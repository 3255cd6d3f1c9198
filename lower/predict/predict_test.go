package predict

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

func TestOverlap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		demands := make([]demand, 1+rng.IntN(6))
		var bytes, ops, longest, all float64
		for i := range demands {
			d := &demands[i]
			d.bytes, d.ops = rng.Float64()*10, rng.Float64()*10
			d.memory, d.compute = d.bytes*(1+rng.Float64()), d.ops*(1+rng.Float64())
			bytes, ops, longest, all = bytes+d.bytes, ops+d.ops, max(longest, d.alone()), all+d.alone()
		}
		var timeline Timeline
		start := rng.Float64() * 1e6
		spans := make([]Span, len(demands))
		end := timeline.epoch(start, demands, spans)
		const rounding = 1e-6
		require.GreaterOrEqual(t, end-start+rounding, max(bytes, ops, longest))
		require.LessOrEqual(t, end-start, all+issue*float64(len(demands)-1)+rounding)
		require.InDelta(t, end-start, timeline.Memory+timeline.Compute, issue*float64(len(demands))+rounding)
		for i, s := range spans {
			require.GreaterOrEqual(t, s.End-s.Start+rounding, demands[i].alone())
			require.LessOrEqual(t, s.End, end+rounding)
		}
	}
	// Two dispatches that each need half of the bandwidth run as fast as alone; two that need all
	// of it take twice as long.
	half, full := demand{bytes: 5, memory: 10}, demand{bytes: 10, memory: 10}
	require.InDelta(t, 10+issue, new(Timeline).epoch(0, []demand{half, half}, make([]Span, 2)), 1e-6)
	require.InDelta(t, 20, new(Timeline).epoch(0, []demand{full, full}, make([]Span, 2)), 1e-6)
}

// FindGPU returns a chip with the cores that the system reports; a chip that the table lacks has
// figures scaled from those of its family.
func TestFindGPU(t *testing.T) {
	row := func(name string) Chip { return *named(t, name) }
	with := func(c Chip, name string, family, cores int, bandwidth float64, cache int64) Chip {
		c.Name, c.Family, c.Cores, c.Bandwidth, c.Cache = name, family, cores, bandwidth, cache
		return c
	}
	m4, m5, m1, pro := row("m4-max"), row("m5-max"), row("m1-pro"), row("m5-pro")
	for _, want := range []struct {
		name          string
		family, cores int
		chip          Chip
		known         bool
	}{
		{"Apple M4 Max", 9, 40, m4, true},
		{"Apple M4 Max", 9, 0, m4, true},
		{"m4-max", 0, 0, m4, true},
		{"Apple M4 Max", 9, 32, with(m4, "m4-max", 9, 32, 410, m4.Cache), true},
		{"Apple M1 Pro", 7, 14, with(m1, "m1-pro", 7, 14, 200, m1.Cache), true},
		{"Apple M5 Max", 10, 32, with(m5, "m5-max", 10, 32, 460, m5.Cache), true},
		{"Apple M9", 12, 60, with(m5, "m9", 12, 60, 614*1.5, m5.Cache*3/2), false},
		{"Apple M9 Pro", 12, 24, with(pro, "m9-pro", 12, 24, 307*1.2, pro.Cache*6/5), false},
		{"Apple M4 Ultra", 9, 80, with(m4, "m4-ultra", 9, 80, 546*2, m4.Cache*2), false},
		{"M4 Maximum", 0, 0, with(pro, "m4-maximum", 10, AnyCores, 307*0.8, pro.Cache*4/5), false},
	} {
		c, known := FindGPU(want.name, want.family, want.cores)
		require.Equal(t, want.known, known, want.name)
		require.InDelta(t, want.chip.Bandwidth, c.Bandwidth, 1e-9, want.name)
		require.InDelta(t, want.chip.Cache, c.Cache, 1, want.name)
		c.Bandwidth, c.Cache = want.chip.Bandwidth, want.chip.Cache
		require.Equal(t, want.chip, *c, want.name)
	}
}

func TestFindChip(t *testing.T) {
	for _, name := range Chips() {
		c, err := FindChip(name)
		require.NoError(t, err)
		require.Equal(t, name, c.Name)
		require.GreaterOrEqual(t, c.Bandwidth, Slowest.Bandwidth)
		require.GreaterOrEqual(t, c.TFLOPS(), Slowest.TFLOPS())
	}
	c, err := FindChip("M4-Max")
	require.NoError(t, err)
	require.InDelta(t, 16.2, c.TFLOPS(), 0.1)
	_, err = FindChip("m9")
	require.ErrorContains(t, err, "m4-max")
}

// Every family of kernels has a rule, and every rule a family.
func TestCostRules(t *testing.T) {
	elementwise := map[ir.Op]bool{ir.OpScale: true, ir.OpSoftCap: true, ir.OpMul: true, ir.OpAdd: true, ir.OpActivate: true, ir.OpGate: true}
	families := map[string]bool{}
	for _, k := range kernels.All() {
		families[k.Family] = true
		op, _ := ir.ParseOp(k.Family)
		_, ruled := costRules[k.Family]
		require.NotEqual(t, ruled, elementwise[op], k.Family)
		require.Contains(t, costs(), k.Name)
	}
	for family := range costRules {
		require.Contains(t, families, family)
	}
}

// named returns a chip of the table.
func named(t *testing.T, name string) *Chip {
	t.Helper()
	c, err := FindChip(name)
	require.NoError(t, err)
	return c
}
