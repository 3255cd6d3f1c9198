package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// chooseLayouts chooses the layout of each matrix, the file's or one of the device, and marks the
// matrices with the latter. It considers only matrices that every dispatch reads by a kernel that
// knows both layouts. On a CPU ([plan.Buffer.Rearrange]) the device copies the matrix to the layout
// of its kernels. On a GPU ([plan.Buffer.Lines]) matrices keep the file's layout, whose pages the
// page cache shares, unless separate scales and codes were measured to be faster.
func chooseLayouts(p *plan.Plan, target *Target, tuning *Tuning) {
	shapes := make(map[string][]int, len(p.Tensors))
	for i := range p.Tensors {
		t := &p.Tensors[i]
		shapes[t.Name] = t.Shape
	}
	sites := make(map[*plan.Buffer]plan.Site)
	for i := range p.Buffers {
		b := &p.Buffers[i]
		shape := shapes[b.Name]
		if b.Kind != plan.Weight || len(shape) < 2 || !target.Rearranges && (len(shape) > 2 || !kernels.HasLines(uint32(b.DType))) {
			continue
		}
		columns, rows := shape[len(shape)-1], shape[len(shape)-2]
		at := sizes{shape: fmt.Sprintf("%d → %d, %s", columns, rows, b.DType)}
		sites[b] = layout.site(ir.OpLinear.String(), at, plan.Setting{"rearranged": int64(bit(target.Rearranges))})
	}
	eachReader(p, func(_ *plan.Phase, d *plan.Dispatch, b *plan.Buffer, _ *plan.Binding) {
		k, ok := kernels.Lookup(d.Kernel)
		if !ok || !plan.TellsTypes(k.Family) || d.OnCPU {
			delete(sites, b)
		}
	})
	eachReader(p, func(ph *plan.Phase, d *plan.Dispatch, b *plan.Buffer, at *plan.Binding) {
		site, ok := sites[b]
		if !ok {
			return
		}
		if w := tuning.at(&site); w != nil {
			site.Taken = w.Setting
			ph.Note(plan.Decision{Op: d.Op, Kernel: d.Kernel, Shape: site.Shape, Choice: w.Setting.String(), Reason: w.why(), Measured: true})
		}
		ph.Sites[ph.SiteOf(site)].Add(d.Value)
		switch taken := site.Taken["rearranged"] == 1; {
		case target.Rearranges:
			b.Rearrange = taken
		case taken:
			b.Lines = true
			d.TypeOf(at).Bits += kernels.Lines
		}
	})
}

// eachReader calls f for every buffer that a dispatch binds, in order.
func eachReader(p *plan.Plan, f func(*plan.Phase, *plan.Dispatch, *plan.Buffer, *plan.Binding)) {
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
