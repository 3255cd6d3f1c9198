//go:build unix

package constrain_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
)

// list joins n texts, each with its number.
func list(n int, format string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(parts, ",")
}

// costly are schemas whose work grows faster than their length, or that say little and ask for much.
var costly = map[string]string{
	"constants":         `{"anyOf":[` + list(20_000, `{"const":"x%d"}`) + `]}`,
	"numbers":           `{"anyOf":[` + list(20_000, `{"const":%d}`) + `]}`,
	"one of constants":  `{"oneOf":[` + list(20_000, `{"const":"x%d"}`) + `]}`,
	"enumerations":      `{"allOf":[` + list(40, `{"enum":[`+strings.ReplaceAll(list(9000, `"%d"`), "%", "%%")+`],"x":%d}`) + `]}`,
	"no constants":      `{"not":{"anyOf":[` + list(5_000, `{"const":"x%d"}`) + `]}}`,
	"required":          `{"allOf":[` + list(40, `{"required":["%d",`+list(9000, `"a%d"`)+`]}`) + `]}`,
	"repeated keys":     `{"const":{` + list(200_000, `"x%d":1`) + `}}`,
	"no object":         `{"not":{"const":{` + list(100_000, `"x%d":1`) + `}}}`,
	"properties":        `{"allOf":[` + list(40, `{"properties":{"%d":{},`+list(9000, `"a%d":{}`)+`}}`) + `]}`,
	"closed properties": `{"additionalProperties":{"type":"string"},"properties":{` + list(9_000, `"é%d":{"minLength":%[1]d}`) + `}}`,
	"pointers":          `{"$defs":{` + list(50_000, `"x%d":{"minLength":%[1]d}`) + `},"anyOf":[` + list(50_000, `{"$ref":"#/$defs/x%d"}`) + `]}`,
	"identifiers":       `{"$id":"http://a/` + strings.Repeat("b", 1_000_000) + `/","x":[` + list(50_000, `{"$id":"c%d"}`) + `]}`,
	"anchors":           `{"$id":"http://a/` + strings.Repeat("b", 1_000_000) + `/","x":[` + list(50_000, `{"$anchor":"c%d"}`) + `]}`,
	"formats":           `{"allOf":[` + list(100_000, `{"format":"x%d"}`) + `]}`,
	"long paths":        `{"` + strings.Repeat("b", 1_000_000) + `":{"allOf":[` + list(50_000, `{"format":"x%d"}`) + `]},"$ref":"#/` + strings.Repeat("b", 1_000_000) + `"}`,
	"references":        `{"$defs":{"x29000":{"type":"null"},` + list(29_000, `"x%d":{"items":{"$ref":"#/$defs/y%[1]d"}},"y%[1]d":{"minItems":1,"items":{"$ref":"#/$defs/z%[1]d"}},"z%[1]d":{"const":%[1]d}`) + `},"items":[` + list(390, `{"$ref":"#/$defs/x%d"}`) + `]}`,
	"items":             `{"allOf":[` + list(1_000, `{"minItems":%d,"prefixItems":[`+strings.Repeat("{},", 390)+`{}]}`) + `]}`,
	"dependencies":      `{"dependentRequired":{` + list(5_000, `"x%d":["y%[1]d"]`) + `}}`,
	"letters":           `{"pattern":"` + strings.Repeat(`\\p{L}`, 400_000) + `"}`,
	"classes":           `{"anyOf":[` + list(20_000, `{"pattern":"^[^a-z%d]\\p{Lu}\\P{Nd}x%[1]d$"}`) + `]}`,
	"anchors within":    `{"pattern":"` + strings.Repeat("(b?", 200) + "^" + strings.Repeat(")", 200) + `"}`,
	"looking ahead":     `{"pattern":"` + strings.Repeat("(?=.*a", 200) + strings.Repeat(")", 200) + `"}`,
	"repetitions":       `{"pattern":"` + strings.Repeat("(a{3}|b{5,7}|", 150) + strings.Repeat("){2,60}", 150) + `"}`,
	"searches":          `{"anyOf":[` + list(2_000, `{"pattern":"^(?=.*a.{%d})(?=.*b.{9})","minLength":30,"maxLength":31}`) + `]}`,
	"kept apart":        `{"items":[` + list(390, `{"pattern":"^(?!.*ab%d)(?=.*c).*$","minLength":5}`) + `]}`,
	"numbers of digits": `{"allOf":[` + list(2_000, `{"minimum":-1%d`+strings.Repeat("0", 1000)+`}`) + `]}`,
	"multiples":         `{"allOf":[` + list(500, `{"multipleOf":1%d7}`) + `]}`,
	"names by pattern":  `{"allOf":[` + list(300, `{"patternProperties":{"a%d":{}},"properties":{"b%[1]d":{}}}`) + `]}`,
	"alternatives":      `{"allOf":[` + list(30, `{"anyOf":[{"required":["a%d"]},{"required":["b%[1]d"]}]}`) + `]}`,
	"one of objects":    `{"oneOf":[` + list(300, `{"properties":{"k":{"const":"x%d"},"v":{"type":"integer"}},"required":["k"]}`) + `]}`,
	"deep combinations": strings.Repeat(`{"anyOf":[{"items":{}},{"allOf":[{"items":{}},`, 120) + "true" + strings.Repeat("]}]}", 120),
	"recursion":         `{"anyOf":[` + list(60, `{"items":{"allOf":[{"$ref":"#"},{"minItems":%d}]}}`) + `]}`,
}

// TestWork: no schema takes long to be compiled or refused, nor a mask of it.
func TestWork(t *testing.T) {
	v := bytewise(t)
	for name, schema := range costly {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start := threadTime()
			c, err := v.JSONSchema([]byte(schema), constrain.Options{})
			compiled := threadTime() - start
			if err == nil {
				err = follow(c, `{"é12":"abcdefghi","k":1`)
			}
			if err != nil {
				err = errors.New(err.Error()[:min(len(err.Error()), 100)])
			}
			t.Logf("%d bytes, compiled in %v, all %v: %v", len(schema), compiled, threadTime()-start, err)
			require.Less(t, threadTime()-start, mostTime)
		})
	}
}

// TestWorkOnGrammars: nor a grammar, nor an expression.
func TestWorkOnGrammars(t *testing.T) {
	v := bytewise(t)
	chain := make([]string, 3000)
	for i := range chain {
		chain[i] = fmt.Sprintf("r%04d ::= [a-%c] r%04d? | \"x\"\n", i, 'b'+i%20, i+1)
	}
	for name, grammar := range map[string]string{
		"chain":       "root ::= r0000\nr3000 ::= \"y\"\n" + strings.Join(chain, ""),
		"repetitions": "root ::= (((root? \"a\"){1,90}){1,90}){1,90}\n",
		"ambiguous":   "root ::= root root | root root root | \"a\"?\n",
		"many calls":  "root ::= " + strings.ReplaceAll(list(3000, "a%d"), ",", " | ") + "\n" + strings.ReplaceAll(list(3000, "a%d ::= root? \"(\" a%[1]d? \")\""), ",", "\n") + "\n",
		"folded":      "start: /[" + strings.Repeat(`\u0400-\u0b00`, 3000) + "]/" + strings.Repeat("i", 3000) + "\n",
		"letters":     "start: /" + strings.Repeat(`\p{L}`, 100_000) + "/\n",
		"expression":  "start: /" + strings.Repeat("(a|b?", 400) + strings.Repeat(")*", 400) + "/\n",
		"counts":      "start: /((.{1,300}a){1,300}b){1,300}/ start?\n",
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			start := threadTime()
			c, err := v.Grammar(grammar)
			if err == nil {
				err = follow(c, `((aa((a))aaaaaaaaaaa`)
			}
			t.Logf("%d bytes, %v: %v", len(grammar), threadTime()-start, err)
			require.Less(t, threadTime()-start, mostTime)
		})
	}
}

// TestEnds: work on a form ends with its context.
func TestEnds(t *testing.T) {
	v := bytewise(t)
	gone := errors.New("the client has gone")
	form := constrain.Schema("x", []byte(costly["searches"]), "", constrain.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadTime()
	_, err := v.Form(ctx, form)
	require.ErrorIs(t, err, gone)
	require.Less(t, threadTime()-start, 200*time.Millisecond)
}

// TestWays: a text that its schema takes passes, however many ways there are to read what follows
// its prefixes.
func TestWays(t *testing.T) {
	v := bytewise(t)
	var words, names []string
	for i := range 6000 {
		words = append(words, fmt.Sprintf(`"%c/%c"`, 0x4e00+i, 0x5e00+7*i%5000))
		names = append(names, fmt.Sprintf(`"%c":{"const":%d}`, 0x4e00+i, i))
	}
	var alternatives []string
	for i := range 100 {
		alternatives = append(alternatives, `{"type":"array","items":{"anyOf":[`+list(100, fmt.Sprintf(`{"properties":{"b%d":{},"a":{"maximum":1%%d}}}`, i))+`]}}`)
	}
	for name, c := range map[string]struct{ schema, text string }{
		"an enumeration": {`{"items":{"enum":[` + strings.Join(words, ",") + `]}}`, `["` + string(rune(0x4e00+5999)) + `\/` + fmt.Sprintf(`\u%04X`, 0x5e00+7*5999%5000) + `"]`},
		"names":          {`{"properties":{` + strings.Join(names, ",") + `}}`, fmt.Sprintf(`{"%c":0,"%c":5000,"\u%04x":5999}`, 0x4e00, 0x4e00+5000, 0x4e00+5999)},
		"alternatives":   {`{"anyOf":[` + strings.Join(alternatives, ",") + `]}`, `[{"a":1},{"a":100,"c":[1,2,{"a":""}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []constrain.Options{{}, {AnyOrder: true}} {
				k, err := v.JSONSchema([]byte(c.schema), o)
				require.NoError(t, err)
				require.NoError(t, follow(k, c.text))
				require.True(t, reads(t, k, c.text))
			}
		})
	}
}
