package constrain

import (
	"slices"
	"strings"
)

// lexState is the index of a state within a lexeme. States are numbered in the order in which they
// are reached.
type lexState int32

const (
	lexDead lexState = iota // no continuation
	lexDone                 // complete, without continuation
)

// lexMode selects how the bytes of the text are fed to the regular expression of a state.
type lexMode uint8

const (
	modeLiteral   lexMode = iota // not fed: the rest of a fixed text must follow
	modeRaw                      // unchanged
	modeQuote                    // the value of a JSON string; before its opening quote
	modeBody                     // within the string
	modeEscape                   // behind a backslash
	modeHex                      // behind \u and some digits
	modeLow                      // behind the first half of a surrogate pair
	modeLowEscape                // … and a backslash
	modeLowHex                   // … and u and some digits
)

// lexeme is the start state of a lexeme, and the allowed number of characters if it is counted
// beside the states.
type lexeme struct {
	state lexState
	span
	room int32 // of an item that must differ from those before it: fewer items leave another one; else 0
}

// uncounted returns a lexeme of any length.
func uncounted(s lexState) lexeme { return lexeme{s, anyLength, 0} }

func (x *lexeme) counts() bool { return x.span != anyLength }

// left returns the range of numbers of characters that may follow those that have been read.
func (x *lexeme) left(read int32) span {
	s := span{max(x.least-read, 0), endless}
	if x.most != endless {
		s.most = x.most - read
	}
	return s
}

type lexKey struct {
	mode   lexMode
	expr   re
	digits uint32 // modeHex, modeLow…: a leading 1 and the digits read; the first half of a pair in the upper 16 bits
	text   string // modeLiteral
	plain  bool   // modeQuote, modeBody: without escapes
}

type lexNode struct {
	lexKey
	accepts bool           // the lexeme may end here
	more    bool           // the lexeme may continue
	row     *[256]lexState // next state + 1 by byte; 0 until computed
	lengths spans          // nil until computed
	local   *local         // mask of an uncounted state
}

// lexer is the automaton of all lexemes of a constraint, built lazily as texts reach its states.
type lexer struct {
	*pool
	states []lexNode
	rows   int
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

// quoted returns the lexeme of a JSON string whose value matches r.
func (l *lexer) quoted(r re) lexeme {
	if r == reNone || !l.alive(r) {
		return uncounted(lexDead)
	}
	r, bound := l.uncount(r)
	return lexeme{l.state(lexKey{mode: modeQuote, expr: r}), bound, 0}
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
		more := false
		for b := 0; b < 256 && !more; b++ {
			more = l.step(s, byte(b)) != lexDead
		}
		l.states[s].more = more
	}
	return s
}

// step returns the state after byte b in state s.
func (l *lexer) step(s lexState, b byte) lexState {
	n := &l.states[s]
	if n.row != nil {
		if to := n.row[b]; to != 0 {
			return to - 1
		}
	} else if n.mode == modeLiteral {
		if n.text == "" || b != n.text[0] {
			return lexDead
		}
		return l.literal(n.text[1:])
	}
	return l.fill(s, b)
}

// row returns the transition row of s; entries are next state + 1, 0 until computed.
func (l *lexer) row(s lexState) *[256]lexState {
	n := &l.states[s]
	if n.row == nil {
		if l.rows++; l.rows > maxRows {
			for i := range l.states {
				l.states[i].row = nil
			}
			l.rows = 1
		}
		n.row = new([256]lexState)
	}
	return n.row
}

// fill computes the transition by b, and by the neighbouring bytes that have the same one.
func (l *lexer) fill(s lexState, b byte) lexState {
	row, k := l.row(s), l.states[s].lexKey
	to := l.find(k, b)
	row[b] = to + 1
	inBody := k.mode == modeBody
	if k.mode != modeRaw && !inBody || inBody && (b < 0x20 || isMark(b)) {
		return to // without a derivative
	}
	derivatives := l.at(k.expr).row
	if derivatives == nil { // dropped
		return to
	}
	beside := func(c int) bool {
		if inBody && (c < 0x20 || isMark(byte(c))) || derivatives[c] != derivatives[b] {
			return false
		}
		row[c] = to + 1
		return true
	}
	for c := int(b) - 1; c >= 0 && beside(c); c-- {
	}
	for c := int(b) + 1; c < 256 && beside(c); c++ {
	}
	return to
}

// isMark reports whether b ends a JSON string or begins an escape in it.
func isMark(b byte) bool { return b == '"' || b == '\\' }

// find computes the state after byte b.
func (l *lexer) find(k lexKey, b byte) lexState {
	switch k.mode {
	case modeRaw:
		if d := l.pool.step(k.expr, b); d != reNone {
			return l.state(lexKey{mode: modeRaw, expr: d})
		}
	case modeQuote:
		if b == '"' {
			return l.state(lexKey{mode: modeBody, expr: k.expr, plain: k.plain})
		}
	case modeBody:
		switch {
		case b == '"':
			if l.at(k.expr).nullable {
				return lexDone
			}
		case b == '\\':
			if !k.plain && k.expr != reEps && l.reaches(k.expr, 0, 0x10FFFF) {
				return l.state(lexKey{mode: modeEscape, expr: k.expr})
			}
		case b >= 0x20:
			if d := l.pool.step(k.expr, b); d != reNone {
				return l.state(lexKey{mode: modeBody, expr: d, plain: k.plain})
			}
		}
	case modeEscape:
		if b == 'u' {
			return l.state(lexKey{mode: modeHex, expr: k.expr, digits: 1})
		}
		if c := unescaped(b); c != 0 {
			if d := l.pool.step(k.expr, c); d != reNone {
				return l.state(lexKey{mode: modeBody, expr: d})
			}
		}
	case modeHex, modeLowHex:
		if v, ok := hexDigit(b); ok {
			return l.hexState(k, v)
		}
	case modeLow:
		if b == '\\' {
			return l.state(lexKey{mode: modeLowEscape, expr: k.expr, digits: k.digits})
		}
	case modeLowEscape:
		if b == 'u' {
			return l.state(lexKey{mode: modeLowHex, expr: k.expr, digits: k.digits<<16 | 1})
		}
	}
	return lexDead
}

// unescaped returns the character that a backslash and byte b stand for, 0 if there is none.
func unescaped(b byte) byte {
	if i := strings.IndexByte(`"\/bfnrt`, b); i >= 0 {
		return "\"\\/\b\f\n\r\t"[i]
	}
	return 0
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

// hexState returns the state after one more hexadecimal digit, if the string can still be completed
// from there.
func (l *lexer) hexState(k lexKey, digit uint32) lexState {
	digits := k.digits&0xFFFF<<4 | digit
	if k.mode == modeHex {
		lo, hi := hexSpan(digits)
		if lo == hi && digits >= 1<<16 {
			if lo >= surrogateMin && lo <= surrogateMax {
				if lo > 0xDBFF || !l.reaches(k.expr, decodeSurrogates(lo, 0xDC00), decodeSurrogates(lo, surrogateMax)) {
					return lexDead // a lone surrogate is no character
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

// counted returns the state of a counted lexeme after byte b and the characters then read; lexDead
// if the text could no longer be completed within the bound.
func (l *lexer) counted(x *lexeme, from, to lexState, b byte, read int32) (lexState, int32) {
	if to == lexDone {
		if !(spans{{0, 0}}).meets(x.left(read)) {
			return lexDead, 0
		}
		return to, 0
	}
	if l.states[to].mode == modeBody && l.begins(from, b) {
		read++
		if x.most == endless {
			read = min(read, x.least)
		}
	}
	if !l.lengthsOf(to).meets(x.left(read)) {
		return lexDead, 0
	}
	return to, read
}

// begins reports whether byte b, which leads from a state into the string's body, is counted as a
// character: the leading byte of an unescaped one, or the last byte of an escape.
func (l *lexer) begins(from lexState, b byte) bool {
	switch l.states[from].mode {
	case modeQuote:
		return false
	case modeBody:
		return b < 0x80 || b >= 0xC0
	}
	return true
}

// lengthsOf returns the numbers of characters that can still be read from a state of a string. The
// string's bound must have been split off by [pool.uncount].
func (l *lexer) lengthsOf(s lexState) spans {
	if known := l.states[s].lengths; known != nil {
		return known
	}
	var out spans
	k := l.states[s].lexKey
	switch k.mode {
	case modeQuote, modeBody:
		out = l.known(k.expr)
	case modeEscape:
		for _, x := range l.known(k.expr) { // any character can be escaped
			if x.most > 0 {
				out = append(out, span{max(x.least, 1), x.most})
			}
		}
	default:
		for _, seq := range utf8Ranges(k.chars()) {
			l.reachesBytes(k.expr, seq, func(behind re) bool {
				out = append(out, spans{{1, 1}}.plus(l.known(behind))...)
				return false
			})
		}
	}
	out = slices.Clone(out).normal()
	l.states[s].lengths = out
	return out
}

// known returns the lengths of an expression reached from one whose lengths are known.
func (l *lexer) known(r re) spans {
	s := l.lengths(r)
	if s == nil {
		panic(limit("a string whose possible lengths form more than %d ranges", maxParts))
	}
	return s
}

// chars returns the characters that an escape can become.
func (k *lexKey) chars() runes {
	switch k.mode {
	case modeHex:
		lo, hi := hexSpan(k.digits)
		all := runes{{lo, hi}}
		if first, last := max(lo, surrogateMin), min(hi, 0xDBFF); first <= last {
			all = append(all, [2]rune{decodeSurrogates(first, 0xDC00), decodeSurrogates(last, surrogateMax)})
		}
		return all
	case modeLow, modeLowEscape:
		high := rune(k.digits)
		return runes{{decodeSurrogates(high, 0xDC00), decodeSurrogates(high, surrogateMax)}}
	case modeLowHex:
		lo, hi := hexSpan(k.digits & 0xFFFF)
		high := rune(k.digits >> 16)
		return runes{{decodeSurrogates(high, max(lo, 0xDC00)), decodeSurrogates(high, min(hi, surrogateMax))}}
	}
	return runes{{0, 0x10FFFF}}
}

// hexSpan returns the range of 4-digit hexadecimal numbers that begin with the digits read.
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

// lexID identifies a state by the texts that it accepts, equally in all lexers.
type lexID struct {
	mode   lexMode
	digits uint32
	plain  bool
	hash   [2]uint64
	left   span
}

func (l *lexer) id(s lexState, left span) lexID {
	n := &l.states[s]
	return lexID{n.mode, n.digits, n.plain, l.at(n.expr).hash, left}
}
