package lint

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Metal's compiler keeps a thread's array in registers if every index is a compile-time
// constant. In a loop that is not unrolled the index is not, and the array goes to memory. So a
// loop whose variable, or a variable derived from it, indexes such an array must be marked
// UNROLL (unroll.h), and a marked loop must have a constant trip count.

// node is a line of clang's syntax tree.
type node struct {
	kind     string // such as ForStmt or DeclRefExpr
	text     string // the rest of the line
	id       string
	file     string
	line     int
	children []*node
}

var (
	treeLine = regexp.MustCompile("^([ |`-]*)(<<<NULL>>>|\\w+)(?: (0x[0-9a-f]+))?(.*)")
	location = regexp.MustCompile(`\bline:(\d+):\d+|\bcol:\d+|(<scratch space>|[^\s<>,:]+):(\d+):\d+`)
	referred = regexp.MustCompile(` (Var|NonTypeTemplateParm|EnumConstant) (0x[0-9a-f]+) `)
)

// treeOf parses the output of -ast-dump. A location omits what it shares with the one before.
func treeOf(dump []byte) *node {
	root := &node{}
	open := []*node{root}
	file, line := "", 0
	for text := range strings.Lines(string(dump)) {
		m := treeLine.FindStringSubmatch(strings.TrimRight(text, "\n"))
		if m == nil {
			continue
		}
		n := &node{kind: m[2], text: m[4], id: m[3], file: file, line: line}
		where, _, _ := strings.Cut(m[4], "'")
		for i, l := range location.FindAllStringSubmatch(where, -1) {
			if l[2] != "" {
				file = l[2]
			}
			if digits := l[1] + l[3]; digits != "" {
				line, _ = strconv.Atoi(digits)
			}
			if i == 0 {
				n.file, n.line = file, line
			}
		}
		depth := min(len(m[1])/2, len(open)-1)
		open = append(open[:depth+1], n)
		open[depth].children = append(open[depth].children, n)
	}
	return root
}

// each calls f for a node and all its descendants.
func (n *node) each(f func(*node)) {
	f(n)
	for _, c := range n.children {
		c.each(f)
	}
}

// names returns the kind and id of the declaration that a node refers to.
func (n *node) names() (kind, id string) {
	if m := referred.FindStringSubmatch(n.text); n.kind == "DeclRefExpr" && m != nil {
		return m[1], m[2]
	}
	return "", ""
}

// inThread reports whether an expression of the type in the node's text is in the thread address
// space.
func (n *node) inThread() bool {
	_, t, _ := strings.Cut(n.text, "'")
	t, _, _ = strings.Cut(t, "'")
	return strings.Contains(t[strings.LastIndex(t, "*")+1:], "__private")
}

// loops returns complaints about loops that are marked wrongly, each once for all instances of
// the loop.
func loops(dump []byte) []string {
	tree := treeOf(dump)
	constants := map[string]bool{} // declarations with a constant value
	tree.each(func(n *node) {
		if n.kind == "VarDecl" && strings.Contains(n.text, " constexpr") {
			constants[n.id] = true
		}
	})
	var out []string
	said := map[string]bool{}
	say := func(n *node, format string, args ...any) {
		c := fmt.Sprintf("%s:%d: %s", n.file, n.line, fmt.Sprintf(format, args...))
		if !said[c] {
			said[c] = true
			out = append(out, c)
		}
	}
	var visit func(n *node, marked bool)
	visit = func(n *node, marked bool) {
		if n.kind == "ForStmt" && len(n.children) == 5 {
			array, known := indexed(n), counted(n, constants)
			switch {
			case array && !known:
				say(n, "the loop indexes an array of the thread, and its number of turns is not known to the compiler")
			case array && !marked:
				say(n, "the loop indexes an array of the thread and is not marked UNROLL")
			case marked && !known:
				say(n, "the loop is marked UNROLL, and its number of turns is not known to the compiler")
			}
		}
		unrolls := false
		if n.kind == "AttributedStmt" {
			for _, c := range n.children {
				unrolls = unrolls || c.kind == "LoopHintAttr" && strings.HasSuffix(c.text, " Unroll Full")
			}
		}
		for _, c := range n.children {
			visit(c, unrolls)
		}
	}
	visit(tree, false)
	return out
}

// indexed reports whether a loop's variable indexes an array in the thread address space.
func indexed(loop *node) bool {
	made := map[string]bool{} // variables derived from the loop's
	of := func(n *node) (found bool) {
		n.each(func(n *node) {
			_, id := n.names()
			found = found || made[id]
		})
		return found
	}
	loop.children[0].each(func(n *node) {
		if n.kind == "VarDecl" {
			made[n.id] = true
		}
	})
	array := false
	loop.children[4].each(func(n *node) {
		switch {
		case n.kind == "VarDecl" && of(n):
			made[n.id] = true
		case n.kind == "ArraySubscriptExpr" && n.inThread() && len(n.children) == 2 && of(n.children[1]):
			array = true
		}
	})
	return array
}

// counted reports whether a loop has one variable whose start, bound and increment are constant.
func counted(loop *node, constants map[string]bool) bool {
	start, end, advance := loop.children[0], loop.children[2], loop.children[3]
	variable := ""
	if start.kind == "DeclStmt" && len(start.children) == 1 {
		variable = start.children[0].id
	}
	known := func(n *node) bool {
		all := true
		n.each(func(n *node) {
			switch n.kind {
			case "CallExpr", "MemberExpr", "ArraySubscriptExpr", "CXXConstructExpr":
				all = false
			case "DeclRefExpr":
				kind, id := n.names()
				all = all && (kind == "NonTypeTemplateParm" || kind == "EnumConstant" || constants[id] || id == variable)
			}
		})
		return all
	}
	compares := false
	for _, sign := range []string{"'<'", "'<='", "'>'", "'>='", "'!='"} {
		compares = compares || end.kind == "BinaryOperator" && strings.HasSuffix(end.text, " "+sign)
	}
	return variable != "" && compares && known(start) && known(end) && known(advance)
}
