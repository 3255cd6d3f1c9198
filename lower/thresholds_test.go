package lower

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// Every chip gets the row of its family, no chip the first row, and a later family the last.
func TestChoicesForEveryChip(t *testing.T) {
	for _, name := range predict.Chips() {
		m := machineOf(chipNamed(t, name))
		require.Equal(t, chipNamed(t, name).Family, m.family, name)
	}
	none, later := machineOf(nil), machineOf(&predict.Chip{Family: 12})
	require.Same(t, &perFamily[0], none.thresholds)
	require.Same(t, &perFamily[len(perFamily)-1], later.thresholds)
}

// Chosen launches are within the kernels' limits on rows, tokens and threads.
func TestChoicesAreLaunchable(t *testing.T) {
	for _, name := range append(predict.Chips(), "") {
		m := machineOf(nil)
		if name != "" {
			m = machineOf(chipNamed(t, name))
		}
		require.Positive(t, m.partitionKeys())
		require.Greater(t, m.splitContext(), m.partitionKeys())
		for _, stored := range weightTypes {
			for _, n := range []int64{1, 7, 64, 1024, 4096, 14336, 151936} {
				for tokens := int64(1); tokens <= m.vecTokens; tokens++ {
					s, why := m.vec(stored, n, tokens)
					require.Contains(t, []int64{2, 4}, s.rows)
					require.Contains(t, []int64{2, 4, 8}, s.simdgroups)
					require.Contains(t, []int64{1, 2, 4, 8}, s.tokens)
					require.GreaterOrEqual(t, s.tokens, tokens)
					if s.tokens > 1 {
						require.Equal(t, int64(2), s.rows)
						require.Less(t, s.tokens/2, tokens, "half a pass is empty")
					}
					require.NotEmpty(t, why)
				}
				for _, tokens := range []int64{9, 32, 33, 512, 4096} {
					tile, why := m.tile(dtype.F16, ceilDiv(n, 64), tokens)
					require.Contains(t, []int64{32, 64}, tile)
					require.NotEmpty(t, why)
					tile, _ = m.tile(dtype.F32, ceilDiv(n, 64), tokens)
					require.Equal(t, int64(32), tile)
				}
			}
		}
	}
}

// More cores get more threadgroups, and larger weights larger threadgroups.
func TestChoicesFollowTheChip(t *testing.T) {
	small, large := machineOf(chipNamed(t, "m1")), machineOf(chipNamed(t, "m4-max"))
	threads := func(m machine, n int64) int64 {
		s, _ := m.vec(dtype.Q4_0, n, 1)
		return s.rows * s.simdgroups
	}
	require.Greater(t, threads(small, 1024), threads(large, 1024))
	require.Greater(t, threads(large, 151936), threads(large, 1024))
	require.Greater(t, small.splitContext(), large.splitContext())
	tile := func(m machine, columns int64) int64 { n, _ := m.tile(dtype.F16, columns, 512); return n }
	require.Equal(t, int64(64), tile(small, 8))
	require.Equal(t, int64(32), tile(large, 8))
	require.Equal(t, int64(64), tile(large, 64))
}

// chipNamed returns a chip of the table, or nil for no name.
func chipNamed(t *testing.T, name string) *predict.Chip {
	t.Helper()
	if name == "" {
		return nil
	}
	c, err := predict.FindChip(name)
	require.NoError(t, err)
	return c
}

// tuned returns the phase of a shape compiled for a chip and steps of up to maxT tokens.
func tuned(t *testing.T, arch, chip string, maxT int64, context int) *plan.Phase {
	t.Helper()
	m, err := checkpoint.Arch(arch, "q4_0")
	require.NoError(t, err)
	f, err := m.Build(ir.Options{KV: dtype.F16, Block: context})
	require.NoError(t, err)
	target, err := NewTarget("metal")
	require.NoError(t, err)
	target.Tune(chipNamed(t, chip))
	_, err = passes.Compile(f, &target.Target, ir.StepsOf(maxT), passes.Options{Level: 1})
	require.NoError(t, err)
	plan, err := Lower(arch, []Range{{Name: "step", Func: f, MinT: 1, MaxT: maxT}}, target, Options{Context: context})
	require.NoError(t, err)
	return &plan.Phases[0]
}

// The chip changes the grids of dispatches, but not their number, except for attention over
// contexts that only some chips split.
func TestDispatchesOfEveryChip(t *testing.T) {
	perLayer := func(ph *plan.Phase) int {
		n := 0
		for i := range ph.Dispatches {
			if ph.Dispatches[i].Layer == 1 {
				n++
			}
		}
		return n
	}
	for _, chip := range []string{"", "m1", "m2-ultra", "m4-max"} {
		t.Run(chip, func(t *testing.T) {
			require.Equal(t, 5, perLayer(tuned(t, "qwen3-0.6b", chip, 1, 512)))
			require.Equal(t, 6, perLayer(tuned(t, "qwen3-0.6b", chip, 1, 8192)))
			require.Equal(t, 8, perLayer(tuned(t, "qwen3-0.6b", chip, 512, 512)))
		})
	}
}

// A phase notes its choices for every product and every attention, and the launches cover steps of
// every size in its range.
func TestChoicesCoverTheRange(t *testing.T) {
	for _, maxT := range []int64{1, 3, 8, 40, 512} {
		for _, chip := range []string{"", "m1", "m4-max"} {
			t.Run(fmt.Sprintf("%d tokens on %s", maxT, chip), func(t *testing.T) {
				ph := tuned(t, "llama3.2-1b", chip, maxT, 512)
				noted, decided := 0, 0
				for _, c := range ph.Choices {
					if c.Op != "rms_norm" { // why it is apart
						noted += c.Dispatches
					}
				}
				for i := range ph.Dispatches {
					d := &ph.Dispatches[i]
					k, ok := kernels.Lookup(d.Kernel)
					require.True(t, ok, d.Kernel)
					constant := func(name string) int64 {
						c, ok := k.Constant(name)
						require.True(t, ok, name)
						for _, set := range d.Constants {
							if int(set.Index) == c.Index {
								return int64(set.Bits)
							}
						}
						return 0
					}
					perGroup, axis := int64(0), 1
					switch k.Family {
					case "linear_vec":
						perGroup = constant("fc_tokens")
					case "linear_mat", "norm_linear_mat":
						perGroup, axis = constant("fc_tile"), 0
					case "attention_vec", "attention_tile", "attention_write":
						decided++
						continue
					default:
						continue
					}
					decided++
					for tokens := int64(1); tokens <= maxT; tokens++ {
						sizes := ph.Bounds
						sizes[sym.T], sizes[sym.R] = tokens, tokens
						groups := d.Grid[axis].Eval(&sizes)
						require.GreaterOrEqual(t, groups*perGroup, tokens)
						require.Less(t, (groups-1)*perGroup, tokens)
					}
				}
				require.Equal(t, decided, noted)
			})
		}
	}
}

// TestSharedHeadsByPrediction forces every possible number of query heads per threadgroup of
// attention, and compares the one chosen by size with the fastest.
func TestSharedHeadsByPrediction(t *testing.T) {
	type at struct {
		arch, chip string
		context    int
		tokens     int64
	}
	taken := map[at]int64{}
	for _, arch := range []string{"llama3.1-8b", "llama3.2-1b", "tinyllama-1.1b"} {
		for _, chip := range []string{"m1", "m2-pro", "m4-max", "m3-ultra"} {
			for _, context := range []int{512, 8192} {
				for _, tokens := range []int64{1, 8} {
					where := at{arch, chip, context, tokens}
					shape, err := checkpoint.Arch(arch, "q4_0")
					require.NoError(t, err)
					c := shape.Config
					c.Layers = 1
					m, err := checkpoint.Synthetic(c, "q4_0")
					require.NoError(t, err)
					predicted := func(tuning *Tuning) (*plan.Phase, float64, int64) {
						f, err := m.Build(ir.Options{KV: dtype.F16, Block: context})
						require.NoError(t, err)
						target, err := NewTarget("metal")
						require.NoError(t, err)
						target.Tune(chipNamed(t, chip))
						_, err = passes.Compile(f, &target.Target, ir.Steps{Tokens: tokens, Rows: 1, OneEach: true}, passes.Options{Level: 1})
						require.NoError(t, err)
						r := Range{Name: "step", Func: f, MinT: tokens, MaxT: tokens, Longest: plan.Interval{Min: 1, Max: 1}}
						plan, err := Lower(arch, []Range{r}, target, Options{Context: context, Sequences: int(tokens), Tuning: tuning})
						require.NoError(t, err)
						ph := &plan.Phases[0]
						sizes, us, cost := ph.Bounds, 0.0, predict.Cost{}
						for i := range ph.Dispatches {
							if d := &ph.Dispatches[i]; strings.HasPrefix(d.Kernel, "attention_") {
								cost = cost.Plus(predict.CostOf(plan, d, &sizes))
								us += chipNamed(t, chip).Alone(predict.CostOf(plan, d, &sizes), d, &sizes)
							}
						}
						return ph, us, cost.Reread
					}
					ph, chosen, reread := predicted(nil)
					for _, site := range ph.Sites {
						if site.Choice != "shared_heads" {
							continue
						}
						taken[where] = site.Taken["heads"]
						for _, s := range site.Settings {
							tuning := &Tuning{Device: "a chip", Version: "1"}
							tuning.Keep(Winner{site.Choice, site.Kernel, site.Shape, s, 1, 2})
							_, forced, bytes := predicted(tuning)
							t.Logf("%v: %v: %.1f µs, %d KB again; chosen %v", where, s, forced, bytes>>10, site.Taken)
							require.LessOrEqual(t, quicker*chosen, forced, "%v: %v instead of %v", where, s, site.Taken)
							require.Equal(t, s["heads"] < site.Taken["heads"], bytes > reread)
						}
					}
				}
			}
		}
	}
	for where, want := range map[at]int64{
		{"llama3.1-8b", "m1", 512, 1}: 2, {"llama3.1-8b", "m4-max", 512, 1}: 1, {"llama3.1-8b", "m4-max", 512, 8}: 2,
		{"llama3.1-8b", "m3-ultra", 8192, 1}: 2, {"tinyllama-1.1b", "m4-max", 8192, 1}: 4,
	} {
		require.Equal(t, want, taken[where], "%v", where)
	}
}
