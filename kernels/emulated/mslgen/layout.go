package mslgen

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

var scalarSize = map[string]int{
	"bool": 1, "char": 1, "uchar": 1, "int8_t": 1, "uint8_t": 1, "signed char": 1, "unsigned char": 1,
	"short": 2, "ushort": 2, "int16_t": 2, "uint16_t": 2, "unsigned short": 2, "half": 2, "bfloat": 2,
	"int": 4, "uint": 4, "int32_t": 4, "uint32_t": 4, "unsigned": 4, "unsigned int": 4, "float": 4,
	"atomic_uint": 4, "atomic_int": 4, "atomic_float": 4, "atomic_bool": 4,
	"long": 8, "ulong": 8, "int64_t": 8, "uint64_t": 8, "size_t": 8, "unsigned long": 8,
}

var vectorName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(packed_)?(bool|char|uchar|short|ushort|int|uint|long|ulong|half|bfloat|float)([234])$`)
})

// scope resolves names within one instance of a kernel.
type scope struct {
	p      *parser
	types  map[string][]token
	values map[string][]token
}

// constant returns a lookup of integer constants by name; values shadow program scope.
func (p *parser) constant(values map[string][]token) func(string) (int64, bool) {
	depth := 0
	var lookup func(string) (int64, bool)
	s := &scope{p: p, values: values}
	lookup = func(name string) (int64, bool) {
		expr, ok := values[name]
		if !ok {
			if expr, ok = p.defines[name]; !ok {
				return 0, false
			}
		}
		if depth > 50 { // a constant defined by itself
			return 0, false
		}
		depth++
		defer func() { depth-- }()
		e := &evaluator{tokens: expr, lookup: lookup, sizeof: func(t []token) (int64, error) {
			n, _, err := s.layout(t, 0)
			return int64(n), err
		}}
		v, err := e.whole()
		return v, err == nil
	}
	return lookup
}

func (s *scope) evaluate(tokens []token) (int64, error) {
	e := &evaluator{tokens: tokens, lookup: s.p.constant(s.values), sizeof: func(t []token) (int64, error) {
		n, _, err := s.layout(t, 0)
		return int64(n), err
	}}
	return e.whole()
}

// layout returns the size and alignment of a type.
func (s *scope) layout(typ []token, depth int) (size, align int, err error) {
	if depth > 20 {
		return 0, 0, fmt.Errorf("type %s nests too deeply", join(typ))
	}
	for len(typ) > 0 && (typ[0].is("struct") || typ[0].is("const") || typ[0].is("typename")) {
		typ = typ[1:]
	}
	for len(typ) > 1 && typ[0].kind == ident && typ[1].is("::") {
		typ = typ[2:]
	}
	name := join(typ)
	if n, ok := scalarSize[name]; ok {
		return n, n, nil
	}
	if m := vectorName().FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[3])
		return vectorLayout(scalarSize[m[2]], n, m[1] != "")
	}
	if len(typ) > 3 && (typ[0].is("vec") || typ[0].is("packed_vec") || typ[0].is("array")) && typ[1].is("<") {
		args := split(typ[2 : len(typ)-1])
		if len(args) == 2 {
			element, a, err := s.layout(args[0], depth+1)
			if err != nil {
				return 0, 0, err
			}
			n, err := s.evaluate(args[1])
			if err != nil {
				return 0, 0, err
			}
			if typ[0].is("array") {
				return element * int(n), a, nil
			}
			return vectorLayout(element, int(n), typ[0].is("packed_vec"))
		}
	}
	if len(typ) == 1 {
		if t, ok := s.types[name]; ok {
			return s.layout(t, depth+1)
		}
		if t, ok := s.p.aliases[name]; ok {
			return s.layout(t, depth+1)
		}
		if s.p.enums[name] {
			return 4, 4, nil
		}
		if st := s.p.structs[name]; st != nil {
			return s.structure(st, depth+1)
		}
	}
	return 0, 0, fmt.Errorf("the size of type %s is not known", name)
}

func vectorLayout(element, n int, packed bool) (int, int, error) {
	if n < 2 || n > 4 {
		return 0, 0, fmt.Errorf("vector of %d elements", n)
	}
	if packed {
		return n * element, element, nil
	}
	if n == 3 {
		n = 4
	}
	return n * element, n * element, nil
}

func (s *scope) structure(st *structure, depth int) (size, align int, err error) {
	align = 1
	for i, f := range st.fields {
		n, a, err := s.layout(f.typ, depth)
		if f.pointer > 0 {
			n, a, err = 8, 8, nil
		}
		if err != nil {
			return 0, 0, err
		}
		for _, d := range st.dims[i] {
			v, err := s.evaluate(d)
			if err != nil {
				return 0, 0, err
			}
			n *= int(v)
		}
		if st.packed {
			a = 1
		}
		align = max(align, a)
		if st.isUnion {
			size = max(size, n)
		} else {
			size = (size+a-1)/a*a + n
		}
	}
	return (size + align - 1) / align * align, align, nil
}

// variable returns a threadgroup variable with its size in this instance.
func (s *scope) variable(v *groupVar) (Variable, error) {
	n, _, err := s.layout(v.typ, 0)
	if err != nil {
		return Variable{}, errorAt(v.Pos, "threadgroup %s: %v", v.name, err)
	}
	typ := join(v.typ)
	for _, d := range v.dims {
		k, err := s.evaluate(d)
		if err != nil {
			return Variable{}, errorAt(v.Pos, "threadgroup %s: %v", v.name, err)
		}
		if k <= 0 || k > MaxThreadgroupBytes {
			return Variable{}, errorAt(v.Pos, "threadgroup %s: dimension %d", v.name, k)
		}
		typ += fmt.Sprintf("[%d]", k)
		if n *= int(k); n > 1<<30 {
			return Variable{}, errorAt(v.Pos, "threadgroup %s is over a gigabyte", v.name)
		}
	}
	return Variable{Pos: v.Pos, Name: v.name, Type: strings.TrimSpace(typ), Bytes: n}, nil
}
