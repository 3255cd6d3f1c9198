package draft

// Least is the minimum length of a match in tokens.
const Least = 3

const (
	reach    = 32 // match length beyond which longer ones are no better
	depth    = 24 // places that are compared
	smallest = 64 // initial capacity in tokens
)

// border separates texts that do not follow each other.
const border = -1

// text is a ring of the last tokens that were added, with hash chains through the places where
// the same Least tokens occur. A place is the number of tokens added before it.
type text struct {
	most   int      // maximum number of tokens kept; a power of two
	open   bool     // whether a proposal may continue past the end with itself
	ids    []int32  // by place, wrapped
	before []uint32 // by place: the one before with the same hash
	heads  []uint32 // by hash: the last place
	end    uint32   // place of the end
}

func (t *text) at(place uint32) *int32 { return &t.ids[(place-1)&uint32(len(t.ids)-1)] }

// holds reports whether the ring still has the token before a place.
func (t *text) holds(place uint32) bool { return t.end-place < uint32(len(t.ids)) && place != 0 }

// slot returns the head of the hash chain for three consecutive tokens.
func (t *text) slot(a, b, c int32) *uint32 {
	h := uint64(uint32(a))*0x9e3779b97f4a7c15 + uint64(uint32(b))*0xc2b2ae3d27d4eb4f + uint64(uint32(c))*0x165667b19e3779f9
	return &t.heads[(h^h>>32)*0x9e3779b97f4a7c15>>32&uint64(len(t.heads)-1)]
}

// add appends a token.
func (t *text) add(id int32) {
	if n := len(t.ids); int(t.end) == n && n < t.most || n == 0 {
		t.grow(max(2*n, min(smallest, t.most)))
	}
	t.end++
	*t.at(t.end) = id
	t.link(t.end)
}

// link puts a place into its chain.
func (t *text) link(place uint32) {
	if place < Least {
		return
	}
	head := t.slot(*t.at(place - 2), *t.at(place - 1), *t.at(place))
	t.before[(place-1)&uint32(len(t.ids)-1)] = *head
	*head = place
}

// grow enlarges the ring, unless it has wrapped.
func (t *text) grow(n int) {
	ids := make([]int32, n)
	copy(ids, t.ids)
	t.ids, t.before, t.heads = ids, make([]uint32, n), make([]uint32, n)
	for place := uint32(1); place <= t.end; place++ {
		t.link(place)
	}
}

// reset forgets all tokens and keeps the memory.
func (t *text) reset() {
	t.end = 0
	clear(t.heads)
}

// find returns the place after the longest match of a sequence's last tokens, the latest among
// equals, and the match length. Only places below a bound count.
func (t *text) find(tokens []int32, below uint32) (place uint32, agreed int) {
	n := len(tokens)
	if n < Least || len(t.ids) == 0 {
		return 0, 0
	}
	at, last := *t.slot(tokens[n-3], tokens[n-2], tokens[n-1]), t.end+1
	for range depth {
		if !t.holds(at) || at >= last { // the ring has overwritten the place
			break
		}
		last, at = at, t.before[(at-1)&uint32(len(t.ids)-1)]
		if last >= below {
			continue
		}
		m := 0
		for m < min(n, reach) && t.holds(last-uint32(m)) && *t.at(last - uint32(m)) == tokens[n-1-m] {
			m++
		}
		if m >= Least && m > agreed {
			if place, agreed = last, m; m == reach {
				break
			}
		}
	}
	return place, agreed
}

// follow appends at most most tokens after a place. At the end of an open text it continues with
// the appended tokens, so that a repetition goes on.
func (t *text) follow(dst []int32, place uint32, most int) []int32 {
	first := len(dst)
	for i := range most {
		at, id := place+1+uint32(i), int32(border)
		if at <= t.end {
			if !t.holds(at) {
				break
			}
			id = *t.at(at)
		} else if past := int(at - t.end - 1); t.open && past < len(dst)-first {
			id = dst[first+past]
		}
		if id == border {
			break
		}
		dst = append(dst, id)
	}
	return dst
}
