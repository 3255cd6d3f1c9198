package lower

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// arenaAlign keeps every value at a cache line and at what vector loads want.
const arenaAlign = 64

// slot is a stretch of the arena: the memory of one value, or of several that
// take each other's place.
type slot struct {
	first, last int   // indices of the values that write and last read it
	bytes       int64 // at the bounds
	offset      int64
	merged      int32 // 1 + the slot that this one is part of; 0 for none
}

// mayReplace lets v take the memory of an operand that its kernel reads at
// exactly the places where it writes v, if nothing needs the operand afterwards.
func (e emitter) mayReplace(operand, v *ir.Value) {
	p := e.p
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
	if reads != 1 || old == next || p.slots[old].bytes < p.slots[next].bytes || p.slots[next].merged != 0 || p.slots[next].first != p.at {
		return
	}
	p.slots[next].merged = old + 1
	p.slots[old].last = max(p.slots[old].last, p.slots[next].last)
}

// ownerOf returns the slot whose memory slot i shares.
func (p *phase) ownerOf(i int32) int32 {
	for p.slots[i].merged != 0 {
		i = p.slots[i].merged - 1
	}
	return i
}

// planArena gives every slot its offset: largest first, each at the lowest
// place where nothing that lives at the same time stands.
func (p *phase) planArena() {
	var order []int
	for i := range p.slots {
		s := &p.slots[i]
		s.bytes = roundUp(s.bytes, arenaAlign)
		s.last = max(s.last, s.first)
		p.out.UnplannedBytes += s.bytes
		if s.merged == 0 {
			order = append(order, i)
		}
	}
	p.out.MinArenaBytes = p.peak(order)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.slots[b].bytes, p.slots[a].bytes), cmp.Compare(p.slots[a].first, p.slots[b].first))
	})
	var placed []int // sorted by offset
	for _, i := range order {
		s := &p.slots[i]
		for _, j := range placed {
			o := &p.slots[j]
			if o.last < s.first || s.last < o.first {
				continue
			}
			if o.offset >= s.offset+s.bytes {
				break
			}
			s.offset = max(s.offset, o.offset+o.bytes)
		}
		at, _ := slices.BinarySearchFunc(placed, s.offset, func(j int, offset int64) int { return cmp.Compare(p.slots[j].offset, offset) })
		placed = slices.Insert(placed, at, i)
		p.out.ArenaBytes = max(p.out.ArenaBytes, s.offset+s.bytes)
	}
	for _, f := range p.fixups {
		p.out.Dispatches[f.dispatch].Bindings[f.binding].Offset += p.slots[p.ownerOf(int32(f.slot))].offset
	}
}

// peak returns the largest sum of live bytes at any point.
func (p *phase) peak(slots []int) int64 {
	change := make([]int64, len(p.f.Values)+1)
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

// constName names a constant by its content, so that equal ones share a buffer.
func constName(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:8])
}
