package constrain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

// bytewise is a vocabulary of all single bytes and some longer tokens, some of which end within a
// character or cross the end of a lexeme; token 256 ends a text.
func bytewise(t testing.TB) *constrain.Vocabulary {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	tokens = append(tokens, nil)
	for _, s := range strings.Fields(`{" "} ": ", "}, true false null 12 .5 abc \" \u00 "a":1 \xc3 é" 日本 }} ]] a":n ab aa (( ))`) {
		tokens = append(tokens, []byte(strings.NewReplacer(`\xc3`, "\xc3").Replace(s)))
	}
	tokens = append(tokens, []byte("abc"), []byte(" \n"), []byte(`", "`), []byte(`": "`))
	tokenTexts = tokens
	v, err := constrain.New(tokens, []int32{256})
	require.NoError(t, err)
	return v
}

// reads reports whether c accepts text byte by byte, and compares the masks on the way with Accept.
func reads(t testing.TB, c *constrain.Constraint, text string) bool {
	s := c.Start()
	n, err := s.AcceptBytes([]byte(text))
	require.NoError(t, err)
	return n == len(text) && s.CanStop()
}

// TestMasks compares each mask along texts with Accept of every token.
func TestMasks(t *testing.T) {
	v := bytewise(t)
	tokens := v.Len()
	mask := make([]uint64, v.Words())
	for name, c := range examples(t, v) {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 20 {
				s := c.Start()
				for range 30 {
					require.NoError(t, s.Mask(mask))
					var allowed []int32
					for id := range int32(tokens) {
						next := s.Clone()
						ok, err := next.Accept(id)
						require.NoError(t, err)
						require.Equal(t, ok, mask[id>>6]>>(id&63)&1 != 0, "token %d", id)
						if ok && id != 256 {
							allowed = append(allowed, id)
						}
					}
					require.True(t, len(allowed) > 0 || s.CanStop(), "a dead end")
					forced, err := s.Forced(nil)
					require.NoError(t, err)
					if len(forced) > 0 {
						require.False(t, s.CanStop())
						for _, id := range allowed {
							text := tokenText(id)
							n := min(len(text), len(forced))
							require.Equal(t, string(forced[:n]), text[:n])
						}
					}
					if len(allowed) == 0 {
						break
					}
					ok, err := s.Accept(allowed[r.IntN(len(allowed))])
					require.NoError(t, err)
					require.True(t, ok)
				}
			}
		})
	}
}

var tokenTexts [][]byte

func tokenText(id int32) string {
	if id < 256 {
		return string([]byte{byte(id)})
	}
	return string(tokenTexts[id])
}

// examples are constraints of all kinds.
func examples(t testing.TB, v *constrain.Vocabulary) map[string]*constrain.Constraint {
	all := map[string]*constrain.Constraint{}
	add := func(name string) func(c *constrain.Constraint, err error) {
		return func(c *constrain.Constraint, err error) {
			require.NoError(t, err, name)
			all[name] = c
		}
	}
	add("json")(v.JSON(constrain.Options{}))
	add("tight")(v.JSON(constrain.Options{NoWhitespace: true}))
	add("expression")(v.Regexp(`(ab|a[^b]*é)+\d{2,3}`))
	for name, schema := range map[string]string{
		"object":  `{"properties":{"a":{"type":"integer"},"abc":{"enum":["aa","ab",12]}},"required":["abc"],"additionalProperties":{"type":"null"}}`,
		"list":    `{"type":"array","items":{"$ref":"#"},"maxItems":3}`,
		"string":  `{"type":"string","minLength":2,"maxLength":4}`,
		"pattern": `{"type":"string","pattern":"a.b","not":{"pattern":"bb"}}`,
		"number":  `{"minimum":-1.5,"exclusiveMaximum":12,"multipleOf":0.5,"type":"number"}`,
	} {
		add(name)(v.JSONSchema([]byte(schema), constrain.Options{}))
		add(name + " in any order")(v.JSONSchema([]byte(schema), constrain.Options{AnyOrder: true}))
	}
	for _, s := range []string{
		`{"type":"string","pattern":"^(\\S+\\s){0,3}\\S+$","maxLength":6,"minLength":2}`, `{"type":"string","pattern":"^(ab?|é)*$","maxLength":3}`,
		`{"type":"string","minLength":4}`, `{"type":"string","pattern":"^[a-c]{2}(aa)?$|^𝄞?$","maxLength":4,"minLength":1}`,
		`{"type":"string","pattern":"^(a{2}|b{3}|c)$","minLength":3,"maxLength":6}`, `{"type":"string","pattern":"^(a{2}|a{8}|b{3,4})$","minLength":3,"maxLength":5}`, `{"type":"string","pattern":"^(a{2}|b{3}|c{4}|1{5})$","minLength":3,"maxLength":4}`,
		`{"propertyNames":{"minLength":1,"maxLength":2,"pattern":"^a|b$"},"additionalProperties":{"maxLength":1}}`,
	} {
		add(s)(v.JSONSchema([]byte(s), constrain.Options{}))
	}
	add("gbnf")(v.Grammar("root ::= \"(\" root? \")\" root | [a-b]+ \"é\"? "))
	add("lark")(v.Grammar("start: start \"+\" item | item\nitem: NUMBER | \"(\" start \")\"\nNUMBER: /[0-9]+/\n%ignore \" \"\n"))
	return all
}

// TestExpressions compares texts with what regexp2 says of them, as ECMAScript.
func TestExpressions(t *testing.T) {
	v := bytewise(t)
	letters := []rune("ab01 .-é日\n\u00a0\u2028𝄞")
	r := rand.New(rand.NewPCG(3, 4))
	for _, expr := range []string{
		`a`, `^a`, `a$`, `^a$`, `^$`, `^a|b$`, `(^a|b)b`, `a*b+`, `^(?:ab){2,3}$`, `^.{3}$`, `^[^a]+$`, `\d\s`, `^\S+$`, `^\w*\W$`, `[\s\S]b`,
		`^(?!ab)`, `^(?!.*b$).*$`, `(?=.*a)(?=.*b)`, `^(a|(?!b)b)`, `a(?=b)`, `a(?!b)`, `^(a?b?)*$`, `(a|^)b`, `(^|b)a`, `(a$|b)`, `^a{0,2}b{2}$`, `é`, `^\u65e5`, `[é-日]`, `^x*$`, `(?:)`, `a|`, `^a?^b`, `b$a?`, `^[\d.-]+$`, `[^\d\s]$`, `^(?=ab)a?b`, `^(?:(?!ab).)`, `a.b`,
		`^(?:(?!ab).)*$`, `^(?:a|\b)*b$`, `\bb\B`, `^(?:(?=.b)a|b){6,}$`, `(?:^|a)+b`,
	} {
		want := regexp2.MustCompile(expr, regexp2.ECMAScript|regexp2.Unicode)
		schema, _ := json.Marshal(map[string]any{"type": "string", "pattern": expr})
		c, err := v.JSONSchema(schema, constrain.Options{})
		require.NoError(t, err, expr)
		for range 400 {
			var text strings.Builder
			for range r.IntN(7) {
				text.WriteRune(letters[r.IntN(len(letters))])
			}
			ok, err := want.MatchString(text.String())
			require.NoError(t, err)
			quoted, _ := json.Marshal(text.String())
			require.Equal(t, ok, reads(t, c, string(quoted)), "%s on %s", expr, quoted)
			require.Equal(t, ok, reads(t, c, escaped(text.String())), "%s on %s, escaped", expr, quoted) // the same string, written otherwise
		}
	}
}

// TestLengths compares strings with bounds on their length, which is counted beside the
// states of an expression, with what regexp2 and a count of characters say of them.
func TestLengths(t *testing.T) {
	v := bytewise(t)
	letters := []rune("aab .é日\n𝄞")
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		expr        string
		least, most int
	}{
		{``, 2, 3}, {``, 3, -1}, {`^a`, 0, 0}, {`^(\S+\s){0,3}\S+$`, 2, 5}, {`^(\S+\s){1,3}\S+$`, 3, -1}, {`b$`, 0, 3}, {`^(aa)*$`, 1, 3}, {`^(aa){0,3}$`, 3, 5},
		{`^(a{2}|b{3})$`, 3, 5}, {`^(?!a)`, 1, 2}, {`^[^a]*(é|日𝄞)$`, 2, 4}, {`^a{0,3}b{2,4}$`, 3, 4}, {`^(a|b..){2}$`, 4, 5}, {`^(ab|é){2,4}$`, 3, 4}, {`^(a|..b){1,}$`, 4, 4},
	} {
		keywords := map[string]any{"type": "string", "pattern": c.expr, "minLength": c.least}
		if c.most >= 0 {
			keywords["maxLength"] = c.most
		}
		schema, _ := json.Marshal(keywords)
		k, err := v.JSONSchema(schema, constrain.Options{})
		if err != nil {
			require.ErrorContains(t, err, "no value matches", "%s", schema)
		}
		want := regexp2.MustCompile(c.expr, regexp2.ECMAScript|regexp2.Unicode)
		met := 0
		for range 3000 {
			var text strings.Builder
			n := r.IntN(8)
			for range n {
				text.WriteRune(letters[r.IntN(len(letters))])
			}
			ok, err := want.MatchString(text.String())
			require.NoError(t, err)
			ok = ok && n >= c.least && (c.most < 0 || n <= c.most)
			if ok {
				met++
			}
			if k == nil {
				require.False(t, ok, "%s on %q", schema, text.String())
				continue
			}
			quoted, _ := json.Marshal(text.String())
			require.Equal(t, ok, reads(t, k, string(quoted)), "%s on %s", schema, quoted)
			require.Equal(t, ok, reads(t, k, escaped(text.String())), "%s on %s, escaped", schema, quoted)
		}
		require.True(t, k == nil || met > 0, "%s", schema)
	}
}

// escaped is a JSON string with all of its characters escaped.
func escaped(text string) string {
	var s strings.Builder
	for _, c := range text {
		if c > 0xFFFF {
			fmt.Fprintf(&s, `\u%04X\u%04x`, 0xD800+(c-0x10000)>>10, 0xDC00+(c-0x10000)&0x3FF)
		} else {
			fmt.Fprintf(&s, `\u%04x`, c)
		}
	}
	return `"` + s.String() + `"`
}

// TestDrafts: keywords that a schema's draft lacks are ignored and noted.
func TestDrafts(t *testing.T) {
	v := bytewise(t)
	for _, c := range []struct{ draft, schema, text, note string }{
		{"http://json-schema.org/draft-04/schema#", `"const":1`, `2`, "#/const"},
		{"http://json-schema.org/draft-06/schema#", `"const":1`, `2`, ""},
		{"http://json-schema.org/draft-04/schema#", `"items":{"if":{"required":["a"]},"then":false}`, `[{"a":1}]`, "#/items/if"},
		{"http://json-schema.org/draft-07/schema#", `"if":{"required":["a"]},"then":false`, `{"a":1}`, ""},
		{"http://json-schema.org/draft-07/schema#", `"dependentRequired":{"a":["b"]}`, `{"a":1}`, "#/dependentRequired"},
		{"https://json-schema.org/draft/2019-09/schema", `"dependentRequired":{"a":["b"]}`, `{"a":1}`, ""},
		{"https://json-schema.org/draft/2019-09/schema", `"prefixItems":[false]`, `[1]`, "#/prefixItems"},
		{"https://json-schema.org/draft/2020-12/schema", `"prefixItems":[{"type":"null"}]`, `[1]`, ""},
		{"http://json-schema.org/draft-07/schema#", `"contentEncoding":"base64"`, `"%"`, "#/contentEncoding"},
		{"http://json-schema.org/draft-07/schema#", `"items":{"contentMediaType":"application/json"}`, `["{"]`, "#/items/contentMediaType"},
		{"http://json-schema.org/draft-06/schema#", `"contentMediaType":"application/json"`, `"{"`, "#/contentMediaType"},
	} {
		k, err := v.JSONSchema([]byte(`{"$schema":"`+c.draft+`",`+c.schema+`}`), constrain.Options{})
		require.NoError(t, err, c.schema)
		require.Equal(t, c.note != "", reads(t, k, c.text), "%s of %s", c.schema, c.draft)
		if c.note == "" {
			require.Empty(t, k.Notes())
		} else {
			require.Contains(t, k.Notes()[0], c.note)
		}
	}
}

// TestIdentifiers: what a reference means depends on which schemas an identifier names.
func TestIdentifiers(t *testing.T) {
	v := bytewise(t)
	const (
		beside  = `"$id":"http://x/root","definitions":{"a":{"$id":"b/","$ref":"n"},"b":{"$id":"http://x/b/n","type":"null"},"c":{"$id":"http://x/n","type":"string"}},"allOf":[{"$ref":"#/definitions/a"}]`
		unknown = `"definitions":{"a":{"unknown":{"$id":"http://x/i","type":"null"}},"b":{"const":{"$id":"http://x/i"}},"c":{"properties":{"enum":{"$id":"http://x/i","type":"string"}}}},"items":{"$ref":"http://x/i"}`
	)
	for _, c := range []struct{ draft, schema, yes, no string }{
		{"http://json-schema.org/draft-07/schema#", beside, `"s"`, `null`},
		{"http://json-schema.org/draft-06/schema#", beside, `"s"`, `null`},
		{"https://json-schema.org/draft/2019-09/schema", beside, `null`, `"s"`},
		{"http://json-schema.org/draft-07/schema#", unknown, `["s"]`, `[null]`},
		{"https://json-schema.org/draft/2020-12/schema", unknown, `["s"]`, `[null]`},
		{"http://json-schema.org/draft-04/schema#", strings.ReplaceAll(beside, "$id", "id"), `"s"`, `null`},
	} {
		k, err := v.JSONSchema([]byte(`{"$schema":"`+c.draft+`",`+c.schema+`}`), constrain.Options{})
		require.NoError(t, err, c.schema)
		require.True(t, reads(t, k, c.yes), "%s of %s", c.schema, c.draft)
		require.False(t, reads(t, k, c.no), "%s of %s", c.schema, c.draft)
	}
}

// TestRefused: a keyword that cannot be enforced is an error with its path.
func TestRefused(t *testing.T) {
	v := bytewise(t)
	for _, c := range []struct{ schema, path string }{
		{`{"uniqueItems":true}`, "#/uniqueItems"},
		{`{"properties":{"a/b":{"pattern":"(?<=a)b"}}}`, "#/properties/a~1b/pattern"},
		{`{"items":{"type":"int"}}`, "#/items/type"},
		{`{"$ref":"other.json"}`, "#/$ref"},
		{`{"$ref":"#"}`, "#/$ref"},
		{`{"allOf":[{"$dynamicRef":"#a"}]}`, "#/allOf/0/$dynamicRef"},
		{`{"items":{"type":"array","uniqueItems":true,"contains":{"const":1},"items":{"type":"integer"}}}`, "#/items/uniqueItems"},
		{`{"not":{"uniqueItems":true}}`, "#/not/uniqueItems"},
		{`{"prefixItems":[{"enum":["a"]},{"enum":["a","b"]}],"items":false,"minItems":2,"uniqueItems":true}`, "#/uniqueItems"},
		{`{"format":"regex"}`, "#/format"},
		{`{"required":true}`, "#/required"},
		{`{"minLength":-1}`, "#/minLength"},
		{`{"minimum":"1"}`, "#/minimum"},
		{`{"enum":1}`, "#/enum"},
		{`false`, "no value"},
		{`{"allOf":[{"type":"string"},{"type":"null"}]}`, "no value"},
		{`{"required":["a"],"properties":{"a":{"$ref":"#"}},"type":"object"}`, "no value"},
		{`{"type":"string","pattern":"^a$","minLength":2}`, "no value"},
		{`[]`, "a schema is"},
		{`{`, "not valid JSON"},
	} {
		_, err := v.JSONSchema([]byte(c.schema), constrain.Options{})
		require.ErrorContains(t, err, c.path, c.schema)
	}
	for _, expr := range []string{`(`, `)`, `a**`, `[`, `\`, `(?<=a)`, `\1`, `\Z`, `a{2,1}`, `[b-a]`, `\p{Nonsense}`, `[]`} {
		_, err := v.Regexp(expr)
		require.Error(t, err, expr)
	}
	for _, g := range []string{"", "root ::= a", "root ::= \"a", "a ::= \"b\"", "root ::= root", "root ::= (", "start: A", "start: \"a", "x: \"a\"", "%declare A", "start: /(?=a)b/"} {
		_, err := v.Grammar(g)
		require.Error(t, err, g)
	}
}

// TestTexts: texts that are accepted, and texts that are not.
func TestTexts(t *testing.T) {
	v := bytewise(t)
	any := constrain.Options{AnyOrder: true}
	for _, c := range []struct {
		schema  string
		options constrain.Options
		yes, no []string
	}{
		{`true`, constrain.Options{}, []string{`1`, ` {"a" : [1, -0.5e+3,null] }`, `"\ud834\udd1e\/"`, `""`}, []string{``, `01`, `1.`, `{"a"}`, `[1,]`, `"\ud834"`, "\"\n\"", `"\x"`, "\"\xff\"", `tru`}},
		{`true`, constrain.Options{NoWhitespace: true}, []string{`{"a":[1]}`}, []string{`{"a": 1}`, ` 1`}},
		{`{"properties":{"a":{},"b":{}},"required":["b"],"additionalProperties":false}`, constrain.Options{}, []string{`{"b":1}`, `{"a":1,"b":2}`, `3`}, []string{`{}`, `{"a":1}`, `{"b":1,"a":2}`, `{"b":1,"c":2}`, `{"b":1,"b":2}`, `{"b":1,}`}},
		{`{"properties":{"a":{},"b":{}},"required":["b"],"additionalProperties":false}`, any, []string{`{"b":1,"a":2}`, `{"a":1,"b":2}`, `{"b":0}`}, []string{`{"a":1}`, `{"b":1,"b":2}`}},
		{`{"properties":{"é/<":{}},"additionalProperties":false}`, constrain.Options{}, []string{`{"é/<":1}`, `{"\u00e9\/\u003C":1}`}, []string{`{"e":1}`}},
		{`{"properties":{"abc":{"type":"null"}}}`, constrain.Options{}, []string{`{"abd":1}`, `{"abc":null,"x":1}`, `{"ab":1}`}, []string{`{"abc":1}`, `{"\u0061bc":1}`, `{"x":1,"abc":null}`}},
		{`{"patternProperties":{"^a":{"type":"null"},"b$":{"enum":[1,null]}},"additionalProperties":{"type":"string"}}`, constrain.Options{}, []string{`{"ax":null,"xb":1,"ab":null,"c":"s"}`}, []string{`{"ax":1}`, `{"ab":1}`, `{"xb":2}`, `{"c":1}`}},
		{`{"type":"object","minProperties":1,"maxProperties":2}`, constrain.Options{}, []string{`{"a":1}`, `{"a":1,"b":1}`}, []string{`{}`, `{"a":1,"b":2,"c":3}`}},
		{`{"type":"object","propertyNames":{"maxLength":1}}`, constrain.Options{}, []string{`{"a":1}`, `{}`}, []string{`{"ab":1}`}},
		{`{"dependencies":{"a":["b"],"c":{"required":["d"]}}}`, any, []string{`{"b":1}`, `{"a":1,"b":1}`, `{"b":1,"a":1}`, `{"d":1,"c":1}`}, []string{`{"a":1}`, `{"c":1}`}},
		{`{"items":{"type":"integer"},"minItems":1,"maxItems":2}`, constrain.Options{}, []string{`[1]`, `[1,2]`}, []string{`[]`, `[1,2,3]`, `["a"]`}},
		{`{"prefixItems":[{"type":"null"}],"items":{"type":"integer"}}`, constrain.Options{}, []string{`[]`, `[null]`, `[null,1,2]`}, []string{`[1]`, `[null,null]`}},
		{`{"items":[{"type":"null"}],"additionalItems":false}`, constrain.Options{}, []string{`[]`, `[null]`}, []string{`[null,null]`}},
		{`{"type":"array","contains":{"type":"null"}}`, constrain.Options{}, []string{`[null]`, `[1,null,2]`}, []string{`[]`, `[1]`}},
		{`{"not":{"items":{"type":"null"}}}`, constrain.Options{}, []string{`[1]`, `[null,1]`}, []string{`[]`, `[null]`, `1`}},
		{`{"minimum":1.25,"maximum":10}`, constrain.Options{}, []string{`1.25`, `1.250`, `2`, `10.0`, `10`, `9.99`, `"x"`}, []string{`1.24`, `1`, `10.01`, `11`, `-2`, `1e1`, `0`}},
		{`{"minimum":-12,"exclusiveMaximum":-0.5}`, constrain.Options{}, []string{`-12`, `-0.51`, `-5`, `-12.0`}, []string{`-12.1`, `-0.5`, `0`, `-0`, `5`, `-13`, `-100`, `-0.50`}},
		{`{"minimum":0}`, constrain.Options{}, []string{`0`, `-0`, `-0.0e5`, `1e-9`, `100`}, []string{`-1`, `-1e-9`}},
		{`{"exclusiveMinimum":0}`, constrain.Options{}, []string{`1`, `0.01`, `1E+5`}, []string{`0`, `0.0`, `-1`, `0e4`, `-0`}},
		{`{"multipleOf":0.25}`, constrain.Options{}, []string{`0.5`, `1.25`, `-7.750`, `3`, `0`}, []string{`0.3`, `1.255`, `0.1`}},
		{`{"type":"integer","multipleOf":7,"minimum":8}`, constrain.Options{}, []string{`14`, `21`, `700`}, []string{`7`, `8`, `15`}},
		{`{"pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}`, constrain.Options{}, []string{`"1.5"`, `"-0.1"`, `"7"`}, []string{`""`, `"+"`, `"-"`, `"."`}},
		{`{"pattern":"^(?!^$)[a-z]*$"}`, constrain.Options{}, []string{`"a"`}, []string{`""`}},
		{`{"pattern":"^(?!.*(^|,)(,|$))[a-z,]*$"}`, constrain.Options{}, []string{`"a"`, `"a,b"`}, []string{`""`, `",a"`, `"a,"`}},
		{`{"pattern":"(?!^)a"}`, constrain.Options{}, []string{`"ba"`, `"aa"`}, []string{`"a"`, `"ab"`}},
		{`{"pattern":"^a*(?!^b)[a-z]+$"}`, constrain.Options{}, []string{`"ab"`, `"aab"`, `"c"`}, []string{`"b"`, `"ba"`}},
		{`{"pattern":"^(?:a|)(?!^b)[a-z]+$"}`, constrain.Options{}, []string{`"ab"`, `"c"`}, []string{`"b"`}},
		{`{"type":"string","enum":["a","ab","\n"],"minLength":2}`, constrain.Options{}, []string{`"ab"`}, []string{`"a"`, `"abc"`, `"\n"`}},
		{`{"const":{"a":[1,{"b":null}]}}`, constrain.Options{}, []string{`{"a":[1,{"b":null}]}`}, []string{`{"a":[1]}`, `{"a":[1.00,{"b":null}]}`, `{}`, `{"a":[1,{"b":null}],"c":1}`}},
		{`{"enum":[1.50,-0,1e2]}`, constrain.Options{}, []string{`1.5`, `0`, `100`, `100.0`}, []string{`1.50`, `1e2`, `15`}},
		{`{"not":{"const":1}}`, constrain.Options{}, []string{`2`, `1.5`, `"1"`}, []string{`1`, `1.0`}},
		{`{"not":{"const":{"a":1}}}`, constrain.Options{}, []string{`{}`, `{"a":2}`, `{"a":1,"b":1}`, `1`}, []string{`{"a":1}`}},
		{`{"oneOf":[{"type":"integer"},{"minimum":2}]}`, constrain.Options{}, []string{`1`, `2.5`, `"a"`}, []string{`3`, `1.5`}},
		{`{"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object"}`, any, []string{`{"a":1}`, `{"b":1,"c":1}`}, []string{`{}`, `{"a":1,"b":1}`}},
		{`{"if":{"properties":{"k":{"const":"x"}},"required":["k"]},"then":{"required":["v"]},"else":{"maxProperties":1}}`, any, []string{`{"k":"x","v":1}`, `{"k":"y"}`, `{}`}, []string{`{"k":"x"}`, `{"k":"y","v":1}`}},
		{`{"$defs":{"t":{"type":"object","properties":{"n":{"$ref":"#/$defs/t"},"v":{"type":"integer"}},"required":["v"],"additionalProperties":false}},"$ref":"#/$defs/t"}`, constrain.Options{}, []string{`{"n":{"n":{"v":1},"v":2},"v":3}`}, []string{`{"n":{},"v":1}`}},
		{`{"anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"type":"string"}},"required":["a","b"]}],"type":"object"}`, any, []string{`{"a":1}`, `{"a":"x","b":1}`, `{"b":1,"a":"x"}`}, []string{`{"a":"x"}`, `{"a":null}`}},
		{`{"$defs":{"b":{"properties":{"b":{}},"patternProperties":{"^x":{}}}},"properties":{"a":{}},"allOf":[{"$ref":"#/$defs/b"}],"unevaluatedProperties":false}`, any, []string{`{"a":1,"b":2,"xy":3}`, `{}`}, []string{`{"c":1}`, `{"a":1,"c":1}`}},
		{`{"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}],"unevaluatedProperties":false}`, any, []string{`{"a":1}`, `{"b":1}`, `{"b":2,"a":1}`}, []string{`{"b":1,"a":2}`, `{"a":1,"c":1}`, `{}`}},
		{`{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"properties":{"v":{}}},"else":{"properties":{"w":{}}},"unevaluatedProperties":{"type":"null"}}`, any, []string{`{"k":1,"v":2}`, `{"k":1,"w":null}`, `{"w":1}`, `{"k":null,"w":1}`}, []string{`{"k":1,"w":2}`, `{"v":1}`, `{"k":2}`}},
		{`{"allOf":[{"properties":{"a":{}}},{"unevaluatedProperties":false}]}`, any, []string{`{}`}, []string{`{"a":1}`}},
		{`{"allOf":[{"properties":{"a":{}},"unevaluatedProperties":{"type":"null"}}],"unevaluatedProperties":false}`, any, []string{`{"a":1,"b":null}`}, []string{`{"b":1}`}},
		{`{"not":{"not":{"properties":{"a":{}}}},"unevaluatedProperties":false}`, any, []string{`{}`}, []string{`{"a":1}`}},
		{`{"properties":{"a":{}},"dependentSchemas":{"a":{"properties":{"b":{}}}},"unevaluatedProperties":false}`, any, []string{`{"a":1,"b":1}`, `{"a":1}`, `{}`}, []string{`{"b":1}`, `{"a":1,"c":1}`}},
		{`{"type":"object","oneOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}],"unevaluatedProperties":false}`, any, []string{`{"a":1}`, `{"b":1}`}, []string{`{"a":1,"b":1}`, `{}`, `{"a":1,"c":1}`}},
		{`{"prefixItems":[{"type":"string"}],"anyOf":[{"prefixItems":[true,{"const":1}]},{"minItems":1}],"unevaluatedItems":false}`, constrain.Options{}, []string{`["a"]`, `["a",1]`, `[]`}, []string{`["a",2]`, `["a",1,1]`, `[1]`}},
		{`{"contains":{"const":1},"unevaluatedItems":{"type":"string"}}`, constrain.Options{}, []string{`[1]`, `["a",1,1,"b"]`}, []string{`["a"]`, `[1,2]`}},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","contains":{"const":1},"items":[true],"unevaluatedItems":{"type":"string"}}`, constrain.Options{}, []string{`[1,"a"]`}, []string{`["a",1]`}},
		{`{"allOf":[{"items":{"type":"integer"}}],"unevaluatedItems":false}`, constrain.Options{}, []string{`[1,2]`}, []string{`["a"]`}},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","minimum":3,"exclusiveMinimum":true}`, constrain.Options{}, []string{`4`, `3.1`}, []string{`3`, `2`}},
		{`{"format":"date-time"}`, constrain.Options{}, []string{`"2024-02-29T23:59:60Z"`, `"2023-01-31T00:00:00.5+01:00"`}, []string{`"2023-02-29T00:00:00Z"`, `"2023-04-31T00:00:00Z"`, `"2023-01-01 00:00:00Z"`, `"2023-01-01T24:00:00Z"`}},
		{`{"format":"ipv6"}`, constrain.Options{}, []string{`"::1"`, `"1:2:3:4:5:6:7:8"`, `"::ffff:1.2.3.4"`, `"fe80::"`}, []string{`"1:2:3"`, `"::1::"`, `"12345::"`}},
		{`{"format":"email"}`, constrain.Options{}, []string{`"a.b+c@d.e"`, `"` + strings.Repeat("a", 64) + `@b"`}, []string{`"a..b@c"`, `"@c"`, `"a@"`, `"` + strings.Repeat("a", 65) + `@b"`, `"a@` + strings.Repeat("b.", 126) + `b"`}},
		{`{"format":"email"}`, constrain.Options{}, []string{`"\"joe bloggs\"@a.b"`, `"\"a..@\"@a"`, `"a@[127.0.0.1]"`, `"a@[IPv6:::1]"`}, []string{`"\"a\"\"@b"`, `"\"a\\\"@b"`, `"a@[127.0.0.300]"`, `"a@[::1]"`, `"a@[IPv6::]"`, `"a b@c"`}},
		{`{"format":"time"}`, constrain.Options{}, []string{`"23:59:60Z"`, `"23:59:60.25z"`, `"15:59:60-08:00"`, `"01:29:60+01:30"`, `"23:29:60+23:30"`, `"00:29:60-23:30"`, `"08:59:60.0+09:00"`, `"12:00:00+00:00"`}, []string{`"22:59:60Z"`, `"23:58:60Z"`, `"15:59:60-07:00"`, `"01:29:60-01:30"`, `"23:59:60.Z"`, `"23:59:61Z"`, `"24:59:60Z"`, `"23:59:60"`}},
		{`{"format":"date-time"}`, constrain.Options{}, []string{`"1990-12-31T15:59:60-08:00"`}, []string{`"1990-12-31T15:59:60-07:00"`, `"1990-02-31T15:59:60-08:00"`}},
		{`{"format":"hostname"}`, constrain.Options{}, []string{`"a.b-c.d"`, `"a-b--c"`, `"1"`, `"` + strings.Repeat("a", 63) + `"`, `"abcd"`, `"ab-d"`, `"a-cd"`}, []string{`"-a.b"`, `""`, `"a..b"`, `"xn--X"`, `"ab--c"`, `"a.xn--07jt112bpxg"`, `"ab-.c"`, `"` + strings.Repeat("a", 64) + `"`}},
	} {
		k, err := v.JSONSchema([]byte(c.schema), c.options)
		require.NoError(t, err, c.schema)
		for _, text := range c.yes {
			require.True(t, reads(t, k, text), "%s on %s", c.schema, text)
		}
		for _, text := range c.no {
			require.False(t, reads(t, k, text), "%s on %s", c.schema, text)
		}
	}
	for _, c := range []struct {
		grammar string
		yes, no []string
	}{
		{"root ::= \"(\" root \")\" | \"a\"{2,3} # comment\n", []string{"aa", "((aaa))"}, []string{"a", "(aa", "aaaa"}},
		{"root ::= x\n  | y\nx ::= [a-c]+ [^d\\n]\ny ::= \"\\x41\" .", []string{"abz", "Aé"}, []string{"ad", "A", "a"}},
		{"root ::= root \"+\" t | t\nt ::= [0-9] t | [0-9]", []string{"1", "12+3+4"}, []string{"+1", "1+", ""}},
		{"root ::= a a\na ::= b | \nb ::= \"x\" a \"y\"", []string{"", "xy", "xxyyxy"}, []string{"x", "yx", "xyxyxy"}},
		{"root ::= a \"p\" | a \"q\"\na ::= b | \nb ::= \"x\" a \"y\"", []string{"p", "q", "xyp", "xyq"}, []string{"x", "xy"}},
		{"root ::= a a a\na ::= b | \nb ::= \"x\" a \"y\"", []string{"", "xy", "xyxxyy", "xyxyxy"}, []string{"x", "yx", "xyxyxyxy"}},
		{"start: expr\n?expr: expr \"+\" term -> add\n    | term\nterm: NUM | \"(\" expr \")\"\nNUM: DIGIT+\n%import common.DIGIT\n%import common.WS\n%ignore WS\n", []string{"1+2", " ( 12 + 3 )\n", "7"}, []string{"1 2 +", "1+", "()"}},
		{"start: (\"a\"i | \"b\"..\"d\") ~ 2..3 [X]\nX.2: /x./s\n", []string{"Ab", "aaAx\n"}, []string{"a", "abcd", "aax"}},
	} {
		k, err := v.Grammar(c.grammar)
		require.NoError(t, err, c.grammar)
		for _, text := range c.yes {
			require.True(t, reads(t, k, text), "%s on %s", c.grammar, text)
		}
		for _, text := range c.no {
			require.False(t, reads(t, k, text), "%s on %s", c.grammar, text)
		}
	}
}

// ecma gives the oracle expressions as JSON Schema means them.
type ecma struct{ *regexp2.Regexp }

func (e ecma) MatchString(s string) bool {
	ok, err := e.Regexp.MatchString(s)
	return ok && err == nil
}

func compileECMA(s string) (jsonschema.Regexp, error) {
	r, err := regexp2.Compile(s, regexp2.ECMAScript|regexp2.Unicode)
	if err != nil {
		return nil, err
	}
	r.MatchTimeout = time.Second
	return ecma{r}, nil
}

// TestWalks walks schemas at random along the masks. Every walk ends in a text that another
// implementation of JSON Schema accepts.
func TestWalks(t *testing.T) {
	l := llama3(t)
	walks, schemas, endless := 0, 0, 0
	mask := make([]uint64, l.Words())
	for i, s := range bench(t, 60, 10) {
		if schemas == 500 {
			break
		}
		var decoded any
		d := json.NewDecoder(strings.NewReader(string(s.Schema)))
		d.UseNumber()
		require.NoError(t, d.Decode(&decoded))
		compiler := jsonschema.NewCompiler()
		compiler.UseRegexpEngine(compileECMA)
		compiler.AssertFormat()
		if m, ok := decoded.(map[string]any); !ok || m["$schema"] == nil {
			compiler.DefaultDraft(jsonschema.Draft2020)
		}
		if compiler.AddResource("file:///schema.json", decoded) != nil {
			continue
		}
		oracle, err := compiler.Compile("file:///schema.json")
		if err != nil {
			continue // not a schema to it
		}
		c, err := l.JSONSchema(s.Schema, constrain.Options{AnyOrder: i%4 == 3})
		if err != nil {
			continue
		}
		schemas++
		for seed := range uint64(testfiles.Rounds("models", 6, 20)) {
			text, err := walk(l, c, mask, rand.New(rand.NewPCG(seed, uint64(i))))
			if errors.Is(err, errNoEnd) {
				endless++
				continue
			}
			require.NoError(t, err, "%s: %q", s.name, text)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			require.NoError(t, err, "%s: %q", s.name, text)
			require.NoError(t, oracle.Validate(value), "%s: %s", s.name, text)
			walks++
		}
	}
	t.Logf("%d walks on %d schemas, %d without an end", walks, schemas, endless)
	require.Less(t, endless*4, walks) // most lack a property that has to come among any others
	require.Greater(t, schemas, 50)
}

var errNoEnd = errors.New("a walk without an end")

const short = 60 // tokens before a walk goes the shortest way to its end

// walk chooses tokens at random, then those that close most.
func walk(l *llama, c *constrain.Constraint, mask []uint64, r *rand.Rand) (text string, err error) {
	s := c.Start()
	quoted, escaped := false, false
	for n := 0; ; n++ {
		if err := s.Mask(mask); err != nil {
			return text, err
		}
		if s.CanStop() && (n > short || s.Done() || r.IntN(4) == 0) {
			return text, nil
		}
		for _, id := range l.StopIDs() {
			mask[id>>6] &^= 1 << (id & 63)
		}
		count := 0
		for _, w := range mask {
			count += bits.OnesCount64(w)
		}
		if count == 0 {
			return text, fmt.Errorf("a dead end")
		}
		id := nth(mask, r.IntN(count))
		if n > short {
			order := `}],:"0tfn[{`
			if quoted {
				order = `"n0a`
			}
			for i := range len(order) {
				if k := l.one(order[i]); mask[k>>6]>>(k&63)&1 != 0 {
					id = k
					break
				}
			}
		}
		if n > 400 {
			return text, errNoEnd
		}
		piece := l.Piece(id)
		for i := 0; i < len(piece); i++ {
			if piece[i] == '"' && !escaped {
				quoted = !quoted
			}
			escaped = quoted && piece[i] == '\\' && !escaped
		}
		text += string(piece)
		if ok, err := s.Accept(id); !ok || err != nil {
			return text, fmt.Errorf("token %q is in the mask and not accepted: %v", piece, err)
		}
	}
}

// nth is the token of the mask with n before it.
func nth(mask []uint64, n int) int32 {
	for i, w := range mask {
		if k := bits.OnesCount64(w); n >= k {
			n -= k
			continue
		}
		for ; n > 0; n-- {
			w &= w - 1
		}
		return int32(i*64 + bits.TrailingZeros64(w))
	}
	panic("fewer tokens than counted")
}

// one is the token of a single byte.
func (l *llama) one(b byte) int32 { return l.Encode(string([]byte{b}), false)[0] }
