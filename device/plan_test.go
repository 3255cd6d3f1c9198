//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/host"
	"github.com/smelt-ml/smelt/device/internal/trial"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// sketch is a Plan in the making, of one phase, for the kernels of package trial.
type sketch struct {
	plan plan.Plan
	next int64 // free byte of the arena
}

func newSketch(maxT int64) *sketch {
	return &sketch{plan: plan.Plan{
		Model: "sketch", Target: "cpu", Act: dtype.F32, Context: 64,
		Phases: []plan.Phase{{Name: "all", CommandBuffers: []int{0}, Least: sym.Sizes{sym.T: 1}, Longest: plan.Interval{Min: 1, Max: maxT},
			Bounds: sym.Sizes{sym.T: maxT, sym.B: 4, sym.R: maxT, sym.NB: 4, sym.Smax: 64}}},
	}}
}

// stretch is a part of a buffer.
type stretch struct {
	buffer int32
	offset int64
	bytes  plan.Expr
}

func (s *sketch) buffer(b plan.Buffer) stretch {
	s.plan.Buffers = append(s.plan.Buffers, b)
	return stretch{int32(len(s.plan.Buffers) - 1), 0, b.Bytes}
}

var perToken = lower.CeilDiv(ir.Var(sym.T), 1).Times(4)

func (s *sketch) input(name string, bytes plan.Expr) stretch {
	return s.buffer(plan.Buffer{Kind: plan.Input, Name: name, DType: dtype.I32, Bytes: bytes})
}

func (s *sketch) output(name string, bytes plan.Expr) stretch {
	return s.buffer(plan.Buffer{Kind: plan.Output, Name: name, DType: dtype.F32, Bytes: bytes})
}

func (s *sketch) weight(name string, stored dtype.Type, bound dtype.Type, n int) stretch {
	s.plan.Tensors = append(s.plan.Tensors, plan.Tensor{Name: name, DType: stored, Shape: []int{n}})
	return s.buffer(plan.Buffer{Kind: plan.Weight, Name: name, DType: bound, Bytes: plan.Number(bound.Bytes(int64(n)))})
}

// value takes room for a float per token in the arena.
func (s *sketch) value() stretch {
	at := -1
	for i := range s.plan.Buffers {
		if s.plan.Buffers[i].Kind == plan.Arena {
			at = i
		}
	}
	if at < 0 {
		at = int(s.buffer(plan.Buffer{Kind: plan.Arena}).buffer)
	}
	r := stretch{int32(at), s.next, perToken}
	s.next += (4*s.plan.Phases[0].Bounds[sym.T] + 63) / 64 * 64
	s.plan.Buffers[at].Bytes = plan.Number(s.next)
	return r
}

var tokens = lower.Extent(ir.Var(sym.T))

// run appends a dispatch after a barrier; the last argument is what it writes.
func (s *sketch) run(kernel string, params []plan.Expr, args ...stretch) *plan.Dispatch {
	ph := &s.plan.Phases[0]
	d := plan.Dispatch{
		Kernel: kernel, Value: int32(1 + len(ph.Dispatches)), Layer: -1,
		Params: params, ParamsAt: uint32(len(args)), Barrier: len(ph.Dispatches) > 0,
		Grid:  [3]plan.Expr{lower.CeilDiv(ir.Var(sym.T), 256), plan.Number(1), plan.Number(1)},
		Group: [3]uint32{32, 1, 1},
	}
	for i, a := range args {
		last := i == len(args)-1
		d.Bindings = append(d.Bindings, plan.Binding{Index: uint32(i), Buffer: a.buffer, Offset: a.offset, Bytes: a.bytes, Read: !last, Write: last})
	}
	ph.Dispatches = append(ph.Dispatches, d)
	return &ph.Dispatches[len(ph.Dispatches)-1]
}

// What one of the project's kernels takes, by the names in its table.
type (
	args  map[string]stretch
	words map[string]plan.Expr
)

// launch appends a dispatch of one of the project's kernels after a barrier.
func (s *sketch) launch(kernel string, given words, bound args) *plan.Dispatch {
	k, ok := kernels.Lookup(kernel)
	if !ok || len(given) != k.ParamWords {
		panic(fmt.Sprintf("%s with %d parameters", kernel, len(given)))
	}
	d := s.run(kernel, make([]plan.Expr, k.ParamWords))
	d.ParamsAt = uint32(k.ParamsIndex)
	for name, e := range given {
		d.Params[paramOf(kernel, name)] = e
	}
	for _, a := range k.Args {
		if r, ok := bound[a.Name]; ok {
			d.Bindings = append(d.Bindings, plan.Binding{Index: uint32(a.Index), Buffer: r.buffer, Offset: r.offset, Bytes: r.bytes,
				Read: a.Access == kernels.Read, Write: a.Access == kernels.Write})
		}
	}
	if len(d.Bindings) != len(bound) {
		panic(fmt.Sprintf("%s lacks one of %v", kernel, bound))
	}
	return d
}

// set returns function constants by name; those that a kernel requires and that are not
// named are zero.
func set(kernel string, bits map[string]uint32) []plan.Constant {
	k, _ := kernels.Lookup(kernel)
	var out []plan.Constant
	for _, c := range k.Constants {
		if v, ok := bits[c.Name]; ok || !c.Optional {
			out = append(out, plan.Constant{Index: uint32(c.Index), Bits: v})
		}
	}
	if len(out) < len(bits) {
		panic(fmt.Sprintf("%s lacks one of %v", kernel, bits))
	}
	return out
}

func paramOf(kernel, name string) int {
	k, _ := kernels.Lookup(kernel)
	i, ok := k.Param(name)
	if !ok {
		panic(kernel + " has no parameter " + name)
	}
	return i
}

func (s *sketch) fill(x float32, to stretch) *plan.Dispatch {
	return s.run("fill", []plan.Expr{tokens, plan.Number(int64(math.Float32bits(x)))}, to)
}

func (s *sketch) add(a, b, to stretch) *plan.Dispatch {
	return s.run("add", []plan.Expr{tokens}, a, b, to)
}

func (s *sketch) cut() {
	ph := &s.plan.Phases[0]
	ph.CommandBuffers = append(ph.CommandBuffers, len(ph.Dispatches))
}

var errNoTensor = errors.New("not in the file")

func noTensors(string) ([]byte, dtype.Type, error) { return nil, 0, errNoTensor }

// Devices with the kernels of package trial.
func init() {
	emulator, native := trial.Suppliers()
	for name, native := range map[string]unsafe.Pointer{"trial-emu": nil, "trial-cpu": native} {
		device.Register(device.Row{Name: name, Target: "cpu", Options: host.Options(),
			Open: func(o device.Options) (device.Driver, error) { return host.Open(o, emulator, native) }})
	}
}

func open(t testing.TB, name string, opts device.Options) *device.Device {
	t.Helper()
	d, err := device.Open("trial-"+name, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// load validates a Plan, which the test may have changed, and loads it.
func load(on *device.Device, p *plan.Plan, fetch device.Fetch) (*device.Executable, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return on.Load(p, fetch)
}

// start opens a instance of the sketch.
func (s *sketch) start(t testing.TB, name string, opts device.Options) *device.Instance {
	t.Helper()
	p, err := load(open(t, name, opts), &s.plan, noTensors)
	require.NoError(t, err)
	instance, err := p.NewInstance(1)
	require.NoError(t, err)
	return instance
}

func sizes(t int64) sym.Sizes { return sym.Sizes{sym.T: t, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 1} }
