package lower

import (
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// emitter fills in one dispatch. It resolves the names of arguments, constants and parameters to
// indices by the table of package kernels. A name that the kernel lacks, or a missing parameter,
// fails the phase.
type emitter struct {
	p      *phase
	index  int
	kernel *kernels.Kernel
}

func (p *phase) dispatch(kernel string, v *ir.Value) emitter {
	k, ok := kernels.Lookup(kernel)
	if !ok {
		p.fail(fmt.Errorf("%w is called %s", ErrUnsupported, kernel))
		k = &kernels.Kernel{Name: kernel}
	}
	p.out.Dispatches = append(p.out.Dispatches, plan.Dispatch{Kernel: kernel, Op: v.Op.String(), Value: int32(v.ID), Layer: v.Layer})
	return emitter{p, len(p.out.Dispatches) - 1, k}
}

func (e emitter) dispatch() *plan.Dispatch { return &e.p.out.Dispatches[e.index] }

// lacks fails the phase: the kernel has no argument, constant or parameter of that name.
func (e emitter) lacks(what, name string) {
	e.p.fail(fmt.Errorf("kernel %s has no %s %q", e.kernel.Name, what, name))
}

// arg returns the index of a buffer.
func (e emitter) arg(name string) uint32 {
	a, ok := e.kernel.Named(name)
	if !ok {
		e.lacks("argument", name)
	}
	return uint32(a.Index)
}

// constant sets a function constant.
func (e emitter) constant(name string, bits uint32) {
	c, ok := e.kernel.Constant(name)
	if !ok {
		e.lacks("function constant", name)
	}
	d := e.dispatch()
	d.Constants = append(d.Constants, plan.Constant{Index: uint32(c.Index), Bits: bits})
}

// params sets every parameter of the kernel.
func (e emitter) params(given words) {
	d := e.dispatch()
	d.ParamsAt, d.Params = uint32(e.kernel.ParamsIndex), make([]plan.Expr, len(e.kernel.ParamNames))
	for i, name := range e.kernel.ParamNames {
		word, ok := given[name]
		if !ok {
			e.p.fail(fmt.Errorf("kernel %s is not given its parameter %q", e.kernel.Name, name))
		}
		d.Params[i] = word
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(e.kernel.ParamNames, name) {
			e.lacks("parameter", name)
		}
	}
}

// launch sets the grid, in threadgroups, and the threads of a threadgroup.
func (e emitter) launch(grid [3]plan.Expr, threads int) {
	d := e.dispatch()
	d.Grid, d.Group = grid, [3]uint32{uint32(threads), 1, 1}
}

// cover sets the grid that covers the work of the parameters, with the kernel's maximum number of
// threads per threadgroup.
func (e emitter) cover() { e.coverBy(e.kernel.MaxThreads) }

// coverBy is cover with threads threads per threadgroup.
func (e emitter) coverBy(threads int) {
	grid := [3]plan.Expr{one(), one(), one()}
	if e.kernel.Grid == nil {
		e.lacks("grid of its own", "")
	}
	for i, axis := range e.kernel.Grid {
		for _, word := range axis.Words {
			n, err := plan.Multiply(grid[i], e.dispatch().Params[word])
			if err != nil {
				e.p.fail(fmt.Errorf("the grid of %s: %w", e.kernel.Name, err))
			}
			grid[i] = n
		}
		grid[i] = grid[i].Over(int64(axis.Tile))
	}
	e.launch(grid, threads)
}

func (e emitter) bind(name string, at place, b plan.Binding) { e.bindAt(e.arg(name), at, b) }

func (e emitter) bindAt(index uint32, at place, b plan.Binding) {
	d := e.dispatch()
	b.Index, b.Buffer = index, at.buffer
	d.Bindings = append(d.Bindings, b)
	if at.slot >= 0 {
		e.p.fixups = append(e.p.fixups, fixup{e.index, len(d.Bindings) - 1, int(at.slot)})
	}
}

func (e emitter) in(name string, v *ir.Value) { e.inFrom(name, v, 0) }

// inFrom binds an operand from an offset in bytes.
func (e emitter) inFrom(name string, v *ir.Value, offset int64) {
	which := partOf(v)
	at := e.p.partPlace(root(v), which)
	e.bind(name, at, plan.Binding{Offset: offset, Bytes: e.bytes(v, which, at, offset), Read: true})
}

func (e emitter) out(name string, v *ir.Value) { e.outPart(name, v, 0) }

// outPart binds one of the tensors that a value computes.
func (e emitter) outPart(name string, v *ir.Value, which int) {
	at := e.p.partPlace(v, which)
	e.bind(name, at, plan.Binding{Bytes: e.bytes(v, which, at, 0), Write: true})
}

// bytes returns the bytes of a binding: the whole buffer of a weight, in its stored type, or else
// those of the tensor.
func (e emitter) bytes(v *ir.Value, which int, at place, offset int64) plan.Expr {
	if b := e.p.plan.Buffers[at.buffer]; b.Kind == plan.Weight || b.Kind == plan.Const {
		return b.Bytes
	}
	t := tensorsOf(root(v))[which]
	n, ok := t.Shape.Elements()
	if !ok {
		e.p.fail(fmt.Errorf("%s is no simple size", t))
		return plan.Expr{}
	}
	return Extent(n).Times(t.DType.Bytes(1)).Plus(plan.Number(-offset))
}

// cache binds the keys or values of a state's layer. The session determines the number of blocks,
// so the binding declares one.
func (e emitter) cache(name string, state *ir.Value, values, write bool) {
	buffer, err := e.p.tables.cache(layerOf(state), plan.Cache(state.Type.Cache), values)
	if err != nil {
		e.p.fail(err)
		return
	}
	e.bind(name, place{buffer: buffer, slot: -1}, plan.Binding{Bytes: e.p.plan.Buffers[buffer].Bytes, Read: !write, Write: write})
}

// caches binds both caches of a layer.
func (e emitter) caches(state *ir.Value, write bool) {
	e.cache("k_cache", state, false, write)
	e.cache("v_cache", state, true, write)
}
