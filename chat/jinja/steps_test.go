package jinja_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat/jinja"
)

// TestStepsOfLongTexts: whatever looks at a whole text or list takes steps in proportion.
func TestStepsOfLongTexts(t *testing.T) {
	const prelude = `{% set x = '9' * 100000 %}{% set spaces = ' ' * 100000 %}{% set l = range(10000) | list %}{% set d = {x: 1} %}` +
		`{% for i in range(1000) %}`
	for _, operation := range []string{
		"x | int", "x | float", "spaces | int", "spaces | float", "x | length", "x | trim", "x.strip('9')", "x.find('8')", "x.count('8')",
		"x.isdigit()", "x.isalpha()", "x | upper", "x | title", "x == x ~ ''", "x < x", "'8' in x", "x in d", "d[x]", "d.get(x)", "{x: 1}", "dict({x: 1})",
		"x.startswith([x, x])", "x.endswith(x)", "x.replace('8', '')", "x.split('8')", "x.splitlines()", "x[0]", "x[1:]", "x | first", "x | list",
		"x | tojson", "d | tojson(sort_keys=true)", "x | wordcount", "x | reverse", "x | indent", "x | unique", "d == {x: 1}", "d | map(attribute=x) | list",
		"strftime_now(x)", "l | sum", "l | max", "l | sort", "l | join", "l | unique", "10000 in l", "l | select | list", "l | map('int') | list", "l.index(9999)", "l == l[:]",
		"l | map(attribute='a.b') | list", "[[[1]]] | tojson(indent=x)", "namespace(**d)",
	} {
		parsed, err := jinja.Parse(prelude + "{% set z = " + operation + " %}{% endfor %}")
		require.NoError(t, err, operation)
		_, err = parsed.Render(&jinja.Dict{}, jinja.Options{})
		require.ErrorIs(t, err, jinja.ErrLimit, operation)
	}
}

// TestContext: a rendering ends with its context.
func TestContext(t *testing.T) {
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	parsed, err := jinja.Parse(`{% for i in range(100000) %}{% endfor %}`)
	require.NoError(t, err)
	_, err = parsed.Render(&jinja.Dict{}, jinja.Options{Context: ctx})
	require.ErrorIs(t, err, gone)
}
