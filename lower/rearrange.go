package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// typeConstants are the function constants that tell the kernels which decode weights the
// types of their arguments, by the names of both. These kernels read a matrix in another
// order than the file's as well.
var typeConstants = map[string]map[string]string{
	linearVec: linearTypes, linearMat: linearTypes, normLinearMat: linearTypes, "embed": {"table": "fc_type"},
}

var linearTypes = map[string]string{"w0": "fc_type0", "w1": "fc_type1", "w2": "fc_type2"}

// order chooses for each matrix between the file's order and the device's own, and marks
// those that get the latter: of every dispatch that reads one the kernel must know it. A CPU
// that decodes streams through all weights for every token, and gains more from an order made
// for its vectors than the copy costs: the device makes the copy, and the kernels of the
// moment say how. A GPU reads the file's rows, whose pages it shares with the page cache,
// unless it was measured to be faster with scales apart from codes. That order is known here.
func (p *Plan) order(target *ir.Target, tuning *Tuning) {
	shapes := make(map[string][]int, len(p.Tensors))
	for i := range p.Tensors {
		t := &p.Tensors[i]
		shapes[t.Name] = t.Shape
	}
	sites := make(map[*Buffer]Site)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		shape := shapes[b.Name]
		if b.Kind != Weight || len(shape) < 2 || !target.Rearranges && (len(shape) > 2 || !kernels.HasLines(uint32(b.DType))) {
			continue
		}
		columns, rows := shape[len(shape)-1], shape[len(shape)-2]
		at := sizes{shape: fmt.Sprintf("%d → %d, %s", columns, rows, b.DType)}
		sites[b] = layout.site(ir.OpLinear.String(), at, Setting{"rearranged": int64(bit(target.Rearranges))})
	}
	p.eachReader(func(_ *Phase, d *Dispatch, b *Buffer, _ *Binding) {
		k, ok := kernels.Lookup(d.Kernel)
		if !ok || typeConstants[k.Family] == nil || d.OnCPU {
			delete(sites, b)
		}
	})
	p.eachReader(func(ph *Phase, d *Dispatch, b *Buffer, at *Binding) {
		site, ok := sites[b]
		if !ok {
			return
		}
		if w := tuning.at(&site); w != nil {
			site.Taken = w.Setting
			ph.add(Choice{Op: d.Op.String(), Kernel: d.Kernel, Shape: site.Shape, Choice: w.Setting.String(), Reason: w.why(), Measured: true})
		}
		ph.sites[ph.siteOf(site)].values[d.Value] = true
		switch taken := site.Taken["rearranged"] == 1; {
		case target.Rearranges:
			b.Rearrange = taken
		case taken:
			b.Lines = true
			d.typeOf(at).Bits += kernels.Lines
		}
	})
}

// typeOf returns the function constant that has the type of a weight that a dispatch binds;
// nil where there is none.
func (d *Dispatch) typeOf(at *Binding) *Constant {
	k, ok := kernels.Lookup(d.Kernel)
	if !ok {
		return nil
	}
	arg, _ := k.Arg(int(at.Index))
	c, ok := k.Constant(typeConstants[k.Family][arg.Name])
	for i := range d.Constants {
		if ok && int(d.Constants[i].Index) == c.Index {
			return &d.Constants[i]
		}
	}
	return nil
}

// eachReader calls f for every buffer that a dispatch binds, in order.
func (p *Plan) eachReader(f func(*Phase, *Dispatch, *Buffer, *Binding)) {
	for i := range p.Phases {
		ph := &p.Phases[i]
		for j := range ph.Dispatches {
			d := &ph.Dispatches[j]
			for n := range d.Bindings {
				f(ph, d, &p.Buffers[d.Bindings[n].Buffer], &d.Bindings[n])
			}
		}
	}
}
