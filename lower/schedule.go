package lower

// bufferLimits bounds a command buffer. The first is short, so that the GPU
// starts while the rest is encoded; the others are bounded by the tokens they
// work on too, since a GPU kills buffers that run for seconds.
const (
	firstDispatches = 64
	maxDispatches   = 256
	maxWork         = 32 << 10 // dispatches × tokens
)

// access is a stretch of a buffer that a dispatch since the last barrier touched.
type access struct {
	buffer     int32
	begin, end int64
	write      bool
}

// schedule decides where dispatches must wait and cuts the list into command
// buffers. A dispatch waits if it touches memory that one since the last barrier
// wrote, or writes memory that one read; sizes are taken at their bounds.
func (p *phase) schedule() {
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
	limit := int(min(maxDispatches, max(1, maxWork/p.out.MaxT)))
	for i, next := 0, 0; i < len(p.out.Dispatches); i++ {
		if i != next {
			continue
		}
		p.out.CommandBuffers = append(p.out.CommandBuffers, i)
		if next += limit; i == 0 {
			next = min(limit, firstDispatches)
		}
	}
}

func (p *phase) accesses(d *Dispatch) []access {
	list := make([]access, 0, len(d.Bindings))
	for _, b := range d.Bindings {
		switch p.plan.Buffers[b.Buffer].Kind {
		case Weight, Const, Input: // nothing in a step writes these
			continue
		}
		list = append(list, access{b.Buffer, b.Offset, b.Offset + p.bound(b.Bytes), b.Write})
	}
	return list
}

func conflict(before, now []access) bool {
	for _, a := range before {
		for _, b := range now {
			if a.buffer == b.buffer && (a.write || b.write) && a.begin < b.end && b.begin < a.end {
				return true
			}
		}
	}
	return false
}
