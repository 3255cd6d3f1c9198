package lower

import "github.com/smelt-ml/smelt/kernels"

// rearrangers are the kernel families that a CPU can give a matrix in another order than
// the file's.
var rearrangers = map[string]bool{linearVec: true, linearMat: true, "embed": true}

// markRearranged lets the device rearrange each matrix that only rearrangers read. A GPU
// reads the file's rows, whose pages it shares with the page cache; a CPU that decodes
// streams through all weights for every token, and gains more from an order made for
// its vectors than the copy costs.
func (p *Plan) markRearranged() {
	matrix := make(map[string]bool, len(p.Tensors))
	for i := range p.Tensors {
		t := &p.Tensors[i]
		matrix[t.Name] = len(t.Shape) == 2
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		b.Rearrange = b.Kind == Weight && matrix[b.Name]
	}
	for i := range p.Phases {
		for j := range p.Phases[i].Dispatches {
			d := &p.Phases[i].Dispatches[j]
			if k, ok := kernels.Lookup(d.Kernel); ok && rearrangers[k.Family] {
				continue
			}
			for _, b := range d.Bindings {
				p.Buffers[b.Buffer].Rearrange = false
			}
		}
	}
}
