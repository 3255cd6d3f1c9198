package jinja_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/chat/jinja"
)

// shown writes a text with its marked parts in ‹›.
func shown(t jinja.Text) string {
	var b strings.Builder
	at := 0
	for _, m := range t.Marks() {
		fmt.Fprintf(&b, "%s‹%s›", t.String()[at:m.From], t.String()[m.From:m.To])
		at = m.To
	}
	return b.String() + t.String()[at:]
}

func render(t testing.TB, source string) (jinja.Text, error) {
	template, err := jinja.Parse(source)
	if err != nil {
		return jinja.Text{}, err
	}
	v := variables(t, []byte(`{"u": "Ab c", "w": " Ää<|end|>\n", "d": {"k": "v", "items": [1], "ü": {"z": null, "a": 1.0}},
		"l": [{"n": "b", "x": true}, {"n": "A", "x": false}, {"n": "c"}], "e": "", "quote": "\"\\\n\u2028😀"}`), jinja.Marked)
	return template.Render(v, jinja.Options{Now: moment})
}

// TestMarks follows marked strings through every string operation.
func TestMarks(t *testing.T) {
	for source, want := range map[string]string{
		`<{{ u }}>`:                                  `<‹Ab c›>`,
		`{{ "<" ~ u ~ ">" + u }}`:                    `<‹Ab c›>‹Ab c›`,
		`{{ w | trim }}`:                             `‹Ää<|end|>›`,
		`{{ ("-" + w + "-") | trim("- ") }}`:         "‹Ää<|end|>\n›",
		`{{ w.strip().lower() }}`:                    `‹ää<|end|>›`,
		`{{ ("x" + u).upper() }}`:                    `X‹AB C›`,
		`{{ (u ~ "x" ~ u).split("c") }}`:             `['‹Ab ›', 'x‹Ab ›', '']`,
		`{{ (u ~ "!").split() | join("+") }}`:        `‹Ab›+‹c›!`,
		`{{ u.replace("b", "<" ~ u) }}`:              `‹A›<‹Ab c c›`,
		`{{ "a-b".replace("-", u) }}`:                `a‹Ab c›b`,
		`{{ "ab".replace("", u[0]) }}`:               `‹A›a‹A›b‹A›`,
		`{{ u[1:] ~ u[0] ~ u[::-1] }}`:               `‹b cAc bA›`,
		`{{ quote | tojson }}`:                       "\"‹\\\"\\\\\\n\u2028😀›\"",
		`{{ quote | tojson(ensure_ascii=true) }}`:    `"‹\"\\\n\u2028\ud83d\ude00›"`,
		`{{ d | tojson }}`:                           `{"‹k›": "‹v›", "‹items›": [1], "‹ü›": {"‹z›": null, "‹a›": 1.0}}`,
		`{{ d | tojson(indent=1, sort_keys=true) }}`: "{\n \"‹items›\": [\n  1\n ],\n \"‹k›\": \"‹v›\",\n \"‹ü›\": {\n  \"‹a›\": 1.0,\n  \"‹z›\": null\n }\n}",
		`{{ d | tojson | from_json | list }}`:        `['‹k›', '‹items›', '‹ü›']`,
		`{% for k, v in d.items() if v is string %}{{ k }}={{ v }}{% endfor %}`:                    `‹k›=‹v›`,
		`{% for c in u %}{{ c }}.{% endfor %}`:                                                     `‹A›.‹b›.‹ ›.‹c›.`,
		`{% set x %}[{{ u }}]{% endset %}{{ x | length }}{{ x }}`:                                  `6[‹Ab c›]`,
		`{% macro m(a) %}({{ a }}{{ caller() }}){% endmacro %}{% call m(u) %}{{ u }}{% endcall %}`: `(‹Ab cAb c›)`,
		`{% filter upper %}x{{ u }}{% endfilter %}`:                                                `X‹AB C›`,
		"{{ ('a\n' ~ u ~ '\n' ~ u) | indent(2) }}":                                                 "a\n  ‹Ab c›\n  ‹Ab c›",
		`{{ l | map(attribute="n") | sort | join(",") }}`:                                          `‹A›,‹b›,‹c›`,
		`{{ l | selectattr("x") | map(attribute="n") | first }}`:                                   `‹b›`,
		`{{ l | rejectattr("x", "defined") | list }}`:                                              `[{'‹n›': '‹c›'}]`,
		`{{ {"a" ~ u: 1} }}`: `{'a‹Ab c›': 1}`,
		`{{ namespace(a=u).a ~ (u * 2) ~ (u | title) ~ u.capitalize() }}`:        `‹Ab cAb cAb cAb CAb c›`,
		`{{ (u ~ "\n" ~ u).splitlines() | tojson }}`:                             `["‹Ab c›", "‹Ab c›"]`,
		`{{ u.removeprefix("A") ~ u.removesuffix("c") ~ u.rsplit("b", 1)[1] }}`:  `‹b cAb  c›`,
		`{{ u == "Ab c" and "Ab" in u and u.startswith("A") }}{{ u | length }}`:  `True4`,
		`{{ e }}{{ u.strip("A c") }}`:                                            `‹b›`,
		`{{ u | replace("A", "") | reverse }}`:                                   `‹c b›`,
		`{{ "<%s|%6s>" % (u, u) }}{{ "%(a)s" | format(a=u) }}`:                   `<‹Ab c›|  ‹Ab c›>‹Ab c›`,
		`{{ "<{0}|{x:^6}>".format(u, x=u) ~ (u ~ "{}").format(1) }}`:             `<‹Ab c›| ‹Ab c› >‹Ab c›1`,
		`{{ (u ~ "=x").partition("=") }} {{ quote }} {{ [quote] }}`:              "('‹Ab c›', '=', 'x') ‹\"\\\n\u2028😀› ['‹\"\\\\\\n\\u2028😀›']",
		`{{ u.title() ~ u.zfill(6) ~ u.center(6) ~ u.rjust(5) ~ u.swapcase() }}`: `‹Ab C›00‹Ab c› ‹Ab c›  ‹Ab caB C›`,
		`{{ [u, "x"] | unique | list | string }}`:                                `['‹Ab c›', 'x']`,
	} {
		text, err := render(t, source)
		require.NoError(t, err, source)
		assert.Equal(t, want, shown(text), source)
	}
}

// TestLanguage has what the public templates do not ask for.
func TestLanguage(t *testing.T) {
	for source, want := range map[string]string{
		"a\n  {% if true %}\n b\n  {% endif %}\nc\n\n": "a\n b\nc\n",
		"a \n {{- 1 }} \n b":                           "a1 \n b", "a {{ 1 -}} \n b": "a 1b", "x\n  {%+ if 1 %}y{% endif +%}\nz": "x\n  y\nz",
		"a {#- c -#} b {# {{ x #}\nd": "ab d", "{% raw %}{{ x }}{% endraw %}!": "{{ x }}!", "{%- raw -%} {% a -%} {%- endraw -%} b": "{% a -%}b",
		`{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1.5 + 1 }} {{ 1e3 }}`: `3 -4 2 3.5 1024 0.5 2.5 1000.0`,
		`{{ -1 | abs }} {{ - 2 ** 2 }} {{ not 1 == 2 }} {{ 1 if false }}{{ "x" if 0 else "y" }}`:                  `1 4 True y`,
		`{{ "a" "b" ~ 'c\'\n\x41\u00e9\q' }}`: "abc'\nAé\\q",
		`{{ [1, 2, 3, 4][1:3] }} {{ [1, 2, 3][::-1] }} {{ [1,2,3][-2:] }} {{ [1,2,3][5:] }} {{ (1, 2)[0] }} {{ "abc"[-1] }}`:                                         `[2, 3] [3, 2, 1] [2, 3] [] 1 c`,
		`{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if i == 3 %}{% break %}{% endif %}{% else %}none{% endfor %}`:                      `023`,
		`{% for i in [] %}{% else %}none{% endfor %}{% for a, b in [[1, 2], (3, 4)] %}{{ a + b }}{{ "," if not loop.last }}{{ loop.cycle("x", "y") }}{% endfor %}`:   `none3,x7y`,
		`{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}{% set ns = namespace(x=1) %}{% for i in [1] %}{% set ns.x = 2 %}{% endfor %}{{ ns.x }}`: `12`,
		`{% set a, b = 1, 2 %}{{ a }}{{ b }}{% with c = 3, d = a %}{{ c }}{{ d }}{% endwith %}{{ c }}`:                                                               `1231`,
		`{% macro m(a, b=2, *, c) %}{% endmacro %}`: "",
		`{% macro m(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1, b=3, c=4) }} {{ m(*[1, 2, 3], **{"d": 5}) }}`:                     `11(){} 13(){'c': 4} 12(3,){'d': 5}`,
		`{{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ x is defined }} {{ none is none }} {{ 1 is in [1] }} {{ "a" is eq "a" }} {{ 1 is not string }} {{ {} is mapping }}`: `True True False True True True True True`,
		`{{ d.items()|length }} {{ d.items }} {{ d["k"] }} {{ d.nope }} {{ d.nope.more }} {{ d.get("q", 3) }} {{ nope.a.b }}`:                                           `3 [1] v   3 `,
		`{{ [3, 1, 2] | sort(reverse=true) }} {{ {"b": 1, "a": 2} | dictsort }} {{ [1, 2] | sum }} {{ [1, 5] | max }} {{ [[1, 2], [3]] | map("length") | list }}`:       `[3, 2, 1] [('a', 2), ('b', 1)] 3 5 [2, 1]`,
		`{{ "12a" | int }} {{ "x" | int(7) }} {{ " 1.5 " | float }} {{ 2.6 | round }} {{ none | default("d") }} {{ none | default("d", true) }} {{ q | default("d") }}`: `0 7 1.5 3.0 None d d`,
		`{{ strftime_now("%d %b %Y %-d %H:%M %% %q") }}`:                                                                              `26 Jul 2024 26 12:30 % %q`,
		`{% generation %}a{% endgeneration %}{{ "ß" | upper }} {{ "É" | lower }}`:                                                     `aSS é`,
		`{{ {1: "a", true: "b", "c": 1.0} }} {{ 1 == 1.0 }} {{ [1, {"a": 2}] == [1, {"a": 2}] }} {{ "1" == 1 }}`:                      `{1: 'b', 'c': 1.0} True True False`,
		`{{ (1,) }} {{ () }} {{ 1 in {"a": 1}.values() }} {{ "b" not in "abc" }} {{ [1, 1] | unique | list }} {{ range(10, 0, -3) }}`: `(1,) () True False [1] [10, 7, 4, 1]`,
	} {
		text, err := render(t, source)
		if strings.Contains(source, "*, c") {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, source)
		assert.Equal(t, want, text.String(), source)
	}
}

func TestErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{% if x %}":     `line 2: unexpected end of the template, want "endif"`,
		"{{ 1 + }}":         `line 1: unexpected "}}", want an expression`,
		"\n\n{% nope %}":    `line 3: unknown statement "nope"`,
		"{% include 'x' %}": `line 1: unknown statement "include"`,
		"{{ x | nope }}":    `line 1: unknown filter "nope"`,
		"{{ x is nope }}":   `line 1: unknown test "nope"`,
		"{{ 'a }}":          `line 1: unterminated string`,
		"{{ 1":              `line 1: {{ without }}`,
		"{# ":               `line 1: unterminated comment`,
		"{% break %}":       `line 1: break or continue outside of a loop`,
		"{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}": `line 1: break or continue outside of a loop`,
		"{% endif %}":                         `line 1: unknown statement "endif"`,
		"{% for x in l %}{% endif %}":         `line 1: unknown statement "endif"`,
		"{{ raise_exception('no ' ~ u) }}":    `the template raised an exception: no Ab c`,
		"{{ nope() }}":                        `nope is not a function`,
		"{{ u.nope() }}":                      `a string has no method "nope"`,
		"{{ u + l }}":                         `+ is not defined for string and list`,
		"{{ 1 // 0 }}":                        `division by zero`,
		"{{ 1 < 'a' }}":                       `< is not defined for integer and string`,
		"{% for a, b in [[1]] %}{% endfor %}": `1 values for 2 variables`,
		"{% for a in 1 %}{% endfor %}":        `a integer is not iterable`,
		"{% set u.x = 1 %}":                   `u.x cannot be set: u is not a namespace`,
		"{{ {[]: 1} }}":                       `a list cannot be a key`,
		"{{ u.split('') }}":                   `split: empty separator`,
		"{{ range(3, 1, 0) }}":                `range step 0`,
		"{{ [u, 1] | sort }}":                 `a integer and a string cannot be ordered`,
		"{{ $ }}":                             `line 1: unexpected '$' in a tag`,
		`{{ "\xg1" }}`:                        `line 1: \xg1 is not a character`,
	} {
		_, err := render(t, source)
		require.ErrorContains(t, err, want, source)
	}
	_, err := render(t, "{{ raise_exception('x') }}")
	require.ErrorIs(t, err, jinja.ErrRaised)
}

// hostile are templates that would exceed the limits.
func hostile() []string {
	list := []string{
		`{{ range(1000000000) }}`, `{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}`,
		`{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`, `{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}`,
		`{{ "a" * 1000000000000 }}`, `{{ "a" * 9223372036854775807 }}`, `{{ ("a" * 1000000) * 1000000 }}`, `{{ 2 ** 100000 }}`, `{{ 9 ** 9 ** 9 ** 9 }}`,
		`{{ "x" | indent(1000000000000) }}`, `{{ "x" | indent(-5) }}`, `{{ [1] | tojson(indent=1000000000) }}`,
		`{% set l = [1] %}{% for i in range(100) %}{% set _ = l.append(l) %}{% endfor %}{{ l }}`,
		`{% set l = [1] %}{% set _ = l.append(l) %}{{ l == l }}{{ l | tojson }}`,
		`{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}`,
		`{% set n = namespace(l=[1]) %}{% for i in range(64) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l == [n.l] }}{{ [n.l, n.l] == [n.l, n.l] }}`,
		`{% set n = namespace() %}{% set n.n = n %}{{ n }}`, `{% set n = namespace(d={}) %}{% for i in range(200) %}{% set n.d = {"a": n.d} %}{% endfor %}{{ n.d }}`,
		`{% set n = namespace(s=" ") %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}`,
		`{% set n = namespace(s=u) %}{% for i in range(64) %}{% set n.s = n.s.replace("A", n.s) %}{% endfor %}`,
		`{% set n = namespace(s=u) %}{% for i in range(64) %}{% set n.s = n.s | replace("", n.s) %}{% endfor %}`,
		`{% set n = namespace(s="a") %}{% for i in range(64) %}{% set n.s %}{{ n.s }}{{ n.s }}{% endset %}{% endfor %}`,
		`{% set n = namespace(s=["a"]) %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}`,
		`{% set n = namespace(s="ab") %}{% for i in range(64) %}{% set n.s = [n.s, n.s, n.s] | join(n.s) %}{% endfor %}`,
		`{% set n = namespace(s="ab") %}{% for i in range(64) %}{% set n.s = n.s | tojson | tojson %}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{{ s in s }}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{{ s == s ~ "" }}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{{ s | length }}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{{ s[500000] }}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{{ s.split("b") }}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{{ s.strip("b") }}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{% for i in range(100000) %}{{ s.count("aa") }}{% endfor %}`,
		`{% set s = "a" * 1000000 %}{{ s.strip(s) }}`, `{% set s = "ab" * 500000 %}{{ s.split("a") | length }}`,
		`{% set s = "a" * 1000000 %}{{ s | list | length }}`, `{% for c in "a" * 1000000 %}{% for d in "a" * 1000000 %}{% endfor %}{% endfor %}`,
		`{% for i in range(100000) %}{{ range(100000) | sort | reverse | list | length }}{% endfor %}`,
		`{% for i in range(100000) %}{{ range(100000) | map("string") | unique | list }}{% endfor %}`,
		`{% for i in range(100000) %}{{ range(1000) | batch(9223372036854775807, 0) }}{% endfor %}`,
		`{{ [1] | batch(1000000000, "x") }}`, `{{ range(0, 9223372036854775807, 4611686018427387904) }}`, `{{ range(9223372036854775807, -9223372036854775807, -1) }}`,
		`{{ "abc"[::9223372036854775807] }}{{ "abc"[9223372036854775807:-9223372036854775807:-9223372036854775807] }}`,
		`{{ 10 ** 4300 }}`, `{{ 9223372036854775807 + 1 }}{{ -9223372036854775807 * 3 }}{{ (-9223372036854775807 - 1) // -1 }}{{ (-9223372036854775807 - 1) % -1 }}`,
		`{{ "a" | round }}`, `{{ 1.0 | round(400) }}{{ 1e308 * 10 }}{{ (1e308 * 10) | int }}`, `{{ 99999999999999999999999999 }}`,
		`{{ u.rsplit() }}`, `{{ "" | capitalize }}{{ "" | title }}{{ ""[0] }}{{ "".split() }}{{ [] | join }}{{ [] | first }}{{ [] | max }}`,
		`{{ "%999999999999d" % 1 }}`, `{{ "%.999999999f" % 1 }}`, `{{ "%*d" % (-9223372036854775807, 1) }}`, `{{ "{:999999999999}".format(1) }}`, `{{ "{:.999999999999}".format("a") }}`,
		`{{ [1] * 9223372036854775807 }}`, `{{ [] * 9223372036854775807 }}`, `{{ "x" | center(99999999999) }}{{ "x".zfill(9223372036854775807) }}`, `{{ [] | slice(1000000000) }}`,
		`{% set x = 9 ** 2200 %}{% for i in range(100000) %}{% set y = x * x // 3 %}{% endfor %}`, `{% set x = 9 ** 4000 %}{% for i in range(100000) %}{{ x }}{% endfor %}`,
		`{% set x = "9" * 4300 %}{% for i in range(100000) %}{% set y = x | int %}{% endfor %}`, `{% for i in range(100000) %}{% set y = 3 ** 9000 %}{% endfor %}`,
		`{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`, `{{ ("{0:{0:{0:{0}}}}").format(1) }}`, `{{ ("{" * 100000).format(1) }}`, `{{ ("{}" * 100000).format(1) }}`, `{{ ("%s" * 100000) % 1 }}`,
		`{{ [].pop() }}`, `{{ namespace(1) }}`, `{{ dict([[1]]) }}`, `{{ dict(1, 2) }}`, `{{ loop }}{{ loop.index }}`, `{% for i in [1] %}{{ loop }}{% endfor %}`,
		`{% for i in [1] %}{{ loop.cycle() }}{% endfor %}`, `{{ range }}`, `{{ [range] | tojson }}`, `{{ m.caller() }}{{ caller() }}`, `{{ strftime_now() }}`, `{{ strftime_now("%") }}`,
		`{{ u | map("map", "map") }}`, `{{ [[1]] | map("map") }}`, `{{ l | map }}`, `{{ l | select("nope") }}`, `{{ l | selectattr }}`, `{{ [l] | sort }}`,
		`{{ "1" ~ ("x" | from_json) }}`, `{{ ("[" * 100000) | from_json }}`, `{{ ('{"a":' * 5000) | from_json }}`, `{{ raise_exception() }}`,
	}
	nested := func(open, middle, end string, n int) {
		list = append(list, strings.Repeat(open, n)+middle+strings.Repeat(end, n))
	}
	for _, n := range []int{150, 20_000} {
		nested("{% if 1 %}", "x", "{% endif %}", n)
		nested("{% for i in [1, 2] %}", "x", "{% endfor %}", n)
		nested("{% set x %}", "x", "{% endset %}", n)
		nested("{% filter upper %}", "x", "{% endfilter %}", n)
		for open, end := range map[string]string{"(": ")", "[": "]", `{"a":`: "}", "not ": "", "-": "", "f(": ")", "a[": "]", "1 if ": " else 1", "a.": "b", "1 + ": "", "1 ** ": "", "1 ~ ": "", "x or ": "", "1 < ": "", "x | upper ": "", "x is defined ": ""} {
			list = append(list, "{{ "+strings.Repeat(open, n)+"1"+strings.Repeat(end, n)+" }}")
		}
		list = append(list, "{% if 1 %}"+strings.Repeat("{% elif 0 %}", n)+"{% endif %}", strings.Repeat("{{ u }}", n), strings.Repeat("{% raw %}", n), strings.Repeat("{#", n), strings.Repeat("{{", n), strings.Repeat("{%- ", n))
	}
	return append(list, strings.Repeat("x", 10<<20), "{{"+strings.Repeat(" ", 250<<10)+"1}}", strings.Repeat("{% set x = 1 %}", 15_000))
}

// TestHostile: each ends within a second and 64 MiB, with or without an error.
func TestHostile(t *testing.T) {
	list := hostile()
	require.Greater(t, len(list), 100)
	limited := 0
	for _, source := range list {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		_, err := render(t, source)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if errors.Is(err, jinja.ErrLimit) {
			limited++
		}
		name := source[:min(len(source), 80)]
		require.Less(t, took, time.Second, name)
		// What was allocated, of which less was alive at once.
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), name)
	}
	require.Greater(t, limited, 50)
}

// FuzzRender: no template and no text crashes, and no marked byte loses its mark.
func FuzzRender(f *testing.F) {
	for _, source := range hostile() {
		if len(source) < 1000 {
			f.Add(source, "<|end|>")
		}
	}
	f.Add(`{% for c in u %}{{ c | tojson }}{{ u.replace("a", c) | trim }}{% endfor %}`, " ü\u2028\n")
	f.Fuzz(func(t *testing.T, source, said string) {
		template, err := jinja.Parse(source)
		if err != nil {
			return
		}
		v := &jinja.Dict{}
		v.Set(jinja.Plain("u"), jinja.Marked(said))
		v.Set(jinja.Plain("l"), &jinja.List{Items: []jinja.Value{jinja.Marked(said), jinja.Int(3)}})
		text, err := template.Render(v, jinja.Options{Now: moment, Steps: 20_000, Bytes: 1 << 20})
		if err != nil {
			return
		}
		at := 0
		for _, m := range text.Marks() {
			require.Less(t, m.From, m.To)
			require.True(t, m.From > at || m.From == 0, "marks touch")
			require.LessOrEqual(t, m.To, len(text.String()))
			at = m.To
		}
	})
}
