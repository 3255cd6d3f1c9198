package constrain

import "strings"

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
	rules, err := parse(text)
	if err != nil {
		return nil, err
	}
	return v.compile(func(g *grammar) (place, []string, error) {
		at, err := g.rules(rules, start)
		return at, nil, err
	})
}
