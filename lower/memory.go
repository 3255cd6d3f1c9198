package lower

import (
	"cmp"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// arenaAlign keeps every value at a cache line and at what vector loads want.
const arenaAlign = 64

// mayReplace lets v take the memory of an operand that its kernel reads at
// exactly the places where it writes v, if nothing needs the operand afterwards.
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

// planArena gives every slot its offset, for the better of two orders of the
// dispatches. In order of epochs (see [phase.epochs]), slots in use in one epoch get
// different places, so that sharing memory makes no dispatch wait that did not have
// to. Where that takes over a tenth more memory than program order needs, which is
// so for graphs that copy much, program order stays.
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
	for i := range p.slots { // what no dispatch touches lives nowhere in particular
		p.slots[i].first = min(p.slots[i].first, p.slots[i].last)
	}
}

// placements bounds how often place tries to do better: layers whose norms come last need more
// than eight, as in BERT, and more than sixteen, as in OLMo 2.
const placements = 32

// place finds an offset for every slot and returns the bytes that they span, no
// fewer than least. The order in which slots choose their place decides how well
// they fit: largest first does well. Where that leaves holes, the slot that ends
// highest chooses first the next time.
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

// firstFit puts one slot after the other at the lowest place where nothing that
// lives at the same time stands. It returns the bytes used and which of order ends
// there.
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
