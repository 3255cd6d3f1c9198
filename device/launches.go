package device

import (
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// checkLaunches calls kernels.Check on every dispatch, with the sizes of its phase at their
// largest and at their smallest: grids, parameters and bytes grow monotonically in between.
// Kernels that are not in the table are left to the driver.
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

// smallest returns the sizes of a phase's smallest step.
func smallest(ph *plan.Phase) sym.Sizes {
	sizes := ph.Least
	for i, bound := range ph.Bounds {
		sizes[i] = max(sizes[i], min(bound, 1))
	}
	return sizes
}

// launchOf returns the launch of a dispatch at some sizes. A cache has the bytes of one block, as
// the Plan does not know how many there are.
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
			return nil, fmt.Errorf("parameter %d is %d, which does not fit 32 bits", i, n)
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

// hostScratch reports whether a binding is scratch memory for the CPU's kernels, not an argument.
func hostScratch(d *plan.Dispatch, index uint32) bool {
	return d.OnCPU && index == kernels.HostScratch
}

// maxValue is the largest value of an expression at the bounds: far above any size and
// far from overflow.
const maxValue = 1 << 56

// checkExpressions calls boundedBy on every expression of a Plan over the sizes of a step.
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

// boundedBy checks that an expression grows with the sizes and stays far from overflow at the
// bounds, so that every check that passes at the bounds passes at smaller sizes.
func boundedBy(e plan.Expr, bounds *sym.Sizes) error {
	sum := math.Abs(float64(e.Constant))
	for i := range e.Terms {
		u := &e.Terms[i]
		if u.Mul < 0 || u.Div < 1 {
			return fmt.Errorf("the expression %s decreases with the sizes", e)
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
