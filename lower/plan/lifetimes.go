package plan

// Lifetime is a range of the arena that holds one value.
type Lifetime struct {
	Offset, Bytes int64 // at the phase's bounds
	// First is the dispatch that writes the value, Last the last one that reads it.
	First, Last int
}

// Lifetimes returns the values that a phase stores in the arena, in the order in which they are
// written. A value that replaces another in place starts with the dispatch that ends the other.
func (p *Plan) Lifetimes(ph *Phase) []Lifetime {
	var all []Lifetime
	var live []int // into all, those not overwritten yet
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		for _, b := range d.Bindings {
			if p.Buffers[b.Buffer].Kind != Arena || b.Write {
				continue
			}
			end := b.Offset + b.Bytes.Eval(&ph.Bounds)
			for _, l := range live {
				if v := &all[l]; v.Offset < end && b.Offset < v.Offset+v.Bytes {
					v.Last = i
				}
			}
		}
		for _, b := range d.Bindings {
			if p.Buffers[b.Buffer].Kind != Arena || !b.Write {
				continue
			}
			v := Lifetime{Offset: b.Offset, Bytes: b.Bytes.Eval(&ph.Bounds), First: i, Last: i}
			kept := live[:0]
			for _, l := range live {
				if o := all[l]; o.Offset+o.Bytes <= v.Offset || v.Offset+v.Bytes <= o.Offset {
					kept = append(kept, l)
				}
			}
			live = append(kept, len(all))
			all = append(all, v)
		}
	}
	return all
}
