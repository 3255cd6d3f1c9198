package constrain

import "context"

// Regexp returns the constraint that the whole text matches a regular expression of ECMA-262. It is
// anchored at both ends, with or without ^ and $.
func (v *Vocabulary) Regexp(expr string) (*Constraint, error) {
	if len(expr) > maxSource {
		return nil, limit("an expression of more than %d bytes", maxSource)
	}
	e, err := parseExpression(expr)
	if err != nil {
		return nil, err
	}
	return v.compile(context.Background(), func(g *grammar) (place, []string, error) {
		r, err := g.whole(e)
		if err != nil {
			return 0, nil, err
		}
		if r == reEps {
			return placeReturn, nil, nil
		}
		return g.forkEmpty(g.raw(r)), nil, nil
	})
}

// forkEmpty returns the place of a lexeme at the end of a rule. A lexeme that matches nothing becomes
// a fork without branches, since no place stands for it.
func (g *grammar) forkEmpty(s lexState) place {
	if s == lexDead {
		return g.fork([]place{}...)
	}
	return g.lexeme(uncounted(s), placeReturn)
}
