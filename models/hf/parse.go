package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fields reads the members of a JSON object. The first error sticks; null counts as absent, as in
// transformers.
type fields struct {
	file   string
	values map[string]json.RawMessage
	err    error
}

// notJSON is the numbers that Python's json writes and JSON does not have, or a string.
var notJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// parse reads numbers that JSON does not have as strings: files may have them (time_step_limit of
// hybrids is [0, Infinity]), and what takes a number refuses them by their member's name.
func parse(text []byte, file string) (*fields, error) {
	f := &fields{file: file}
	text = notJSON.ReplaceAllFunc(text, func(b []byte) []byte {
		if b[0] == '"' {
			return b
		}
		return []byte(strconv.Quote(string(b)))
	})
	if err := json.Unmarshal(text, &f.values); err != nil {
		return nil, fmt.Errorf("%s: not a JSON object: %w", file, err)
	}
	if f.values == nil {
		return nil, fmt.Errorf("%s: not a JSON object", file)
	}
	return f, nil
}

func (f *fields) fail(name string, err error) {
	if f.err == nil {
		f.err = &FieldError{File: f.file, Field: name, Err: err}
	}
}

// has reports whether the field is present and not null.
func (f *fields) has(name string) bool {
	v, ok := f.values[name]
	return ok && string(v) != "null"
}

// decode stores the field in dst if it is present; want describes dst's type.
func (f *fields) decode(name, want string, dst any) bool {
	if !f.has(name) {
		return false
	}
	if json.Unmarshal(f.values[name], dst) != nil {
		f.fail(name, fmt.Errorf("%s is not %s", excerpt(f.values[name]), want))
		return false
	}
	return true
}

func excerpt(v json.RawMessage) string {
	const most = 40
	if len(v) > most {
		return strings.ToValidUTF8(string(v[:most]), "") + "…"
	}
	return string(v)
}

// size returns a positive integer; absent is the default, or 0 if the field is required. A negative
// absent is the least value too.
func (f *fields) size(name string, absent int) int {
	var n int
	if !f.has(name) {
		if absent == 0 {
			f.fail(name, ErrMissing)
		}
		return absent
	}
	if f.decode(name, "an integer", &n) && (n <= 0 && (absent >= 0 || n < absent) || n > math.MaxInt32) {
		f.fail(name, fmt.Errorf("%d is not a positive integer of 32 bits", n))
	}
	return n
}

// number returns a positive float; absent is the default, or 0 if the field is required.
func (f *fields) number(name string, absent float64) float64 {
	x := absent
	if absent == 0 && !f.has(name) {
		f.fail(name, ErrMissing)
	}
	if f.decode(name, "a number", &x) && x <= 0 {
		f.fail(name, fmt.Errorf("%v is not positive", x))
	}
	return x
}

func (f *fields) flag(name string) (b bool) {
	f.decode(name, "true or false", &b)
	return b
}

func (f *fields) text(name string) (s string) {
	f.decode(name, "a string", &s)
	return s
}

// ids returns a token id or a list of them.
func (f *fields) ids(name string) []int {
	if !f.has(name) {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(f.values[name], &list) != nil {
		list = []json.RawMessage{f.values[name]}
	}
	ids := make([]int, len(list))
	for i, v := range list {
		id, err := strconv.ParseInt(string(v), 10, 32)
		if err != nil || id < 0 {
			f.fail(name, fmt.Errorf("%s is not a token id or a list of them", excerpt(f.values[name])))
			return nil
		}
		ids[i] = int(id)
	}
	return ids
}

// ParseConfig parses config.json; name is that of the file in errors.
func ParseConfig(text []byte, name string) (*Config, error) {
	f, err := parse(text, name)
	if err != nil {
		return nil, err
	}
	architectures, kind := f.values["architectures"], f.values["model_type"]
	var inner map[string]json.RawMessage
	if f.decode("text_config", "an object", &inner) { // of a model that reads more than text
		maps.Copy(f.values, inner)
		f.values["architectures"], f.values["model_type"] = architectures, kind
	}
	const attention = "attn_config" // of MPT: its members are called "attn_config.alibi"
	var nested map[string]json.RawMessage
	f.decode(attention, "an object", &nested)
	for name, v := range nested {
		f.values[attention+"."+name] = v
	}
	c := &Config{
		ModelType:   f.text("model_type"),
		TorchDType:  f.text("torch_dtype"),
		BOSTokenIDs: f.ids("bos_token_id"),
		EOSTokenIDs: f.ids("eos_token_id"),
	}
	f.decode("architectures", "a list of strings", &c.Architectures)
	if c.TorchDType == "" {
		c.TorchDType = f.text("dtype") // its name since transformers 5
	}
	if c.ModelType == "" && len(c.Architectures) == 0 {
		f.fail("model_type", ErrMissing)
	}
	if f.err != nil {
		return nil, f.err
	}
	c.members = *f
	return c, nil
}

// Has reports whether a member is present and not null.
func (c *Config) Has(name string) bool { return c.members.has(name) }

// Size returns a positive integer; absent is the default, or 0 if the member is required. A negative
// absent is the least value too.
func (c *Config) Size(name string, absent int) int { return c.members.size(name, absent) }

// Number returns a positive number; absent is the default, or 0 if the member is required.
func (c *Config) Number(name string, absent float64) float64 { return c.members.number(name, absent) }

// Flag returns a bool; false if the member is absent.
func (c *Config) Flag(name string) bool { return c.members.flag(name) }

// Text returns a string; "" if the member is absent.
func (c *Config) Text(name string) string { return c.members.text(name) }

// Sizes returns a list of non-negative integers; nil if the member is absent.
func (c *Config) Sizes(name string) (list []int) {
	if c.members.decode(name, "a list of integers", &list) && slices.ContainsFunc(list, func(n int) bool { return n < 0 }) {
		c.members.fail(name, fmt.Errorf("%v has a negative element", list))
	}
	return list
}

// Texts returns a list of strings; nil if the member is absent.
func (c *Config) Texts(name string) (list []string) {
	c.members.decode(name, "a list of strings", &list)
	return list
}

// Numbers returns a list of numbers, which Python's notation may have as infinite; nil if the member is
// absent.
func (c *Config) Numbers(name string) (list []float64) {
	var all []extended
	c.members.decode(name, "a list of numbers", &all)
	for _, x := range all {
		list = append(list, float64(x))
	}
	return list
}

// extended is a number, or the name of one that JSON lacks.
type extended float64

// UnmarshalJSON implements [json.Unmarshaler].
func (x *extended) UnmarshalJSON(text []byte) error {
	if name, err := strconv.Unquote(string(text)); err == nil {
		if name != "Infinity" && name != "-Infinity" && name != "NaN" {
			return fmt.Errorf("%q is no number", name)
		}
		text = []byte(name)
	}
	n, err := strconv.ParseFloat(string(text), 64)
	*x = extended(n)
	return err
}

// Names returns the names of an object's members, sorted; nil if there is no such member.
func (c *Config) Names(name string) []string {
	var members map[string]json.RawMessage
	c.members.decode(name, "an object", &members)
	return slices.Sorted(maps.Keys(members))
}

// Err returns the first error of the members read, a [FieldError].
func (c *Config) Err() error { return c.members.err }

// Rope reads rope_parameters (transformers 5, with the base inside), or rope_scaling with
// rope_theta and partial_rotary_factor beside it.
func (c *Config) Rope() Rope {
	const current, former = "rope_parameters", "rope_scaling"
	f := &c.members
	rope := Rope{Theta: f.number("rope_theta", 10000), PartialRotaryFactor: f.number("partial_rotary_factor", 1)}
	name := former
	if f.has(current) {
		name = current
	}
	var members map[string]json.RawMessage
	if !f.decode(name, "an object", &members) {
		return rope
	}
	inner := &fields{file: f.file, values: members}
	s := &RopeScaling{Raw: f.values[name], Numbers: map[string]float64{}, file: f.file, field: name}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		v := members[member]
		var x float64
		var object map[string]json.RawMessage
		switch {
		case string(v) == "null":
		case json.Unmarshal(v, &x) == nil:
			s.Numbers[member] = x
		case json.Unmarshal(v, &object) == nil:
			// Models with layers of several kinds nest one object for each kind.
			inner.fail(member, errors.New("parameters that differ by layer are not supported"))
		case slices.Contains([]string{"NaN", "Infinity", "-Infinity"}, strings.Trim(string(v), `"`)):
			inner.fail(member, fmt.Errorf("%s is not a number", v))
		}
	}
	inner.decode("mrope_section", "a list of integers", &rope.Sections)
	s.Kind = inner.text("rope_type")
	if s.Kind == "" {
		s.Kind = inner.text("type")
	}
	if name == current {
		rope.Theta = inner.number("rope_theta", rope.Theta)
		rope.PartialRotaryFactor = inner.number("partial_rotary_factor", rope.PartialRotaryFactor)
		delete(s.Numbers, "rope_theta")
	}
	switch {
	case s.Kind == "default" || s.Kind == "" && name == current:
	case s.Kind == "":
		inner.fail("rope_type", ErrMissing)
	default:
		rope.Scaling = s
	}
	var wrong *FieldError
	if errors.As(inner.err, &wrong) {
		f.fail(name+"."+wrong.Field, wrong.Err)
	}
	return rope
}

// RopeOf is Rope for one kind of layers, of models that have an object for each kind in
// rope_parameters.
func (c *Config) RopeOf(kind string) Rope {
	const name = "rope_parameters"
	f := &c.members
	var kinds map[string]json.RawMessage
	f.decode(name, "an object", &kinds)
	one := Config{members: fields{file: f.file, values: map[string]json.RawMessage{name: kinds[kind]}}}
	if kinds[kind] == nil {
		f.fail(name+"."+kind, ErrMissing)
		return Rope{}
	}
	rope := one.Rope()
	if one.members.err != nil && f.err == nil {
		f.err = one.members.err
	}
	return rope
}

// Word returns the text of a member that may be a string or true or false; "" if it is absent.
func (c *Config) Word(name string) string {
	if !c.members.has(name) {
		return ""
	}
	return strings.Trim(string(c.members.values[name]), `"`)
}

// ParseGeneration parses generation_config.json; name is that of the file in errors.
func ParseGeneration(text []byte, name string) (Generation, error) {
	f, err := parse(text, name)
	if err != nil {
		return Generation{}, err
	}
	g := Generation{
		BOSTokenIDs: f.ids("bos_token_id"),
		EOSTokenIDs: f.ids("eos_token_id"),
		PadTokenIDs: f.ids("pad_token_id"),
		Suppressed:  f.ids("suppress_tokens"),
	}
	if f.err != nil {
		return Generation{}, f.err
	}
	return g, nil
}
