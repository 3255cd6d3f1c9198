package plan

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
)

// validateLaunches calls kernels.Check on a dispatch, with the sizes of its phase at their largest
// and at their smallest: grids, parameters and bytes grow monotonically in between. Kernels that
// are not in the table are left to the device.
func (d *Dispatch) validateLaunches(ph *Phase) error {
	k, ok := kernels.Lookup(d.Kernel)
	if !ok {
		return nil
	}
	if int(d.ParamsAt) != k.ParamsIndex {
		return fmt.Errorf("parameters at buffer %d; %s takes them at %d", d.ParamsAt, d.Kernel, k.ParamsIndex)
	}
	for _, sizes := range []sym.Sizes{ph.Bounds, ph.smallest()} {
		l, err := d.launch(&sizes)
		if err == nil {
			err = kernels.Check(l)
		}
		if err != nil {
			return fmt.Errorf("sizes %v: %w", sizes, err)
		}
	}
	return nil
}

// smallest returns the sizes of the phase's smallest step.
func (p *Phase) smallest() sym.Sizes {
	sizes := p.Least
	for i, bound := range p.Bounds {
		sizes[i] = max(sizes[i], min(bound, 1))
	}
	return sizes
}

// launch returns the launch of a dispatch at some sizes. A cache has the bytes of one block, as
// the Plan does not know how many there are.
func (d *Dispatch) launch(sizes *sym.Sizes) (*kernels.Launch, error) {
	l := &kernels.Launch{Kernel: d.Kernel, Constants: make(map[uint32]uint32, len(d.Constants)), Group: d.Group, Rows: sizes[sym.T]}
	for _, c := range d.Constants {
		l.Constants[c.Index] = c.Bits
	}
	last := uint32(0)
	for _, b := range d.Bindings {
		if !d.hostScratch(b.Index) {
			last = max(last, b.Index)
		}
	}
	l.Buffers = make([]int64, last+1)
	for i := range l.Buffers {
		l.Buffers[i] = kernels.Unbound
	}
	for _, b := range d.Bindings {
		if !d.hostScratch(b.Index) {
			l.Buffers[b.Index] = b.Bytes.Eval(sizes)
		}
	}
	for i, e := range d.Params {
		n := e.Eval(sizes)
		if n < math.MinInt32 || n > math.MaxUint32 {
			return nil, fmt.Errorf("parameter %d is %d, which does not fit 32 bits", i, n)
		}
		l.Params = append(l.Params, uint32(n))
	}
	for i, e := range d.Grid {
		n := e.Eval(sizes)
		if n < 0 {
			return nil, fmt.Errorf("a grid of %d threadgroups on axis %d", n, i)
		}
		l.Grid[i] = uint32(n)
	}
	return l, nil
}

// hostScratch reports whether a binding is scratch memory for the CPU's kernels, not an argument.
func (d *Dispatch) hostScratch(index uint32) bool {
	return d.OnCPU && index == kernels.HostScratch
}
