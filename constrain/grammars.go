package constrain

import (
	"context"
	"strings"
)

// Grammar returns the constraint of a context-free grammar, in llama.cpp's format (GBNF: rules are
// written with ::=, the start rule is root) or in Lark's (rules are written with a colon, the start
// rule is start).
func (v *Vocabulary) Grammar(text string) (*Constraint, error) {
	if len(text) > maxSource {
		return nil, limit("a grammar of more than %d bytes", maxSource)
	}
	parse, start := parseLark, "start"
	if strings.Contains(text, "::=") {
		parse, start = parseGBNF, "root"
	}
	return v.compile(context.Background(), func(g *grammar) (place, []string, error) {
		rules, err := parse(text, &g.budget)
		if err != nil {
			return 0, nil, err
		}
		at, err := g.rules(rules, start)
		return at, nil, err
	})
}
