package device_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// A device in Go, with one kernel: every float of argument 1 is that of argument 0, times
// what its option says.
type (
	toy        struct{ factor float32 }
	toyBuffer  []byte
	toyProgram struct {
		plan    *plan.Plan
		buffers []device.Handle
	}
	toyInstance struct {
		toyProgram
		strides []uint64
		stopped bool
	}
)

func init() {
	device.Register(device.Row{
		Name: "toy", Target: "cpu",
		Options: []device.Option{{Key: "factor", Doc: "of every number; else 2"}, {Key: "mood", Values: []string{"good", "bad"}}},
		Open: func(o device.Options) (device.Driver, error) {
			if o.Own["mood"] == "bad" {
				return nil, device.ErrAbsent
			}
			text, given := o.Own["factor"]
			factor, err := strconv.ParseFloat(text, 32)
			if !given {
				factor, err = 2, nil
			}
			if err != nil {
				return nil, fmt.Errorf("%w: factor: %w", device.ErrOption, err)
			}
			return &toy{float32(factor)}, nil
		},
	})
}

func (d *toy) Info() device.Info {
	return device.Info{Threads: 1, Nodes: 1, Page: 1, MaxBuffer: 1 << 40}
}
func (d *toy) Close() {}

func toyBufferOf(memory []byte) (device.Handle, error) {
	b := toyBuffer(memory)
	return device.Handle(&b), nil
}
func memoryOf(h device.Handle) []byte { return *(*toyBuffer)(h) }

func (d *toy) Create(bytes int64, _ device.Purpose) (device.Handle, error) {
	return toyBufferOf(make([]byte, bytes))
}
func (d *toy) Wrap(memory []byte) (device.Handle, error) { return toyBufferOf(memory) }
func (d *toy) Slice(whole device.Handle, offset, bytes int64) (device.Handle, error) {
	return toyBufferOf(memoryOf(whole)[offset:][:bytes])
}
func (d *toy) Contents(buffer device.Handle, bytes int64) []byte { return memoryOf(buffer)[:bytes] }
func (d *toy) Free(device.Handle)                                {}
func (d *toy) Rearranged(*device.Matrix) int64                   { return 0 }

func (d *toy) Load(p *plan.Plan, _ []device.Matrix, buffers []device.Handle) (device.Handle, error) {
	for i, k := range device.Kernels(p) {
		if k != "times" {
			return nil, &device.DriverError{Code: device.CodeKernel, Dispatch: i, Argument: -1, Message: "a toy knows times alone"}
		}
	}
	return device.Handle(&toyProgram{p, buffers}), nil
}
func (d *toy) Natives(_ device.Handle, kernels int) []bool { return make([]bool, kernels) }
func (d *toy) Compiled(device.Handle) device.Compiled      { return device.Compiled{} }
func (d *toy) Unload(device.Handle)                        {}

func (d *toy) Begin(executable device.Handle, own []device.Handle, strides []uint64) (device.Handle, error) {
	p := *(*toyProgram)(executable)
	buffers := append([]device.Handle(nil), p.buffers...)
	for i, h := range own {
		if h != nil {
			buffers[i] = h
		}
	}
	return device.Handle(&toyInstance{toyProgram: toyProgram{p.plan, buffers}, strides: append([]uint64(nil), strides...)}), nil
}
func (d *toy) End(device.Handle) {}

func (d *toy) Run(instance device.Handle, s *device.Command, c *device.Counts, _ []uint64) error {
	in := (*toyInstance)(instance)
	if in.stopped {
		return &device.DriverError{Code: device.CodeCancelled, Dispatch: -1, Argument: -1}
	}
	*c = device.Counts{Kernels: c.Kernels}
	clear(c.Kernels)
	sizes := sym.Sizes(s.Sizes[:len(sym.Sizes{})])
	ph := &in.plan.Phases[s.Phase]
	for i := range ph.Dispatches {
		var at [2][]byte
		for j, b := range ph.Dispatches[i].Bindings {
			from := b.Offset + int64(s.Slot)*int64(in.strides[b.Buffer])
			at[j] = memoryOf(in.buffers[b.Buffer])[from:][:b.Bytes.Eval(&sizes)]
		}
		for j := 0; j < len(at[1]); j += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(at[0][j:]))
			binary.LittleEndian.PutUint32(at[1][j:], math.Float32bits(x*d.factor))
		}
		c.Dispatches++
		c.Kernels[0].Dispatches++
	}
	c.CommandBuffers = 1
	return nil
}

func (d *toy) Cancel(instance device.Handle, yes bool) { (*toyInstance)(instance).stopped = yes }

// TestToy: a device is a driver and a row. It runs a Plan of its own kernel over a weight of
// the model, and takes the options that its row lists and no others.
func TestToy(t *testing.T) {
	one, bytes := plan.Number(1), plan.Number(12)
	dispatch := plan.Dispatch{Kernel: "times", Layer: -1, ParamsAt: 2,
		Grid: [3]plan.Expr{one, one, one}, Group: [3]uint32{1, 1, 1},
		Bindings: []plan.Binding{{Index: 0, Buffer: 0, Bytes: bytes, Read: true}, {Index: 1, Buffer: 1, Bytes: bytes, Write: true}}}
	compiled := &plan.Plan{
		Model: "sketch", Target: "cpu", Act: dtype.F32, Context: 64,
		Phases: []plan.Phase{{Name: "all", CommandBuffers: []int{0}, Least: sym.Sizes{sym.T: 1}, Longest: plan.Interval{Min: 1, Max: 1},
			Bounds: sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 64}, Dispatches: []plan.Dispatch{dispatch}}},
		Tensors: []plan.Tensor{{Name: "w", DType: dtype.F32, Shape: []int{3}}},
		Buffers: []plan.Buffer{{Kind: plan.Weight, Name: "w", DType: dtype.F32, Bytes: bytes}, {Kind: plan.Output, Name: "out", DType: dtype.F32, Bytes: bytes}},
	}
	weights := []float32{1, -2, 3}
	fetch := func(string) ([]byte, dtype.Type, error) {
		return unsafe.Slice((*byte)(unsafe.Pointer(&weights[0])), 12), dtype.F32, nil
	}
	require.NoError(t, compiled.Validate())
	for own, want := range map[string][]float32{"": {2, -4, 6}, "-0.5": {-0.5, 1, -1.5}} {
		var o device.Options
		if own != "" {
			o.Own = map[string]string{"factor": own}
		}
		d, err := device.Open("Toy", o)
		require.NoError(t, err)
		require.Equal(t, "toy", d.Info().Name)
		p, err := d.Load(compiled, fetch)
		require.NoError(t, err)
		s, err := p.NewInstance(1)
		require.NoError(t, err)
		require.NoError(t, s.Run(t.Context(), &device.Step{Sizes: sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 1}}))
		got, err := s.Output("out")
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, []device.KernelCount{{Kernel: "times", Dispatches: 1}}, s.Counters().Kernels)

		other := *compiled
		other.Phases = append([]plan.Phase(nil), compiled.Phases...)
		other.Phases[0].Dispatches = []plan.Dispatch{dispatch}
		other.Phases[0].Dispatches[0].Kernel = "plus"
		_, err = d.Load(&other, fetch)
		require.ErrorIs(t, err, plan.ErrPlan, "it was not validated")
		require.NoError(t, other.Validate())
		_, err = d.Load(&other, fetch)
		require.ErrorIs(t, err, device.ErrKernel)
		require.NoError(t, d.Close())
		require.ErrorIs(t, s.Run(t.Context(), &device.Step{}), device.ErrClosed)
	}

	for want, own := range map[string]map[string]string{
		`device toy: bad option: no option "colour"; it takes factor, mood`: {"colour": "red", "factor": "3"},
		`device toy: bad option: mood is "odd", not good or bad`:            {"mood": "odd"},
		`factor: strconv.ParseFloat`:                                        {"factor": "many"},
	} {
		_, err := device.Open("toy", device.Options{Own: own})
		require.ErrorIs(t, err, device.ErrOption)
		require.ErrorContains(t, err, want)
	}
	_, err := device.Open("toy", device.Options{Own: map[string]string{"mood": "bad"}})
	require.ErrorIs(t, err, device.ErrAbsent)
	target, err := device.TargetOf("toy")
	require.NoError(t, err)
	require.Equal(t, "cpu", target)
	require.Panics(t, func() { device.Register(device.Row{Name: "toy"}) })
}
