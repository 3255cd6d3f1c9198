//go:build fakemetal && linux

package metal

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/provider"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/metal/apple"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// doubling is a Plan that doubles three numbers n times, in as many command buffers
// as are asked for.
func doubling(n, commandBuffers int) *plan.Plan {
	data := make([]byte, 12)
	for i, v := range []float32{1, -2, 3} {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	k, _ := kernels.Lookup("scale_f32")
	params := make([]plan.Expr, k.ParamWords)
	for name, v := range map[string]int64{"rows": 1, "width": 3, "a_stride": 3, "b_stride": 3, "value": int64(math.Float32bits(2))} {
		i, _ := k.Param(name)
		params[i] = plan.Number(v)
	}
	one, bytes := plan.Number(1), plan.Number(12)
	ph := plan.Phase{Name: "all", CommandBuffers: []int{0}, Least: sym.Sizes{sym.T: 1}, Longest: plan.Interval{Min: 1, Max: 4},
		Bounds: sym.Sizes{sym.T: 4, sym.B: 4, sym.R: 4, sym.NB: 4, sym.Smax: 64}}
	from := plan.Binding{Buffer: 0, Bytes: bytes, Read: true} // constants; then the halves of the arena, and the result
	for i := range n {
		to := plan.Binding{Buffer: 1, Offset: int64(i % 2 * 64), Bytes: bytes, Write: true}
		if i == n-1 {
			to.Buffer, to.Offset = 2, 0
		}
		for _, a := range k.Args {
			switch a.Name {
			case "a":
				from.Index = uint32(a.Index)
			case "out":
				to.Index = uint32(a.Index)
			}
		}
		ph.Dispatches = append(ph.Dispatches, plan.Dispatch{Kernel: k.Name, Layer: -1, Params: params, ParamsAt: uint32(k.ParamsIndex),
			Barrier: i > 0, Bindings: []plan.Binding{from, to}, Grid: [3]plan.Expr{one, one, one}, Group: [3]uint32{256, 1, 1}})
		from = plan.Binding{Buffer: to.Buffer, Offset: to.Offset, Bytes: bytes, Read: true}
		if i > 0 && i*commandBuffers/n != (i-1)*commandBuffers/n {
			ph.CommandBuffers = append(ph.CommandBuffers, i)
		}
	}
	return &plan.Plan{Model: "doubling", Target: "metal", Act: dtype.F32, Context: 64, Phases: []plan.Phase{ph}, Buffers: []plan.Buffer{
		{Kind: plan.Const, Name: "numbers", DType: dtype.F32, Bytes: bytes, Data: data},
		{Kind: plan.Arena, Bytes: plan.Number(128)},
		{Kind: plan.Output, Name: "result", DType: dtype.F32, Bytes: bytes},
	}}
}

func noTensors(string) ([]byte, dtype.Type, error) { return nil, 0, errors.New("not in the file") }

func sizes(t int64) sym.Sizes {
	return sym.Sizes{sym.T: t, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 1}
}

func fakeDevice(t testing.TB, o fakemetal.Options, opts device.Options) *device.Device {
	t.Helper()
	o.Emulator = emulated.Provider()
	fakemetal.Configure(o)
	fakemetal.Reset()
	t.Cleanup(func() { fakemetal.Configure(fakemetal.Options{Emulator: o.Emulator}) })
	d, err := device.Open("metal", opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func doubled(t testing.TB, s *device.Instance, times int) {
	t.Helper()
	got, err := s.Output("result")
	require.NoError(t, err)
	f := float32(math.Ldexp(1, times))
	require.Equal(t, []float32{f, -2 * f, 3 * f}, got)
}

// load validates a Plan, which the test may have changed, and loads it.
func load(d *device.Device, compiled *plan.Plan) (*device.Executable, error) {
	if err := compiled.Validate(); err != nil {
		return nil, err
	}
	return d.Load(compiled, noTensors)
}

func begin(t testing.TB, d *device.Device, compiled *plan.Plan) *device.Instance {
	t.Helper()
	p, err := load(d, compiled)
	require.NoError(t, err)
	s, err := p.NewInstance(1)
	require.NoError(t, err)
	return s
}

func TestTenThousandSteps(t *testing.T) {
	d := fakeDevice(t, fakemetal.Options{}, device.Options{})
	s := begin(t, d, doubling(5, 3))
	for range 100 {
		require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
	}
	settle := func() int {
		time.Sleep(20 * time.Millisecond) // for the queue's thread to let go
		return fakemetal.Read().Objects
	}
	before, bytes := settle(), fakemetal.Read().BufferBytes
	for range 10_000 {
		require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
	}
	doubled(t, s, 5)
	require.Equal(t, before, settle(), "objects")
	require.Equal(t, bytes, fakemetal.Read().BufferBytes)
	require.NoError(t, d.Close())
	require.Eventually(t, func() bool { return fakemetal.Read().Objects == 0 }, time.Second, time.Millisecond)
	require.Zero(t, fakemetal.Read().BufferBytes)
}

func TestSessionsOfSeveralGoroutines(t *testing.T) {
	d := fakeDevice(t, fakemetal.Options{Shuffle: true}, device.Options{})
	p, err := load(d, doubling(6, 2))
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s, err := p.NewInstance(1)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for range 50 {
				if err := s.Run(t.Context(), &device.Step{Sizes: sizes(1)}); err != nil {
					t.Error(err)
				}
			}
			doubled(t, s, 6)
		})
	}
	all.Wait()
}

// TestStepsStop cancels a step of many command buffers: it ends early, and the next
// one is whole.
func TestStepsStop(t *testing.T) {
	d := fakeDevice(t, fakemetal.Options{DelayUS: 2000}, device.Options{})
	const buffers = 400
	s := begin(t, d, doubling(buffers, buffers))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Run(ctx, &device.Step{Sizes: sizes(1)}), context.DeadlineExceeded)
	require.Less(t, s.Counters().CommandBuffers, buffers)
	fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider()})
	require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
	require.Equal(t, buffers, s.Counters().CommandBuffers)
}

// TestStepsAreLean counts what a step does beside its work: it reads no clock, waits once
// for a command buffer, and marks no dispatch, unless it is asked to.
func TestStepsAreLean(t *testing.T) {
	for _, row := range []struct {
		name    string
		opts    device.Options
		profile bool
	}{{"plain", device.Options{}, false}, {"profile", device.Options{}, true}, {"debug", device.Options{Debug: true}, false}} {
		t.Run(row.name, func(t *testing.T) {
			s := begin(t, fakeDevice(t, fakemetal.Options{}, row.opts), doubling(12, 3))
			fakemetal.Reset()
			const steps = 20
			for range steps {
				require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1), Profile: row.profile}))
			}
			doubled(t, s, 12)
			got := fakemetal.Read()
			require.Zero(t, got.Waits)
			require.Equal(t, row.profile, got.Timestamps > 0)
			want := 0
			if row.opts.Debug {
				want = steps
			}
			require.Equal(t, 12*want, got.Signposts)
			require.Equal(t, 3*want, got.Described)
		})
	}
}

func TestProfiles(t *testing.T) {
	for _, row := range []struct {
		name string
		o    fakemetal.Options
	}{{"samples", fakemetal.Options{}}, {"command buffers", fakemetal.Options{NoCounters: true}}} {
		t.Run(row.name, func(t *testing.T) {
			d := fakeDevice(t, row.o, device.Options{})
			require.Equal(t, !row.o.NoCounters, d.Info().Samples)
			s := begin(t, d, doubling(1500, 1))
			require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1), Profile: true}))
			got := s.Counters()
			require.Equal(t, 1500, got.Dispatches)
			require.Len(t, got.Nanoseconds, 1500)
			for i, n := range got.Nanoseconds {
				require.Positive(t, n, "dispatch %d", i)
			}
		})
	}
}

// TestKernelsAreCompiledAlone looks at what Metal's compiler is given: for each kernel of a
// Plan one text, with the macros that leave that kernel, several at a time, and none twice.
func TestKernelsAreCompiledAlone(t *testing.T) {
	d := fakeDevice(t, fakemetal.Options{CompileUS: 20_000}, device.Options{Threads: 4})
	compiled := doubling(3, 1)
	ph := &compiled.Phases[0]
	activation := func(bits uint32) []plan.Constant { return []plan.Constant{{Index: 0, Bits: bits}} }
	ph.Dispatches[1].Kernel, ph.Dispatches[1].Constants = "activate_f32", activation(1)
	ph.Dispatches[2].Kernel = "soft_cap_f32"
	again := ph.Dispatches[1]
	again.Barrier = true
	other := again
	other.Constants = activation(2)
	ph.Dispatches = append(ph.Dispatches, other, again)
	fakemetal.Reset()
	p, err := load(d, compiled)
	require.NoError(t, err)
	var macros []string
	for _, given := range fakemetal.Compiled() {
		require.Equal(t, kernels.Single("elementwise.metal"), given.Source)
		macros = append(macros, strings.Join(given.Macros, " "))
	}
	require.ElementsMatch(t, []string{"SMELT_KERNEL_scale_f32=1", "SMELT_KERNEL_soft_cap_f32=1",
		"SMELT_KERNEL_activate_f32=1 SMELT_FC_ACTIVATION=1u", "SMELT_KERNEL_activate_f32=1 SMELT_FC_ACTIVATION=2u"}, macros)
	require.GreaterOrEqual(t, fakemetal.Read().MostCompiling, 2)
	require.Equal(t, 4, p.Compiled().Pipelines)
	require.Greater(t, p.Compiled().Time, 20*time.Millisecond)

	p, err = load(d, compiled)
	require.NoError(t, err)
	require.Zero(t, p.Compiled().Pipelines)
	require.Equal(t, 4, fakemetal.Read().Compiled)
}

// TestArchives starts three times: the second time everything is kept, and the third what
// was damaged since, or is of another system, is made anew.
func TestArchives(t *testing.T) {
	folder := t.TempDir()
	start := func() (c device.Compiled, archived int) {
		d := fakeDevice(t, fakemetal.Options{}, device.Options{Own: map[string]string{"archives": folder}})
		p, err := load(d, doubling(3, 1))
		require.NoError(t, err)
		c = p.Compiled()
		s, err := p.NewInstance(1)
		require.NoError(t, err)
		require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
		doubled(t, s, 3)
		require.NoError(t, d.Close())
		return c, fakemetal.Read().Archived
	}
	first, archived := start()
	require.Equal(t, 1, first.Pipelines)
	require.Zero(t, first.Kept)
	require.Zero(t, archived)
	kept, err := filepath.Glob(filepath.Join(folder, apple.SystemBuild(), "Fake-M4-Max", "*"))
	require.NoError(t, err)
	require.Len(t, kept, 2, "the Plan's kernel and that of the trial")
	require.Contains(t, kept[1], "scale_f32-")

	second, archived := start()
	require.Equal(t, 1, second.Kept)
	require.Equal(t, 2, archived)

	require.NoError(t, os.WriteFile(kept[1], []byte("half an archive"), 0o600))
	third, _ := start()
	require.Zero(t, third.Kept)
	fourth, _ := start()
	require.Equal(t, 1, fourth.Kept)

	require.NoError(t, os.Rename(filepath.Join(folder, apple.SystemBuild()), filepath.Join(folder, "older")))
	fifth, _ := start()
	require.Zero(t, fifth.Kept)

	// A folder that cannot be made keeps nothing, and hinders nothing.
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	folder = file
	sixth, _ := start()
	require.Zero(t, sixth.Kept)
}

func TestCapture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "step.gputrace")
	t.Setenv("MTL_CAPTURE_ENABLED", "1")
	d := fakeDevice(t, fakemetal.Options{}, device.Options{Own: map[string]string{"capture": "2", "capture-file": file}})
	s := begin(t, d, doubling(3, 1))
	for range 3 {
		require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
		doubled(t, s, 3)
	}
	require.FileExists(t, file)
	require.Equal(t, 1, fakemetal.Read().Captures)

	s = begin(t, fakeDevice(t, fakemetal.Options{}, device.Options{Own: map[string]string{"capture": "1", "capture-file": file}}), doubling(3, 1))
	require.ErrorContains(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}), "the file exists")
	require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
	require.NoError(t, os.Unsetenv("MTL_CAPTURE_ENABLED"))
	s = begin(t, fakeDevice(t, fakemetal.Options{}, device.Options{Own: map[string]string{"capture": "1", "capture-file": file}}), doubling(3, 1))
	require.ErrorContains(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}), "MTL_CAPTURE_ENABLED")
}

// TestManySessions makes more of them than a queue takes residency sets.
func TestManySessions(t *testing.T) {
	d := fakeDevice(t, fakemetal.Options{}, device.Options{})
	p, err := load(d, doubling(3, 1))
	require.NoError(t, err)
	before := fakemetal.Read().Resident
	require.Positive(t, before)
	sessions := make([]*device.Instance, 40)
	for i := range sessions {
		sessions[i], err = p.NewInstance(1)
		require.NoError(t, err)
		require.NoError(t, sessions[i].Run(t.Context(), &device.Step{Sizes: sizes(1)}))
	}
	require.Greater(t, fakemetal.Read().Resident, before+len(sessions)-1)
	require.Equal(t, 1, fakemetal.Read().MostSets)
	for _, s := range sessions {
		require.NoError(t, s.Close())
	}
	require.Equal(t, before, fakemetal.Read().Resident)
}

// TestResidencyInAPause has a session that nobody uses: its memory is asked for until it is
// closed.
func TestResidencyInAPause(t *testing.T) {
	s := begin(t, fakeDevice(t, fakemetal.Options{}, device.Options{}), doubling(3, 1))
	require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
	before := fakemetal.Read().Requests
	require.Eventually(t, func() bool { return fakemetal.Read().Requests > before+1 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, s.Close())
	before = fakemetal.Read().Requests
	time.Sleep(600 * time.Millisecond)
	require.Equal(t, before, fakemetal.Read().Requests)
}

func TestRefusals(t *testing.T) {
	t.Run("no device", func(t *testing.T) {
		fakemetal.Configure(fakemetal.Options{NoDevice: true})
		t.Cleanup(func() { fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider()}) })
		_, err := device.Open("metal", device.Options{})
		require.ErrorIs(t, err, ErrNoMetal)
		require.ErrorContains(t, err, "the system gives this process no GPU")
		d, err := device.Open("auto", device.Options{})
		require.NoError(t, err)
		require.Equal(t, "cpu", d.Info().Name)
		require.NoError(t, d.Close())
	})
	for _, row := range []struct {
		name string
		o    fakemetal.Options
		want string // in the error; none where it opens
	}{
		{"the default device is nil", fakemetal.Options{NoDefault: true}, ""},
		{"M1", fakemetal.Options{Family: 7}, ""},
		{"hosted runner", fakemetal.Options{Family: 5, Zeros: true}, "Apple Paravirtual device is of GPU family Apple5"},
		{"zeros", fakemetal.Options{Zeros: true, Family: 7}, "device metal: Apple Paravirtual device: no Metal device: the GPU computes nothing: a trial kernel wrote 0 instead of 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.o.Emulator = emulated.Provider()
			fakemetal.Configure(row.o)
			t.Cleanup(func() { fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider()}) })
			d, err := device.Open("metal", device.Options{})
			if row.want == "" {
				require.NoError(t, err)
				require.NoError(t, device.Fallback("auto"))
				require.NoError(t, d.Close())
				return
			}
			require.ErrorIs(t, err, ErrNoMetal)
			require.ErrorContains(t, err, row.want)
			is, err := device.Resolve("auto")
			require.NoError(t, err)
			require.Equal(t, "cpu", is)
			require.ErrorContains(t, device.Fallback("auto"), row.want)
			require.NoError(t, device.Fallback("cpu"))
		})
	}
	t.Run("working set", func(t *testing.T) {
		d := fakeDevice(t, fakemetal.Options{WorkingSet: 100}, device.Options{})
		p, err := load(d, doubling(3, 1))
		require.NoError(t, err)
		_, err = p.NewInstance(1)
		var refused *device.MemoryError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, int64(100), refused.WorkingSet)
		require.ErrorContains(t, err, "100 bytes is available of the 100 bytes that the GPU keeps resident")
	})
	t.Run("memory", func(t *testing.T) {
		d := fakeDevice(t, fakemetal.Options{Memory: 100}, device.Options{})
		p, err := load(d, doubling(3, 1))
		require.NoError(t, err)
		_, err = p.NewInstance(1)
		require.ErrorIs(t, err, device.ErrMemory)
		require.ErrorContains(t, err, "Metal refuses a buffer of 128 bytes; it holds 12 already, recommends 1099511627776 together")
	})
	t.Run("pipeline", func(t *testing.T) {
		d := fakeDevice(t, fakemetal.Options{}, device.Options{})
		fakemetal.Fail(fakemetal.Compile, 0)
		_, err := load(d, doubling(3, 1))
		require.ErrorIs(t, err, device.ErrKernel)
		require.ErrorContains(t, err, "scale_f32: Compiler encountered an internal error")
		s := begin(t, d, doubling(3, 1))
		require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
		doubled(t, s, 3)
	})
	t.Run("library", func(t *testing.T) {
		fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider()})
		_, err := device.Open("metal", device.Options{Own: map[string]string{"library": "no.metallib"}})
		require.ErrorIs(t, err, device.ErrKernel)
		require.ErrorContains(t, err, "no.metallib")
	})
	t.Run("before macOS 15", func(t *testing.T) {
		s := begin(t, fakeDevice(t, fakemetal.Options{NoResidency: true}, device.Options{}), doubling(3, 1))
		require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sizes(1)}))
		doubled(t, s, 3)
		require.Zero(t, fakemetal.Read().Resident)
	})
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SMELT_CAPTURE", "first")
	fakemetal.Configure(fakemetal.Options{Emulator: emulated.Provider()})
	_, err := device.Open("metal", device.Options{})
	require.ErrorContains(t, err, "SMELT_CAPTURE=first is not the number of a step")
	t.Setenv("SMELT_CAPTURE", "7")
	t.Setenv("SMELT_METALLIB", "some.metallib")
	o, err := settings(nil)
	require.NoError(t, err)
	require.Equal(t, provider.Options{Timeout: time.Minute, Library: "some.metallib", Archives: "off", Capture: 7, CaptureFile: "smelt-7.gputrace"}, o)
	t.Setenv("SMELT_ARCHIVES", "somewhere")
	o, err = settings(map[string]string{"library": "other.metallib", "timeout": "30s"})
	require.NoError(t, err)
	require.Equal(t, []any{"somewhere", "other.metallib", 30 * time.Second}, []any{o.Archives, o.Library, o.Timeout})
	_, err = settings(map[string]string{"timeout": "soon"})
	require.ErrorIs(t, err, device.ErrOption)
}
