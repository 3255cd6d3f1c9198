// Package constrain keeps a model's text within a form: a JSON schema, a regular expression
// or a grammar. At each step it says which tokens may follow, as a mask of bits, so that
// every text it lets through can be completed, and a complete one has the form.
//
//	v, err := constrain.New(tokens, ends)
//	c, err := v.JSONSchema(schema, constrain.Options{})
//	s := c.Start()
//	mask := make([]uint64, v.Words())
//	for {
//		err := s.Mask(mask)    // bit i%64 of word i/64: token i may follow
//		…                      // choose one
//		ok, err := s.Accept(token)
//	}
//
// A [Form] is made of several such parts, with literal text and tokens that are no text
// between them: what a model writes to call a tool, say, whose arguments match a schema.
//
// # How a mask is made
//
// A constraint is a grammar over lexemes. A lexeme is a regular expression, taken apart by
// derivatives into an automaton of bytes as far as texts lead (regex.go, lexer.go); a JSON
// string is one whose expression stands behind the escapes, so that patterns and names mean
// the value and not how it is written. The grammar is followed along all its readings at
// once, with one shared stack (grammar.go).
//
// The tokens are a trie. For a state of a lexeme, one walk finds the tokens that stay in it
// and the nodes where it may end; that is kept, by the structure of what may still follow,
// for all constraints over the vocabulary. What is left behind the nodes is merged and
// walked with the grammar: a few bytes (vocabulary.go, mask in this file).
//
// # Laws
//
//   - A schema, an expression or a grammar is kept exactly or refused by an error that names
//     the keyword's path. Only annotations are passed over; formats that JSON Schema does not
//     define are among them and are listed by [Constraint.Notes].
//   - Nothing leads into a dead end: where no token but an end follows, the text is complete.
//   - Bounds on size end in errors, in Compile or later, never in a wrong mask.
package constrain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// Constraint is a form for texts. It is safe for use by several goroutines.
type Constraint struct {
	v     *Vocabulary
	notes []string

	mu     sync.Mutex
	p      *parser
	start  *config
	known  map[string]*config
	masked int
	arena  []thread
}

// config is a reading that has been met, with its mask once asked for.
type config struct {
	reading
	mask []uint64
}

// State is a text read so far. It is a value: a copy goes its own way.
type State struct {
	c  *Constraint
	at *config
}

// compile runs build within the bounds and makes what it begins with into a constraint.
func (v *Vocabulary) compile(build func(g *grammar) (place, []string, error)) (c *Constraint, err error) {
	defer bounded(&err)
	g := newGrammar()
	start, notes, err := build(g)
	if err != nil {
		return nil, err
	}
	p := newParser(g)
	c = &Constraint{v: v, p: p, known: map[string]*config{}, notes: notes}
	r := p.from(start, p.bottom)
	if len(r.threads) == 0 && !r.ends {
		return nil, errors.New("no text has this form")
	}
	c.start = c.config(r.threads, r.ends)
	return c, nil
}

// Notes are what the source says and the constraint does not check, since it has no meaning
// by the standard: formats that JSON Schema does not define.
func (c *Constraint) Notes() []string { return c.notes }

// Words is the length of a mask.
func (c *Constraint) Words() int { return c.v.Words() }

// Start is the state of the empty text.
func (c *Constraint) Start() State { return State{c, c.start} }

func (c *Constraint) config(ts []thread, ends bool) *config {
	key := make([]byte, 0, 1+20*len(ts))
	key = append(key, 0)
	if ends {
		key[0] = 1
	}
	for _, t := range ts {
		key = binary.LittleEndian.AppendUint32(key, uint32(t.at))
		key = binary.LittleEndian.AppendUint32(key, uint32(t.lex))
		key = binary.LittleEndian.AppendUint32(key, uint32(t.read))
		key = binary.LittleEndian.AppendUint64(key, t.top.id)
	}
	if k := c.known[string(key)]; k != nil {
		return k
	}
	if len(c.known) > maxReadings {
		clear(c.known)
	}
	k := &config{reading: reading{threads: append([]thread(nil), ts...), ends: ends}}
	c.known[string(key)] = k
	return k
}

// CanStop tells whether the text is complete.
func (s State) CanStop() bool { return s.at.ends }

// Done tells whether the text is complete and nothing can follow.
func (s State) Done() bool { return s.at.ends && len(s.at.threads) == 0 }

// Clone is the state by itself; a plain copy is the same.
func (s State) Clone() State { return s }

// Accept goes on by a token, or tells that it may not follow and stays. The tokens that end
// a generation may follow a complete text.
func (s *State) Accept(token int32) (ok bool, err error) {
	v := s.c.v
	if token < 0 || int(token) >= len(v.tokens) {
		return false, fmt.Errorf("token %d is outside of the vocabulary of %d", token, len(v.tokens))
	}
	text := v.tokens[token]
	if len(text) == 0 {
		for _, id := range v.ends {
			if id == token {
				return s.at.ends, nil
			}
		}
		return false, nil
	}
	n, err := s.AcceptBytes(text)
	return n == len(text), err
}

// AcceptBytes goes on by text if all of it may follow, and else stays and gives the number
// of bytes that may.
func (s *State) AcceptBytes(text []byte) (n int, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer bounded(&err)
	c.p.work = 0
	ts, ends := s.at.threads, s.at.ends
	var buffers [2][]thread
	for i, b := range text {
		next, e := c.p.advance(buffers[i&1][:0], ts, b)
		if len(next) == 0 && !e {
			return i, nil
		}
		next = c.p.merge(next)
		buffers[i&1] = next
		ts, ends = next, e
	}
	s.at = c.config(ts, ends)
	return len(text), nil
}

// Mask sets the bits of the tokens that may follow and clears all others. The length of
// mask is [Vocabulary.Words].
func (s State) Mask(mask []uint64) (err error) {
	c := s.c
	if len(mask) != c.v.Words() {
		return fmt.Errorf("a mask of %d words for a vocabulary of %d", len(mask), c.v.Words())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer bounded(&err)
	c.p.work = 0
	k := s.at
	if k.mask != nil {
		copy(mask, k.mask)
		return nil
	}
	clear(mask)
	for _, t := range k.threads {
		loc := c.v.localOf(c.p.lexer, t.lex, c.p.left(&t))
		loc.allow(mask)
		if loc.exits != nil {
			r := c.p.from(c.p.steps[t.at].next, t.top)
			if len(r.threads) > 0 {
				c.walk(mask, loc.exits, r.threads)
			}
		}
	}
	if k.ends {
		for _, id := range c.v.ends {
			allow(mask, id)
		}
	}
	if c.masked += 8 * len(mask); c.masked > maxCaches {
		for _, k := range c.known {
			k.mask = nil
		}
		c.masked = 8 * len(mask)
	}
	k.mask = append([]uint64(nil), mask...)
	return nil
}

// Known tells whether Mask takes no walk through the vocabulary: microseconds. It is false too
// where another goroutine is about something else of the constraint.
func (s State) Known() bool {
	c := s.c
	if !c.mu.TryLock() {
		return false
	}
	defer c.mu.Unlock()
	return s.at.mask != nil || !slices.ContainsFunc(s.at.threads, func(t thread) bool {
		return !c.v.knows(c.p.lexer, t.lex, c.p.left(&t))
	})
}

// Sole is the one token that may follow, where there is one and that is [State.Known]: it
// needs no logits.
func (s State) Sole() (token int32, ok bool, err error) {
	if !s.Known() {
		return 0, false, nil
	}
	mask := make([]uint64, s.c.Words())
	if err := s.Mask(mask); err != nil {
		return 0, false, err
	}
	for i, w := range mask {
		if w == 0 {
			continue
		}
		if ok || w&(w-1) != 0 {
			return 0, false, nil
		}
		token, ok = int32(i*64+bits.TrailingZeros64(w)), true
	}
	return token, ok, nil
}

// walk allows the tokens below m whose bytes ts can read.
func (c *Constraint) walk(mask []uint64, m *merged, ts []thread) {
	for _, kid := range m.children(c.v) {
		base := len(c.arena)
		next, ends := c.p.advance(c.arena, ts, kid.b)
		below := next[base:]
		if len(below) == 0 && !ends {
			continue
		}
		for _, id := range kid.tokens {
			allow(mask, id)
		}
		if len(below) > 0 && kid.below != nil {
			c.arena = next
			c.walk(mask, kid.below, below)
			c.arena = c.arena[:base]
		}
	}
}

// Forced is the longest text that must follow, appended to dst: it needs no logits. It is
// empty where the text may end or go on in several ways, or by a token that is no text, and at
// most 4096 bytes.
func (s State) Forced(dst []byte) (_ []byte, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer bounded(&err)
	c.p.work = 0
	ts, ends := s.at.threads, s.at.ends
	for range maxTokenBytes {
		if ends || len(ts) == 0 {
			break
		}
		b, ok := c.only(ts)
		if !ok || b == controlMark {
			break
		}
		dst = append(dst, b)
		var next []thread
		next, ends = c.p.advance(nil, ts, b)
		ts = c.p.merge(next)
	}
	return dst, nil
}

// only is the byte that all threads go on with.
func (c *Constraint) only(ts []thread) (only byte, found bool) {
	for _, t := range ts {
		n := &c.p.states[t.lex]
		if n.mode == modeLiteral {
			if found && only != n.text[0] {
				return 0, false
			}
			only, found = n.text[0], true
			continue
		}
		for b := range 256 {
			if to, _ := c.p.stepOf(&t, byte(b)); to == lexDead {
				continue
			}
			if found && only != byte(b) {
				return 0, false
			}
			only, found = byte(b), true
		}
	}
	return only, found
}
