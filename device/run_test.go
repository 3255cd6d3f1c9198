//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/internal/trial"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

var devices = []string{"emu", "cpu"}

var shuffled = map[string]string{"shuffle": "on"}

// sum adds tokens and a weight in one chain: out = tokens + 1 + … + 1, ones times.
func sumSketch(maxT int64, ones int) *sketch {
	s := newSketch(maxT)
	x := s.value()
	s.run("widen", []plan.Expr{tokens}, s.input("tokens", perToken), x)
	one := s.value()
	s.fill(1, one).Barrier = false
	for i := range ones {
		to := s.value()
		if i == ones-1 {
			to = s.output("sums", perToken)
		}
		s.add(x, one, to)
		x = to
	}
	return s
}

func TestRun(t *testing.T) {
	for _, name := range devices {
		for _, threads := range []int{1, 2, 5} {
			instance := sumSketch(5000, 10).start(t, name, device.Options{Threads: threads, Poison: true})
			for _, n := range []int64{1, 255, 5000, 256, 3} {
				in := make([]int32, n)
				want := make([]float32, n)
				for i := range in {
					in[i] = int32(i) - 7
					want[i] = float32(in[i]) + 10
				}
				got := make([]float32, n)
				step := device.Step{Sizes: sizes(n), Inputs: map[string][]int32{"tokens": in, "other": nil}, Outputs: map[string][]float32{"sums": got}}
				require.NoError(t, instance.Run(t.Context(), &step))
				require.Equal(t, want, got)
				view, err := instance.Output("sums")
				require.NoError(t, err)
				require.Equal(t, want, view)
			}
		}
	}
}

func TestCounters(t *testing.T) {
	s := sumSketch(100, 6)
	s.plan.Phases[0].CommandBuffers = []int{0, 3, 4}
	d := s.run("empty", nil)
	d.Grid[2] = plan.Number(0) // nothing to do: not dispatched
	for _, name := range devices {
		for _, opts := range []device.Options{{Threads: 1}, {Threads: 3}, {Threads: 2, Own: shuffled}} {
			instance := s.start(t, name, opts)
			step := device.Step{Sizes: sizes(100), Inputs: map[string][]int32{"tokens": make([]int32, 100)}}
			for _, profile := range []bool{false, true, false} {
				step.Profile = profile
				require.NoError(t, instance.Run(t.Context(), &step))
				c := instance.Counters()
				require.Equal(t, 8, c.Dispatches)
				require.Equal(t, 6, c.Barriers)
				require.Equal(t, 3, c.CommandBuffers)
				require.Equal(t, []device.KernelCount{{"widen", 1, 0}, {"fill", 1, 0}, {"add", 6, 0}}, c.Kernels)
				if !profile {
					require.Nil(t, c.Nanoseconds)
					continue
				}
				require.Len(t, c.Nanoseconds, 9)
				for _, n := range c.Nanoseconds[:8] {
					require.Positive(t, n)
				}
				require.Zero(t, c.Nanoseconds[8])
			}
		}
	}
}

// A step of two dispatches with a native kernel in two stages, whose scratch must
// not be shared between them.
func TestNativeStages(t *testing.T) {
	const n = 100_000
	s := newSketch(1 << 22)
	tokens := s.input("tokens", perToken)
	a, b := s.value(), s.value()
	s.run("widen", []plan.Expr{lower.Extent(ir.Var(sym.T))}, tokens, a)
	s.fill(2, b).Barrier = false
	four := plan.Number(4)
	s.run("total", []plan.Expr{lower.Extent(ir.Var(sym.T))}, a, s.output("a", four)).Grid[0] = plan.Number(1)
	d := s.run("total", []plan.Expr{lower.Extent(ir.Var(sym.T))}, b, s.output("b", four))
	d.Grid[0], d.Barrier = plan.Number(1), false

	in := make([]int32, n)
	for i := range in {
		in[i] = int32(i % 3)
	}
	for _, threads := range []int{1, 2, 4} {
		instance := s.start(t, "cpu", device.Options{Threads: threads})
		require.Equal(t, map[string]bool{"widen": false, "fill": false, "total": false}, instance.Executable().Natives(), "the bounds are not covered")
		step := device.Step{Sizes: sizes(n), Inputs: map[string][]int32{"tokens": in}}
		for range 20 {
			require.NoError(t, instance.Run(t.Context(), &step))
			a, err := instance.Output("a")
			require.NoError(t, err)
			b, err := instance.Output("b")
			require.NoError(t, err)
			require.Equal(t, []float32{n - 1}, a)
			require.Equal(t, []float32{2 * n}, b)
			require.Contains(t, instance.Counters().Kernels, device.KernelCount{"total", 2, 2})
		}
	}
	s.plan.Phases[0].Bounds[sym.T] = n
	instance := s.start(t, "cpu", device.Options{})
	require.True(t, instance.Executable().Natives()["total"])
	require.Equal(t, "trial", instance.Executable().Device().Info().ISA)
	require.False(t, s.start(t, "emu", device.Options{}).Executable().Natives()["total"])
}

// Function constants, weights with and without conversion, constants of the Plan.
func TestBuffers(t *testing.T) {
	s := newSketch(4)
	half := s.weight("half", dtype.F16, dtype.F32, 4)
	brain := s.weight("brain", dtype.BF16, dtype.F32, 4)
	odd := s.weight("odd", dtype.F32, dtype.F32, 4)
	data := make([]byte, 16)
	binary.LittleEndian.PutUint32(data, math.Float32bits(100))
	constant := s.buffer(plan.Buffer{Kind: plan.Const, Name: "c", DType: dtype.F32, Bytes: plan.Number(16), Data: data})
	x, y, out := s.value(), s.value(), s.output("out", perToken)
	s.add(half, brain, x)
	s.add(x, odd, y)
	s.add(y, constant, out).Constants = []plan.Constant{{Index: 0, Bits: 1}}

	misaligned := make([]byte, 17)[1:]
	for i := range 4 {
		binary.LittleEndian.PutUint32(misaligned[4*i:], math.Float32bits(float32(i)))
	}
	file := map[string]struct {
		data  []byte
		dtype dtype.Type
	}{
		"half":  {[]byte{0x00, 0x3c, 0x00, 0x40, 0x01, 0x00, 0x00, 0xc0}, dtype.F16}, // 1, 2, 2^-24, -2
		"brain": {[]byte{0x80, 0x3f, 0x00, 0x40, 0x00, 0x00, 0x80, 0xbf}, dtype.BF16},
		"odd":   {misaligned, dtype.F32},
	}
	tensors := func(name string) ([]byte, dtype.Type, error) { return file[name].data, file[name].dtype, nil }
	d := open(t, "cpu", device.Options{Threads: 1})
	p, err := load(d, &s.plan, tensors)
	require.NoError(t, err)
	require.Equal(t, device.Memory{Weights: 48, Converted: 48}, p.Memory())
	instance, err := p.NewInstance(0)
	require.NoError(t, err)
	got := make([]float32, 4)
	require.NoError(t, instance.Run(t.Context(), &device.Step{Sizes: sizes(4), Outputs: map[string][]float32{"out": got}}))
	require.Equal(t, []float32{2 - 100, 5, 2 + 1.0/(1<<24), 0}, got)

	for name, change := range map[string]func(*[]byte, *dtype.Type){
		`tensor "odd" is f16, but the Plan reads`: func(_ *[]byte, t *dtype.Type) { *t = dtype.F16 },
		`tensor "odd" has 15 bytes`:               func(b *[]byte, _ *dtype.Type) { *b = (*b)[:15] },
		`tensor "odd" is dtype(77), but the Plan`: func(_ *[]byte, t *dtype.Type) { *t = 77 },
	} {
		bad := file["odd"]
		change(&bad.data, &bad.dtype)
		_, err := load(d, &s.plan, func(n string) ([]byte, dtype.Type, error) {
			if n == "odd" {
				return bad.data, bad.dtype, nil
			}
			return tensors(n)
		})
		if strings.Contains(name, "f16") {
			require.ErrorContains(t, err, `tensor "odd" has 16 bytes, but the Plan reads 8`)
			continue
		}
		require.ErrorIs(t, err, device.ErrWeights)
		require.ErrorContains(t, err, name)
	}
	_, err = load(d, &s.plan, noTensors)
	require.ErrorIs(t, err, errNoTensor)
	require.ErrorContains(t, err, "half")
	require.ErrorContains(t, err, "brain", "all that are missing are named")
}

// A cache is bound whole, whatever the Plan says of its blocks.
func TestCacheBinding(t *testing.T) {
	s := newSketch(4)
	s.plan.Caches = []plan.Cache{{DType: dtype.F32, KVHeads: 2, Head: 8, Block: 16}}
	block := plan.Number(2 * 8 * 16 * 4)
	k := s.buffer(plan.Buffer{Kind: plan.CacheK, Name: "k.0", DType: dtype.F32, Bytes: block})
	s.run("bytes", nil, k, s.output("n", plan.Number(4)))
	p, err := load(open(t, "cpu", device.Options{}), &s.plan, noTensors)
	require.NoError(t, err)
	instance, err := p.NewInstance(5)
	require.NoError(t, err)
	require.NoError(t, instance.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
	got, err := instance.Output("n")
	require.NoError(t, err)
	require.Equal(t, []float32{5 * 1024}, got)
	_, err = p.NewInstance(0)
	require.ErrorContains(t, err, "0 cache blocks")
}

// A chain that needs every one of its barriers: without one, some order of the
// dispatches gives another result.
func TestShuffleShowsMissingBarrier(t *testing.T) {
	const n = 300
	differs := func(missing int) (wrong int) {
		s := sumSketch(n, 8)
		if missing > 0 {
			require.True(t, s.plan.Phases[0].Dispatches[missing].Barrier)
			s.plan.Phases[0].Dispatches[missing].Barrier = false
		}
		for seed := range uint32(12) {
			instance := s.start(t, "emu", device.Options{Threads: 2, Own: shuffled, Seed: seed, Poison: true})
			require.NoError(t, instance.Run(t.Context(), &device.Step{Sizes: sizes(n), Inputs: map[string][]int32{"tokens": make([]int32, n)}}))
			out, err := instance.Output("sums")
			require.NoError(t, err)
			if out[0] != 8 {
				wrong++
			}
		}
		return wrong
	}
	require.Zero(t, differs(0))
	for missing := 2; missing < 10; missing++ {
		require.NotZero(t, differs(missing), "barrier before dispatch %d", missing)
	}
}

func TestKernelFailure(t *testing.T) {
	s := newSketch(10)
	out := s.output("out", perToken)
	s.fill(3, out)
	d := s.run("diverge", []plan.Expr{plan.Number(5)})
	d.Op, d.Value, d.Layer, d.Grid[1] = ir.OpAttention.String(), 9, 3, tokens
	s.add(out, out, out)
	for _, name := range devices {
		instance := s.start(t, name, device.Options{Threads: 2})
		for _, n := range []int64{10, 5, 6} {
			err := instance.Run(t.Context(), &device.Step{Sizes: sizes(n)})
			if n <= 5 {
				require.NoError(t, err, "the device is usable after a failure")
				continue
			}
			var e *device.DispatchError
			require.ErrorAs(t, err, &e)
			require.Equal(t, "layer 3: attention v9", e.Label)
			require.Equal(t, "diverge", e.Kernel)
			require.ErrorContains(t, err, "wait at different barriers")
			require.Equal(t, 1, instance.Counters().Dispatches)
			_, err = instance.Output("out")
			require.Error(t, err, "a failed step has no outputs")
		}
	}
}

func TestMissingKernel(t *testing.T) {
	s := newSketch(1)
	s.run("nonesuch", nil, s.output("out", perToken))
	_, err := load(open(t, "cpu", device.Options{}), &s.plan, noTensors)
	require.ErrorIs(t, err, device.ErrKernel)
	require.ErrorContains(t, err, "nonesuch")
}

// TestCancel stops a step at the end of a command buffer, or of the dispatches before a
// barrier where the step has none.
func TestCancel(t *testing.T) {
	t.Run("cut", func(t *testing.T) {
		checkCancel(t, func(s *sketch) { s.cut() }, "after 1 of 2 command buffers")
	})
	t.Run("whole", func(t *testing.T) {
		checkCancel(t, func(s *sketch) { s.plan.Phases[0].CommandBuffers = nil }, "after 1 of 2 dispatches")
	})
}

func checkCancel(t *testing.T, cut func(*sketch), how string) {
	s := newSketch(1)
	hold := s.run("hold", nil)
	hold.Grid[0] = plan.Number(1)
	cut(s)
	s.fill(1, s.output("out", perToken))
	instance := s.start(t, "cpu", device.Options{Threads: 2})
	step := device.Step{Sizes: sizes(1)}
	other, err := instance.Executable().NewInstance(1)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- instance.Run(ctx, &step) }()
	require.Eventually(t, func() bool { return trial.Waiting() == 1 }, 10*time.Second, time.Millisecond)
	cancel()
	require.Eventually(t, instance.Stopping, 10*time.Second, time.Millisecond)

	// Another caller's wait for the device ends with its context.
	short, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	require.ErrorIs(t, other.Run(short, &step), context.DeadlineExceeded)

	trial.Release()
	err = <-done
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, how)
	require.Equal(t, 1, instance.Counters().Dispatches)
	require.ErrorIs(t, instance.Run(ctx, &step), context.Canceled)

	trial.Release()
	require.NoError(t, instance.Run(t.Context(), &step), "cancellation ends with its step")
	require.Equal(t, 2, instance.Counters().Dispatches)

	// Once interrupted, it is ended for good.
	go func() { done <- instance.Run(t.Context(), &step) }()
	require.Eventually(t, func() bool { return trial.Waiting() == 1 }, 10*time.Second, time.Millisecond)
	instance.Interrupt()
	instance.Interrupt()
	trial.Release()
	err = <-done
	require.ErrorIs(t, err, device.ErrClosed)
	require.ErrorContains(t, err, how)
	require.ErrorIs(t, instance.Run(t.Context(), &step), device.ErrClosed)
	require.NoError(t, instance.Close())
	instance.Interrupt()
}

func TestConcurrentSessions(t *testing.T) {
	s := sumSketch(2000, 5)
	var all sync.WaitGroup
	for _, name := range devices {
		p, err := load(open(t, name, device.Options{Threads: 2}), &s.plan, noTensors)
		require.NoError(t, err)
		for user := range 3 {
			instance, err := p.NewInstance(1)
			require.NoError(t, err)
			all.Go(func() {
				for i := range 200 {
					n := 1 + (i*37+user*500)%2000
					in := make([]int32, n)
					for j := range in {
						in[j] = int32(user*1000 + j)
					}
					got := make([]float32, n)
					ctx, cancel := context.WithCancel(t.Context())
					err := instance.Run(ctx, &device.Step{Sizes: sizes(int64(n)), Inputs: map[string][]int32{"tokens": in}, Outputs: map[string][]float32{"sums": got}})
					cancel()
					if err != nil || got[n-1] != float32(user*1000+n-1+5) || got[0] != float32(user*1000+5) {
						t.Errorf("user %d, step %d: %v, %v", user, i, err, got[n-1])
						return
					}
				}
			})
		}
	}
	all.Wait()
}

func TestClose(t *testing.T) {
	s := sumSketch(10, 2)
	step := device.Step{Sizes: sizes(1), Inputs: map[string][]int32{"tokens": {1}}}
	d := open(t, "cpu", device.Options{})
	p, err := load(d, &s.plan, noTensors)
	require.NoError(t, err)
	a, err := p.NewInstance(1)
	require.NoError(t, err)
	b, err := p.NewInstance(1)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.Run(t.Context(), &step), device.ErrClosed)
	require.NoError(t, b.Run(t.Context(), &step))
	_, err = a.Output("sums")
	require.ErrorIs(t, err, device.ErrClosed)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Run(t.Context(), &step), device.ErrClosed)
	_, err = p.NewInstance(1)
	require.ErrorIs(t, err, device.ErrClosed)

	p, err = load(d, &s.plan, noTensors)
	require.NoError(t, err)
	b, err = p.NewInstance(1)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.ErrorIs(t, b.Run(t.Context(), &step), device.ErrClosed)
	_, err = load(d, &s.plan, noTensors)
	require.ErrorIs(t, err, device.ErrClosed)
}

func TestMemoryRefusal(t *testing.T) {
	s := sumSketch(1000, 1)
	s.plan.Caches = []plan.Cache{{DType: dtype.F16, KVHeads: 8, Head: 128, Block: 1024}}
	s.buffer(plan.Buffer{Kind: plan.CacheK, Name: "k.0", DType: dtype.F16, Bytes: plan.Number(2 << 20)})
	d := open(t, "cpu", device.Options{MemoryLimit: 64 << 20})
	p, err := load(d, &s.plan, noTensors)
	require.NoError(t, err)
	instance, err := p.NewInstance(20)
	require.NoError(t, err)
	require.Equal(t, device.Memory{Cache: 40 << 20, Arena: 3 * 4032, Inputs: 2 * 4032, Outputs: 4000}, instance.Memory())
	require.NoError(t, instance.Close())
	instance, err = p.NewInstance(31)
	require.NoError(t, err, "what was closed is free again")
	_, err = p.NewInstance(1)
	require.ErrorIs(t, err, device.ErrMemory, "what a session has not touched yet is not free")
	require.NoError(t, instance.Close())
	_, err = p.NewInstance(32)
	var e *device.MemoryError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, device.ErrMemory)
	require.Equal(t, int64(64<<20), e.Available)
	require.Equal(t, int64(64<<20+5*4032+4000), e.Need)
	require.EqualError(t, err, "device trial-cpu: not enough memory: a session of 32 cache blocks needs 64.0 MiB (cache 64.0 MiB, arena 11.8 KiB, inputs 7.9 KiB, outputs 3.9 KiB), 64.0 MiB is available")
	_, err = p.NewInstance(1 << 50)
	require.Error(t, err)
	_, err = openAndLoad(t, s).NewInstance(1 << 30)
	require.ErrorIs(t, err, device.ErrMemory, "2 PiB")
}

func openAndLoad(t *testing.T, s *sketch) *device.Executable {
	p, err := load(open(t, "cpu", device.Options{}), &s.plan, noTensors)
	require.NoError(t, err)
	return p
}

func TestBadSteps(t *testing.T) {
	s := newSketch(8)
	s.plan.Caches = []plan.Cache{{DType: dtype.F32, KVHeads: 1, Head: 8, Block: 16}}
	s.plan.Phases[0].Least[sym.T], s.plan.Phases[0].Longest.Max = 2, 2
	perSeq, one := lower.Extent(ir.Var(sym.B)), plan.Number(4)
	s.input("slots", perToken)
	s.input("cu_seqlens", perSeq.Times(4).Plus(one))
	s.input("context_lens", perSeq.Times(4))
	pages, _ := ir.Var(sym.B).Times(ir.Var(sym.NB))
	s.input("block_table", lower.Extent(pages).Times(4))
	s.input("logit_rows", lower.Extent(ir.Var(sym.R)).Times(4))
	s.fill(1, s.output("out", perToken))
	p := openAndLoad(t, s)
	instance, err := p.NewInstance(3)
	require.NoError(t, err)
	good := func() *device.Step {
		return &device.Step{Sizes: sym.Sizes{sym.T: 3, sym.B: 2, sym.R: 1, sym.NB: 2, sym.Smax: 40}, Inputs: map[string][]int32{
			"slots": {5, -1, 47}, "cu_seqlens": {0, 2, 3}, "context_lens": {17, 1}, "block_table": {0, 2, 1, -9}, "logit_rows": {2},
		}}
	}
	require.NoError(t, instance.Run(t.Context(), good()))
	for want, change := range map[string]func(*device.Step){
		"phase 1 of 1":                                        func(s *device.Step) { s.Phase = 1 },
		"T = 1; all takes 2 to 8":                             func(s *device.Step) { s.Sizes[sym.T] = 1 },
		"Smax = 65; all takes 0 to 64":                        func(s *device.Step) { s.Sizes[sym.Smax] = 65 },
		"the longest sequence has 3 tokens; all takes 1 to 2": func(s *device.Step) { s.Inputs["cu_seqlens"] = []int32{0, 3, 3} },
		"B = 5; all takes 0 to 4":                             func(s *device.Step) { s.Sizes[sym.B] = 5 },
		"NB = -1":                                             func(s *device.Step) { s.Sizes[sym.NB] = -1 },
		`"slots" is missing`:                                  func(s *device.Step) { delete(s.Inputs, "slots") },
		`"slots" has 2 values; these sizes need 3`:            func(s *device.Step) { s.Inputs["slots"] = []int32{1, 2} },
		"token 2 is written to slot 48 of 48":                 func(s *device.Step) { s.Inputs["slots"] = []int32{1, 2, 48} },
		"a running sum from 0":                                func(s *device.Step) { s.Inputs["cu_seqlens"] = []int32{0, 4, 3} },
		"the last element is 2; the step has 3 tokens":        func(s *device.Step) { s.Inputs["cu_seqlens"] = []int32{0, 2, 2} },
		"sequence 1 has -1 keys":                              func(s *device.Step) { s.Inputs["context_lens"] = []int32{1, -1} },
		"sequence 0 has 33 keys":                              func(s *device.Step) { s.Inputs["context_lens"] = []int32{33, 1} },
		"sequence 0 has 41 keys":                              func(s *device.Step) { s.Inputs["context_lens"] = []int32{41, 1} },
		"block 1 of sequence 0 is number 3 of 3":              func(s *device.Step) { s.Inputs["block_table"] = []int32{0, 3, 1, 1} },
		"block 0 of sequence 1 is number -1":                  func(s *device.Step) { s.Inputs["block_table"] = []int32{0, 2, -1, 1} },
		"row 0 is of token 3 of 3":                            func(s *device.Step) { s.Inputs["logit_rows"] = []int32{3} },
		`output "out" is 12 bytes`:                            func(s *device.Step) { s.Outputs = map[string][]float32{"out": make([]float32, 2)} },
	} {
		step := good()
		change(step)
		err := instance.Run(t.Context(), step)
		require.ErrorIs(t, err, device.ErrStep, want)
		require.ErrorContains(t, err, want)
	}
}

// TestBadCopies refuses copies that name no block, or that depend on their order.
func TestBadCopies(t *testing.T) {
	s := newSketch(8)
	s.plan.Caches = []plan.Cache{{DType: dtype.F32, KVHeads: 1, Head: 8, Block: 16}}
	s.input("tokens", perToken)
	copies := s.input("copies", lower.Extent(ir.Var(sym.C)).Times(8))
	four := plan.Number(4)
	d := s.launch("scale_f32", words{"rows": tokens, "width": four, "a_stride": four, "b_stride": plan.Number(0), "value": plan.Number(0)},
		args{"a": s.weight("x", dtype.F32, dtype.F32, 32), "out": s.output("out", perToken.Times(4))})
	d.Grid, d.Group[0] = [3]plan.Expr{plan.Number(1), tokens, plan.Number(1)}, 256
	caches := args{"pairs": copies}
	for kind, name := range map[plan.Kind]string{plan.CacheK: "k", plan.CacheV: "v"} {
		b := s.buffer(plan.Buffer{Kind: kind, Name: name + ".0", DType: dtype.F32, Bytes: plan.Number(4 * 16 * 8)})
		caches[name+"_from"], caches[name+"_cache"] = b, b
	}
	all := s.plan.Phases[0]
	s.plan.Phases = []plan.Phase{{Name: "copy", CommandBuffers: []int{0}, Least: sym.Sizes{sym.C: 1}, Bounds: sym.Sizes{sym.Smax: 64, sym.C: 2}}}
	width := plan.Number(16 * 8)
	d = s.launch("copy_blocks_f32", words{"pairs": lower.Extent(ir.Var(sym.C)), "width": width, "block_stride": width}, caches)
	d.Grid, d.Group = [3]plan.Expr{plan.Number(1), lower.Extent(ir.Var(sym.C)), plan.Number(1)}, [3]uint32{256, 1, 1}
	s.plan.Phases = append(s.plan.Phases, all)
	on, err := device.Open("cpu", device.Options{Threads: 1})
	require.NoError(t, err)
	defer on.Close()
	program, err := load(on, &s.plan, func(string) ([]byte, dtype.Type, error) { return make([]byte, 128), dtype.F32, nil })
	require.NoError(t, err)
	instance, err := program.NewInstance(3)
	require.NoError(t, err)
	run := func(copies ...int32) error {
		return instance.Run(t.Context(), &device.Step{Sizes: sym.Sizes{sym.C: int64(len(copies) / 2)}, Inputs: map[string][]int32{"copies": copies}})
	}
	require.NoError(t, run(2, 0), "a step without tokens needs no input for them")
	require.NoError(t, run(2, 0, 2, 1))
	require.NoError(t, instance.Run(t.Context(), &device.Step{Phase: 1, Sizes: sym.Sizes{sym.T: 2, sym.B: 1, sym.Smax: 2}, Inputs: map[string][]int32{"tokens": {1, 2}}}))
	for want, copies := range map[string][]int32{
		"C = 0; copy takes 1 to 2":                               {},
		"C = 3; copy takes 1 to 2":                               {0, 1, 0, 2, 0, 1},
		"copy 1 is from block 2 to 3; there are 3":               {0, 1, 2, 3},
		"copy 0 is from block -1 to 1; there are 3":              {-1, 1},
		"copies 1 and 0 share block 1, which one of them writes": {0, 1, 1, 2},
		"copies 0 and 1 share block 2, which one of them writes": {0, 2, 1, 2},
		"copies 0 and 0 share block 2, which one of them writes": {2, 2},
	} {
		err := run(copies...)
		require.ErrorIs(t, err, device.ErrStep, want)
		require.ErrorContains(t, err, want)
	}
	err = instance.Run(t.Context(), &device.Step{Phase: 1, Sizes: sym.Sizes{sym.T: 2, sym.B: 1, sym.Smax: 2, sym.C: 1}, Inputs: map[string][]int32{"tokens": {1, 2}, "copies": {0, 1}}})
	require.ErrorContains(t, err, "C = 1; all takes 0 to 0", "whoever computes tokens copies nothing")

	s.plan.Phases[0].Bounds[sym.T] = 1
	require.ErrorContains(t, s.plan.Validate(), "phase 0 (copy): steps of 0 tokens")
}

// A Plan that passes Validate may still ask for what no 32-bit word or buffer
// holds at some sizes.
func TestBounds(t *testing.T) {
	s := newSketch(8)
	d := s.fill(1, s.output("out", perToken))
	d.Params[0] = lower.Extent(ir.Var(sym.T)).Times(1 << 30)
	_, err := load(open(t, "cpu", device.Options{}), &s.plan, noTensors)
	require.ErrorIs(t, err, device.ErrStep)
	require.ErrorContains(t, err, "fill v1")
	require.ErrorContains(t, err, "parameter 0 is 8589934592")

	s = newSketch(8)
	s.fill(1, s.output("out", perToken)).Bindings[0].Bytes = perToken.Plus(plan.Number(4))
	_, err = load(open(t, "cpu", device.Options{}), &s.plan, noTensors)
	require.ErrorIs(t, err, plan.ErrPlan)

	// Checked at load at the bounds and again at each step: the second is reached
	// by a instance whose buffer is smaller than the Plan says.
	s.plan.Phases[0].Dispatches[0].Bindings[0].Bytes = perToken
	p := openAndLoad(t, s)
	s.plan.Buffers[0].Bytes = plan.Number(8)
	instance, err := p.NewInstance(1)
	require.NoError(t, err)
	require.NoError(t, instance.Run(t.Context(), &device.Step{Sizes: sizes(2)}))
	err = instance.Run(t.Context(), &device.Step{Sizes: sizes(3)})
	require.ErrorIs(t, err, device.ErrStep)
	require.ErrorContains(t, err, `all dispatch 0 (fill v1, kernel fill): argument 0, output "out": bytes 0 to 12 of a buffer of 8`)
}
