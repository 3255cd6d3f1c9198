package plan

// Dependencies returns, for each dispatch of a phase, the earlier dispatches whose results it reads
// directly: the last writers of the bytes that it binds.
func (p *Plan) Dependencies(ph *Phase) [][]int {
	type write struct {
		buffer     int32
		begin, end int64
		value      int32 // of the graph
		by         int   // the dispatch
	}
	var live []write
	deps := make([][]int, len(ph.Dispatches))
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		seen := map[int]bool{}
		for _, b := range d.Bindings {
			a := write{b.Buffer, b.Offset, b.Offset + b.Bytes.Eval(&ph.Bounds), d.Value, i}
			for _, w := range live {
				reads := b.Read || p.Buffers[b.Buffer].Kind.Kept()
				if reads && w.buffer == a.buffer && w.begin < a.end && a.begin < w.end && !seen[w.by] {
					seen[w.by] = true
					deps[i] = append(deps[i], w.by)
				}
			}
		}
		for _, b := range d.Bindings {
			if !b.Write {
				continue
			}
			a := write{b.Buffer, b.Offset, b.Offset + b.Bytes.Eval(&ph.Bounds), d.Value, i}
			var kept []write
			for _, w := range live { // a write hides older ones of the same bytes
				if w.buffer != a.buffer || w.end <= a.begin || a.end <= w.begin || Apart(w.value, a.value) {
					kept = append(kept, w)
					continue
				}
				if w.begin < a.begin {
					kept = append(kept, write{w.buffer, w.begin, a.begin, w.value, w.by})
				}
				if a.end < w.end {
					kept = append(kept, write{w.buffer, a.end, w.end, w.value, w.by})
				}
			}
			live = append(kept, a)
		}
	}
	return deps
}

// Apart reports whether writes to the same memory by dispatches of values a and b need no order:
// dispatches of one value write disjoint parts of it, or memory that only they read.
func Apart(a, b int32) bool { return a == b && a != 0 }
