package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	textToken  tokenKind = iota // outside of tags
	openToken                   // {{ or {%
	closeToken                  // }} or %}
	nameToken
	stringToken
	intToken
	floatToken
	operatorToken
	endToken
)

// token is a lexical element of a template. text is its value: for a string literal, the contents.
type token struct {
	kind tokenKind
	text string
	line int
}

// String returns the token as errors show it.
func (t token) String() string {
	switch t.kind {
	case endToken:
		return "the end of the template"
	case textToken:
		return "text"
	case stringToken:
		return "a string"
	}
	return strconv.Quote(t.text)
}

// operators, each before its prefixes.
var operators = []string{
	"**", "//", "<=", ">=", "==", "!=",
	"(", ")", "[", "]", "{", "}", ",", ".", ":", "|", "<", ">", "+", "-", "~", "*", "/", "%", "=",
}

type lexer struct {
	source string
	at     int
	line   int
	tokens []token
	trim   func(text string) string // what the previous tag trims from the text behind it
}

// lineEnds makes every end of a line \n.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// lex splits a template into tokens, without the white space that tags trim.
func lex(source string) ([]token, error) {
	x := &lexer{source: strings.TrimSuffix(lineEnds.Replace(source), "\n"), line: 1}
	for x.at < len(x.source) {
		if err := x.next(); err != nil {
			return nil, fmt.Errorf("line %d: %w", x.line, err)
		}
	}
	return append(x.tokens, token{endToken, "", x.line}), nil
}

func (x *lexer) add(kind tokenKind, text string) {
	x.tokens = append(x.tokens, token{kind, text, x.line})
}

// skip advances by n bytes and counts lines.
func (x *lexer) skip(n int) string {
	s := x.source[x.at : x.at+n]
	x.line += strings.Count(s, "\n")
	x.at += n
	return s
}

// next reads the text up to the next tag, and that tag.
func (x *lexer) next() error {
	rest := x.source[x.at:]
	end := 0
	for {
		i := strings.IndexByte(rest[end:], '{')
		if i < 0 {
			end = len(rest)
			break
		}
		end += i
		if end+1 < len(rest) && strings.IndexByte("{%#", rest[end+1]) >= 0 {
			break
		}
		end++
	}
	text := rest[:end]
	tag := rest[end:]
	switch {
	case len(tag) > 2 && tag[2] == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case len(tag) > 2 && tag[2] == '+':
	case len(tag) > 1 && tag[1] != '{':
		// A tag at the beginning of a line trims its indentation.
		line := strings.TrimRight(text, " \t")
		if line == "" && x.at == 0 || strings.HasSuffix(line, "\n") {
			text = line
		}
	}
	if x.trim != nil {
		text = x.trim(text)
		x.trim = nil
	}
	line := x.line
	x.skip(end)
	if text != "" {
		x.tokens = append(x.tokens, token{textToken, text, line})
	}
	if tag == "" {
		return nil
	}
	return x.tag()
}

// after sets what a tag's end trims from the text behind it.
func (x *lexer) after(dash, newline bool) {
	switch {
	case dash:
		x.trim = func(s string) string { return strings.TrimLeftFunc(s, isSpace) }
	case newline:
		x.trim = func(s string) string { return strings.TrimPrefix(s, "\n") }
	}
}

func (x *lexer) tag() error {
	open := x.skip(2)
	if open == "{#" {
		end := strings.Index(x.source[x.at:], "#}")
		if end < 0 {
			return fmt.Errorf("unterminated comment")
		}
		comment := x.skip(end + 2)
		x.after(strings.HasSuffix(comment, "-#}"), true)
		return nil
	}
	if x.at < len(x.source) && strings.IndexByte("-+", x.source[x.at]) >= 0 {
		x.skip(1)
	}
	x.add(openToken, open)
	if open == "{%" {
		if raw, err := x.raw(); raw || err != nil {
			return err
		}
	}
	end := "%}"
	if open == "{{" {
		end = "}}"
	}
	for depth := 0; ; {
		x.skip(len(x.source[x.at:]) - len(strings.TrimLeftFunc(x.source[x.at:], isSpace)))
		rest := x.source[x.at:]
		if rest == "" {
			return fmt.Errorf("%s without %s", open, end)
		}
		if depth == 0 {
			dash := strings.HasPrefix(rest, "-"+end)
			if plus := strings.HasPrefix(rest, "+"+end); dash || plus || strings.HasPrefix(rest, end) {
				if dash || plus {
					x.skip(1)
				}
				x.add(closeToken, x.skip(2))
				x.after(dash, open == "{%" && !plus)
				return nil
			}
		}
		switch c := rest[0]; {
		case c == '\'' || c == '"':
			if err := x.quoted(c); err != nil {
				return err
			}
		case c >= '0' && c <= '9':
			x.number()
		case isWord(rest):
			n := 0
			for isWord(rest[n:]) {
				_, w := utf8.DecodeRuneInString(rest[n:])
				n += w
			}
			x.add(nameToken, x.skip(n))
		default:
			op := operator(rest)
			if op == "" {
				r, _ := utf8.DecodeRuneInString(rest)
				return fmt.Errorf("unexpected %q in a tag", r)
			}
			switch op {
			case "{", "[", "(":
				depth++
			case "}", "]", ")":
				depth--
			}
			x.add(operatorToken, x.skip(len(op)))
		}
	}
}

func operator(s string) string {
	for _, op := range operators {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	return ""
}

func isWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return r == '_' || r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// raw reads a raw block as text.
func (x *lexer) raw() (bool, error) {
	fields := strings.TrimLeftFunc(x.source[x.at:], isSpace)
	if !strings.HasPrefix(fields, "raw") || isWord(fields[3:]) {
		return false, nil
	}
	x.tokens = x.tokens[:len(x.tokens)-1]
	head := strings.Index(x.source[x.at:], "%}")
	if head < 0 {
		return true, fmt.Errorf("{%% without %%}")
	}
	dash := strings.HasSuffix(x.skip(head+2), "-%}")
	for end := x.at; ; end += 2 {
		i := strings.Index(x.source[end:], "{%")
		if i < 0 {
			return true, fmt.Errorf("unterminated raw block")
		}
		end += i
		tag := x.source[end+2:]
		word := strings.TrimLeftFunc(strings.TrimLeft(tag, "-+"), isSpace)
		if !strings.HasPrefix(word, "endraw") || isWord(word[len("endraw"):]) {
			continue
		}
		tail := strings.Index(word, "%}")
		if tail < 0 {
			return true, fmt.Errorf("{%% without %%}")
		}
		text := x.source[x.at:end]
		if dash {
			text = strings.TrimLeftFunc(text, isSpace)
		}
		if strings.HasPrefix(tag, "-") {
			text = strings.TrimRightFunc(text, isSpace)
		}
		if text != "" {
			x.add(textToken, text)
		}
		x.skip(len(x.source) - len(word) + tail + 2 - x.at)
		x.after(strings.HasSuffix(word[:tail], "-"), true)
		return true, nil
	}
}

func (x *lexer) number() {
	digits := func(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789_")) }
	rest := x.source[x.at:]
	n, kind := digits(rest), intToken
	// An integer behind a dot is an index: a.0.b.
	index := len(x.tokens) > 0 && x.tokens[len(x.tokens)-1] == token{operatorToken, ".", x.line}
	if !index && n+1 < len(rest) && rest[n] == '.' && rest[n+1] >= '0' && rest[n+1] <= '9' {
		n, kind = n+1+digits(rest[n+1:]), floatToken
	}
	if e := exponent(rest[n:]); !index && e > 0 {
		n, kind = n+e, floatToken
	}
	x.add(kind, strings.ReplaceAll(x.skip(n), "_", ""))
}

// exponent returns the length of a number's exponent, or 0.
func exponent(s string) int {
	if s == "" || s[0] != 'e' && s[0] != 'E' {
		return 0
	}
	n := 1
	if n < len(s) && (s[n] == '+' || s[n] == '-') {
		n++
	}
	digits := len(s[n:]) - len(strings.TrimLeft(s[n:], "0123456789"))
	if digits == 0 {
		return 0
	}
	return n + digits
}

var escapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", 'v': "\v", 'a': "\a", '0': "\x00",
	'\'': "'", '"': `"`, '\\': `\`, '\n': "",
}

// hexEscapes are the numbers of digits of escapes.
var hexEscapes = map[byte]int{'x': 2, 'u': 4, 'U': 8}

func (x *lexer) quoted(quote byte) error {
	rest := x.source[x.at:]
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == quote:
			x.add(stringToken, b.String())
			x.skip(i + 1)
			return nil
		case c != '\\' || i+1 == len(rest):
			b.WriteByte(c)
		default:
			i++
			if s, ok := escapes[rest[i]]; ok {
				b.WriteString(s)
				continue
			}
			if n := hexEscapes[rest[i]]; n > 0 {
				digits := rest[i+1 : min(i+1+n, len(rest))]
				r, err := strconv.ParseUint(digits, 16, 32)
				if err != nil || len(digits) < n || !utf8.ValidRune(rune(r)) {
					return fmt.Errorf(`\%c%s is not a character`, rest[i], digits)
				}
				b.WriteRune(rune(r))
				i += n
				continue
			}
			b.WriteByte('\\') // Python keeps unknown escapes too
			b.WriteByte(rest[i])
		}
	}
	return fmt.Errorf("unterminated string")
}
