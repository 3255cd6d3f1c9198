package mslgen

import (
	"fmt"
	"slices"
	"strings"
)

// mark puts macros around the loops and branches of f for instrumented builds
// (runtime.h; other builds define them as empty):
//
//	MSL_LOOP(n)            before a loop whose trip count the compiler does not know
//	MSL_TURN(n, condition) around its condition
//	MSL_BRANCH(n, …)       around the conditions of if and ?:
//	MSL_CHOOSE(n, …)       around the value of a switch
//	MSL_STEP(condition)    around the condition of a loop whose trip count it knows
//	MSL_BY                 before the right operand of a shift
//	MSL_CAST(type, …)      around a value that is converted to another number type
//
// Conditions decided at pipeline creation are no branches and have no mark: those of
// literals, constants, function constants, template parameters and the counters of loops
// with a known trip count.
func (p *parser) mark(f *function, locals map[string][]token) error {
	m := &marker{parser: p, f: f, fixed: map[string]bool{"true": true, "false": true}}
	for name := range p.defines {
		m.fixed[name] = true
	}
	for name := range p.derived {
		m.fixed[name] = true
	}
	for _, c := range p.unit.Constants {
		m.fixed[c.Name] = true
	}
	for _, q := range f.params {
		delete(m.fixed, q.name)
	}
	for _, q := range f.template {
		m.fixed[q.name] = true
	}
	for again := true; again; { // a constant may depend on earlier ones
		again = false
		for name, value := range locals {
			if !m.fixed[name] && m.isFixed(value) {
				m.fixed[name], again = true, true
			}
		}
	}
	for i := f.open; i <= f.close; i++ {
		if err := m.visit(i); err != nil {
			return err
		}
	}
	return nil
}

type marker struct {
	*parser
	f     *function
	fixed map[string]bool
	tails []int // the while of each do that has been met
}

func (m *marker) isFixed(tokens []token) bool {
	return len(tokens) > 0 && !slices.ContainsFunc(tokens, func(t token) bool {
		return t.kind == text || t.kind == ident && !m.fixed[t.text] || t.is(".") || t.is("->") || t.is("=")
	})
}

// around puts a macro around the tokens [from, to).
func (m *marker) around(macro string, from, to int) {
	m.marks++
	m.before[from] += fmt.Sprintf("%s(%d, ", macro, m.marks)
	m.before[to] = ")" + m.before[to]
}

func (m *marker) visit(i int) error {
	t := m.tok(i)
	switch {
	case m.isShift(i):
		by := i + 1
		if t.is(">") {
			by++
		}
		if m.tok(i-1).kind != number || m.tok(by).kind != number {
			m.before[by] += "MSL_BY "
		}
	case numberTypes[t.text] && t.kind == ident && m.tok(i+1).is("(") && !m.tok(i+2).is(")"):
		close, err := m.match(i + 1)
		if err != nil {
			return err
		}
		if !m.isFixed(m.tokens[i+2 : close]) {
			m.before[i+2] += "MSL_CAST(" + t.text + ", "
			m.before[close] = ")" + m.before[close]
		}
	case t.is("?") && t.kind == punct:
		if from := m.condition(i); !m.isFixed(m.tokens[from:i]) {
			m.around("MSL_BRANCH", from, i)
		}
	case t.kind != ident:
	case t.is("do"):
		end, err := m.body(i + 1)
		if err != nil {
			return err
		}
		m.tails = append(m.tails, end)
		m.marks++
		m.before[i] += fmt.Sprintf("MSL_LOOP(%d) ", m.marks)
	case (t.is("if") || t.is("switch") || t.is("while") || t.is("for")) && m.tok(i+1).is("("):
		close, err := m.match(i + 1)
		if err != nil {
			return err
		}
		from, to, fixed := i+2, close, false
		if t.is("for") {
			if from, to, fixed = m.header(i+2, close); to == 0 {
				return nil
			}
		}
		if m.declares(from, to) {
			return nil
		}
		switch {
		case fixed:
			m.before[from] += "MSL_STEP("
			m.before[to] = ")" + m.before[to]
		case t.is("if") && !m.isFixed(m.tokens[from:to]):
			m.around("MSL_BRANCH", from, to)
		case t.is("switch") && !m.isFixed(m.tokens[from:to]):
			m.around("MSL_CHOOSE", from, to)
		case t.is("while") && slices.Contains(m.tails, i):
			m.around("MSL_TURN", from, to)
		case t.is("while") || t.is("for"):
			m.marks++
			m.before[i] += fmt.Sprintf("MSL_LOOP(%d) ", m.marks)
			m.around("MSL_TURN", from, to)
			if from == to { // for (;;)
				m.before[to] = fmt.Sprintf("MSL_TURN(%d, true)", m.marks)
			}
		}
	}
	return nil
}

// numberTypes holds the names of the number types and of their vectors.
var numberTypes = func() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields("float half bfloat int uint short ushort char uchar long ulong") {
		for _, width := range []string{"", "2", "3", "4"} {
			names[name+width] = true
		}
	}
	return names
}()

// isShift reports whether a shift operator, or its assignment, begins at i. Two > that end
// template arguments have no space before them.
func (m *marker) isShift(i int) bool {
	t := m.tok(i)
	if t.kind != punct {
		return false
	}
	return t.is("<<") || t.is("<<=") || t.is(">") && t.space && !m.tok(i+1).space && (m.tok(i+1).is(">") || m.tok(i+1).is(">="))
}

// header returns the condition of a for whose parentheses hold the tokens [from, to),
// and whether its trip count is known. It then marks the counter as fixed, because
// unrolling decides whatever depends on it. A range-based for has the condition [0, 0).
func (m *marker) header(from, to int) (begin, end int, fixed bool) {
	first, err := m.statement(from)
	if err != nil || first >= to {
		return 0, 0, false
	}
	second, err := m.statement(first + 1)
	if err != nil || second >= to {
		return 0, 0, false
	}
	init := m.tokens[from:first]
	eq := slices.IndexFunc(init, func(t token) bool { return t.is("=") })
	if eq < 1 || !m.isFixed(init[eq+1:]) || slices.ContainsFunc(init, func(t token) bool { return t.is(",") }) {
		return first + 1, second, false
	}
	name := init[eq-1].text
	was := m.fixed[name]
	m.fixed[name] = true
	step := slices.DeleteFunc(slices.Clone(m.tokens[second+1:to]), func(t token) bool { return t.is("=") })
	if m.isFixed(m.tokens[first+1:second]) && m.isFixed(step) {
		return first + 1, second, true
	}
	m.fixed[name] = was
	return first + 1, second, false
}

// declares reports whether a condition declares a variable, which cannot be a macro's argument.
func (m *marker) declares(from, to int) bool {
	for i := from; i+1 < to; i++ {
		if m.tok(i).is(";") {
			return true
		}
		if m.tok(i).kind == ident && m.tok(i+1).is("=") && i > from && (m.tok(i-1).kind == ident || m.tok(i-1).is("*")) {
			return true
		}
	}
	return m.tok(from-2).is("if") && m.tok(from-1).is("constexpr")
}

// body returns the index after the statement at i, the body of a do loop.
func (m *marker) body(i int) (int, error) {
	if !m.tok(i).is("{") {
		end, err := m.statement(i)
		return end + 1, err
	}
	end, err := m.match(i)
	return end + 1, err
}

// condition returns the index at which the condition of the ? at q begins.
func (m *marker) condition(q int) int {
	i := q
	for i > m.f.open+1 {
		t := m.tok(i - 1)
		switch {
		case t.is(")") || t.is("]"):
			i = m.opens(i - 1)
			continue
		case t.is(">"):
			if open := m.angled(i - 1); open > 0 {
				i = open
				continue
			}
		case t.is("return") || t.is("case") || t.is("else") || t.is("do"):
			return i
		case t.kind == punct && (assigns(t) || slices.Contains([]string{"(", "[", "{", "}", ",", ";", "?", ":"}, t.text)):
			return i
		}
		i--
	}
	return i
}

// opens returns the index of the bracket that the one at i closes.
func (m *marker) opens(i int) int {
	depth := 0
	for ; i > m.f.open; i-- {
		switch t := m.tok(i); {
		case t.is(")") || t.is("]") || t.is("}"):
			depth++
		case t.is("(") || t.is("[") || t.is("{"):
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return i
}

// angled returns the index of the < of the template arguments that the > at i ends, or
// 0 where it compares.
func (m *marker) angled(i int) int {
	for j := i - 1; j > m.f.open; j-- {
		t := m.tok(j)
		if t.is(";") || t.is("{") || t.is("}") || t.is("(") {
			return 0
		}
		if t.is("<") && m.tok(j-1).kind == ident && angle(m.tokens, j) == i {
			return j
		}
	}
	return 0
}
