package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Value is a variable's value: Undefined, None, Bool, Int, Float, Text, *List, *Dict, or a type
// that only templates create, such as namespaces and functions.
type Value interface{ kind() string }

type (
	Undefined struct{}
	None      struct{}
	Bool      bool
	Int       int64
	Float     float64
	// List is a list, or a tuple.
	List struct{ Items []Value }
	// Dict is a mapping with its keys in insertion order.
	Dict struct {
		entries []entry
		index   map[any]int
	}
	entry struct{ key, value Value }

	namespace struct{ Dict }
	function  struct {
		name string
		call func(r *run, a args) Value
	}
)

func (Undefined) kind() string  { return "undefined" }
func (None) kind() string       { return "none" }
func (Bool) kind() string       { return "boolean" }
func (Int) kind() string        { return "integer" }
func (Float) kind() string      { return "float" }
func (Text) kind() string       { return "string" }
func (*List) kind() string      { return "list" }
func (*Dict) kind() string      { return "mapping" }
func (*namespace) kind() string { return "namespace" }
func (*function) kind() string  { return "function" }

// hash returns the identity of a key; equal numbers are the same key. ok is false for a value that
// cannot be a key.
func hash(v Value) (key any, ok bool) {
	switch v := v.(type) {
	case Text:
		return v.s, true
	case Int:
		return int64(v), true
	case Bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case Float:
		if f := float64(v); f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), true
		}
		return float64(v), true
	case None:
		return None{}, true
	}
	return nil, false
}

// Get returns the value of a string key.
func (d *Dict) Get(key string) (Value, bool) { return d.get(Text{s: key}) }

func (d *Dict) get(key Value) (Value, bool) {
	if h, ok := hash(key); ok {
		if i, ok := d.index[h]; ok {
			return d.entries[i].value, true
		}
	}
	return Undefined{}, false
}

// Set sets the value of a string key.
func (d *Dict) Set(key Text, v Value) { d.set(key, v) }

func (d *Dict) set(key, v Value) bool {
	h, ok := hash(key)
	if !ok {
		return false
	}
	if i, ok := d.index[h]; ok {
		d.entries[i].value = v
		return true
	}
	if d.index == nil {
		d.index = map[any]int{}
	}
	d.index[h] = len(d.entries)
	d.entries = append(d.entries, entry{key, v})
	return true
}

// Len returns the number of entries.
func (d *Dict) Len() int { return len(d.entries) }

func (d *Dict) keys() *List {
	l := &List{make([]Value, len(d.entries))}
	for i, e := range d.entries {
		l.Items[i] = e.key
	}
	return l
}

func (d *Dict) pairs() *List {
	l := &List{make([]Value, len(d.entries))}
	for i, e := range d.entries {
		l.Items[i] = &List{[]Value{e.key, e.value}}
	}
	return l
}

// maxNesting is the maximum depth of lists and objects in JSON.
const maxNesting = 100

// FromJSON parses a JSON value. Objects keep the order of their keys; strings, keys included, are
// converted by text. Numbers without fraction and exponent become Int.
func FromJSON(raw []byte, text func(string) Text) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := fromJSON(d, text, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text behind the JSON value")
	}
	return v, nil
}

func fromJSON(d *json.Decoder, text func(string) Text, depth int) (Value, error) {
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t := token.(type) {
	case nil:
		return None{}, nil
	case bool:
		return Bool(t), nil
	case string:
		return text(t), nil
	case json.Number:
		if i, err := t.Int64(); err == nil {
			return Int(i), nil
		}
		f, err := t.Float64()
		if err != nil {
			return nil, fmt.Errorf("number %s: %w", t, err)
		}
		return Float(f), nil
	}
	if depth++; depth > maxNesting {
		return nil, fmt.Errorf("lists and objects nested more than %d deep", maxNesting)
	}
	if token == json.Delim('[') {
		l := &List{}
		for d.More() {
			v, err := fromJSON(d, text, depth)
			if err != nil {
				return nil, err
			}
			l.Items = append(l.Items, v)
		}
		_, err := d.Token()
		return l, err
	}
	o := &Dict{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := fromJSON(d, text, depth)
		if err != nil {
			return nil, err
		}
		o.Set(text(key.(string)), v)
	}
	_, err = d.Token()
	return o, err
}

// truth returns the truth value of v.
func truth(v Value) bool {
	switch v := v.(type) {
	case Undefined, None:
		return false
	case Bool:
		return bool(v)
	case Int:
		return v != 0
	case Float:
		return v != 0
	case Text:
		return v.s != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return v.Len() > 0
	}
	return true
}

// number returns a number's value; booleans are 0 and 1.
func number(v Value) (float64, bool) {
	if f, ok := v.(Float); ok {
		return float64(f), true
	}
	n, ok := integer(v)
	return float64(n), ok
}

// integer returns an integer's value; booleans are 0 and 1.
func integer(v Value) (int64, bool) {
	switch v := v.(type) {
	case Int:
		return int64(v), true
	case Bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// formatFloat formats a number like Python: the shortest digits that identify it, with a point or
// an exponent.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if size := math.Abs(f); f != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// size returns the number of bytes of a value, by which the bounds of a rendering grow.
func size(v Value) int {
	const each = 16
	n := each
	switch v := v.(type) {
	case Text:
		n += len(v.s)
	case *List:
		for _, item := range v.Items {
			n += size(item)
		}
	case *Dict:
		for _, e := range v.entries {
			n += size(e.key) + size(e.value)
		}
	}
	return n
}
