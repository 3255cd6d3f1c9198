package device

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Launch is one dispatch of a kernel on the caller's memory, in the same form as the launches of
// packages kernels/emulated and kernels/native.
type Launch struct {
	Kernel    string            // host name
	Buffers   [][]byte          // by [[buffer(i)]], including the parameters; nil: unbound
	Constants map[uint32]uint32 // bits by [[function_constant(i)]]
	Grid      [3]uint32         // threadgroups
	Group     [3]uint32         // threads in a threadgroup
}

// Launch runs a kernel by itself and returns once the buffers that it writes hold its results. It
// is for testing kernels: memory and executable are made for each call and freed. The caller
// checks the launch with kernels.Check; Launch does not, as a test may append guard bytes to a
// buffer.
func (d *Device) Launch(l Launch) error {
	if err := d.launch(l); err != nil {
		return fmt.Errorf("device %s: launching %s: %w", d.info.Name, l.Kernel, err)
	}
	return nil
}

func (d *Device) launch(l Launch) error {
	compiled, err := l.plan()
	if err != nil {
		return err
	}
	d.lock()
	defer d.unlock()
	if d.closed {
		return fmt.Errorf("the device is %w", ErrClosed)
	}
	p := &Executable{device: d, plan: compiled, kernels: []string{l.Kernel}}
	defer p.release()
	for _, b := range compiled.Phases[0].Dispatches[0].Bindings {
		from := l.Buffers[b.Index]
		h, err := p.fill(int64(len(from)), func(to []byte) { copy(to, from) })
		if err != nil {
			return p.explain(err, 0)
		}
		p.buffers = append(p.buffers, h)
	}
	if p.handle, err = d.driver.Load(compiled, make([]Matrix, len(p.buffers)), p.buffers); err != nil {
		return p.explain(err, 0)
	}
	instance, err := d.driver.Begin(p.handle, make([]Handle, len(p.buffers)), make([]uint64, len(p.buffers)))
	if err != nil {
		return p.explain(err, 0)
	}
	defer d.driver.End(instance)
	if err := d.driver.Run(instance, &Command{}, &Counts{Kernels: make([]Ran, 1)}, nil); err != nil {
		return p.explain(err, 0)
	}
	for i, b := range compiled.Phases[0].Dispatches[0].Bindings {
		if to := l.Buffers[b.Index]; b.Write {
			copy(to, d.driver.Contents(p.buffers[i], int64(len(to))))
		}
	}
	return nil
}

// plan returns a Plan with this one dispatch, a buffer for each binding, and no symbolic sizes.
func (l *Launch) plan() (*plan.Plan, error) {
	k, ok := kernels.Lookup(l.Kernel)
	if !ok {
		return nil, ErrKernel
	}
	if k.ParamsIndex >= len(l.Buffers) || len(l.Buffers[k.ParamsIndex])%4 != 0 {
		return nil, fmt.Errorf("%w: no parameters at buffer %d", ErrStep, k.ParamsIndex)
	}
	if threads := uint64(l.Group[0]) * uint64(l.Group[1]) * uint64(l.Group[2]); threads == 0 || threads > uint64(k.MaxThreads) {
		return nil, fmt.Errorf("%w: threadgroups of %d threads; it runs with 1 to %d", ErrStep, threads, k.MaxThreads)
	}
	d := plan.Dispatch{Kernel: l.Kernel, Layer: -1, ParamsAt: uint32(k.ParamsIndex), Group: l.Group}
	for _, i := range slices.Sorted(maps.Keys(l.Constants)) {
		if i >= MaxConstants {
			return nil, fmt.Errorf("%w: function constant %d", ErrStep, i)
		}
		d.Constants = append(d.Constants, plan.Constant{Index: i, Bits: l.Constants[i]})
	}
	for i, n := range l.Grid {
		d.Grid[i] = plan.Number(int64(n))
	}
	words := l.Buffers[k.ParamsIndex]
	for i := 0; i < len(words); i += 4 {
		d.Params = append(d.Params, plan.Number(int64(binary.NativeEndian.Uint32(words[i:]))))
	}
	compiled := &plan.Plan{Model: l.Kernel}
	for i, b := range l.Buffers {
		if b == nil || i == k.ParamsIndex {
			continue
		}
		a, _ := k.Arg(i)
		bytes := plan.Number(int64(len(b)))
		d.Bindings = append(d.Bindings, plan.Binding{Index: uint32(i), Buffer: int32(len(compiled.Buffers)), Bytes: bytes, Read: true, Write: a.Access == kernels.Write})
		compiled.Buffers = append(compiled.Buffers, plan.Buffer{Kind: plan.Arena, Bytes: bytes})
	}
	compiled.Phases = []plan.Phase{{Name: "launch", Dispatches: []plan.Dispatch{d}, CommandBuffers: []int{0}}}
	return compiled, nil
}
