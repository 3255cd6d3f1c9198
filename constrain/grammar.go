package constrain

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// place is the index of a step of a grammar. It stands for the step and all that follows it.
type place int32

// placeReturn ends a rule: parsing continues behind the call.
const placeReturn place = 0

type stepKind uint8

const (
	stepReturn stepKind = iota
	stepLexeme          // a lexeme, then next
	stepCall            // a rule, then next
	stepFork            // any one of several places
)

type step struct {
	kind stepKind
	lex  lexeme // stepLexeme
	rule place  // stepCall
	next place
	// forks are the places of a stepFork. Of a stepLexeme they are the places of an array's next item;
	// one of them must allow a value that the array does not have yet.
	forks []place
	// expand computes forks when the place is first reached, where computing them all in advance is
	// too expensive, such as the remaining properties of an object.
	expand func() []place
}

// grammar holds the rules of a constraint as a graph of places; a rule is named by its first place.
// Every place must lead to a complete text.
type grammar struct {
	*lexer
	steps []step
	notes []string // ignored keywords of its schemas
}

func newGrammar() *grammar { return &grammar{lexer: newLexer(), steps: []step{{kind: stepReturn}}} }

func (g *grammar) add(s step) place {
	g.spend(4 + len(s.forks))
	if len(g.steps) >= maxPlaces {
		panic(limit("a grammar of more than %d places", maxPlaces))
	}
	g.steps = append(g.steps, s)
	return place(len(g.steps) - 1)
}

func (g *grammar) lexeme(x lexeme, next place) place {
	if x.state == lexDone {
		return next
	}
	return g.add(step{kind: stepLexeme, lex: x, next: next})
}

func (g *grammar) text(text string, next place) place {
	return g.lexeme(uncounted(g.literal(text)), next)
}

func (g *grammar) call(rule, next place) place {
	return g.add(step{kind: stepCall, rule: rule, next: next})
}

func (g *grammar) fork(places ...place) place {
	if len(places) == 1 {
		return places[0]
	}
	return g.add(step{kind: stepFork, forks: places})
}

func (g *grammar) later(expand func() []place) place {
	return g.add(step{kind: stepFork, expand: expand})
}

func (g *grammar) forks(p place) []place {
	if expand := g.steps[p].expand; expand != nil {
		forks := expand()
		g.steps[p].forks, g.steps[p].expand = forks, nil
	}
	return g.steps[p].forks
}

// frame is the return addresses of rules: a node of the graph-structured stack that all threads
// share (Tomita; Scott and Johnstone's GLL). Frames are immutable once the text up to them is read,
// so copying a state copies a pointer.
type frame struct {
	id    uint64
	edges []edge
}

type edge struct {
	ret place
	up  *frame
}

// thread is one parse of the text so far: a position within a lexeme of a rule.
type thread struct {
	at   place
	lex  lexState
	read int32 // characters read of a counted lexeme; capped at the least number if it has no maximum
	top  *frame
	*memory
}

// reading is a set of threads, and whether the text may end.
type reading struct {
	threads []thread
	ends    bool
}

type spot struct {
	at  place
	top *frame
	*memory
}

// parser runs the threads of a grammar over text.
type parser struct {
	*grammar
	bottom *frame
	lastID uint64
	frames map[string]*frame
	after  map[spot]*reading
	held   int // threads of after
	key    []byte

	memories map[memoryKey]*memory
	within   bool // a byte of an item that must differ has been read, other than a quote before it
}

func newParser(g *grammar) *parser {
	return &parser{grammar: g, bottom: &frame{}, frames: map[string]*frame{}, after: map[spot]*reading{}, memories: map[memoryKey]*memory{}}
}

// pending is a frame under construction: it can gain edges while its rule is followed.
type pending struct {
	rule   place
	frame  *frame
	popped bool // the rule has matched the empty text
}

// from returns the reading at a place with the stack top and a memory, which ends with its array's
// rule; no rule is called in such an array.
func (p *parser) from(at place, top *frame, m *memory) *reading {
	if r := p.after[spot{at, top, m}]; r != nil {
		return r
	}
	r := &reading{}
	var calls []*pending
	seen := map[spot]bool{}
	var visit func(at place, top *frame, m *memory, depth int)
	visit = func(at place, top *frame, m *memory, depth int) {
		p.spend(derivation)
		for {
			s := &p.steps[at]
			if s.kind == stepLexeme {
				if p.stuck(at, m) {
					return
				}
				r.threads = append(r.threads, thread{at, s.lex.state, 0, top, m})
				if !p.states[s.lex.state].accepts || seen[spot{at, top, m}] {
					return
				}
				seen[spot{at, top, m}] = true
				at = s.next
				continue
			}
			break
		}
		if seen[spot{at, top, m}] {
			return
		}
		seen[spot{at, top, m}] = true
		if depth > 100_000 {
			panic(limit("rules that call each other without end"))
		}
		switch p.steps[at].kind {
		case stepReturn:
			p.spend(len(calls))
			if top == p.bottom {
				r.ends = true
				return
			}
			for _, c := range calls {
				if c.frame == top {
					c.popped = true
				}
			}
			for i := 0; i < len(top.edges); i++ { // the loop may add edges
				visit(top.edges[i].ret, top.edges[i].up, nil, depth+1)
			}
		case stepFork:
			for _, f := range p.forks(at) {
				visit(f, top, m, depth+1)
			}
		case stepCall:
			s := p.steps[at]
			p.spend(len(calls))
			for _, c := range calls {
				if c.rule == s.rule {
					p.spend(len(c.frame.edges))
					e := edge{s.next, top}
					if !slices.Contains(c.frame.edges, e) {
						c.frame.edges = append(c.frame.edges, e)
						if c.popped {
							visit(e.ret, e.up, nil, depth+1)
						}
					}
					return
				}
			}
			p.lastID++
			f := &frame{id: p.lastID, edges: []edge{{s.next, top}}}
			calls = append(calls, &pending{rule: s.rule, frame: f})
			visit(s.rule, f, nil, depth+1)
		}
	}
	visit(at, top, m, 0)
	if len(calls) > 0 {
		p.settle(r, calls)
	}
	r.threads = p.merge(r.threads)
	if p.held += len(r.threads); len(p.after) > maxReadings || p.held > maxHeld {
		clear(p.after)
		clear(p.frames)
		p.held = len(r.threads)
	}
	p.after[spot{at, top, m}] = r
	return r
}

// settle replaces equal frames by one, so that equal readings compare equal. Frames of rules that
// call themselves before they consume a byte stay separate.
func (p *parser) settle(r *reading, calls []*pending) {
	fresh := map[*frame]int{} // 1: in progress, 2: done
	for _, c := range calls {
		fresh[c.frame] = 0
	}
	same := map[*frame]*frame{}
	var settle func(f *frame) (*frame, bool)
	settle = func(f *frame) (*frame, bool) {
		state, isFresh := fresh[f]
		switch {
		case !isFresh:
			return f, true
		case state == 2:
			return same[f], true
		case state == 1:
			return f, false
		}
		fresh[f] = 1
		closed := true
		edges := make([]edge, len(f.edges))
		for i, e := range f.edges {
			up, ok := settle(e.up)
			closed = closed && ok
			edges[i] = edge{e.ret, up}
		}
		if !closed {
			// Other frames refer to this one by pointer.
			copy(f.edges, edges)
			fresh[f], same[f] = 2, f
			return f, true
		}
		g := p.frame(edges)
		fresh[f], same[f] = 2, g
		return g, true
	}
	for i, t := range r.threads {
		r.threads[i].top, _ = settle(t.top)
	}
}

func compareEdges(a, b edge) int {
	if a.ret != b.ret {
		return int(a.ret) - int(b.ret)
	}
	switch {
	case a.up.id < b.up.id:
		return -1
	case a.up.id > b.up.id:
		return 1
	}
	return 0
}

func (p *parser) frame(edges []edge) *frame {
	p.spend(len(edges))
	slices.SortFunc(edges, compareEdges)
	edges = slices.Compact(edges)
	key := p.key[:0]
	for _, e := range edges {
		key = binary.LittleEndian.AppendUint32(key, uint32(e.ret))
		key = binary.LittleEndian.AppendUint64(key, e.up.id)
	}
	p.key = key
	if f := p.frames[string(key)]; f != nil {
		return f
	}
	p.lastID++
	f := &frame{id: p.lastID, edges: edges}
	p.frames[string(key)] = f
	return f
}

func compareThreads(a, b thread) int {
	switch {
	case a.at != b.at:
		return int(a.at - b.at)
	case a.lex != b.lex:
		return int(a.lex - b.lex)
	case a.read != b.read:
		return int(a.read - b.read)
	case a.memory != b.memory:
		return cmp.Compare(a.number(), b.number())
	}
	return cmp.Compare(a.top.id, b.top.id)
}

// like reports whether t and u can be merged.
func (t *thread) like(u *thread) bool {
	return t.at == u.at && t.lex == u.lex && t.read == u.read && t.memory == u.memory
}

// merge sorts threads and joins those with equal place and state. It bounds the number of threads
// by places times states, for any number of ambiguous parses.
func (p *parser) merge(ts []thread) []thread {
	if len(ts) < 2 {
		return ts
	}
	slices.SortFunc(ts, compareThreads)
	out := ts[:1]
	for i := 1; i < len(ts); {
		t := ts[i]
		last := &out[len(out)-1]
		if !t.like(last) {
			out = append(out, t)
			i++
			continue
		}
		edges := slices.Clone(last.top.edges)
		bottom := last.top == p.bottom
		many := false
		for ; i < len(ts) && ts[i].like(last); i++ {
			if ts[i].top != last.top {
				many = true
				bottom = bottom || ts[i].top == p.bottom
				edges = append(edges, ts[i].top.edges...)
			}
		}
		if bottom && many {
			// The bottom of the stack is no edge and stays separate.
			edges = append(edges, edge{placeReturn, p.bottom})
		}
		if many {
			last.top = p.frame(edges)
		}
	}
	return out
}

// stepOf returns the state of a thread's lexeme after byte b, the characters then read, and the
// memory.
func (p *parser) stepOf(t *thread, b byte) (to lexState, read int32, m *memory) {
	to = p.lexer.step(t.lex, b)
	x := &p.steps[t.at].lex
	if to != lexDead && x.counts() {
		to, read = p.counted(x, t.lex, to, b, t.read)
	}
	m = t.memory
	if to != lexDead && x.room > 0 {
		to, m = p.differing(t, to, read, b)
	}
	return to, read, m
}

// left returns the range of numbers of further characters that the thread's lexeme may have.
func (p *parser) left(t *thread) span {
	x := &p.steps[t.at].lex
	if !x.counts() {
		return anyLength
	}
	return x.left(t.read)
}

// advance appends to dst the threads after byte b and reports whether the text may end then.
func (p *parser) advance(dst []thread, ts []thread, b byte) ([]thread, bool) {
	ends := false
	p.spend(len(ts))
	for _, t := range ts {
		s, read, m := p.stepOf(&t, b)
		if s == lexDead {
			continue
		}
		n := &p.states[s]
		accepts := n.accepts
		if n.more {
			dst = append(dst, thread{t.at, s, read, t.top, m})
		}
		if accepts && p.steps[t.at].lex.room > 0 {
			if accepts = m.at == nil || !m.at.item; accepts {
				m = p.remembered(m, "")
			}
		}
		if accepts {
			r := p.from(p.steps[t.at].next, t.top, m)
			p.spend(len(r.threads))
			dst = append(dst, r.threads...)
			ends = ends || r.ends
		}
	}
	return dst, ends
}
