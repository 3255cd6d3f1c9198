package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt"
)

// params is the members of a request. An endpoint takes those that it supports; done fails on those
// that are left, since they are mistakes or would change the answer.
type params struct {
	members map[string]json.RawMessage
	err     *Error // the first error
}

// readParams parses the JSON object in a request's body. The content type must be application/json:
// pages of other origins cannot send that without a CORS preflight.
func readParams(r *http.Request) (*params, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Type: invalidRequest, Code: "unsupported_media_type",
			Message: fmt.Sprintf("Content-Type is %q: want application/json", r.Header.Get("Content-Type"))}
	}
	return parseParams(r.Body.(*body).text) // see receive
}

func parseParams(raw []byte) (*params, error) {
	p := &params{}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return nil, invalid("", "the body is not a JSON object")
	}
	if err := json.Unmarshal(raw, &p.members); err != nil {
		return nil, invalid("", "body: %v", err)
	}
	return p, nil
}

func (p *params) fail(e *Error) {
	if p.err == nil {
		p.err = e
	}
}

// take removes and returns a member; null counts as absent.
func (p *params) take(name string) (json.RawMessage, bool) {
	raw, ok := p.members[name]
	delete(p.members, name)
	return raw, ok && string(raw) != "null"
}

// read decodes a member; unknown members within it are errors.
func (p *params) read(name string, to any) bool {
	raw, ok := p.take(name)
	if !ok {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		p.fail(invalid(name, "%s: %s", name, explained(err)))
		return false
	}
	return true
}

// explained returns the message of a JSON error without names of Go.
func explained(err error) string {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		field := ""
		if typ.Field != "" {
			field = typ.Field + " "
		}
		return fmt.Sprintf("%sis a %s: want %s", field, typ.Value, called(typ.Type))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// called returns JSON's name of a type.
func called(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// number reads a number in [least, most].
func (p *params) number(name string, to *float64, least, most float64) bool {
	if !p.read(name, to) {
		return false
	}
	if !(*to >= least && *to <= most) {
		p.fail(invalid(name, "%s is %g: want %g to %g", name, *to, least, most))
	}
	return true
}

// whole reads a whole number in [least, most].
func (p *params) whole(name string, to *int, least, most int) bool {
	var n float64 // accepts 1e3 and 5.0
	if !p.read(name, &n) {
		return false
	}
	if n != math.Trunc(n) || n < float64(least) || n > float64(most) {
		p.fail(invalid(name, "%s is %g: want a whole number, %d to %d", name, n, least, most))
		return false
	}
	*to = int(n)
	return true
}

// set sets a parameter of generation, and reports whether the request has it.
func (p *params) set(name string, of *Parameter, g *smelt.Generation) bool {
	raw, ok := p.take(name)
	if !ok {
		return false
	}
	if err := of.Set(g, string(raw)); err != nil {
		p.fail(invalid(name, "%s is %s: %v", name, cut(raw), err))
	}
	return true
}

// cut returns the beginning of a text that an error quotes.
func cut(raw []byte) string {
	const quoted = 40
	if len(raw) > quoted {
		return shown(raw[:quoted]) + "…"
	}
	return string(raw)
}

// texts reads a string or a list of at most most strings.
func (p *params) texts(name string, most int) (list []string) {
	raw, ok := p.take(name)
	if !ok {
		return nil
	}
	if raw[0] == '"' {
		list = make([]string, 1)
		if json.Unmarshal(raw, &list[0]) == nil {
			return list
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		p.fail(invalid(name, "%s: want a string, or a list of strings", name))
		return nil
	}
	if len(list) > most {
		p.fail(invalid(name, "%s has %d strings: want at most %d", name, len(list), most))
	}
	return list
}

// streamOptions reports whether a stream ends with its usage.
func (p *params) streamOptions(streamed bool) (usage bool) {
	var options struct {
		Usage       bool `json:"include_usage"`
		Obfuscation bool `json:"include_obfuscation"` // padding that hides lengths; clients need not get it
	}
	if p.read("stream_options", &options) && !streamed {
		p.fail(invalid("stream_options", "stream_options requires stream: true"))
	}
	return options.Usage
}

// ignore removes members that do not affect the answer.
func (p *params) ignore(names ...string) {
	for _, name := range names {
		delete(p.members, name)
	}
}

// only removes a member whose value is one of values, which describe the only behaviour; any other
// value is an error.
func (p *params) only(name, why string, values ...string) {
	raw, ok := p.take(name)
	if !ok {
		return
	}
	var is, want any
	_ = json.Unmarshal(raw, &is) // was already parsed as JSON
	for _, v := range values {
		if json.Unmarshal([]byte(v), &want) == nil && reflect.DeepEqual(is, want) {
			return
		}
	}
	p.fail(refused(name, why))
}

// done returns the first error, or an error for a member that was not taken.
func (p *params) done() error {
	if p.err != nil {
		return p.err
	}
	for _, name := range slices.Sorted(maps.Keys(p.members)) {
		if string(p.members[name]) != "null" {
			return refused(name, "this parameter is not supported")
		}
	}
	return nil
}

// texts encodes a parameter that is a text, a list of tokens, or a list of either.
func texts(param string, raw json.RawMessage, most, vocab int, encode func(string) ([]int32, error)) ([][]int32, error) {
	if len(raw) == 0 {
		return nil, invalid(param, "%s is missing", param)
	}
	list := []json.RawMessage{raw}
	var tokens []int32
	if raw[0] == '[' && json.Unmarshal(raw, &tokens) != nil {
		_ = json.Unmarshal(raw, &list) // was already parsed as JSON
	}
	if len(list) == 0 || len(list) > most {
		return nil, invalid(param, "%s has %d texts: want 1 to %d", param, len(list), most)
	}
	out := make([][]int32, len(list))
	for i, one := range list {
		var text string
		var err error
		if one[0] == '"' && json.Unmarshal(one, &text) == nil {
			out[i], err = encode(text)
		} else if json.Unmarshal(one, &out[i]) != nil {
			return nil, invalid(param, "%s: want a text, a list of tokens, or a list of either", param)
		}
		if errors.Is(err, smelt.ErrContext) {
			e := invalid(param, "text %d of %s: %v", i, param, err)
			e.Code = "context_length_exceeded"
			return nil, e
		}
		if err != nil {
			return nil, err
		}
		if len(out[i]) == 0 {
			return nil, invalid(param, "text %d of %s has no tokens", i, param)
		}
		for _, id := range out[i] {
			if id < 0 || int(id) >= vocab {
				return nil, invalid(param, "text %d of %s has token %d: the model has %d", i, param, id, vocab)
			}
		}
	}
	return out, nil
}
