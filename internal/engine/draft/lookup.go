package draft

import "math/bits"

// Bounds on what a Lookup keeps of texts that have ended.
const (
	Remembered = 1 << 15 // tokens per salt
	Salts      = 64
)

// Lookup guesses tokens from earlier text. It is used by one goroutine at a time.
type Lookup struct {
	context int
	past    map[string]*past
	spare   []*Text
	clock   uint64
}

// past is the generated text of one salt.
type past struct {
	text
	used uint64
}

// NewLookup returns a lookup for sequences of at most context tokens.
func NewLookup(context int) *Lookup {
	return &Lookup{context: context, past: make(map[string]*past)}
}

// Text is a sequence in a Lookup.
type Text struct {
	lookup *Lookup
	salt   string
	past   *past
	own    text
	tokens []int32
	prompt int

	// The last proposal continues at a place in a text, as if a wrongly guessed token there had
	// been another.
	along *text
	place uint32
	run   int // consecutive tokens that agreed since the last that did not
	wrong int // consecutive tokens that did not agree
}

// astray is the number of consecutive wrong tokens at which a match is dropped.
const astray = 3

// Begin adds a sequence with a copy of its first tokens.
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

// of returns the past of a salt, and evicts the oldest salt to make room for it.
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

// Propose appends at most most tokens that may follow, and returns the length of the match that
// they are from.
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

// End forgets the sequence. Its generated tokens can be guessed for its salt from then on.
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
