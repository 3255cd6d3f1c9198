package constrain

import (
	"fmt"
	"slices"
)

// rule is a node of a context-free grammar.
type rule struct {
	op     ruleOp
	term   *expression // ruleTerm
	name   string      // ruleName; ruleSchema: what the schema belongs to
	text   string      // ruleBytes
	free   *Free       // ruleFree
	schema *schemaPart // ruleSchema
	kids   []*rule
	lo, hi int // ruleRepeat
}

type ruleOp uint8

const (
	ruleTerm ruleOp = iota
	ruleName
	ruleSeq
	ruleAlt
	ruleRepeat
	ruleBytes
	ruleFree
	ruleSchema
)

// ruleSet compiles the rules of a grammar. Rules that are not recursive become regular expressions;
// only recursive rules are called.
type ruleSet struct {
	*grammar
	rules      map[string]*rule
	regular    map[string]bool
	exprs      map[*rule]re
	productive map[string]bool
	places     map[string]place
}

func (g *grammar) rules(rules map[string]*rule, start string) (place, error) {
	if rules[start] == nil {
		return 0, fmt.Errorf("the grammar has no start rule %s", start)
	}
	r := &ruleSet{grammar: g, rules: rules, regular: map[string]bool{}, exprs: map[*rule]re{}, productive: map[string]bool{}, places: map[string]place{}}
	names := make([]string, 0, len(rules))
	for name := range rules {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if missing := r.undefined(rules[name]); missing != "" {
			return 0, fmt.Errorf("rule %s: undefined rule %s", name, missing)
		}
	}
	r.findRegular(names)
	for changed := true; changed; {
		changed = false
		for _, name := range names {
			ok, err := r.yields(rules[name])
			if err != nil {
				return 0, fmt.Errorf("rule %s: %w", name, err)
			}
			if ok && !r.productive[name] {
				r.productive[name], changed = true, true
			}
		}
	}
	if !r.productive[start] {
		return 0, fmt.Errorf("rule %s: no text matches", start)
	}
	return r.build(&rule{op: ruleName, name: start}, placeReturn)
}

func (r *ruleSet) undefined(x *rule) string {
	r.spend(1)
	if x.op == ruleName && r.rules[x.name] == nil {
		return x.name
	}
	for _, k := range x.kids {
		if missing := r.undefined(k); missing != "" {
			return missing
		}
	}
	return ""
}

// findRegular marks the rules that reach no recursive rule. It repeats until nothing changes: a
// rule is marked when all rules in it are.
func (r *ruleSet) findRegular(names []string) {
	for changed := true; changed; {
		changed = false
		for _, name := range names {
			if !r.regular[name] && r.isRegular(r.rules[name]) {
				r.regular[name], changed = true, true
			}
		}
	}
}

func (r *ruleSet) isRegular(x *rule) bool {
	r.spend(1)
	switch x.op {
	case ruleName:
		return r.regular[x.name]
	case ruleSchema:
		return false
	}
	return !slices.ContainsFunc(x.kids, func(k *rule) bool { return !r.isRegular(k) })
}

// yields reports whether x matches some text, as far as the rules are known to.
func (r *ruleSet) yields(x *rule) (bool, error) {
	r.spend(2)
	switch x.op {
	case ruleTerm, ruleBytes, ruleFree:
		e, err := r.expr(x)
		return err == nil && r.alive(e), err
	case ruleSchema:
		return true, nil // or fails to compile
	case ruleName:
		return r.productive[x.name], nil
	case ruleRepeat:
		ok, err := r.yields(x.kids[0])
		return ok || x.lo == 0, err
	}
	all, any := true, false
	for _, k := range x.kids {
		ok, err := r.yields(k)
		if err != nil {
			return false, err
		}
		all, any = all && ok, any || ok
	}
	if x.op == ruleAlt {
		return any, nil
	}
	return all, nil
}

// expr returns a regular rule as an expression.
func (r *ruleSet) expr(x *rule) (e re, err error) {
	if e, ok := r.exprs[x]; ok {
		return e, nil
	}
	var parts []re
	for _, k := range x.kids {
		p, err := r.expr(k)
		if err != nil {
			return reNone, err
		}
		parts = append(parts, p)
	}
	switch x.op {
	case ruleTerm:
		if x.term.checks {
			return reNone, fmt.Errorf("an anchor, a boundary or a lookahead is not supported within a grammar")
		}
		e, err = r.plain(x.term)
	case ruleBytes:
		e = r.pool.literal(x.text)
	case ruleFree:
		e, err = x.free.expr(r.pool)
	case ruleName:
		e, err = r.expr(r.rules[x.name])
	case ruleSeq:
		e = r.cat(parts...)
	case ruleAlt:
		e = r.or(parts...)
	case ruleRepeat:
		e = r.repeat(parts[0], x.lo, x.hi)
	}
	r.exprs[x] = e
	return e, err
}

// build returns the place of x followed by next.
func (r *ruleSet) build(x *rule, next place) (place, error) {
	if ok, err := r.yields(x); err != nil || !ok {
		return r.fork([]place{}...), err
	}
	if r.isRegular(x) {
		e, err := r.expr(x)
		if err != nil || e == reEps {
			return next, err
		}
		return r.lexeme(uncounted(r.raw(e)), next), nil
	}
	switch x.op {
	case ruleSchema:
		p, err := x.schema.build(r.grammar)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", x.name, err)
		}
		return r.call(p, next), nil
	case ruleName:
		p, ok := r.places[x.name]
		if !ok {
			p = r.add(step{kind: stepFork})
			r.places[x.name] = p
			body, err := r.build(r.rules[x.name], placeReturn)
			if err != nil {
				return 0, err
			}
			r.steps[p].forks = []place{body}
		}
		if next == placeReturn {
			return p, nil // a tail call: its return is this rule's return
		}
		return r.call(p, next), nil
	case ruleSeq:
		for i := len(x.kids); i > 0; {
			// Adjacent regular parts become one lexeme.
			from := i - 1
			for from > 0 && r.isRegular(x.kids[from]) && r.isRegular(x.kids[from-1]) {
				from--
			}
			part := x.kids[i-1]
			if from < i-1 {
				part = &rule{op: ruleSeq, kids: x.kids[from:i]}
			}
			var err error
			if next, err = r.build(part, next); err != nil {
				return 0, err
			}
			i = from
		}
		return next, nil
	case ruleAlt:
		var forks []place
		for _, k := range x.kids {
			ok, err := r.yields(k)
			if err != nil {
				return 0, err
			}
			if !ok {
				continue
			}
			p, err := r.build(k, next)
			if err != nil {
				return 0, err
			}
			forks = append(forks, p)
		}
		return r.fork(forks...), nil
	}
	// A repetition is built from its end.
	k := x.kids[0]
	if ok, err := r.yields(k); err != nil || !ok {
		return next, err
	}
	if x.hi == unlimited {
		loop := r.add(step{kind: stepFork})
		body, err := r.build(k, loop)
		if err != nil {
			return 0, err
		}
		r.steps[loop].forks = []place{body, next}
		next = loop
	}
	for i := max(x.lo, x.hi); i > 0; i-- {
		p, err := r.build(k, next)
		if err != nil {
			return 0, err
		}
		if i > x.lo {
			p = r.fork(p, next)
		}
		next = p
	}
	return next, nil
}
