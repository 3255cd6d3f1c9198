//go:build fakemetal && linux

package metal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	shapes "github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/passes"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// fake makes the process's Metal what the options say until the test ends.
func fake(t testing.TB, o fakemetal.Options) {
	t.Helper()
	o.Emulator = emulated.Provider()
	fakemetal.Configure(o)
	fakemetal.Reset()
	t.Cleanup(func() { fakemetal.Configure(fakemetal.Options{Emulator: o.Emulator}) })
}

// nothingLeft waits for the queue's thread to let go of its last command buffer.
func nothingLeft(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		s := fakemetal.Read()
		return s.Objects == 0 && s.BufferBytes == 0 && s.Resident == 0
	}, 10*time.Second, time.Millisecond, "%+v", fakemetal.Read())
}

func tiny(t testing.TB, name string, o smelt.Options) *smelt.Program {
	t.Helper()
	path := "../testdata/models/" + name + "/gguf/" + name + "-F16.gguf"
	if name == mixture {
		c := shapes.Narrow()
		c.Name, c.Experts = name, models.Experts{Count: 5, Chosen: 2}
		path = shapes.Random(t, c, "q4_0")
	}
	model, err := smelt.Open(path, "")
	require.NoError(t, err)
	t.Cleanup(func() { model.Close() })
	o.Target, o.Context, o.Prefill = "metal", 64, 16
	program, err := model.Compile(o)
	require.NoError(t, err)
	return program
}

// mixture is a model of experts, whose weights are random.
const mixture = "mixture"

// xsplit asks for caches of vLLM's layout.
func xsplit(t *testing.T) passes.Debug {
	debug, err := passes.ParseDebug("layout/xsplit")
	require.NoError(t, err)
	return debug
}

// TestModelsThroughTheBridge runs the trained models on the GPU that the fake is, and
// compares every logit with the emulator's, bit for bit: prefill and decode.
func TestModelsThroughTheBridge(t *testing.T) {
	for _, name := range []string{"tiny-qwen3", "tiny-llama"} {
		for way, options := range map[string]smelt.Options{"O0": {Level: smelt.Unoptimised}, "O1": {Level: 1}, "xsplit": fixture.With(smelt.Options{Level: 1}, compiler.Knobs{Debug: xsplit(t)})} {
			t.Run(name+"/"+way, func(t *testing.T) {
				program := tiny(t, name, options)
				want := feed(t, program, "emu", device.Options{})
				fake(t, fakemetal.Options{Poison: true})
				require.Equal(t, want, feed(t, program, "metal", device.Options{Poison: true}))
				nothingLeft(t)
				require.Greater(t, fakemetal.Read().MostInFlight, 1, "the next command buffer is encoded while one runs")

				// Misuse would end the process.
				fake(t, fakemetal.Options{Poison: true, Unwritten: true})
				require.Equal(t, want, feed(t, program, "metal", device.Options{Poison: true}))
				nothingLeft(t)
			})
		}
	}
}

// TestShuffledDispatches lets everything run in any order that barriers, fences and
// events allow.
func TestShuffledDispatches(t *testing.T) {
	for _, name := range []string{"tiny-qwen3", "tiny-llama"} {
		t.Run(name, func(t *testing.T) {
			program := tiny(t, name, smelt.Options{Level: 1})
			want := feed(t, program, "emu", device.Options{})
			seeds := uint32(10)
			if everyBarrier() {
				seeds = 200
			}
			for seed := range seeds {
				fake(t, fakemetal.Options{Poison: true, Shuffle: true, Seed: seed, DelayUS: 100})
				require.Equal(t, want, feed(t, program, "metal", device.Options{Poison: true}), "seed %d", seed)
			}
		})
	}
}

// everyBarrier asks for the whole of what otherwise is a slice.
func everyBarrier() bool { return testfiles.Full("barriers") }

// TestEveryBarrierCounts leaves out, one at a time, everything that makes a dispatch of any
// phase wait, of one sequence's and of many: barriers inside command buffers, fences between
// them, events between the processors. In some order, the result must then be wrong. Layers are
// alike, and of barriers before the same op the first is left out; of the hundreds of the
// source graphs a few, of the second model one plan's; all with SMELT_FULL=barriers.
func TestEveryBarrierCounts(t *testing.T) {
	plans := []struct {
		name  string
		o     smelt.Options
		steps []meeting
		every int // of how many one is left out, in a slice
	}{
		{"O1", smelt.Options{Level: 1}, alone, 1},
		{"O0", smelt.Options{Level: smelt.Unoptimised}, alone, 15},
		{"xsplit", fixture.With(smelt.Options{Level: 1}, compiler.Knobs{Debug: xsplit(t)}), alone, 1},
		{"O1 with products on the CPU", fixture.With(smelt.Options{Level: 1}, compiler.Knobs{Products: oneIn(4)}), alone, 1},
		{"O1 of many", ofMany(smelt.Options{Level: 1}), together[1:5], 1},
		{"O0 of many", ofMany(smelt.Options{Level: smelt.Unoptimised}), together[1:5], 120},
	}
	for _, name := range []string{"tiny-qwen3", "tiny-llama", mixture} {
		for i, row := range plans {
			// Of the mixture, whose prompt's tokens are grouped by their experts, one plan is enough.
			if i > 0 && (name == mixture || name == "tiny-llama" && !everyBarrier()) {
				break
			}
			t.Run(name+"/"+row.name, func(t *testing.T) {
				program := tiny(t, name, row.o)
				want := withoutOne(t, program, row.steps, fakemetal.Options{Poison: true}, nil)
				all := fakemetal.Read()
				first := map[int]bool{} // phases
				barriers, buffers := 0, 0
				placed := compiler.KnobsOf(&row.o).Products != nil
				type wait struct { // of a dispatch inside a command buffer of the GPU's
					*plan.Dispatch
					phase int
					again bool // in a step of a phase that another step was of
				}
				var inside []wait
				starts := map[int]bool{0: true} // command buffers that begin a step
				for _, i := range want.phases {
					ph := &program.Plan.Phases[i]
					for j := range ph.Dispatches {
						d := &ph.Dispatches[j]
						if d.Barrier {
							barriers++
						}
						if d.Barrier && !d.OnCPU && !slices.Contains(ph.CommandBuffers, j) {
							inside = append(inside, wait{d, i, first[i]})
						}
					}
					first[i] = true
					buffers += len(ph.CommandBuffers)
					starts[buffers] = true
				}
				for i := range program.Plan.Phases {
					one := program.Options().Sequences == 1 // which shares no block
					require.Equal(t, !one || program.Plan.Phases[i].Bounds[sym.T] > 0, first[i], "phase %d", i)
				}
				require.Len(t, inside, all.Barriers)
				if !placed {
					// A cut of the command buffers stands at a barrier, as the fence does.
					require.Equal(t, barriers, all.Barriers+buffers-len(want.phases))
					require.Equal(t, buffers-1, all.Fences, "the first of all has nothing to wait for")
				}
				kinds := []struct {
					what  string
					count int
					skip  func(n int) fakemetal.Options
				}{
					{"barrier", all.Barriers, func(n int) fakemetal.Options { return fakemetal.Options{SkipBarrier: n} }},
					{"fence", all.Fences, func(n int) fakemetal.Options { return fakemetal.Options{SkipFence: n} }},
					{"event", all.Events, func(n int) fakemetal.Options { return fakemetal.Options{SkipEvent: n} }},
				}
				alike := map[string]bool{}
				for _, kind := range kinds {
					for n := 1; n <= kind.count; n++ {
						if kind.what == "barrier" {
							w := inside[n-1]
							key := fmt.Sprintln(w.phase, w.Kernel, w.Op)
							if w.again || row.o.Level == 1 && alike[key] && !everyBarrier() {
								continue
							}
							alike[key] = true
						}
						switch {
						case n%row.every != 0 && !everyBarrier():
							continue
						case kind.what == "barrier" && program.Plan.Phases[inside[n-1].phase].Bounds[sym.T] == 1 && strings.HasPrefix(inside[n-1].Kernel, "mask_"):
							continue // nothing is hidden from a token that is alone: its mask writes what it reads
						case kind.what == "fence" && placed:
							continue // the CPU's turn between two command buffers orders them too
						case kind.what == "fence" && starts[n]:
							continue // a step begins when the one before has ended
						}
						wrong := false
						for seed := uint32(0); seed < 40 && !wrong; seed++ {
							o := kind.skip(n)
							o.Poison, o.Shuffle, o.Seed = true, true, seed
							wrong = !reflect.DeepEqual(want, withoutOne(t, program, row.steps, o, &want))
						}
						require.True(t, wrong, "without %s %d of %d nothing changes: %s", kind.what, n, kind.count, inside[min(n, len(inside))-1].Label())
					}
				}
			})
		}
	}
}

// withoutOne runs steps over a fake that leaves something out, up to the first that differs.
func withoutOne(t *testing.T, program *smelt.Program, steps []meeting, o fakemetal.Options, want *ran) ran {
	fake(t, fakemetal.Options{Poison: o.Poison})
	return runSteps(t, program, "metal", device.Options{Poison: true}, steps, func() { fake(t, o) }, want)
}

// TestFaults lets the GPU die in the middle of a step. The error names the dispatch,
// and the step after it is right.
func TestFaults(t *testing.T) {
	program := tiny(t, "tiny-qwen3", smelt.Options{Level: 1})
	want := feed(t, program, "emu", device.Options{})
	rows := []struct {
		fault   fakemetal.Fault
		message string
		is      error
	}{
		{fakemetal.Timeout, "Timeout", nil},
		{fakemetal.PageFault, "Address Fault", nil},
		{fakemetal.OutOfMemory, "Insufficient Memory", device.ErrMemory},
		{fakemetal.Interactivity, "Impacting Interactivity", nil},
		{fakemetal.DeviceRemoved, "removed", device.ErrLost},
		{fakemetal.Hang, "has not answered", device.ErrLost},
	}
	for _, row := range rows {
		for _, after := range []int{0, 7, 20} {
			t.Run(fmt.Sprintf("%s/%d", row.message, after), func(t *testing.T) {
				fake(t, fakemetal.Options{Poison: true})
				patience := "1m"
				if row.fault == fakemetal.Hang {
					patience = "1s"
				}
				session := sessionOn(t, program, "metal", device.Options{Poison: true, Debug: true, Own: map[string]string{"timeout": patience}})
				defer session.Loaded().Close()

				fakemetal.Fail(row.fault, after)
				_, err := session.Feed(t.Context(), []int32{1, 100, 33, 7, 250})
				var at *device.DispatchError
				require.ErrorAs(t, err, &at)
				require.ErrorContains(t, err, row.message)
				if row.is != nil {
					require.ErrorIs(t, err, row.is)
				}
				if row.fault != fakemetal.Hang {
					require.Equal(t, after, at.Dispatch)
					require.Contains(t, err.Error(), program.Plan.Phases[session.OnDevice().Counters().Phase].Dispatches[after].Label())
				}
				if row.fault == fakemetal.Hang {
					_, err = session.Feed(t.Context(), []int32{1, 100, 33, 7, 250})
					require.ErrorIs(t, err, device.ErrLost, "the GPU is still at the first step")
				}
				fakemetal.Recover()
				var all []float32
				for _, ids := range [][]int32{{1, 100, 33, 7, 250}, {12}, {400}} {
					var logits []float32
					require.Eventually(t, func() bool {
						logits, err = session.Feed(t.Context(), ids)
						return !errors.Is(err, device.ErrLost)
					}, 5*time.Second, time.Millisecond)
					require.NoError(t, err)
					all = append(all, logits...)
				}
				require.Equal(t, want, all)
				require.NoError(t, session.Loaded().Close())
				nothingLeft(t)
			})
		}
	}
}

// TestFaultsWithoutDebug names the command buffer by its first dispatch, and how to learn
// more.
func TestFaultsWithoutDebug(t *testing.T) {
	program := tiny(t, "tiny-qwen3", smelt.Options{Level: 1})
	fake(t, fakemetal.Options{})
	session := sessionOn(t, program, "metal", device.Options{})
	defer session.Loaded().Close()
	fakemetal.Fail(fakemetal.PageFault, 7)
	_, err := session.Feed(t.Context(), []int32{1, 100, 33, 7, 250})
	var at *device.DispatchError
	require.ErrorAs(t, err, &at)
	require.LessOrEqual(t, at.Dispatch, 7)
	require.ErrorContains(t, err, "Address Fault")
	require.Regexp(t, `it may be one of the [1-9][0-9]* dispatches behind it: --debug=gpu tells`, err.Error())
}

// TestWeightsInManyBuffers gives the device a largest buffer that only part of the
// file fits: the file is split, and no weight is copied.
func TestWeightsInManyBuffers(t *testing.T) {
	program := tiny(t, "tiny-llama", smelt.Options{Level: 1})
	want := feed(t, program, "emu", device.Options{})
	fake(t, fakemetal.Options{MaxBuffer: 1 << 20})
	require.Equal(t, want, feed(t, program, "metal", device.Options{}))
	nothingLeft(t)

	fake(t, fakemetal.Options{MaxBuffer: 1 << 16})
	_, err := program.Load(smelt.Device{Name: "metal"})
	require.ErrorIs(t, err, device.ErrMemory)
	require.ErrorContains(t, err, "the device's largest buffer has 64.0 KiB")
}

// TestWeightsOfTheHeap gives the GPU weights that Go allocated: it gets copies, since it
// would see whole pages of the heap. Misuse would end the process.
func TestWeightsOfTheHeap(t *testing.T) {
	program := tiny(t, "tiny-llama", smelt.Options{Level: 1})
	tensors := func(name string) ([]byte, dtype.Type, error) {
		elem, data, ok := program.Model().File().Data(name)
		require.True(t, ok)
		return slices.Clone(data), elem, nil
	}
	fake(t, fakemetal.Options{})
	d, err := device.Open("metal", device.Options{})
	require.NoError(t, err)
	p, err := d.Load(program.Plan, tensors)
	require.NoError(t, err)
	require.Zero(t, p.Memory().InPlace)
	require.Equal(t, p.Memory().Weights, p.Memory().Converted)
	require.NoError(t, d.Close())
	nothingLeft(t)
}

// TestWorkingSet has a GPU that keeps less resident than the weights: they are refused,
// with the sizes.
func TestWorkingSet(t *testing.T) {
	program := tiny(t, "tiny-llama", smelt.Options{Level: 1})
	fake(t, fakemetal.Options{WorkingSet: 1 << 20})
	_, err := program.Load(smelt.Device{Name: "metal"})
	require.ErrorIs(t, err, device.ErrMemory)
	require.ErrorContains(t, err, "weights in place ")
	require.ErrorContains(t, err, ", 1.0 MiB is available of the 1.0 MiB that the GPU keeps resident")
	nothingLeft(t)
}

// oneIn places a product in n on the CPU, at random.
func oneIn(n int) lower.Placement {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	return func(lower.Product) bool { return random.IntN(n) == 0 }
}

// TestProductsOnTheCPU shares the products of a model out between the GPU and the CPU
// in every way: all of either, by size, and at random. The logits stay within what
// half activations and rounded ones may differ.
func TestProductsOnTheCPU(t *testing.T) {
	const bound = 5e-2
	for _, name := range []string{"tiny-qwen3", "tiny-llama"} {
		t.Run(name, func(t *testing.T) {
			want := feed(t, tiny(t, name, smelt.Options{Level: 1}), "emu", device.Options{})
			places := map[string]lower.Placement{
				"all":      lower.AtLeast(0),
				"by size":  lower.AtLeast(200_000),
				"prefill":  func(p lower.Product) bool { return p.Phase == "prefill" },
				"one in 2": oneIn(2),
				"one in 5": oneIn(5),
			}
			for text, place := range places {
				program := tiny(t, name, fixture.With(smelt.Options{Level: 1}, compiler.Knobs{Products: place}))
				var first []float32
				for seed := range uint32(6) {
					fake(t, fakemetal.Options{Poison: true, Shuffle: seed > 0, Seed: seed, DelayUS: 100})
					got := feed(t, program, "metal", device.Options{Poison: true})
					if seed == 0 {
						first = got
					}
					require.Equal(t, first, got, "%s: seed %d", text, seed)
				}
				most := compare.Largest(want, first)
				t.Logf("%s: %.2g", text, most)
				require.LessOrEqual(t, most, bound, text)
				require.Positive(t, most, text)
				nothingLeft(t)
			}
		})
	}
}
