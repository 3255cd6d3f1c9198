package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// List is a list, or another sequence of Python's.
	List struct {
		Items []Value
		form  listForm
	}
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

// listForm is how a sequence is written, around its items, and the names of its first two.
type listForm struct{ open, close, first, second string }

var (
	tuple      = listForm{open: "(", close: ")"}
	group      = listForm{open: "(", close: ")", first: "grouper", second: "list"}
	dictKeys   = listForm{open: "dict_keys([", close: "])"}
	dictValues = listForm{open: "dict_values([", close: "])"}
	dictItems  = listForm{open: "dict_items([", close: "])"}
)

func (l *List) isTuple() bool { return l.form == tuple || l.form == group }

// named returns the item of that name.
func (l *List) named(name string) (Value, bool) {
	switch {
	case name == "":
	case name == l.form.first && len(l.Items) > 0:
		return l.Items[0], true
	case name == l.form.second && len(l.Items) > 1:
		return l.Items[1], true
	}
	return Undefined{}, false
}

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

// numberKey is the identity of a whole number.
type numberKey string

// hash returns the identity of a key; equal numbers are the same key. ok is false for a value that
// cannot be a key.
func hash(v Value) (key any, ok bool) {
	switch v := v.(type) {
	case Text:
		return v.s, true
	case Float:
		f := exact(v)
		if f == nil || !f.IsInt() {
			return float64(v), true
		}
		i, _ := f.Int(nil)
		return numberKey(i.Text(62)), true
	case Int, Bool, large:
		return numberKey(whole(v).Text(62)), true
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
	l := &List{make([]Value, len(d.entries)), dictKeys}
	for i, e := range d.entries {
		l.Items[i] = e.key
	}
	return l
}

func (d *Dict) pairs() *List {
	l := &List{make([]Value, len(d.entries)), dictItems}
	for i, e := range d.entries {
		l.Items[i] = &List{[]Value{e.key, e.value}, tuple}
	}
	return l
}

// maxNesting is the maximum depth of lists and objects in JSON.
const maxNesting = 100

// FromJSON parses a JSON value. Objects keep the order of their keys; strings, keys included, are
// converted by text. Numbers without fraction and exponent are integers and keep their digits.
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
		if i, err := integerOf(t.String()); i != nil || err != nil {
			return i, err
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
	case large:
		return true
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
