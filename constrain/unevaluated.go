package constrain

import (
	"slices"
	"strings"
)

// evaluated describes the properties or items that other keywords of a schema evaluate in the values
// that meet some demands.
type evaluated struct {
	when     []demand
	all      bool
	names    []string
	patterns []re
	items    int      // those before this place
	contains []*value // and those that match one of these
}

func (e evaluated) and(f evaluated) evaluated {
	return evaluated{slices.Concat(e.when, f.when), e.all || f.all, slices.Concat(e.names, f.names), slices.Concat(e.patterns, f.patterns), max(e.items, f.items), slices.Concat(e.contains, f.contains)}
}

// some reports whether anything is evaluated.
func (e evaluated) some() bool {
	return e.all || len(e.names)+len(e.patterns)+e.items+len(e.contains) > 0
}

func (c *schemas) product(a, b []evaluated) (all []evaluated) {
	if len(a)*len(b) > maxBranches {
		panic(limit("a schema with more than %d ways of evaluating a value", maxBranches))
	}
	for _, x := range a {
		for _, y := range b {
			c.spend(derivation)
			all = append(all, x.and(y))
		}
	}
	return all
}

// evaluates returns what the keywords of s evaluate of a value that matches it, except for the keyword
// without: each case that applies to a value holds, and one of them holds all that is evaluated.
func (c *schemas) evaluates(s *value, without string, depth int) []evaluated {
	c.spend(derivation)
	if depth > maxDepth {
		c.refuse(s, "$ref", "refers to itself without consuming text")
	}
	own := evaluated{}
	each := func(v *value, visit func(i int, v *value)) {
		if v != nil {
			for i := range v.items {
				visit(i, &v.items[i])
			}
		}
	}
	properties := strings.HasSuffix(without, "Properties")
	if properties {
		if p := s.get("properties"); p != nil {
			own.names = p.keys
		}
		each(s.get("patternProperties"), func(i int, v *value) {
			own.patterns = append(own.patterns, c.pattern(v, "patternProperties", s.get("patternProperties").keys[i]))
		})
		own.all = s.get("additionalProperties") != nil
	} else {
		items, prefix := s.get("items"), c.get(s, "prefixItems")
		if items != nil && items.kind == isArray {
			items, prefix = s.get("additionalItems"), items
		}
		if own.all = items != nil; prefix != nil {
			own.items = len(prefix.items)
		}
		if v := s.get("contains"); v != nil && c.refs.draft >= 2020 {
			own.contains = []*value{v}
		}
	}
	if own.all || depth > 0 && c.get(s, without) != nil {
		return []evaluated{{all: true}}
	}
	cases := []evaluated{own}
	within := func(v *value) []evaluated { return c.evaluates(v, without, depth+1) }
	// where returns the cases of a value that meets d, or that of nothing if they evaluate nothing.
	where := func(d demand, cases []evaluated) []evaluated {
		if !slices.ContainsFunc(cases, evaluated.some) {
			return []evaluated{{}}
		}
		return c.product([]evaluated{{when: []demand{d}}}, cases)
	}
	any := func(lists ...[]evaluated) {
		var list []evaluated
		for _, e := range slices.Concat(lists...) {
			if e.some() || !slices.ContainsFunc(list, func(e evaluated) bool { return !e.some() }) {
				list = append(list, e)
			}
		}
		cases = c.product(cases, list)
	}
	each(s.get("allOf"), func(_ int, v *value) { any(within(v)) })
	for _, name := range []string{"$ref", "$recursiveRef"} {
		if v := s.get(name); v != nil && v.kind == isString {
			target, err := c.refs.resolve(s, v.text)
			if err != nil {
				c.refuse(s, name, err.Error())
			}
			any(within(target))
		}
	}
	each(s.get("anyOf"), func(_ int, v *value) {
		any(where(demand{v, mustMatch}, within(v)), []evaluated{{}})
	})
	var one [][]evaluated
	each(s.get("oneOf"), func(_ int, v *value) { one = append(one, where(demand{v, mustMatch}, within(v))) })
	if len(one) > 0 {
		any(one...)
	}
	if v := s.get("if"); v != nil {
		then, otherwise := within(v), []evaluated{{}}
		if v := s.get("then"); v != nil {
			then = c.product(then, within(v))
		}
		if v := s.get("else"); v != nil {
			otherwise = within(v)
		}
		any(where(demand{v, mustMatch}, then), where(demand{v, mustNot}, otherwise))
	}
	dependents := s.get("dependentSchemas")
	each(dependents, func(i int, v *value) {
		name := value{kind: isArray, items: []value{{kind: isString, text: dependents.keys[i]}}}
		present := &value{kind: isObject, keys: []string{"required"}, items: []value{name}}
		any(where(demand{present, mustMatch}, within(v)), []evaluated{{}})
	})
	return cases
}

// readUnevaluated reads unevaluatedProperties and unevaluatedItems: a value matches if it does by what
// is evaluated in one of the cases that apply to it.
func readUnevaluated(c *schemas, s *value, name string, v *value) assertion {
	if v.kind == isTrue {
		return assertion{func() *shape { return c.anything }, func() *shape { return &shape{} }}
	}
	var holds, fails []func() *shape
	for _, e := range c.evaluates(s, name, 0) {
		rest := c.rest(s, name, v, &e)
		holds = append(holds, func() *shape {
			result := rest.holds()
			for _, d := range e.when {
				result = c.both(result, c.demanded(d))
			}
			return result
		})
		fails = append(fails, func() *shape {
			result := rest.fails()
			for _, d := range e.when {
				result = c.either(result, c.demanded(demand{d.v, mustMatch + mustNot - d.kind}))
			}
			return result
		})
	}
	return assertion{func() *shape {
		shapes := make([]*shape, len(holds))
		for i, f := range holds {
			shapes[i] = f()
		}
		return c.either(shapes...)
	}, func() *shape {
		result := c.anything
		for _, f := range fails {
			result = c.both(result, f())
		}
		return result
	}}
}

// anyOf returns a schema that demands any one of others, which keep their places in the document.
func (c *schemas) anyOf(list []*value) *value {
	any := value{kind: isArray, items: make([]value, len(list))}
	for i, v := range list {
		any.items[i] = *v
		c.refs.parents[&any.items[i]] = c.refs.parents[v]
		if base, ok := c.refs.base[v]; ok {
			c.refs.base[&any.items[i]] = base
		}
	}
	return &value{kind: isObject, keys: []string{"anyOf"}, items: []value{any}}
}

// rest returns the assertion that what e leaves of a value matches v.
func (c *schemas) rest(s *value, name string, v *value, e *evaluated) assertion {
	switch {
	case e.all:
		return assertion{func() *shape { return c.anything }, func() *shape { return &shape{} }}
	case name == "unevaluatedItems":
		if len(e.contains) > 0 {
			v = c.anyOf(append(slices.Clone(e.contains), v))
		}
		a := &arrayShape{max: unlimited, prefix: make([]conjID, e.items), items: c.conj(demand{v, mustMatch})}
		return c.arrayOnly(a, func() []*arrayShape {
			if e.items > 0 {
				c.refuse(s, name, "behind items by place cannot be negated")
			}
			return []*arrayShape{{max: unlimited, contains: []contained{{value: c.conj(demand{v, mustNot}), min: 1, max: unlimited}}}}
		})
	}
	g := &propertyGroup{names: c.joined(e.names), patterns: e.patterns, additional: &demand{v, mustMatch}}
	g.values = slices.Repeat([]demand{{trueValue, mustMatch}}, len(g.names))
	g.patValues = slices.Repeat([]demand{{trueValue, mustMatch}}, len(g.patterns))
	holds := c.anyObject()
	holds.groups = []*propertyGroup{g}
	return c.objectOnly(holds, func() []*objectShape {
		return []*objectShape{c.hasSome(&witness{names: c.pool.text, except: g.names, unless: g.patterns, value: c.conj(demand{v, mustNot})})}
	})
}
