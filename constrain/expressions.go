package constrain

// Regexp keeps a text to a regular expression of ECMA-262, from its start to its end: it is
// what the whole text must match, whether it begins with ^ and ends with $ or not.
func (v *Vocabulary) Regexp(expr string) (*Constraint, error) {
	if len(expr) > maxSource {
		return nil, limit("an expression of more than %d bytes", maxSource)
	}
	e, err := parseExpression(expr)
	if err != nil {
		return nil, err
	}
	return v.compile(func(g *grammar) (place, []string, error) {
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

// forkEmpty is a lexeme at the end of a rule; no place stands for one that matches nothing.
func (g *grammar) forkEmpty(s lexState) place {
	if s == lexDead {
		return g.fork([]place{}...)
	}
	return g.lexeme(uncounted(s), placeReturn)
}
