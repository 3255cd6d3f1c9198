package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// rearrangers are the kernel families that a CPU can give a matrix in another order than
// the file's.
var rearrangers = map[string]bool{linearVec: true, linearMat: true, "embed": true}

// markRearranged lets the device rearrange each matrix that only rearrangers read, and that
// was not measured to be read faster as it is. A GPU reads the file's rows, whose pages it
// shares with the page cache; a CPU that decodes streams through all weights for every
// token, and gains more from an order made for its vectors than the copy costs.
func (p *Plan) markRearranged(tuning *Tuning) {
	shapes := make(map[string][]int, len(p.Tensors))
	for i := range p.Tensors {
		t := &p.Tensors[i]
		shapes[t.Name] = t.Shape
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		b.Rearrange = b.Kind == Weight && len(shapes[b.Name]) == 2
	}
	p.eachReader(func(_ *Phase, d *Dispatch, b *Buffer) {
		if k, ok := kernels.Lookup(d.Kernel); !ok || !rearrangers[k.Family] {
			b.Rearrange = false
		}
	})
	sites := make(map[*Buffer]Site)
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Rearrange {
			shape := shapes[b.Name]
			at := sizes{shape: fmt.Sprintf("%d → %d, %s", shape[1], shape[0], b.DType)}
			sites[b] = layout.site(ir.OpLinear.String(), at, Setting{"rearranged": 1})
		}
	}
	p.eachReader(func(ph *Phase, d *Dispatch, b *Buffer) {
		site, ok := sites[b]
		if !ok {
			return
		}
		if w := tuning.at(&site); w != nil {
			site.Taken = w.Setting
			b.Rearrange = w.Setting["rearranged"] == 1
			ph.add(Choice{Op: d.Op.String(), Kernel: d.Kernel, Shape: site.Shape, Choice: w.Setting.String(), Reason: w.why(), Measured: true})
		}
		ph.note(site, d.Value)
	})
}

// eachReader calls f for every buffer that a dispatch binds, in order.
func (p *Plan) eachReader(f func(*Phase, *Dispatch, *Buffer)) {
	for i := range p.Phases {
		ph := &p.Phases[i]
		for j := range ph.Dispatches {
			for _, b := range ph.Dispatches[j].Bindings {
				f(ph, &ph.Dispatches[j], &p.Buffers[b.Buffer])
			}
		}
	}
}
