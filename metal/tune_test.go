//go:build fakemetal && linux

package metal_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tune"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// TestTuneByMadeUpTimes tunes a GPU whose time is that of its threadgroups alone: the setting
// with the fewest wins, and a second program uses it.
func TestTuneByMadeUpTimes(t *testing.T) {
	t.Setenv("SMELT_TUNED", "")
	model, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "")
	require.NoError(t, err)
	defer model.Close()
	for name, row := range map[string]struct {
		clock fakemetal.Options
		want  map[string]plan.Setting // by choice
	}{
		"threadgroups": {
			fakemetal.Options{GroupNS: 1000},
			map[string]plan.Setting{"linear_vec": {"rows": 4, "simdgroups": 8}, "linear_mat": {"tile": 64}, "shared_heads": {"heads": 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			row.clock.Name, row.clock.Cores = "Apple M4 Max", 32
			fake(t, row.clock)
			d := smelt.Device{Name: "metal", Threads: 1}
			o := fixture.For(t, d)
			require.Nil(t, compiler.KnobsOf(&o).Tuning)
			o.Context, o.Prefill = 80, 70
			found, err := tune.Model(t.Context(), model, tune.Job{Program: o, Device: d, Sequences: 40, Options: tune.Options{Tokens: 1, Rounds: 1, Only: []string{"linear_vec", "linear_mat", "shared_heads"}}})
			require.NoError(t, err)
			decided := map[string]int{}
			for _, s := range found.Sites {
				quickest, ratio := s.Default, 1-tune.Margin // a tie, or little less, keeps the default
				for _, tried := range s.Tried {
					if tried.Ratio < ratio {
						quickest, ratio = tried.Setting, tried.Ratio
					}
				}
				require.Equal(t, quickest, s.Winner, "%s %s: %v", s.Kernel, s.Shape, s.Tried)
				want, ok := row.want[s.Choice]
				if s.Choice == "linear_vec" && (strings.HasSuffix(s.Shape, "q8_0") || strings.HasPrefix(s.Shape, "T ≤ 8 ")) { // of Q8_0 or of several tokens a simdgroup owns two rows
					want = plan.Setting{"rows": 2, "simdgroups": want["simdgroups"]}
				}
				if ok && !(s.Choice == "linear_mat" && s.Shape[0] == 'R') { // of one row of logits
					require.Equal(t, want, s.Winner, "%s %s by default %v", s.Kernel, s.Shape, s.Default)
					decided[s.Choice]++
				}
			}
			require.Len(t, decided, len(row.want))
			for _, many := range []string{"T ≤ 8 ", "T ≤ 40 "} {
				require.True(t, slices.ContainsFunc(found.Sites, func(s *tune.SiteResult) bool { return strings.HasPrefix(s.Shape, many) }), "a token of each of several sequences, %s", many)
			}
			require.True(t, slices.ContainsFunc(found.Sites, func(s *tune.SiteResult) bool { return strings.HasPrefix(s.Shape, "T ≤ 64 ") }), "short prompts have a phase of their own")
			path, err := compiler.KeepTuning(d.Name, d.Threads, found.Winners()...)
			require.NoError(t, err)
			require.Contains(t, path, "apple-m4-max-32-cores")

			again := fixture.For(t, d)
			require.NotNil(t, compiler.KnobsOf(&again).Tuning)
			again.Context, again.Prefill = 80, 70
			many := again
			many.Sequences, many.Block = 40, compiler.DefaultBlock
			left := map[string]bool{} // keys of sites
			for _, s := range found.Sites {
				left[s.Key()] = true
			}
			for _, o := range []smelt.Options{again, many} {
				p, err := model.Compile(o)
				require.NoError(t, err)
				for i := range p.Plan.Phases {
					for _, s := range p.Plan.Phases[i].Sites {
						for _, w := range found.Sites {
							if w.Key() == s.Key() {
								require.Equal(t, w.Winner, s.Taken)
								delete(left, s.Key())
							}
						}
					}
				}
			}
			require.Empty(t, left, "all that was decided is taken")
			fake(t, fakemetal.Options{Name: "Apple M4 Max", Cores: 40})
			other := fixture.For(t, d)
			require.Nil(t, compiler.KnobsOf(&other).Tuning, "it is of 32 cores")
			nothingLeft(t)
		})
	}
}

// TestTuneRefusesOtherBits has a kernel break its law: with one setting, the quickest, a product
// normalises by another epsilon. It is not kept, and others that were measured are.
func TestTuneRefusesOtherBits(t *testing.T) {
	fake(t, fakemetal.Options{Name: "Apple M4 Max", Cores: 40, GroupNS: 1000})
	model, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), "")
	require.NoError(t, err)
	defer model.Close()
	d, err := device.Open("metal", device.Options{Threads: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	broken := plan.Setting{"rows": 4, "simdgroups": 8}
	for _, sequences := range []int{1, 4} {
		for _, faulty := range []bool{false, true} {
			found, err := tune.Run(t.Context(), tune.Subject{
				Compile: func(with *lower.Tuning) (*plan.Plan, error) {
					p, err := model.Compile(fixture.With(smelt.Options{Target: "metal", Level: 1, Chip: "m4-max", Context: 64, Prefill: 16, Sequences: sequences, Block: 16}, compiler.Knobs{Tuning: with}))
					if err != nil || with == nil || !faulty {
						return p.Plan, err
					}
					for _, w := range with.Winners {
						if maps.Equal(w.Setting, broken) {
							spoil(t, p.Plan, w.Kernel)
						}
					}
					return p.Plan, nil
				},
				Device: d,
				Fetch: func(name string) ([]byte, dtype.Type, error) {
					elem, data, _ := model.File().Data(name)
					return data, elem, nil
				},
			}, tune.Options{Tokens: 1, Rounds: 1, Only: []string{"linear_vec"}})
			require.NoError(t, err)
			met := 0
			for _, s := range found.Sites {
				for _, tried := range s.Tried {
					if !maps.Equal(tried.Setting, broken) {
						require.True(t, tried.Same, "%s: %v", s.Shape, tried)
					} else if s.Kernel == "linear_vec_f32_f32" {
						require.Equal(t, !faulty, tried.Same)
						require.Equal(t, !faulty, maps.Equal(s.Winner, broken), "%s: %v", s.Shape, s.Winner)
						met++
					}
				}
				require.NotEqual(t, s.Default, s.Winner)
			}
			require.Positive(t, met)
		}
	}
}

// spoil changes what a kernel adds before it takes a root.
func spoil(t *testing.T, p *plan.Plan, kernel string) {
	k, ok := kernels.Lookup(kernel)
	require.True(t, ok)
	eps, ok := k.Param("eps")
	require.True(t, ok)
	for i := range p.Phases {
		for j := range p.Phases[i].Dispatches {
			if d := &p.Phases[i].Dispatches[j]; d.Kernel == kernel {
				d.Params[eps] = plan.Number(int64(math.Float32bits(0.25)))
			}
		}
	}
}

// TestTuneKeepsBits has larger partitions of attention pay, and not taken: they sum in another order,
// which the logits show.
func TestTuneKeepsBits(t *testing.T) {
	t.Setenv("SMELT_TUNED", "off")
	fake(t, fakemetal.Options{Name: "Apple M4 Max", Cores: 40, GroupNS: 1000})
	model, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), "")
	require.NoError(t, err)
	defer model.Close()
	d := smelt.Device{Name: "metal", Threads: 2}
	o := fixture.For(t, d)
	o.Context, o.Prefill = 1100, 16
	program, err := model.Compile(o)
	require.NoError(t, err)
	var partitions []plan.Site
	for i := range program.Plan.Phases {
		for _, s := range program.Plan.Phases[i].Sites {
			if s.Choice == "partition" {
				partitions = append(partitions, s)
			}
		}
	}
	require.Len(t, partitions, 1)
	require.Greater(t, len(partitions[0].Settings), 1)
	require.False(t, partitions[0].Exact)
	found, err := tune.Model(t.Context(), model, tune.Job{Program: o, Device: d, Options: tune.Options{Tokens: 1, Rounds: 1, Only: []string{"partition"}}})
	require.NoError(t, err)
	require.Empty(t, found.Sites, "settings that change bits are not timed")
	require.Empty(t, found.Winners())
}

// TestLongContextThroughTheBridge runs attention in partitions, which leaves the output of
// attention_vec alone, where another dispatch had its parameters.
func TestLongContextThroughTheBridge(t *testing.T) {
	model, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"), "")
	require.NoError(t, err)
	defer model.Close()
	program, err := model.Compile(smelt.Options{Target: "metal", Level: 1, Context: 1100, Prefill: 16})
	require.NoError(t, err)
	logits := func(on string) []float32 {
		session := sessionOn(t, program, on, device.Options{})
		defer session.Loaded().Close()
		require.NoError(t, session.FillRandom(1050, rand.New(rand.NewPCG(1, 2))))
		out, err := session.Feed(t.Context(), []int32{7})
		require.NoError(t, err)
		return slices.Clone(out)
	}
	fake(t, fakemetal.Options{Poison: true})
	require.Equal(t, logits("emu"), logits("metal"))
	nothingLeft(t)
}
