package mslgen

import (
	"fmt"
	"strconv"
	"strings"
)

// evaluator computes integer constant expressions: conditions of #if and sizes of
// threadgroup arrays.
type evaluator struct {
	tokens []token
	at     int
	lookup func(name string) (int64, bool)
	sizeof func(tokens []token) (int64, error)
	depth  int
}

func evaluate(tokens []token, lookup func(string) (int64, bool)) (int64, error) {
	e := &evaluator{tokens: tokens, lookup: lookup}
	return e.whole()
}

func (e *evaluator) whole() (int64, error) {
	v, err := e.ternary()
	if err == nil && e.at < len(e.tokens) {
		err = fmt.Errorf("%q is not part of a constant expression", e.tokens[e.at].text)
	}
	return v, err
}

func (e *evaluator) peek(s string) bool { return e.at < len(e.tokens) && e.tokens[e.at].is(s) }

func (e *evaluator) accept(s string) bool {
	if e.peek(s) {
		e.at++
		return true
	}
	return false
}

func (e *evaluator) ternary() (int64, error) {
	c, err := e.binary(0)
	if err != nil || !e.accept("?") {
		return c, err
	}
	a, err := e.ternary()
	if err != nil {
		return 0, err
	}
	if !e.accept(":") {
		return 0, fmt.Errorf("a question mark without its colon")
	}
	b, err := e.ternary()
	if c != 0 {
		return a, err
	}
	return b, err
}

var precedence = [][]string{
	{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"},
}

func (e *evaluator) operator(level int) string {
	if e.at >= len(e.tokens) || e.tokens[e.at].kind != punct {
		return ""
	}
	op := e.tokens[e.at].text
	if op == ">" && e.at+1 < len(e.tokens) && e.tokens[e.at+1].is(">") && !e.tokens[e.at+1].space {
		op = ">>"
	}
	for _, s := range precedence[level] {
		if s == op {
			e.at += 1
			if op == ">>" {
				e.at++
			}
			return op
		}
	}
	return ""
}

func (e *evaluator) binary(level int) (int64, error) {
	if level == len(precedence) {
		return e.unary()
	}
	a, err := e.binary(level + 1)
	for err == nil {
		op := e.operator(level)
		if op == "" {
			break
		}
		var b int64
		if b, err = e.binary(level + 1); err == nil {
			a, err = apply(op, a, b)
		}
	}
	return a, err
}

func apply(op string, a, b int64) (int64, error) {
	truth := func(v bool) int64 {
		if v {
			return 1
		}
		return 0
	}
	switch op {
	case "||":
		return truth(a != 0 || b != 0), nil
	case "&&":
		return truth(a != 0 && b != 0), nil
	case "|":
		return a | b, nil
	case "^":
		return a ^ b, nil
	case "&":
		return a & b, nil
	case "==":
		return truth(a == b), nil
	case "!=":
		return truth(a != b), nil
	case "<":
		return truth(a < b), nil
	case ">":
		return truth(a > b), nil
	case "<=":
		return truth(a <= b), nil
	case ">=":
		return truth(a >= b), nil
	case "<<", ">>":
		if b < 0 || b > 62 {
			return 0, fmt.Errorf("shift by %d", b)
		}
		if op == "<<" {
			return a << b, nil
		}
		return a >> b, nil
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	}
	if b == 0 {
		return 0, fmt.Errorf("division by zero")
	}
	if op == "/" {
		return a / b, nil
	}
	return a % b, nil
}

func (e *evaluator) unary() (int64, error) {
	if e.depth++; e.depth > 1000 {
		return 0, fmt.Errorf("expression nests too deeply")
	}
	defer func() { e.depth-- }()
	if e.at >= len(e.tokens) {
		return 0, fmt.Errorf("constant expression ends early")
	}
	t := e.tokens[e.at]
	e.at++
	switch {
	case t.kind == number:
		return parseInteger(t.text)
	case t.is("("):
		// A cast to an integer type does not change the evaluator's values.
		if end := e.at; e.sizeof != nil {
			for end < len(e.tokens) && (e.tokens[end].kind == ident || e.tokens[end].is("::")) {
				end++
			}
			if end > e.at && end < len(e.tokens) && e.tokens[end].is(")") && scalarSize[join(e.tokens[e.at:end])] != 0 {
				e.at = end + 1
				return e.unary()
			}
		}
		v, err := e.ternary()
		if err == nil && !e.accept(")") {
			err = fmt.Errorf("( without )")
		}
		return v, err
	case t.is("-"), t.is("+"), t.is("!"), t.is("~"):
		v, err := e.unary()
		switch t.text {
		case "-":
			v = -v
		case "~":
			v = ^v
		case "!":
			if v == 0 {
				v = 1
			} else {
				v = 0
			}
		}
		return v, err
	case t.is("sizeof") && e.sizeof != nil && e.peek("("):
		end, depth := e.at, 0
		for ; end < len(e.tokens); end++ {
			if e.tokens[end].is("(") {
				depth++
			} else if e.tokens[end].is(")") {
				if depth--; depth == 0 {
					break
				}
			}
		}
		if end == len(e.tokens) {
			return 0, fmt.Errorf("sizeof( without )")
		}
		inner := e.tokens[e.at+1 : end]
		e.at = end + 1
		return e.sizeof(inner)
	case t.kind == ident:
		if t.text == "true" {
			return 1, nil
		}
		if t.text == "false" {
			return 0, nil
		}
		name := t.text
		for e.peek("::") && e.at+1 < len(e.tokens) && e.tokens[e.at+1].kind == ident {
			name = e.tokens[e.at+1].text
			e.at += 2
		}
		if e.sizeof != nil && scalarSize[name] != 0 && e.peek("(") { // uint(N)
			return e.unary()
		}
		if v, ok := e.lookup(name); ok {
			return v, nil
		}
		return 0, fmt.Errorf("%s is not a constant that is known here", name)
	}
	return 0, fmt.Errorf("%q is not part of a constant expression", t.text)
}

func parseInteger(s string) (int64, error) {
	digits := strings.TrimRight(strings.ReplaceAll(s, "'", ""), "uUlL")
	v, err := strconv.ParseInt(digits, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is not an integer", s)
	}
	return v, nil
}
