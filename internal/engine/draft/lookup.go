package draft

import "math/bits"

// Bounds of what a Lookup remembers of texts that have ended.
const (
	Remembered = 1 << 15 // tokens of a salt
	Salts      = 64
)

// Lookup guesses by what stands elsewhere. It is used by one goroutine at a time.
type Lookup struct {
	context int
	past    map[string]*past
	spare   []*Text
	clock   uint64
}

// past is what was generated for one salt.
type past struct {
	text
	used uint64
}

// NewLookup returns one for sequences of at most so many tokens.
func NewLookup(context int) *Lookup {
	return &Lookup{context: context, past: make(map[string]*past)}
}

// Text is a sequence as a Lookup knows it.
type Text struct {
	lookup *Lookup
	salt   string
	past   *past
	own    text
	tokens []int32
	prompt int

	// What was proposed last goes on from a place in a text, as if a token that was guessed
	// wrong stood there in place of another.
	along *text
	place uint32
	run   int // tokens that agreed since one did not
	wrong int // that did not, one after the other
}

// astray is how many wrong tokens one after the other end what is followed.
const astray = 3

// Begin takes a sequence with its first tokens, which are copied.
func (l *Lookup) Begin(salt string, tokens []int32) *Text {
	var t *Text
	if n := len(l.spare); n > 0 {
		t, l.spare = l.spare[n-1], l.spare[:n-1]
		t.own.reset()
	} else {
		t = &Text{lookup: l, own: text{most: 1 << bits.Len(uint(max(l.context, Least))), open: true}}
	}
	t.salt, t.past, t.tokens, t.prompt = salt, l.of(salt), t.tokens[:0], len(tokens)
	t.along, t.run, t.wrong = nil, 0, 0
	for _, id := range tokens {
		t.Append(id)
	}
	return t
}

// of returns what a salt has, and makes room for it.
func (l *Lookup) of(salt string) *past {
	l.clock++
	p := l.past[salt]
	if p == nil {
		if len(l.past) >= Salts {
			var oldest string
			least := l.clock
			for salt, p := range l.past {
				if p.used < least {
					oldest, least = salt, p.used
				}
			}
			delete(l.past, oldest)
		}
		p = &past{text: text{most: Remembered}}
		l.past[salt] = p
	}
	p.used = l.clock
	return p
}

// Append adds a token to the sequence.
func (t *Text) Append(id int32) {
	t.tokens = append(t.tokens, id)
	t.own.add(id)
	if t.along == nil {
		return
	}
	t.place++
	switch {
	case t.place > t.along.end || !t.along.holds(t.place):
		t.along = nil
	case *t.along.at(t.place) == id:
		t.run, t.wrong = t.run+1, 0
	default:
		if t.run, t.wrong = 0, t.wrong+1; t.wrong == astray {
			t.along = nil
		}
	}
}

// Propose appends at most so many tokens that may follow, and returns how many tokens before
// them agree with the place that they are from.
func (t *Text) Propose(dst []int32, most int) (ids []int32, agreed int) {
	along, place := &t.own, uint32(0)
	place, agreed = t.own.find(t.tokens, t.own.end)
	if p, n := t.past.find(t.tokens, t.past.end+1); n > agreed {
		along, place, agreed = &t.past.text, p, n
	}
	if agreed > 0 {
		t.along, t.place, t.run, t.wrong = along, place, agreed, 0
	} else if agreed = t.run; t.along == nil {
		return dst, 0
	}
	return t.along.follow(dst, t.place, most), min(agreed, reach)
}

// End forgets the sequence. What was generated can be guessed from here on, for its salt.
func (t *Text) End() {
	if generated := len(t.tokens) - t.prompt; generated > 0 {
		p := t.lookup.of(t.salt)
		p.add(border)
		for _, id := range t.tokens[max(0, t.prompt-reach):] {
			p.add(id)
		}
	}
	t.past, t.along = nil, nil
	t.lookup.spare = append(t.lookup.spare, t)
}
