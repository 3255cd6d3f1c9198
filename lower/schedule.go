package lower

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

// reorder sorts the dispatches by epoch. Within an epoch the CPU's come last, which keeps handovers
// between the processors few.
func (p *phase) reorder(epochs []int) {
	from := make([]int, len(epochs)) // the new order, as positions in the old one
	for i := range from {
		from[i] = i
	}
	slices.SortStableFunc(from, func(a, b int) int {
		return cmp.Or(cmp.Compare(epochs[a], epochs[b]), cmp.Compare(bit(p.out.Dispatches[a].OnCPU), bit(p.out.Dispatches[b].OnCPU)))
	})
	to := make([]int, len(from))
	old := slices.Clone(p.out.Dispatches)
	for i, j := range from {
		to[j] = i
		p.out.Dispatches[i] = old[j]
	}
	for i := range p.fixups {
		p.fixups[i].dispatch = to[p.fixups[i].dispatch]
	}
}

// epochs returns, for every dispatch, the length of the longest chain of dependent dispatches
// before it. Dispatches of one epoch are independent, and the order of epochs needs the fewest
// barriers of all orders.
//
// Dependencies are by slots of the arena and whole buffers, since offsets are not known yet.
func (p *phase) epochs() []int {
	type state struct {
		written, read int   // 1 + the last epoch that wrote or read it
		by            int32 // the value that was written last, if no dispatch has read it; else 0
		before        int   // the epoch that this memory allowed the first dispatch of that value
	}
	slots, buffers := make([]state, len(p.slots)), make([]state, len(p.plan.Buffers))
	touched := make([][]*state, len(p.out.Dispatches))
	for i := range p.out.Dispatches {
		for _, b := range p.out.Dispatches[i].Bindings {
			touched[i] = append(touched[i], &buffers[b.Buffer])
		}
	}
	for _, f := range p.fixups {
		touched[f.dispatch][f.binding] = &slots[p.ownerOf(int32(f.slot))]
	}
	epochs := make([]int, len(p.out.Dispatches))
	for i := range p.out.Dispatches {
		for j, b := range p.out.Dispatches[i].Bindings {
			s := touched[i][j]
			switch {
			case !b.Write:
				epochs[i] = max(epochs[i], s.written)
			case plan.Apart(s.by, p.out.Dispatches[i].Value):
				epochs[i] = max(epochs[i], s.before)
			default:
				s.before = max(s.written, s.read)
				epochs[i] = max(epochs[i], s.before)
			}
		}
		for j, b := range p.out.Dispatches[i].Bindings {
			if s := touched[i][j]; b.Write {
				s.written, s.by = max(s.written, epochs[i]+1), p.out.Dispatches[i].Value
			} else {
				s.read, s.by = max(s.read, epochs[i]+1), 0
			}
		}
	}
	return epochs
}

// access is a range of a buffer that a dispatch since the last barrier read or wrote.
type access struct {
	buffer     int32
	begin, end int64
	write      bool
	value      int32 // that the dispatch computes
}

// barriers sets a barrier before each dispatch that reads or writes memory that a dispatch since
// the last barrier wrote, or writes memory that one read. Sizes are taken at their bounds. These
// are the fewest barriers that this order allows.
func (p *phase) barriers() {
	var open []access
	for i := range p.out.Dispatches {
		d := &p.out.Dispatches[i]
		now := p.accesses(d)
		if conflict(open, now) {
			d.Barrier = true
			open = open[:0]
		}
		open = append(open, now...)
	}
}

func (p *phase) accesses(d *plan.Dispatch) []access {
	list := make([]access, 0, len(d.Bindings))
	for _, b := range d.Bindings {
		switch p.plan.Buffers[b.Buffer].Kind {
		case plan.Weight, plan.Const, plan.Input: // nothing in a step writes these
			continue
		}
		list = append(list, access{b.Buffer, b.Offset, b.Offset + p.bound(b.Bytes), b.Write, d.Value})
	}
	return list
}

func conflict(before, now []access) bool {
	for _, a := range before {
		for _, b := range now {
			if a.buffer == b.buffer && (a.write || b.write) && a.begin < b.end && b.begin < a.end && !(a.write && b.write && plan.Apart(a.value, b.value)) {
				return true
			}
		}
	}
	return false
}

// commandBuffers splits the dispatches into command buffers within the target's limits, at barriers
// where possible, since a buffer waits for the one before it anyway. A dispatch longer than
// BufferTime has its own buffer. No buffer mixes dispatches of the CPU and the GPU.
func (p *phase) commandBuffers() {
	ds, s := p.out.Dispatches, p.target
	if s.FirstBuffer == 0 {
		return
	}
	for first, most := 0, s.FirstBuffer; first < len(ds); most = min(s.BufferGrowth*most, len(ds)) {
		p.out.CommandBuffers = append(p.out.CommandBuffers, first)
		end, time := first, 0.0
		for ; end < len(ds) && end-first < most; end++ {
			d := &ds[end]
			if d.OnCPU != ds[first].OnCPU {
				break
			}
			time += predict.Slowest.Alone(predict.CostOf(p.plan, d, &p.out.Bounds), d, &p.out.Bounds) + predict.Slowest.Barrier
			if time > s.BufferTime && end > first {
				break
			}
		}
		if end < len(ds) && ds[end].OnCPU == ds[first].OnCPU {
			for cut := end; cut > first; cut-- {
				if ds[cut].Barrier {
					end = cut
					break
				}
			}
		}
		first = end
	}
}
