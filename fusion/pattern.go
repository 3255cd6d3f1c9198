package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// Pat is a pattern for one value and, through args, for its operands. A Pat is also a
// capture: Match maps its pointer to the value that it matched.
type Pat struct {
	kind kind
	ops  []ir.Op
	args []*Pat
	twin *Pat // an Op that may match the same value
}

type kind uint8

const (
	anyValue kind = iota // any value, which the replacement keeps
	oneOp                // a value of one of ops
	perhaps              // ops[0] over args[0], or args[0] alone
	optional             // a trailing operand that may be missing
	theRest              // all remaining operands
)

// Any matches every value. The rewrite keeps it, as an operand of the replacement.
func Any() *Pat { return &Pat{kind: anyValue} }

// Op matches a value of that op whose operands, all of them, match args. Operands of a
// commutative op match in either order.
func Op(op ir.Op, args ...*Pat) *Pat { return OneOf([]ir.Op{op}, args...) }

// OneOf is Op for any of several ops.
func OneOf(ops []ir.Op, args ...*Pat) *Pat { return &Pat{kind: oneOp, ops: ops, args: args} }

// Maybe matches op over x or, failing that, x alone, with nil in Match. The op has one
// operand.
func Maybe(op ir.Op, x *Pat) *Pat {
	return &Pat{kind: perhaps, ops: []ir.Op{op}, args: []*Pat{x}}
}

// Optional matches a trailing operand or its absence, with nil in Match. Used
// twice, it must match the same both times.
func Optional() *Pat { return &Pat{kind: optional} }

// Rest, the last of the operands, matches all that follow and captures none.
func Rest() *Pat { return &Pat{kind: theRest} }

// Match maps each pattern of a rule to the value that it matched.
type Match map[*Pat]*ir.Value

func (p *Pat) is(op ir.Op) bool { return slices.Contains(p.ops, op) }

// interior reports whether what p matches may be replaced.
func (p *Pat) interior() bool { return p.kind == oneOp || p.kind == perhaps }

// goal is a pattern and value that must match, and the goals after it. A goal without
// a value is a join: search looks for one.
type goal struct {
	p    *Pat
	v    *ir.Value
	next *goal
}

// search matches one rule at one anchor. trail lists the captures in the order
// they were made, so that a failed alternative can be undone.
type search struct {
	rule  *Rule
	g     *index
	m     Match
	trail []*Pat
}

// at reports whether the rule matches with its anchor at v; s.m then holds the captures.
func (s *search) at(v *ir.Value) bool {
	clear(s.m)
	s.trail = s.trail[:0]
	var joins *goal
	for _, j := range slices.Backward(s.rule.Joins) {
		joins = &goal{p: j, next: joins}
	}
	return s.solve(&goal{p: s.rule.Anchor, v: v, next: joins})
}

func (s *search) solve(g *goal) bool {
	if g == nil {
		return (s.rule.Where == nil || s.rule.Where(s.m)) && s.g.admits(s.rule, s.m)
	}
	mark := len(s.trail)
	if g.v == nil && s.join(g) || g.v != nil && s.expand(g) {
		return true
	}
	s.undo(mark)
	return false
}

func (s *search) expand(g *goal) bool {
	p, v := g.p, g.v
	switch p.kind {
	case anyValue, optional:
		return s.bind(p, v) && s.solve(g.next)
	case perhaps:
		if p.is(v.Op) && s.both(p, v, &goal{p.args[0], v.Args[0], g.next}) {
			return true
		}
		return s.both(p, nil, &goal{p.args[0], v, g.next})
	case oneOp:
		if !p.is(v.Op) {
			return false
		}
		if len(p.args) == 2 && len(v.Args) == 2 && v.Op.IsCommutative() {
			return s.both(p, v, &goal{p.args[0], v.Args[0], &goal{p.args[1], v.Args[1], g.next}}) ||
				s.both(p, v, &goal{p.args[0], v.Args[1], &goal{p.args[1], v.Args[0], g.next}})
		}
		if !s.bind(p, v) {
			return false
		}
		next, ok := s.operands(p.args, v.Args, g.next)
		return ok && s.solve(next)
	}
	return false
}

// both captures v and solves the following goals, or undoes the capture.
func (s *search) both(p *Pat, v *ir.Value, next *goal) bool {
	mark := len(s.trail)
	if s.bind(p, v) && s.solve(next) {
		return true
	}
	s.undo(mark)
	return false
}

// operands prepends goals that pair patterns with values to next.
func (s *search) operands(pats []*Pat, values []*ir.Value, next *goal) (*goal, bool) {
	if n := len(pats); n > 0 && pats[n-1].kind == theRest {
		pats = pats[:n-1]
		values = values[:min(len(values), len(pats))]
	}
	if len(values) > len(pats) {
		return nil, false
	}
	for i := len(pats) - 1; i >= 0; i-- {
		switch {
		case i < len(values):
			next = &goal{pats[i], values[i], next}
		case pats[i].kind != optional || !s.bind(pats[i], nil):
			return nil, false
		}
	}
	return next, true
}

// bind captures v for p. It returns false where p captured another value, or another Op
// pattern that is not its twin captured v.
func (s *search) bind(p *Pat, v *ir.Value) bool {
	if bound, ok := s.m[p]; ok {
		return bound == v
	}
	if p.interior() && v != nil {
		for _, q := range s.trail {
			if q.interior() && s.m[q] == v && q.twin != p && p.twin != q {
				return false
			}
		}
	}
	s.m[p] = v
	s.trail = append(s.trail, p)
	return true
}

func (s *search) undo(mark int) {
	for _, p := range s.trail[mark:] {
		delete(s.m, p)
	}
	s.trail = s.trail[:mark]
}

// join finds a value for a further root: it climbs from the captured operand with the
// fewest readers.
func (s *search) join(g *goal) bool {
	from, path := s.cheapest(g.p, nil)
	if from == nil {
		return false
	}
	return s.climb(from, path, g)
}

// cheapest returns the captured value below p with the fewest readers, and the
// patterns above it, p last.
func (s *search) cheapest(p *Pat, above []*Pat) (from *ir.Value, path []*Pat) {
	if v := s.m[p]; v != nil {
		return v, above
	}
	above = append([]*Pat{p}, above...)
	for _, a := range p.args {
		v, up := s.cheapest(a, above)
		if v != nil && (from == nil || len(s.g.users[v.ID]) < len(s.g.users[from.ID])) {
			from, path = v, up
		}
	}
	return from, path
}

func (s *search) climb(v *ir.Value, path []*Pat, g *goal) bool {
	if len(path) == 0 {
		return s.solve(&goal{g.p, v, g.next})
	}
	if path[0].kind == perhaps && s.climb(v, path[1:], g) {
		return true
	}
	for _, u := range s.g.users[v.ID] {
		if path[0].is(u.Op) && s.climb(u, path[1:], g) {
			return true
		}
	}
	return false
}
