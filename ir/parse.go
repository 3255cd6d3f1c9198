package ir

import (
	"encoding"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"text/scanner"
	"unicode"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// ErrSyntax is wrapped by every syntax error of Parse.
var ErrSyntax = errors.New("syntax error")

// maxParsedID bounds the memory of tables indexed by ID for any text.
const maxParsedID = 1 << 18

// Parse reads the text form of [Func.String] and verifies the graph. Syntax errors
// name the line.
func Parse(text string) (*Func, error) {
	p := parser{values: make(map[ID]*Value)}
	p.s.Init(strings.NewReader(text))
	p.s.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats | scanner.ScanStrings
	p.s.Error = func(*scanner.Scanner, string) {} // the token shows up as unexpected
	p.s.IsIdentRune = isWordRune
	p.next()
	f, err := p.function()
	if err != nil {
		return nil, fmt.Errorf("line %d: %w: %w", max(1, p.s.Position.Line), ErrSyntax, err)
	}
	if err := f.Verify(); err != nil {
		return nil, err
	}
	return f, nil
}

func isWordRune(r rune, i int) bool {
	return r == '_' || unicode.IsLetter(r) || i > 0 && (unicode.IsDigit(r) || r == '.' || r == '-')
}

// isWord reports whether the parser reads text as one word.
func isWord(text string) bool {
	for i, r := range text {
		if !isWordRune(r, i) {
			return false
		}
	}
	return text != ""
}

type parser struct {
	s      scanner.Scanner
	tok    rune
	values map[ID]*Value
}

func (p *parser) next() { p.tok = p.s.Scan() }

func (p *parser) unexpected(want string) error {
	if p.tok == scanner.EOF {
		return fmt.Errorf("the text ends where %s should stand", want)
	}
	return fmt.Errorf("%q where %s should stand", p.s.TokenText(), want)
}

func (p *parser) expect(tok rune, want string) error {
	if p.tok != tok {
		return p.unexpected(want)
	}
	p.next()
	return nil
}

func (p *parser) ident(want string) (string, error) {
	text := p.s.TokenText()
	return text, p.expect(scanner.Ident, want)
}

func (p *parser) integer(want string) (int, error) {
	n, err := strconv.Atoi(p.s.TokenText())
	if p.tok != scanner.Int || err != nil {
		return 0, p.unexpected(want)
	}
	p.next()
	return n, nil
}

func (p *parser) function() (*Func, error) {
	if kw, err := p.ident(`"func"`); err != nil || kw != "func" {
		return nil, fmt.Errorf(`a graph starts with "func"`)
	}
	name, err := p.ident("the graph's name")
	if err != nil {
		return nil, err
	}
	stage, err := p.ident("the stage")
	if err != nil {
		return nil, err
	}
	f := NewFunc(name, 0)
	for s, n := range stageNames {
		if n == stage {
			f.Stage = s
		}
	}
	if f.Stage == 0 {
		return nil, fmt.Errorf("no stage is called %q", stage)
	}
	if err := p.expect('{', `"{"`); err != nil {
		return nil, err
	}
	for p.tok != '}' {
		word, err := p.ident("a value or return")
		if err != nil {
			return nil, err
		}
		if word == "return" {
			err = p.result(f)
		} else {
			err = p.value(f, word)
		}
		if err != nil {
			return nil, err
		}
	}
	p.next()
	if p.tok != scanner.EOF {
		return nil, p.unexpected("the end")
	}
	return f, nil
}

func (p *parser) result(f *Func) error {
	name, err := strconv.Unquote(p.s.TokenText())
	if p.tok != scanner.String || err != nil {
		return p.unexpected("the result's name in quotes")
	}
	p.next()
	v, err := p.operand()
	if err != nil {
		return err
	}
	f.Results = append(f.Results, Result{name, v})
	return nil
}

func parseID(word string) (ID, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(word, "v"))
	return ID(n), strings.HasPrefix(word, "v") && err == nil && n > 0 && n < maxParsedID
}

func (p *parser) operand() (*Value, error) {
	word := p.s.TokenText()
	id, ok := parseID(word)
	if p.tok != scanner.Ident || !ok {
		return nil, p.unexpected("a value")
	}
	v := p.values[id]
	if v == nil {
		return nil, fmt.Errorf("%s is used before it is defined", word)
	}
	p.next()
	return v, nil
}

func (p *parser) value(f *Func, word string) error {
	id, ok := parseID(word)
	if !ok {
		return fmt.Errorf("%q names no value", word)
	}
	if p.values[id] != nil {
		return fmt.Errorf("%s is defined twice", word)
	}
	if err := p.expect('=', `"="`); err != nil {
		return err
	}
	name, err := p.ident("an op")
	if err != nil {
		return err
	}
	op, ok := ParseOp(name)
	if !ok {
		return fmt.Errorf("no op is called %q", name)
	}
	v := &Value{ID: id, Op: op, Layer: NoLayer}
	for p.tok == scanner.Ident {
		a, err := p.operand()
		if err != nil {
			return err
		}
		v.Args = append(v.Args, a)
	}
	if v.Attr, err = p.attribute(opTable[op].attr); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := p.expect(':', `":" and a type`); err != nil {
		return err
	}
	if v.Type, err = p.typ(0); err != nil {
		return err
	}
	if p.tok == '@' {
		p.next()
		if v.Layer, err = p.integer("a layer"); err != nil {
			return err
		}
	}
	p.values[id] = v
	f.Values = append(f.Values, v)
	f.lastID = max(f.lastID, id)
	return nil
}

// attribute reads {name=value …} into a struct of the prototype's type.
func (p *parser) attribute(prototype any) (any, error) {
	if prototype == nil {
		return nil, nil
	}
	s := reflect.New(reflect.TypeOf(prototype)).Elem()
	if err := p.expect('{', `"{"`); err != nil {
		return nil, err
	}
	for p.tok != '}' {
		name, err := p.ident("a field")
		if err != nil {
			return nil, err
		}
		if err := p.expect('=', `"="`); err != nil {
			return nil, err
		}
		structField, field, ok := findField(s, name)
		if !ok {
			return nil, fmt.Errorf("no field is called %q", name)
		}
		if err := p.field(structField, field); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	p.next()
	return s.Interface(), nil
}

func findField(s reflect.Value, name string) (reflect.StructField, reflect.Value, bool) {
	for i := range s.NumField() {
		if s.Field(i).Kind() == reflect.Struct {
			if sf, f, ok := findField(s.Field(i), name); ok {
				return sf, f, true
			}
		} else if sf := s.Type().Field(i); fieldName(sf) == name {
			return sf, s.Field(i), true
		}
	}
	return reflect.StructField{}, reflect.Value{}, false
}

func (p *parser) field(sf reflect.StructField, f reflect.Value) error {
	text := p.s.TokenText()
	named, isNamed := f.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case isNamed && p.tok == scanner.Ident:
		if err := named.UnmarshalText([]byte(text)); err != nil {
			return err
		}
	case f.Kind() == reflect.String && p.tok == scanner.String:
		s, err := strconv.Unquote(text)
		if err != nil {
			return p.unexpected("its value")
		}
		if isBytes(sf) {
			var data []byte
			data, err = base64.StdEncoding.DecodeString(s)
			s = string(data)
		}
		if err != nil {
			return err
		}
		f.SetString(s)
	case f.Kind() == reflect.Bool && p.tok == scanner.Ident && (text == "true" || text == "false"):
		f.SetBool(text == "true")
	case f.Kind() == reflect.Int || f.Kind() == reflect.Float64:
		return p.number(f)
	default:
		return p.unexpected("its value")
	}
	p.next()
	return nil
}

func (p *parser) number(f reflect.Value) error {
	sign := ""
	if p.tok == '-' {
		sign = "-"
		p.next()
	}
	text := sign + p.s.TokenText()
	if f.Kind() == reflect.Float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || p.tok != scanner.Int && p.tok != scanner.Float {
			return p.unexpected("a number")
		}
		f.SetFloat(x)
	} else {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || p.tok != scanner.Int {
			return p.unexpected("a whole number")
		}
		f.SetInt(n)
	}
	p.next()
	return nil
}

const maxTupleDepth = 4

func (p *parser) typ(depth int) (Type, error) {
	if p.tok == '(' {
		return p.tuple(depth)
	}
	name, err := p.ident("a type")
	if err != nil {
		return Type{}, err
	}
	if name == "cache" {
		return p.cache()
	}
	if name == "state" {
		return p.recurrent()
	}
	elem, err := dtype.Parse(name)
	if err != nil {
		return Type{}, err
	}
	t := TensorOf(elem)
	for sep := '['; ; sep = ',' {
		if err := p.expect(sep, "a shape"); err != nil {
			return Type{}, err
		}
		d, err := p.dim()
		if err != nil {
			return Type{}, err
		}
		t.Shape = append(t.Shape, d)
		if p.tok == ']' {
			p.next()
			return t, nil
		}
	}
}

func (p *parser) dim() (Dim, error) {
	var text strings.Builder
	for p.tok == scanner.Int || p.tok == scanner.Ident || p.tok == '*' || p.tok == '+' || p.tok == '-' {
		text.WriteString(p.s.TokenText())
		p.next()
	}
	if text.Len() == 0 {
		return Dim{}, p.unexpected("an extent")
	}
	return ParseDim(text.String())
}

func (p *parser) cache() (Type, error) {
	if err := p.expect('<', `"<"`); err != nil {
		return Type{}, err
	}
	name, err := p.ident("an element type")
	if err != nil {
		return Type{}, err
	}
	var c Cache
	if c.DType, err = dtype.Parse(name); err != nil {
		return Type{}, err
	}
	for _, n := range []*int{&c.KVHeads, &c.Head, &c.Block} {
		if err := p.expect(',', `","`); err != nil {
			return Type{}, err
		}
		if *n, err = p.integer("a size"); err != nil {
			return Type{}, err
		}
	}
	for p.tok == ',' && !c.Latent {
		p.next()
		switch {
		case p.tok == scanner.Ident && p.s.TokenText() == "latent":
			c.Latent = true
			p.next()
		case c.Window != 0:
			return Type{}, p.unexpected(`"latent"`)
		default:
			if c.Window, err = p.integer("a window"); err != nil {
				return Type{}, err
			}
		}
	}
	return StateOf(c), p.expect('>', `">"`)
}

func (p *parser) recurrent() (Type, error) {
	var r Recurrent
	sep, text := '<', `"<"`
	for _, n := range []*int{&r.Rows, &r.Width, &r.Block} {
		if err := p.expect(sep, text); err != nil {
			return Type{}, err
		}
		var err error
		if *n, err = p.integer("a size"); err != nil {
			return Type{}, err
		}
		sep, text = ',', `","`
	}
	return RecurrentOf(r), p.expect('>', `">"`)
}

func (p *parser) tuple(depth int) (Type, error) {
	if depth == maxTupleDepth {
		return Type{}, errors.New("tuples nest too deep")
	}
	t := TupleOf()
	for p.tok != ')' {
		p.next()
		e, err := p.typ(depth + 1)
		if err != nil {
			return Type{}, err
		}
		t.Elems = append(t.Elems, e)
		if p.tok != ',' && p.tok != ')' {
			return Type{}, p.unexpected(`"," or ")"`)
		}
	}
	p.next()
	return t, nil
}
