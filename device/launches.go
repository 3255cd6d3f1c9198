package device

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// checkLaunches asks kernels.Check about every dispatch, with the sizes of a phase at
// their bounds and at their smallest: grids, parameters and bytes grow together in
// between. A kernel that is not in the table is the device's to know or refuse.
func checkLaunches(compiled *plan.Plan) error {
	for i := range compiled.Phases {
		ph := &compiled.Phases[i]
		for _, sizes := range []sym.Sizes{ph.Bounds, smallest(ph)} {
			for j := range ph.Dispatches {
				d := &ph.Dispatches[j]
				k, ok := kernels.Lookup(d.Kernel)
				if !ok {
					continue
				}
				l, err := launchOf(d, &sizes)
				if err == nil && int(d.ParamsAt) != k.ParamsIndex {
					err = fmt.Errorf("parameters at buffer %d; %s takes them at %d", d.ParamsAt, d.Kernel, k.ParamsIndex)
				}
				if err == nil {
					err = kernels.Check(l)
				}
				if err != nil {
					return fmt.Errorf("%w: phase %s, dispatch %d (%s), sizes %v: %w", plan.ErrPlan, ph.Name, j, d.Label(), sizes, err)
				}
			}
		}
	}
	return nil
}

// smallest returns the sizes of the least step that a phase takes.
func smallest(ph *plan.Phase) sym.Sizes {
	sizes := ph.Least
	for i, bound := range ph.Bounds {
		sizes[i] = max(sizes[i], min(bound, 1))
	}
	return sizes
}

// launchOf is a dispatch with its sizes put in. Where a cache is bound the Plan knows
// one block.
func launchOf(d *plan.Dispatch, sizes *sym.Sizes) (*kernels.Launch, error) {
	l := &kernels.Launch{Kernel: d.Kernel, Constants: make(map[uint32]uint32, len(d.Constants)), Group: d.Group}
	for _, c := range d.Constants {
		l.Constants[c.Index] = c.Bits
	}
	last := uint32(0)
	for _, b := range d.Bindings {
		if !hostScratch(d, b.Index) {
			last = max(last, b.Index)
		}
	}
	l.Buffers = make([]int64, last+1)
	for i := range l.Buffers {
		l.Buffers[i] = kernels.Unbound
	}
	for _, b := range d.Bindings {
		if !hostScratch(d, b.Index) {
			l.Buffers[b.Index] = b.Bytes.Eval(sizes)
		}
	}
	for i, e := range d.Params {
		n := e.Eval(sizes)
		if n < math.MinInt32 || n > math.MaxUint32 {
			return nil, fmt.Errorf("parameter %d is %d, which has no 32 bits", i, n)
		}
		l.Params = append(l.Params, uint32(n))
	}
	for i, e := range d.Grid {
		n := e.Eval(sizes)
		if n < 0 || n > math.MaxUint32 {
			return nil, fmt.Errorf("a grid of %d threadgroups on axis %d", n, i)
		}
		l.Grid[i] = uint32(n)
	}
	return l, nil
}

// hostScratch tells whether an argument is no kernel's but memory for the CPU's kernels.
func hostScratch(d *plan.Dispatch, index uint32) bool {
	return d.OnCPU && index == kernels.HostScratch
}

// maxValue bounds what an expression may be at the bounds: far above any size and
// far from overflow.
const maxValue = 1 << 56

// checkExpressions checks every number of a Plan that the sizes of a step decide: what
// holds at the bounds holds below.
func checkExpressions(p *plan.Plan) error {
	for i := range p.Phases {
		ph := &p.Phases[i]
		for j := range ph.Dispatches {
			d := &ph.Dispatches[j]
			all := slices.Concat(d.Grid[:], d.Params)
			for _, b := range d.Bindings {
				all = append(all, b.Bytes)
			}
			for _, e := range all {
				if err := boundedBy(e, &ph.Bounds); err != nil {
					return fmt.Errorf("%w: phase %s: dispatch %d (%s): %w", plan.ErrPlan, ph.Name, j, d.Label(), err)
				}
			}
		}
	}
	return nil
}

// boundedBy checks that an expression grows with the sizes and stays far from
// overflow up to the bounds, so that what holds at the bounds holds below.
func boundedBy(e plan.Expr, bounds *sym.Sizes) error {
	sum := math.Abs(float64(e.Constant))
	for i := range e.Terms {
		u := &e.Terms[i]
		if u.Mul < 0 || u.Div < 1 {
			return fmt.Errorf("the expression %s falls with the sizes", e)
		}
		v := float64(u.Mul)
		for s, p := range u.Pow {
			v *= math.Pow(float64(bounds[s]), float64(p))
		}
		sum += v + math.Abs(float64(u.Add)) + float64(u.Div)
	}
	if sum > maxValue {
		return fmt.Errorf("the expression %s is too large at %v", e, *bounds)
	}
	return nil
}
