package mslgen

import (
	"fmt"
	"strings"
)

// Pos is a place in a source file.
type Pos struct {
	File string
	Line int
}

func (p Pos) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Error is an error in a source, at the line to change.
type Error struct {
	Pos
	Msg string
}

func (e *Error) Error() string { return e.Pos.String() + ": " + e.Msg }

func errorAt(p Pos, format string, args ...any) error {
	return &Error{Pos: p, Msg: fmt.Sprintf(format, args...)}
}

type tokenKind uint8

const (
	ident tokenKind = iota
	number
	text // a string or character literal, quotes included
	punct
)

type token struct {
	Pos
	kind  tokenKind
	text  string
	space bool // white space before it
	start bool // first of its line
	hide  *hideSet
}

func (t token) is(s string) bool { return t.kind != text && t.text == s }

// Punctuators of more than one character, longest first. '>' stays single so
// that nested template arguments close; a shift is two adjacent '>'.
var punctuators = []string{
	"<<=", "...",
	"->", "::", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "==", "!=", "<=", ">=", "&&", "||", "<<", "##",
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// scan splits a source into tokens; comments and line splices count as white space.
func scan(file string, src string) ([]token, error) {
	var out []token
	line := 1
	start, space := true, false
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c == '\n':
			line++
			start, space = true, false
			i++
			continue
		case c == '\\' && i+1 < len(src) && src[i+1] == '\n':
			line++
			space = true
			i += 2
			continue
		case c == '\\' && strings.HasPrefix(src[i:], "\\\r\n"):
			line++
			space = true
			i += 3
			continue
		case c == ' ' || c == '\t' || c == '\r' || c == '\f':
			space = true
			i++
			continue
		case strings.HasPrefix(src[i:], "//"):
			for i < len(src) && src[i] != '\n' {
				if src[i] == '\\' && i+1 < len(src) && src[i+1] == '\n' {
					line++
					i++
				}
				i++
			}
			continue
		case strings.HasPrefix(src[i:], "/*"):
			end := strings.Index(src[i+2:], "*/")
			if end < 0 {
				return nil, errorAt(Pos{file, line}, "comment without an end")
			}
			line += strings.Count(src[i:i+2+end], "\n")
			i += end + 4
			space = true
			continue
		}
		t := token{Pos: Pos{file, line}, space: space, start: start}
		start, space = false, false
		j := i + 1
		switch {
		case isLetter(c):
			for j < len(src) && (isLetter(src[j]) || isDigit(src[j])) {
				j++
			}
			t.kind = ident
		case isDigit(c) || c == '.' && j < len(src) && isDigit(src[j]):
			for j < len(src) && (isLetter(src[j]) || isDigit(src[j]) || src[j] == '.' || src[j] == '\'' ||
				(src[j] == '+' || src[j] == '-') && isExponent(src[i:j])) {
				j++
			}
			t.kind = number
		case c == '"' || c == '\'':
			for j < len(src) && src[j] != c && src[j] != '\n' {
				if src[j] == '\\' {
					j++
				}
				j++
			}
			if j >= len(src) || src[j] != c {
				return nil, errorAt(t.Pos, "literal without an end")
			}
			j++
			t.kind = text
		case c < 0x20 || c >= 0x7f:
			return nil, errorAt(t.Pos, "unexpected byte %#02x outside a comment", c)
		default:
			t.kind = punct
			for _, p := range punctuators {
				if strings.HasPrefix(src[i:], p) {
					j = i + len(p)
					break
				}
			}
		}
		t.text = src[i:j]
		out = append(out, t)
		i = j
	}
	return out, nil
}

// isExponent reports whether a sign may follow the number: after "1e" and "0x1p", but not
// after "0x1e".
func isExponent(number string) bool {
	last := number[len(number)-1] | 0x20
	hex := len(number) > 1 && number[0] == '0' && number[1]|0x20 == 'x'
	return last == 'e' && !hex || last == 'p' && hex
}

func join(tokens []token) string {
	var b strings.Builder
	for i, t := range tokens {
		if i > 0 && (t.space || t.start || glues(tokens[i-1], t)) {
			b.WriteByte(' ')
		}
		b.WriteString(t.text)
	}
	return b.String()
}

// glues reports whether two tokens need a space between them to be scanned as they are.
func glues(a, b token) bool {
	word := func(t token) bool { return t.kind == ident || t.kind == number }
	if word(a) && word(b) || a.kind == text && word(b) || word(a) && b.kind == text {
		return true
	}
	if a.kind == punct && b.kind == punct && a.text != ">" {
		for _, p := range punctuators {
			if strings.HasPrefix(p, a.text) && len(p) > len(a.text) && strings.HasPrefix(p[len(a.text):], b.text[:1]) {
				return true
			}
		}
		return a.text == "/" && (b.text[0] == '/' || b.text[0] == '*')
	}
	return false
}
