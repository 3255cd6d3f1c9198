package plan

import "github.com/smelt-ml/smelt/kernels"

// ReadingOrder returns the indices of the weights' buffers in the order in which dispatches first
// read them. It omits weights that are read only as embedding tables, a row per token.
func (p *Plan) ReadingOrder() []int {
	var order []int
	listed := make([]bool, len(p.Buffers))
	for i := range p.Phases {
		for j := range p.Phases[i].Dispatches {
			d := &p.Phases[i].Dispatches[j]
			if k, ok := kernels.Lookup(d.Kernel); ok && k.Family == "embed" {
				continue
			}
			for n := range d.Bindings {
				b := int(d.Bindings[n].Buffer)
				if p.Buffers[b].Kind == Weight && !listed[b] {
					listed[b] = true
					order = append(order, b)
				}
			}
		}
	}
	return order
}
