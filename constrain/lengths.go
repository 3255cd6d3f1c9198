package constrain

import "slices"

// The number of characters of a string is counted beside the states of its expression where
// possible, since a bound on the length would multiply the states. This requires the set of lengths
// of an expression's texts, so that no text is begun that cannot be completed within the bound.

// span is a range of lengths, both ends included; most can be endless.
type span struct{ least, most int32 }

const endless = 1<<31 - 1

var anyLength = span{0, endless}

func (s span) meets(t span) bool { return s.least <= t.most && t.least <= s.most }

// spans is a set of lengths as sorted, disjoint ranges.
type spans []span

const (
	maxSpans = 64   // ranges of one set, since some sets have no short list
	maxParts = 1024 // ranges of what is left of a string whose set is short
)

func (s spans) meets(t span) bool {
	return slices.ContainsFunc(s, func(x span) bool { return x.meets(t) })
}

// upward reports whether s is one range without an upper end.
func (s spans) upward() bool { return len(s) == 1 && s[0].most == endless }

func (s spans) normal() spans {
	slices.SortFunc(s, func(a, b span) int { return int(a.least) - int(b.least) })
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && int64(x.least) <= int64(out[n-1].most)+1 {
			out[n-1].most = max(out[n-1].most, x.most)
		} else {
			out = append(out, x)
		}
	}
	return out
}

func plus(a, b int32) int32 { return int32(min(int64(a)+int64(b), endless)) }

// plus returns the lengths of a text of s followed by one of t.
func (s spans) plus(t spans) (out spans) {
	for _, x := range s {
		for _, y := range t {
			out = append(out, span{plus(x.least, y.least), plus(x.most, y.most)})
		}
	}
	return out.normal()
}

// times returns the lengths of least to most concatenated texts of s; most can be unlimited. The
// result is nil where there is no short list.
func (s spans) times(least, most int) spans {
	one := int32(1)
	if most == unlimited && s.meets(span{one, one}) && s[0].least <= 1 { // a single upward range
		return spans{{int32(least) * s[0].least, endless}}
	}
	if len(s) == 1 {
		return s[0].times(least, most)
	}
	if most == unlimited || most > maxSpans {
		return nil
	}
	now := spans{{0, 0}}
	var all spans
	for i := range most + 1 {
		if i >= least {
			all = append(all, now...).normal()
		}
		if now = now.plus(s); len(now) > maxSpans || len(all) > maxSpans {
			return nil
		}
	}
	return all
}

func (s span) times(least, most int) (out spans) {
	for n := least; most == unlimited || n <= most; n++ {
		x := span{times(s.least, n), times(s.most, n)}
		if int64(s.least)*int64(n+1) <= int64(x.most)+1 || n == most {
			// From here on each range meets the next.
			last := endless
			if most != unlimited {
				last = int(times(s.most, most))
			} else if s.most == 0 {
				last = 0
			}
			return append(out, span{x.least, int32(last)}).normal()
		}
		if out = append(out, x); len(out) > maxSpans {
			return nil
		}
	}
	return out
}

func times(a int32, n int) int32 {
	if a == endless && n > 0 {
		return endless
	}
	return int32(min(int64(a)*int64(n), endless))
}

// lengths returns the number of characters of the texts of r, counted by leading bytes. The result
// is nil where the structure does not determine it, as for a complement.
func (p *pool) lengths(r re) spans {
	if s, ok := p.spans[r]; ok {
		return s
	}
	var s spans
	switch n := p.nodes[r]; n.kind {
	case kindEps:
		s = spans{{0, 0}}
	case kindSet:
		within := n.set[2] != 0 // 0x80 to 0xBF continue a character
		begins := n.set[0]|n.set[1]|n.set[3] != 0
		switch {
		case begins && !within:
			s = spans{{1, 1}}
		case within && !begins:
			s = spans{{0, 0}}
		}
	case kindCat:
		if a, b := p.lengths(n.a), p.lengths(n.b); a != nil && b != nil {
			p.spend(len(a) * len(b))
			s = a.plus(b)
		}
	case kindOr:
		for _, q := range n.list {
			t := p.lengths(q)
			if t == nil {
				s = nil
				break
			}
			s = append(s, t...)
		}
		s = s.normal()
	case kindRepeat:
		if t := p.lengths(n.a); t != nil {
			if len(t) > 1 {
				p.spend(maxSpans * maxSpans * len(t))
			}
			s = t.times(int(n.lo), int(n.hi))
		}
	case kindAnd:
		if x, bound := p.uncount(r); x != r {
			for _, t := range p.lengths(x) {
				if t.meets(bound) {
					s = append(s, span{max(t.least, bound.least), min(t.most, bound.most)})
				}
			}
		}
	}
	if len(s) == 0 || len(s) > maxParts {
		s = nil
	}
	p.spans[r] = s
	return s
}

// short reports whether the lengths of r are known and few enough to be counted.
func (p *pool) short(r re) bool {
	n := len(p.lengths(r))
	return n > 0 && n <= maxSpans
}

// uncount splits a bound on the length of the whole text from r and returns the rest and the bound.
// Where no such bound is found, or the lengths of the rest are unknown, it returns r and any
// length.
func (p *pool) uncount(r re) (re, span) {
	counts := func(r re) bool {
		n := p.at(r)
		return n.kind == kindRepeat && p.at(n.a).char && (n.lo > 0 || n.hi != unlimited)
	}
	rest, bound := []re{p.text}, r
	if n := *p.at(r); n.kind == kindAnd {
		i := slices.IndexFunc(n.list, counts)
		if i < 0 {
			return r, anyLength
		}
		bound = n.list[i]
		rest = slices.Concat(rest, n.list[:i], n.list[i+1:])
	} else if !counts(r) {
		return r, anyLength
	}
	n := *p.at(bound)
	if n.a != p.char {
		rest = append(rest, p.repeat(n.a, 0, unlimited))
	}
	x := p.and(rest...)
	if x == reNone || !p.short(x) {
		return r, anyLength
	}
	s := span{n.lo, n.hi}
	if n.hi == unlimited {
		s.most = endless
	}
	return x, s
}
