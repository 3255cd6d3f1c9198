package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Span is the range [From, To) of bytes.
type Span struct{ From, To int }

// Text is a string, some of whose bytes are marked.
type Text struct {
	s     string
	marks []Span // ascending, not empty, not adjacent
}

// Plain returns a string without marks.
func Plain(s string) Text { return Text{s: s} }

// Marked returns a string with all bytes marked.
func Marked(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{s, []Span{{0, len(s)}}}
}

func (t Text) String() string { return t.s }

// Marks returns the ranges of marked bytes, ascending and disjoint.
func (t Text) Marks() []Span { return t.marks }

// cut returns the bytes [from, to).
func (t Text) cut(from, to int) Text {
	out := Text{s: t.s[from:to]}
	first, _ := slices.BinarySearchFunc(t.marks, from, func(m Span, at int) int {
		if m.To <= at {
			return -1
		}
		return 1
	})
	for _, m := range t.marks[first:] {
		if m.From >= to {
			break
		}
		out.marks = append(out.marks, Span{max(m.From, from) - from, min(m.To, to) - from})
	}
	return out
}

// runs yields the longest parts with equal marking.
func (t Text) runs(yield func(s string, marked bool)) {
	at := 0
	for _, m := range t.marks {
		if m.From > at {
			yield(t.s[at:m.From], false)
		}
		yield(t.s[m.From:m.To], true)
		at = m.To
	}
	if at < len(t.s) {
		yield(t.s[at:], false)
	}
}

// builder concatenates texts.
type builder struct {
	b     strings.Builder
	marks []Span
}

func (b *builder) string(s string, marked bool) {
	if marked && s != "" {
		b.mark(Span{b.b.Len(), b.b.Len() + len(s)})
	}
	b.b.WriteString(s)
}

// mark appends a mark, joined with the last if adjacent.
func (b *builder) mark(m Span) {
	if last := len(b.marks) - 1; last >= 0 && b.marks[last].To == m.From {
		b.marks[last].To = m.To
		return
	}
	b.marks = append(b.marks, m)
}

func (b *builder) text(t Text) {
	at := b.b.Len()
	b.b.WriteString(t.s)
	for _, m := range t.marks {
		b.mark(Span{m.From + at, m.To + at})
	}
}

func (b *builder) done() Text { return Text{b.b.String(), b.marks} }

// isSpace reports whether Python's str.strip removes r.
func isSpace(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= ' ', r == 0x85, r == 0xa0, r == 0x1680,
		r >= 0x2000 && r <= 0x200a, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}

// sides is a set of the ends of a text.
type sides uint8

const (
	left sides = 1 << iota
	right
	both = left | right
)

func (t Text) trim(where sides, drop func(rune) bool) Text {
	from, to := 0, len(t.s)
	if where&left != 0 {
		from = to - len(strings.TrimLeftFunc(t.s, drop))
	}
	if where&right != 0 {
		to = from + len(strings.TrimRightFunc(t.s[from:], drop))
	}
	return t.cut(from, to)
}

// characters returns the offsets of the characters, and the length.
func (t Text) characters() []int {
	at := make([]int, 0, len(t.s)+1)
	for i := range t.s {
		at = append(at, i)
	}
	return append(at, len(t.s))
}

func (t Text) length() int { return utf8.RuneCountInString(t.s) }
