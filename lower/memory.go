package lower

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// arenaAlign aligns every value to a cache line, which vector loads need too.
const arenaAlign = 64

// mayReplace lets v reuse the memory of an operand in place, if nothing reads the operand
// afterwards. The kernel of v must read the operand only at the elements that it writes.
func (e emitter) mayReplace(operand, v *ir.Value) {
	p := e.p
	if len(tensorsOf(root(operand))) > 1 {
		return
	}
	from, to := p.placeOf(operand), p.placeOf(v)
	if from.slot < 0 || to.slot < 0 || p.lastUse[root(operand).ID] != p.at {
		return
	}
	reads := 0
	for _, a := range v.Args {
		if root(a) == root(operand) {
			reads++
		}
	}
	old, next := p.ownerOf(from.slot), p.ownerOf(to.slot)
	if reads != 1 || old == next || p.slots[old].bytes < p.slots[next].bytes || p.slots[next].merged != 0 || p.slots[next].made != p.at {
		return
	}
	p.slots[next].merged = old + 1
}

// planArena assigns an offset to every slot, in one of two orders of the dispatches. In order of
// epochs (see [phase.epochs]), slots in use in one epoch do not overlap, so that reusing memory
// adds no barriers. Where that takes over a tenth more memory than program order needs, as in
// graphs with many copies, dispatches keep program order.
func (p *phase) planArena() {
	owners := p.roundSlots()
	program := make([]int, len(p.out.Dispatches))
	for i := range program {
		program[i] = i
	}
	p.lifetimes(program)
	least := p.peak(owners)

	epochs := p.epochs()
	p.lifetimes(epochs)
	bytes := p.place(owners, p.peak(owners))
	if bytes <= least+least/10 {
		p.reorder(epochs)
		p.lifetimes(program)
		least = p.peak(owners)
	} else {
		p.lifetimes(program)
		bytes = p.place(owners, least)
	}
	p.out.ArenaBytes, p.out.MinArenaBytes = bytes, least
	for _, f := range p.fixups {
		p.out.Dispatches[f.dispatch].Bindings[f.binding].Offset += p.slots[p.ownerOf(int32(f.slot))].offset
	}
}

// roundSlots aligns sizes and returns the slots that own their memory.
func (p *phase) roundSlots() (owners []int) {
	for i := range p.slots {
		s := &p.slots[i]
		s.bytes = roundUp(s.bytes, arenaAlign)
		p.out.UnplannedBytes += s.bytes
		if s.merged == 0 {
			owners = append(owners, i)
		}
	}
	return owners
}

// lifetimes finds when each slot is first and last touched, given the time of each
// dispatch.
func (p *phase) lifetimes(times []int) {
	for i := range p.slots {
		p.slots[i].first, p.slots[i].last = len(times), 0
	}
	for _, f := range p.fixups {
		s, t := &p.slots[p.ownerOf(int32(f.slot))], times[f.dispatch]
		s.first, s.last = min(s.first, t), max(s.last, t)
	}
	for i := range p.slots { // a slot that no dispatch touches may have any lifetime
		p.slots[i].first = min(p.slots[i].first, p.slots[i].last)
	}
}

// placements bounds the attempts of place. Layers with post-norms need more than 8 in BERT, and
// more than 16 in OLMo 2.
const placements = 32

// place assigns an offset to every slot and returns the bytes that they span, at least least. It
// places slots by first fit, the largest first. While the result exceeds least, it tries again with
// the slot that ends highest moved to the front of the order.
func (p *phase) place(slots []int, least int64) int64 {
	order := slices.Clone(slots)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.slots[b].bytes, p.slots[a].bytes), cmp.Compare(p.slots[a].first, p.slots[b].first))
	})
	best, offsets := int64(-1), make([]int64, len(p.slots))
	for range placements {
		bytes, highest := p.firstFit(order)
		if best < 0 || bytes < best {
			best = bytes
			for _, i := range order {
				offsets[i] = p.slots[i].offset
			}
		}
		if best <= least {
			break
		}
		slot := order[highest]
		copy(order[1:], order[:highest])
		order[0] = slot
	}
	for _, i := range order {
		p.slots[i].offset = offsets[i]
	}
	return max(best, 0)
}

// firstFit places each slot of order at the lowest offset where it overlaps no slot that is live at
// the same time. It returns the bytes used, and the position in order of the slot that ends there.
func (p *phase) firstFit(order []int) (bytes int64, highest int) {
	alive := make([][]int, len(p.out.Dispatches)) // the slots placed so far, by epoch
	var near []int
	for n, i := range order {
		s := &p.slots[i]
		near = near[:0]
		for epoch := s.first; epoch <= s.last; epoch++ {
			near = append(near, alive[epoch]...)
			alive[epoch] = append(alive[epoch], i)
		}
		slices.SortFunc(near, func(a, b int) int {
			return cmp.Or(cmp.Compare(p.slots[a].offset, p.slots[b].offset), cmp.Compare(a, b))
		})
		s.offset = 0
		for _, j := range near {
			o := &p.slots[j]
			if o.offset >= s.offset+s.bytes {
				break
			}
			s.offset = max(s.offset, o.offset+o.bytes)
		}
		if end := s.offset + s.bytes; end > bytes {
			bytes, highest = end, n
		}
	}
	return bytes, highest
}

// peak returns the largest sum of live bytes at any point of the slots' lifetimes.
func (p *phase) peak(slots []int) int64 {
	change := make([]int64, len(p.out.Dispatches)+1)
	for _, i := range slots {
		change[p.slots[i].first] += p.slots[i].bytes
		change[p.slots[i].last+1] -= p.slots[i].bytes
	}
	var live, most int64
	for _, c := range change {
		live += c
		most = max(most, live)
	}
	return most
}
