package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// order chooses for each matrix between the file's order and the device's own, and marks
// those that get the latter: of every dispatch that reads one the kernel must know it. A CPU
// that decodes streams through all weights for every token, and gains more from an order made
// for its vectors than the copy costs: the device makes the copy, and the kernels of the
// moment say how. A GPU reads the file's rows, whose pages it shares with the page cache,
// unless it was measured to be faster with scales apart from codes. That order is known here.
func order(p *plan.Plan, target *Target, tuning *Tuning) {
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
			ph.Note(plan.Choice{Op: d.Op, Kernel: d.Kernel, Shape: site.Shape, Choice: w.Setting.String(), Reason: w.why(), Measured: true})
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
