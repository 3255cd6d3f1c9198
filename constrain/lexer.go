package constrain

// lexState is a place within a lexeme. States are numbered as they are met.
type lexState int32

const (
	lexDead lexState = iota // no text goes on here
	lexDone                 // the lexeme is complete and cannot go on
)

// lexMode says how the bytes of the text come to the regular expression of a state.
type lexMode uint8

const (
	modeLiteral   lexMode = iota // not at all: the rest of a fixed text must follow
	modeRaw                      // as they are
	modeQuote                    // the text is a JSON string, whose value the expression is for; here before its quote
	modeBody                     // in the string
	modeEscape                   // after a backslash
	modeHex                      // after \u and some digits
	modeLow                      // after the first half of a surrogate pair
	modeLowEscape                // and a backslash
	modeLowHex                   // and u and some digits
)

type lexKey struct {
	mode   lexMode
	expr   re
	digits uint32 // modeHex, modeLow…: a leading 1 and the digits read; the first half above 16 bits
	text   string // modeLiteral
}

type lexNode struct {
	lexKey
	accepts bool // the lexeme may end here
	more    bool // and may go on
	row     *[256]lexState
	local   *local
}

// lexer is the automaton of all lexemes of a constraint, built where texts lead.
type lexer struct {
	*pool
	states []lexNode
	byKey  map[lexKey]lexState
}

func newLexer() *lexer {
	l := &lexer{pool: newPool(), byKey: map[lexKey]lexState{}}
	l.states = []lexNode{{}, {accepts: true}}
	return l
}

func (l *lexer) literal(text string) lexState {
	if text == "" {
		return lexDone
	}
	return l.state(lexKey{mode: modeLiteral, text: text})
}

func (l *lexer) raw(r re) lexState {
	if r == reNone || !l.alive(r) {
		return lexDead
	}
	return l.state(lexKey{mode: modeRaw, expr: r})
}

// quoted is a JSON string whose value r matches.
func (l *lexer) quoted(r re) lexState {
	if r == reNone || !l.alive(r) {
		return lexDead
	}
	return l.state(lexKey{mode: modeQuote, expr: r})
}

func (l *lexer) state(k lexKey) lexState {
	if k.mode == modeRaw && k.expr == reEps {
		return lexDone
	}
	if s, ok := l.byKey[k]; ok {
		return s
	}
	if len(l.states) >= maxStates {
		panic(limit("a lexer of more than %d states", maxStates))
	}
	s := lexState(len(l.states))
	n := lexNode{lexKey: k, more: true}
	l.states = append(l.states, n)
	l.byKey[k] = s
	if k.mode == modeRaw && l.at(k.expr).nullable {
		l.states[s].accepts = true
		row := l.row(s)
		more := false
		for _, to := range row {
			more = more || to != lexDead
		}
		l.states[s].more = more
	}
	return s
}

func (l *lexer) step(s lexState, b byte) lexState {
	n := &l.states[s]
	if n.row != nil {
		return n.row[b]
	}
	if n.mode == modeLiteral {
		if n.text == "" || b != n.text[0] {
			return lexDead
		}
		return l.literal(n.text[1:])
	}
	return l.row(s)[b]
}

func (l *lexer) row(s lexState) *[256]lexState {
	if row := l.states[s].row; row != nil {
		return row
	}
	row := new([256]lexState)
	k := l.states[s].lexKey
	switch k.mode {
	case modeRaw:
		last, to := reNone, lexDead
		for b := range row {
			if d := l.pool.step(k.expr, byte(b)); d != last {
				last, to = d, lexDead
				if d != reNone {
					to = l.state(lexKey{mode: modeRaw, expr: d})
				}
			}
			row[b] = to
		}
	case modeQuote:
		row['"'] = l.state(lexKey{mode: modeBody, expr: k.expr})
	case modeBody:
		last, to := reNone, lexDead
		for b := 0x20; b < 256; b++ {
			if d := l.pool.step(k.expr, byte(b)); d != last {
				last, to = d, lexDead
				if d != reNone {
					to = l.state(lexKey{mode: modeBody, expr: d})
				}
			}
			row[b] = to
		}
		row['"'], row['\\'] = lexDead, lexDead
		if l.at(k.expr).nullable {
			row['"'] = lexDone
		}
		if k.expr != reEps && l.reaches(k.expr, 0, 0x10FFFF) {
			row['\\'] = l.state(lexKey{mode: modeEscape, expr: k.expr})
		}
	case modeEscape:
		for i, b := range []byte(`"\/bfnrt`) {
			if d := l.pool.step(k.expr, "\"\\/\b\f\n\r\t"[i]); d != reNone {
				row[b] = l.state(lexKey{mode: modeBody, expr: d})
			}
		}
		row['u'] = l.state(lexKey{mode: modeHex, expr: k.expr, digits: 1})
	case modeHex, modeLowHex:
		for b := range row {
			if v, ok := hexDigit(byte(b)); ok {
				row[b] = l.hexState(k, v)
			}
		}
	case modeLow:
		row['\\'] = l.state(lexKey{mode: modeLowEscape, expr: k.expr, digits: k.digits})
	case modeLowEscape:
		row['u'] = l.state(lexKey{mode: modeLowHex, expr: k.expr, digits: k.digits<<16 | 1})
	}
	l.states[s].row = row
	return row
}

func hexDigit(b byte) (uint32, bool) {
	switch {
	case b >= '0' && b <= '9':
		return uint32(b - '0'), true
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		return uint32(b|0x20-'a') + 10, true
	}
	return 0, false
}

// hexState is where one more digit leads: to a state from which the string can still end.
func (l *lexer) hexState(k lexKey, digit uint32) lexState {
	digits := k.digits&0xFFFF<<4 | digit
	if k.mode == modeHex {
		lo, hi := hexSpan(digits)
		if lo == hi && digits >= 1<<16 {
			if lo >= surrogateMin && lo <= surrogateMax {
				if lo > 0xDBFF || !l.reaches(k.expr, decodeSurrogates(lo, 0xDC00), decodeSurrogates(lo, surrogateMax)) {
					return lexDead // half a pair stands for no character
				}
				return l.state(lexKey{mode: modeLow, expr: k.expr, digits: uint32(lo)})
			}
			return l.bodyAfter(k.expr, lo)
		}
		ok := l.reaches(k.expr, lo, hi)
		if first, last := max(lo, surrogateMin), min(hi, 0xDBFF); !ok && first <= last {
			ok = l.reaches(k.expr, decodeSurrogates(first, 0xDC00), decodeSurrogates(last, surrogateMax))
		}
		if !ok {
			return lexDead
		}
		return l.state(lexKey{mode: modeHex, expr: k.expr, digits: digits})
	}
	high := rune(k.digits >> 16)
	lo, hi := hexSpan(digits)
	lo, hi = max(lo, 0xDC00), min(hi, surrogateMax)
	if lo > hi {
		return lexDead
	}
	from, to := decodeSurrogates(high, lo), decodeSurrogates(high, hi)
	if digits >= 1<<16 {
		return l.bodyAfter(k.expr, from)
	}
	if !l.reaches(k.expr, from, to) {
		return lexDead
	}
	return l.state(lexKey{mode: modeLowHex, expr: k.expr, digits: uint32(high)<<16 | digits})
}

// hexSpan are the numbers of four digits that begin with the digits read.
func hexSpan(digits uint32) (lo, hi rune) {
	missing := 0
	for d := digits; d < 1<<16; d <<= 4 {
		missing++
	}
	v := digits << (4 * missing) & 0xFFFF
	return rune(v), rune(v | (1<<(4*missing) - 1))
}

func (l *lexer) bodyAfter(r re, c rune) lexState {
	for _, b := range []byte(string(c)) {
		if r = l.pool.step(r, b); r == reNone {
			return lexDead
		}
	}
	return l.state(lexKey{mode: modeBody, expr: r})
}

// lexID names a state by what it lets through, the same for all lexers.
type lexID struct {
	mode   lexMode
	digits uint32
	hash   [2]uint64
}

func (l *lexer) id(s lexState) lexID {
	n := &l.states[s]
	return lexID{n.mode, n.digits, l.at(n.expr).hash}
}
