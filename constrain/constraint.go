// Package constrain restricts a model's text to a form: a JSON schema, a regular expression or a
// grammar. At each step it computes a bit mask of the tokens that may follow, such that every allowed
// text can be completed and every complete text has the form.
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
// A [Form] combines such parts with literal text and with tokens that have no text. A tool call,
// for example, is the marks of the model's call format around arguments that match a schema.
//
// # How a mask is made
//
// A constraint is a grammar over lexemes. A lexeme is a regular expression, turned lazily into an
// automaton over bytes by derivatives (regex.go, lexer.go). The lexeme of a JSON string decodes
// escapes before its expression, so patterns and names match the value and not its notation. The
// grammar is parsed along all its ambiguous parses at once, on one graph-structured stack
// (grammar.go).
//
// The tokens form a trie. For a state of a lexeme, one walk finds the tokens that stay within the
// lexeme and the nodes at which it may end; the result is cached by the structure of the rest of
// the expression, for all constraints over the vocabulary. The few bytes of the tokens behind those
// nodes are merged and walked with the grammar (vocabulary.go, mask in this file).
//
// # Laws
//
//   - A schema, an expression or a grammar is enforced exactly, or refused by an error that names
//     the keyword's path. Only annotations are ignored, including formats that JSON Schema does not
//     define, which [Constraint.Notes] lists.
//   - There are no dead ends: where no token but an end may follow, the text is complete.
//   - Exceeding a bound on size is an error, at compilation or later, and never a wrong mask.
package constrain

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// Constraint is a compiled set of allowed texts. It is safe for concurrent use.
type Constraint struct {
	v     *Vocabulary
	notes []string

	mu     sync.Mutex
	p      *parser
	start  *config
	known  map[string]*config
	held   int // threads of known
	masked int
	arena  []thread
	own    []uint64 // of maskUnique
	doubts []int32
}

// config is a reading that was reached before, with its mask, which is nil until computed.
type config struct {
	reading
	mask []uint64
}

// State is a constraint with the text accepted so far. It is a value: copies are independent.
type State struct {
	c  *Constraint
	at *config
}

// compile runs build under the bounds of limits.go, until ctx ends, and returns a constraint that
// starts at the place that build returns.
func (v *Vocabulary) compile(ctx context.Context, build func(g *grammar) (place, []string, error)) (c *Constraint, err error) {
	defer bounded(&err)
	g := newGrammar()
	g.open(ctx)
	start, notes, err := build(g)
	if err != nil {
		return nil, err
	}
	p := newParser(g)
	c = &Constraint{v: v, p: p, known: map[string]*config{}, notes: notes}
	r := p.from(start, p.bottom, nil)
	if len(r.threads) == 0 && !r.ends {
		return nil, errors.New("no text matches")
	}
	c.start = c.config(r.threads, r.ends)
	g.open(context.Background())
	return c, nil
}

// Notes returns the keywords of the source that the constraint ignores as the standard requires:
// those that the schema's draft does not define, those beside $ref in drafts up to 7, and formats
// that JSON Schema does not define. Unknown keywords are not listed.
func (c *Constraint) Notes() []string { return c.notes }

// Words returns the length of a mask in words of 64 bits.
func (c *Constraint) Words() int { return c.v.Words() }

// Start returns the state of the empty text.
func (c *Constraint) Start() State { return State{c, c.start} }

func (c *Constraint) config(ts []thread, ends bool) *config {
	key := make([]byte, 0, 1+28*len(ts))
	key = append(key, 0)
	if ends {
		key[0] = 1
	}
	for _, t := range ts {
		key = binary.LittleEndian.AppendUint32(key, uint32(t.at))
		key = binary.LittleEndian.AppendUint32(key, uint32(t.lex))
		key = binary.LittleEndian.AppendUint32(key, uint32(t.read))
		key = binary.LittleEndian.AppendUint64(key, t.top.id)
		key = binary.LittleEndian.AppendUint64(key, t.number())
	}
	if k := c.known[string(key)]; k != nil {
		return k
	}
	if c.held += len(ts); len(c.known) > maxReadings || c.held > maxHeld {
		clear(c.known)
		c.held = len(ts)
	}
	k := &config{reading: reading{threads: append([]thread(nil), ts...), ends: ends}}
	c.known[string(key)] = k
	return k
}

// CanStop reports whether the text is complete.
func (s State) CanStop() bool { return s.at.ends }

// Done reports whether the text is complete and no token can follow.
func (s State) Done() bool { return s.at.ends && len(s.at.threads) == 0 }

// Clone returns a copy of s, as an assignment does.
func (s State) Clone() State { return s }

// Accept appends a token and reports whether it may follow; if not, the state is unchanged. The
// tokens that end a generation may follow a complete text. The error is a bound that was exceeded,
// or a token outside of the vocabulary.
func (s *State) Accept(token int32) (ok bool, err error) {
	v := s.c.v
	if token < 0 || int(token) >= len(v.tokens) {
		return false, fmt.Errorf("token %d is outside the vocabulary of %d tokens", token, len(v.tokens))
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

// AcceptBytes appends text if all of it may follow. Otherwise the state is unchanged and n is the
// number of leading bytes that may follow.
func (s *State) AcceptBytes(text []byte) (n int, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer bounded(&err)
	c.p.open(context.Background())
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

// Mask sets the bit of every token that may follow, bit i%64 of word i/64 for token i, and clears
// all others. The length of mask must be [Vocabulary.Words].
func (s State) Mask(mask []uint64) (err error) {
	c := s.c
	if len(mask) != c.v.Words() {
		return fmt.Errorf("mask of %d words: the vocabulary needs %d", len(mask), c.v.Words())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer bounded(&err)
	c.p.open(context.Background())
	k := s.at
	if k.mask != nil {
		copy(mask, k.mask)
		return nil
	}
	clear(mask)
	for _, t := range k.threads {
		if c.p.steps[t.at].lex.room > 0 {
			c.maskUnique(mask, t)
			continue
		}
		loc := c.v.localOf(c.p.lexer, t.lex, c.p.left(&t))
		loc.allow(mask)
		if loc.exits != nil {
			r := c.p.from(c.p.steps[t.at].next, t.top, t.memory)
			if len(r.threads) > 0 {
				c.walk(mask, loc.exits, r.threads, sure)
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

// Known reports whether Mask needs no walk of the vocabulary and therefore takes microseconds. It
// is also false while another goroutine uses the constraint.
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

// Sole returns the only token that may follow, if there is exactly one and [State.Known] holds. A
// sampler can take it without computing logits.
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

// walk allows the tokens below m whose bytes the threads ts accept.
func (c *Constraint) walk(mask []uint64, m *merged, ts []thread, d doubt) {
	for _, kid := range m.children(c.v) {
		base := len(c.arena)
		c.p.within = false
		next, ends := c.p.advance(c.arena, ts, kid.b)
		below := next[base:]
		if len(below) == 0 && !ends {
			continue
		}
		behind := d
		if d == once && c.p.within {
			behind = doubtful
		}
		for _, id := range kid.tokens {
			allow(mask, id)
		}
		if behind == doubtful {
			c.doubts = append(c.doubts, kid.tokens...)
		}
		if len(below) > 0 && kid.below != nil {
			c.arena = next
			c.walk(mask, kid.below, below, behind)
			c.arena = c.arena[:base]
		}
	}
}

// Forced appends to dst the longest text that must follow, at most 4096 bytes; it needs no logits.
// The result is empty where the text may end, may continue in several ways, or continues with a
// token that is no text.
func (s State) Forced(dst []byte) (_ []byte, err error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer bounded(&err)
	c.p.open(context.Background())
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

// only returns the byte that all threads continue with, and whether there is exactly one.
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
			if to, _, _ := c.p.stepOf(&t, byte(b)); to == lexDead {
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
