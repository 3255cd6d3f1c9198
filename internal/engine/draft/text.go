package draft

// Least is how many tokens two texts must agree in before one is followed.
const Least = 3

const (
	reach    = 32 // agreement that is as good as any longer
	depth    = 24 // places that are looked at
	smallest = 64 // tokens that a text has room for at first
)

// border stands between texts that do not follow each other.
const border = -1

// text is the last tokens of what was added to it, in a ring, with chains through the places
// where the same Least tokens stand: a place is a count of tokens up to there.
type text struct {
	most   int      // tokens that it remembers; a power of two
	open   bool     // what is proposed may be its own continuation
	ids    []int32  // by place, wrapped
	before []uint32 // by place: the one before with the same hash
	heads  []uint32 // by hash: the last place
	end    uint32   // place of the end
}

func (t *text) at(place uint32) *int32 { return &t.ids[(place-1)&uint32(len(t.ids)-1)] }

// holds reports whether the token before a place is still there.
func (t *text) holds(place uint32) bool { return t.end-place < uint32(len(t.ids)) && place != 0 }

// slot returns where the hash of the last Least of some tokens has its chain.
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

// grow makes room, as long as nothing has wrapped.
func (t *text) grow(n int) {
	ids := make([]int32, n)
	copy(ids, t.ids)
	t.ids, t.before, t.heads = ids, make([]uint32, n), make([]uint32, n)
	for place := uint32(1); place <= t.end; place++ {
		t.link(place)
	}
}

// reset forgets everything but the room.
func (t *text) reset() {
	t.end = 0
	clear(t.heads)
}

// find returns the place where the most of the last tokens of a sequence stand, the latest of
// equals, and how many they are; those before a place alone count.
func (t *text) find(tokens []int32, below uint32) (place uint32, agreed int) {
	n := len(tokens)
	if n < Least || len(t.ids) == 0 {
		return 0, 0
	}
	at, last := *t.slot(tokens[n-3], tokens[n-2], tokens[n-1]), t.end+1
	for range depth {
		if !t.holds(at) || at >= last { // what was overwritten leads nowhere
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

// follow appends the tokens after a place, as many as there are. Behind the end of an open
// text stand those that were appended: what repeats itself goes on doing so.
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
