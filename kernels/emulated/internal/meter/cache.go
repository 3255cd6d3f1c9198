package meter

// cache is a fully associative LRU cache of lines. It counts the lines that pass between it
// and memory.
type cache struct {
	read, written int64
	dirty         int64 // lines not yet written back

	capacity int
	slotOf   lineMap
	slots    []slot // a ring through slot 0, which holds no line; its next is the most recently used
}

type slot struct {
	line       uint64
	next, last int32
	dirty      bool
}

func newCache(lines int) *cache {
	return &cache{capacity: lines, slots: make([]slot, 1)}
}

func (c *cache) unlink(i int32) {
	s := &c.slots[i]
	c.slots[s.last].next = s.next
	c.slots[s.next].last = s.last
}

func (c *cache) front(i int32) {
	first := c.slots[0].next
	c.slots[i].next, c.slots[i].last = first, 0
	c.slots[first].last = i
	c.slots[0].next = i
}

// touch counts a read or a write of a line. A write allocates the line without reading it,
// because memory is written by byte mask.
func (c *cache) touch(line uint64, read, write bool) {
	at := c.slotOf.at(line)
	i := *at
	if i != 0 {
		c.unlink(i)
	} else {
		if read {
			c.read++
		}
		if len(c.slots) <= c.capacity {
			i = int32(len(c.slots))
			c.slots = append(c.slots, slot{})
		} else {
			i = c.slots[0].last
			old := c.slots[i]
			c.unlink(i)
			*c.slotOf.at(old.line) = 0
			if old.dirty {
				c.written++
				c.dirty--
			}
		}
		c.slots[i] = slot{line: line}
		*at = i
	}
	if write && !c.slots[i].dirty {
		c.slots[i].dirty = true
		c.dirty++
	}
	c.front(i)
}

// lineMap maps each line to a number, initially zero.
type lineMap struct {
	pages []*[pageLines]int32
}

const pageLines = 1024

func (m *lineMap) at(line uint64) *int32 {
	p := line / pageLines
	for uint64(len(m.pages)) <= p {
		m.pages = append(m.pages, make([]*[pageLines]int32, p+1-uint64(len(m.pages)))...)
	}
	if m.pages[p] == nil {
		m.pages[p] = new([pageLines]int32)
	}
	return &m.pages[p][line%pageLines]
}
