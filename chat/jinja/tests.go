package jinja

// A test is a predicate on a value.
type test func(r *run, v Value, a args) bool

// tests by name, for `is`, select and reject.
var tests = map[string]test{
	"boolean":     ofKind("boolean"),
	"callable":    ofKind("function"),
	"defined":     func(_ *run, v Value, _ args) bool { return v != Undefined{} },
	"divisibleby": func(r *run, v Value, a args) bool { return divides(r, v, a.get(0, "num", Undefined{})) },
	"equalto":     by("=="), "eq": by("=="), "==": by("=="), "sameas": by("=="),
	"even":  func(r *run, v Value, _ args) bool { return divides(r, v, Int(2)) },
	"false": func(_ *run, v Value, _ args) bool { return v == Bool(false) },
	"float": ofKind("float"),
	"ge":    by(">="), "gt": by(">"), "greaterthan": by(">"),
	"in":      by("in"),
	"integer": ofKind("integer"),
	// In @huggingface/jinja, for which most templates are tested, a mapping is not iterable.
	"iterable": ofKind("list", "string"),
	"le":       by("<="), "lt": by("<"), "lessthan": by("<"),
	"lower":   func(r *run, v Value, _ args) bool { t, ok := v.(Text); return ok && lower(r, t).s == t.s },
	"mapping": ofKind("mapping"),
	"ne":      by("!="), "!=": by("!="),
	"none":      ofKind("none"),
	"number":    ofKind("integer", "float", "boolean"),
	"odd":       func(r *run, v Value, _ args) bool { return !divides(r, v, Int(2)) },
	"sequence":  ofKind("list", "mapping", "string"),
	"string":    ofKind("string"),
	"true":      func(_ *run, v Value, _ args) bool { return v == Bool(true) },
	"undefined": func(_ *run, v Value, _ args) bool { return v == Undefined{} },
	"upper":     func(r *run, v Value, _ args) bool { t, ok := v.(Text); return ok && upper(r, t).s == t.s },
}

func ofKind(kinds ...string) test {
	return func(_ *run, v Value, _ args) bool {
		for _, k := range kinds {
			if v.kind() == k {
				return true
			}
		}
		return false
	}
}

// by returns an operator as a test.
func by(op string) test {
	return func(r *run, v Value, a args) bool {
		other := a.get(0, "other", Undefined{})
		b := binaryOps[op](r, v, other)
		if b == nil {
			fail("%s is not defined for %s and %s", op, v.kind(), other.kind())
		}
		return truth(b)
	}
}

// divides reports whether by divides v.
func divides(r *run, v, by Value) bool {
	rest := remainder(r, v, by)
	if rest == nil {
		fail("a %s is not a number", v.kind())
	}
	return !truth(rest)
}
