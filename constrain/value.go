package constrain

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is a JSON value with its keys in order and its numbers as written.
type value struct {
	kind  valueKind
	text  string // value of a string, digits of a number
	keys  []string
	items []value        // of an array, or of an object in the order of keys
	index map[string]int // last place of each key; nil for few keys
}

type valueKind uint8

const (
	isNull valueKind = iota
	isFalse
	isTrue
	isNumber
	isString
	isArray
	isObject
)

var constants = [...]string{isNull: "null", isFalse: "false", isTrue: "true"}

// get returns the value of a key, of the last one if it is repeated; nil if there is none.
func (v *value) get(key string) *value {
	if i := v.last(key); i >= 0 {
		return &v.items[i]
	}
	return nil
}

// last returns the last place of a key; -1 if there is none.
func (v *value) last(key string) int {
	switch {
	case v.kind != isObject:
		return -1
	case v.index != nil:
		if i, ok := v.index[key]; ok {
			return i
		}
		return -1
	}
	i := len(v.keys) - 1
	for i >= 0 && v.keys[i] != key {
		i--
	}
	return i
}

const fewKeys = 16 // of an object that is searched without an index

// count returns a non-negative whole number; -1 for any other value.
func (v *value) count() int {
	if v.kind != isNumber {
		return -1
	}
	d, err := parseDecimal(v.text)
	if err != nil || d.negative && !d.zero() || d.fraction != "" {
		return -1
	}
	if len(d.whole) > 9 {
		return 1 << 30
	}
	n, _ := strconv.Atoi("0" + d.whole)
	return n
}

type valueParser struct {
	text string
	at   int
}

func (b *budget) parseValue(text string) (*value, error) {
	b.spend(len(text))
	if len(text) > maxSource {
		return nil, limit("a schema of more than %d bytes", maxSource)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("the schema is not valid UTF-8")
	}
	p := &valueParser{text: text}
	var v value
	if err := p.value(&v, 0); err != nil {
		return nil, fmt.Errorf("the schema is not valid JSON: byte %d: %w", p.at, err)
	}
	if p.space(); p.at < len(text) {
		return nil, fmt.Errorf("the schema is not valid JSON: byte %d: text behind the value", p.at)
	}
	return &v, nil
}

func (p *valueParser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *valueParser) peek() byte {
	p.space()
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *valueParser) value(v *value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("more than %d levels", maxDepth)
	}
	switch c := p.peek(); {
	case c == '{':
		v.kind = isObject
		for p.at++; p.peek() != '}'; {
			if len(v.keys) > 0 && !p.take(',') {
				return fmt.Errorf("want a comma or a closing brace")
			}
			p.space()
			key, err := p.str()
			if err != nil {
				return err
			}
			if !p.take(':') {
				return fmt.Errorf("want a colon")
			}
			var item value
			if err := p.value(&item, depth+1); err != nil {
				return err
			}
			v.keys, v.items = append(v.keys, key), append(v.items, item)
		}
		if len(v.keys) > fewKeys {
			v.index = make(map[string]int, len(v.keys))
			for i, key := range v.keys {
				v.index[key] = i
			}
		}
		p.at++
		return nil
	case c == '[':
		v.kind = isArray
		for p.at++; p.peek() != ']'; {
			if len(v.items) > 0 && !p.take(',') {
				return fmt.Errorf("want a comma or a closing bracket")
			}
			var item value
			if err := p.value(&item, depth+1); err != nil {
				return err
			}
			v.items = append(v.items, item)
		}
		p.at++
		return nil
	case c == '"':
		v.kind = isString
		var err error
		v.text, err = p.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		from := p.at
		for p.at < len(p.text) && strings.IndexByte("+-.eE0123456789", p.text[p.at]) >= 0 {
			p.at++
		}
		v.kind, v.text = isNumber, p.text[from:p.at]
		if !json.Valid([]byte(v.text)) {
			return fmt.Errorf("%q is not a number", v.text)
		}
		return nil
	}
	for kind, word := range constants {
		if strings.HasPrefix(p.text[p.at:], word) {
			v.kind = valueKind(kind)
			p.at += len(word)
			return nil
		}
	}
	return fmt.Errorf("want a value")
}

func (p *valueParser) take(b byte) bool {
	if p.peek() != b {
		return false
	}
	p.at++
	return true
}

func (p *valueParser) str() (string, error) {
	if p.at >= len(p.text) || p.text[p.at] != '"' {
		return "", fmt.Errorf("want a string")
	}
	from := p.at
	simple := true
	for p.at++; p.at < len(p.text) && p.text[p.at] != '"'; p.at++ {
		if p.text[p.at] == '\\' {
			simple = false
			p.at++
		}
		if p.at < len(p.text) && p.text[p.at] < 0x20 {
			return "", fmt.Errorf("a control character in a string")
		}
	}
	if p.at >= len(p.text) {
		return "", fmt.Errorf("a string is not closed")
	}
	p.at++
	if simple {
		return p.text[from+1 : p.at-1], nil
	}
	var s string
	err := json.Unmarshal([]byte(p.text[from:p.at]), &s)
	return s, err
}

// decimal is a number in plain digits without leading zeros in whole or trailing zeros in fraction.
type decimal struct {
	negative        bool
	whole, fraction string
}

func (d decimal) zero() bool { return d.whole == "" && d.fraction == "" }

func parseDecimal(text string) (d decimal, err error) {
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if exponent != "" {
		e, err := strconv.Atoi(exponent)
		if err != nil || e > 400 || e < -400 {
			return d, fmt.Errorf("the exponent of %s is too large", text)
		}
		for ; e > 0; e-- {
			if fraction == "" {
				whole += "0"
				continue
			}
			whole, fraction = whole+fraction[:1], fraction[1:]
		}
		for ; e < 0; e++ {
			last := "0"
			if whole != "" {
				last, whole = whole[len(whole)-1:], whole[:len(whole)-1]
			}
			fraction = last + fraction
		}
	}
	d.whole, d.fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if len(d.whole)+len(d.fraction) > 2000 {
		return d, fmt.Errorf("a number of more than 2000 digits")
	}
	return d, nil
}
