//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/kernels/native"
)

// Whole models, whose barriers the compiler chose, give the same bits whatever
// order their independent dispatches and the threads in them run in; and what a
// step executes is what its Plan lists.
func TestModelsInAnyOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("runs models on the emulator")
	}
	for _, name := range []string{"tiny-qwen3", "tiny-llama"} {
		for _, level := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/O%d", name, level), func(t *testing.T) {
				model, err := smelt.Open("../testdata/models/"+name+"/gguf/"+name+"-F16.gguf", "")
				require.NoError(t, err)
				defer model.Close()
				program, err := model.Compile(smelt.Options{Target: "metal", Level: fixture.Level(level), Context: 64, Prefill: 16})
				require.NoError(t, err)
				want := feed(t, program, "emu", device.Options{Threads: 1})
				for _, opts := range []device.Options{
					{Threads: 2, Poison: true},
					{Threads: 2, Seed: 1, Poison: true, Own: map[string]string{"order": "descending", "shuffle": "on"}},
					{Threads: 1, Seed: 2, Poison: true, Own: map[string]string{"order": "shuffled", "shuffle": "on"}},
				} {
					require.Equal(t, want, feed(t, program, "emu", opts), "%+v", opts)
				}
			})
		}
	}
}

// TestReplicatedHeads runs models whose attention keeps its copies of the KV heads,
// those of K and V in one dispatch a layer.
func TestReplicatedHeads(t *testing.T) {
	if testing.Short() {
		t.Skip("runs models on the emulator")
	}
	for _, c := range []struct {
		target, device string
		bound          float64
	}{{"cpu", "cpu", halfBound()}, {"metal", "emu", 0.05}} {
		t.Run(c.device, func(t *testing.T) {
			model, err := smelt.Open("../testdata/models/tiny-qwen3/gguf/tiny-qwen3-F16.gguf", "")
			require.NoError(t, err)
			defer model.Close()
			logits := func(off ...string) []float32 {
				program, err := model.Compile(fixture.With(smelt.Options{Target: c.target, Level: 1, Context: 64, Prefill: 16}, compiler.Knobs{Disabled: off}))
				require.NoError(t, err)
				for _, ph := range program.Plan.Phases {
					pairs := 0
					for _, d := range ph.Dispatches {
						require.NotRegexp(t, "^repeat_kv_f", d.Kernel)
						if strings.HasPrefix(d.Kernel, "repeat_kv_pair_") {
							pairs++
						}
					}
					require.Equal(t, len(off)*len(program.Plan.Caches), pairs)
				}
				return feed(t, program, c.device, device.Options{})
			}
			want, got := logits(), logits("kv_replication_elimination")
			require.Len(t, got, len(want))
			for i := range want {
				require.InDelta(t, want[i], got[i], c.bound, "%d", i)
			}
		})
	}
}

// halfBound is how far apart two ways through a model with F16 weights may be on the CPU: what
// float sums differ by moves halves in the cache, and where weights and activations are multiplied
// as integers of 16 bits, some of these.
func halfBound() float64 {
	if l := native.Libraries(); len(l) > 0 && l[0].HalfIntegers() {
		return 5e-3
	}
	return 1e-3
}

// sessionOn starts the only sequence of a program on a device; closing what is loaded
// releases all of it.
func sessionOn(t *testing.T, program *smelt.Program, on string, opts device.Options) *smelt.Session {
	loaded, err := program.Load(smelt.Device{Name: on, Threads: opts.Threads, Options: opts})
	require.NoError(t, err)
	session, err := loaded.NewSession()
	require.NoError(t, err)
	return session
}

// feed returns the logits after a prompt and two more tokens.
func feed(t *testing.T, program *smelt.Program, on string, opts device.Options) []float32 {
	session := sessionOn(t, program, on, opts)
	defer session.Loaded().Close()
	return feedTo(t, session)
}

func feedTo(t *testing.T, session *smelt.Session) []float32 {
	var all []float32
	for _, ids := range [][]int32{{1, 100, 33, 7, 250}, {12}, {400}} {
		logits, err := session.Feed(t.Context(), ids)
		require.NoError(t, err)
		all = append(all, logits...)

		c := session.OnDevice().Counters()
		ph := &session.Loaded().OnDevice().Plan().Phases[c.Phase]
		barriers := 0
		kernels := map[string]int{}
		for i := range ph.Dispatches {
			kernels[ph.Dispatches[i].Kernel]++
			if ph.Dispatches[i].Barrier {
				barriers++
			}
		}
		require.Equal(t, len(ph.Dispatches), c.Dispatches)
		require.Equal(t, barriers, c.Barriers)
		require.Equal(t, len(ph.CommandBuffers), c.CommandBuffers)
		require.Len(t, c.Kernels, len(kernels))
		for _, k := range c.Kernels {
			require.Equal(t, kernels[k.Kernel], k.Dispatches)
		}
	}
	require.NotEqual(t, slices.Min(all), slices.Max(all))
	return all
}
