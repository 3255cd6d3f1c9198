package constrain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/internal/testfiles"
)

// uniqueItems are schemas of items that arrays keep unique, and texts of such items and others.
var uniqueItems = []struct {
	schema string
	texts  []string
}{
	{`{"type":"string"}`, []string{`"a"`, `"b"`, `"ab"`, `""`, `"\u0061"`, `"a\u0062"`, `"\n"`, `"\u000A"`, `"é"`, `"\u00e9"`, `"𝄞"`, `"\ud834\uDD1E"`, `"/"`, `"\/"`, `"\""`, `"\u0022"`, `1`}},
	{`{"type":"string","maxLength":1}`, []string{`"a"`, `"b"`, `""`, `"\u0061"`, `"é"`, `"\u00e9"`, `"ab"`}},
	{`{"type":"string","pattern":"^(a|b+|[éè])$"}`, []string{`"a"`, `"b"`, `"bb"`, `"\u0061"`, `"é"`, `"\u00e9"`, `"è"`, `"\u0062b"`}},
	{`{"enum":["a","ab","b",null,1]}`, []string{`"a"`, `"ab"`, `"b"`, `null`, `1`, `1.0`, `"c"`}},
	{`{"enum":["a","é","/"]}`, []string{`"a"`, `"é"`, `"\u00e9"`, `"/"`, `"\/"`}},
	{`{"type":"boolean"}`, []string{`true`, `false`, `null`}},
	{`{"type":["boolean","null","string","number"]}`, []string{`true`, `false`, `null`, `"true"`, `"null"`, `"1"`, `1`, `""`}},
	{`{"type":"integer"}`, []string{`0`, `-0`, `1`, `10`, `-1`, `11`, `100`, `"1"`}},
	{`{"type":"number"}`, []string{`0`, `-0`, `0.0`, `-0.0`, `1`, `1.0`, `1.5`, `10`, `-1`, `-1.0`, `0.5`, `-0.5`, `15`}},
	{`{"minimum":1,"maximum":2,"type":"number","multipleOf":0.5}`, []string{`1`, `1.0`, `1.5`, `2`, `2.0`, `3`}},
	{`{"anyOf":[{"const":"a"},{"type":"integer","minimum":8,"maximum":9}]}`, []string{`"a"`, `8`, `9`, `10`}},
}

// TestUnique compares arrays whose items differ with another implementation of JSON Schema.
func TestUnique(t *testing.T) {
	v := bytewise(t)
	r := rand.New(rand.NewPCG(11, 12))
	accepted, rejected := 0, 0
	for _, c := range uniqueItems {
		for least := range 4 {
			schema := fmt.Sprintf(`{"type":"array","uniqueItems":true,"minItems":%d,"items":%s}`, least, c.schema)
			k, err := v.JSONSchema([]byte(schema), constrain.Options{})
			if err != nil {
				require.ErrorContains(t, err, "no value matches")
				require.Contains(t, c.schema, "boolean")
				require.Greater(t, least, 2)
				continue
			}
			oracle := compileOracle(t, schema)
			for range 1000 {
				items := make([]string, r.IntN(6))
				for i := range items {
					items[i] = c.texts[r.IntN(len(c.texts))]
				}
				text := "[" + strings.Join(items, []string{",", ", ", "\n,"}[r.IntN(3)]) + "]"
				value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
				require.NoError(t, err)
				valid := oracle.Validate(value) == nil
				require.Equal(t, valid, reads(t, k, text), "%s on %s", schema, text)
				if valid {
					accepted++
				} else {
					rejected++
				}
			}
		}
	}
	require.Greater(t, accepted, 3000)
	require.Greater(t, rejected, 3000)
}

func compileOracle(t testing.TB, schema string) *jsonschema.Schema {
	decoded, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("file:///schema.json", decoded))
	oracle, err := compiler.Compile("file:///schema.json")
	require.NoError(t, err, schema)
	return oracle
}

// TestUniqueWhole reads all texts of arrays of few values: each beginning has an end.
func TestUniqueWhole(t *testing.T) {
	v := bytewise(t)
	for _, c := range []struct {
		items string
		least int
		texts []string
	}{
		{`{"enum":["a","ab","b"]}`, 0, []string{`"a"`, `"ab"`, `"b"`}},
		{`{"enum":["a","ab","b","abc"]}`, 3, []string{`"a"`, `"ab"`, `"b"`, `"abc"`}},
		{`{"type":["boolean","null"]}`, 2, []string{`true`, `false`, `null`}},
		{`{"type":"integer","minimum":9,"maximum":11}`, 1, []string{`9`, `10`, `11`}},
		{`{"enum":["a",1,null]}`, 2, []string{`"a"`, `1`, `1.0`, `null`}},
		{`{"type":"integer","minimum":-1,"maximum":1}`, 0, []string{`-1`, `0`, `-0`, `1`}},
	} {
		schema := fmt.Sprintf(`{"type":"array","uniqueItems":true,"minItems":%d,"items":%s}`, c.least, c.items)
		k, err := v.JSONSchema([]byte(schema), constrain.Options{NoWhitespace: true})
		require.NoError(t, err, schema)
		oracle := compileOracle(t, schema)
		var want, got []string
		var lists func(items []string)
		lists = func(items []string) {
			text := "[" + strings.Join(items, ",") + "]"
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			require.NoError(t, err)
			if oracle.Validate(value) == nil {
				want = append(want, text)
			}
			for _, item := range c.texts {
				if len(items) < 4 && !slices.Contains(items, item) {
					lists(append(slices.Clone(items), item))
				}
			}
		}
		lists(nil)
		var read func(s constrain.State, text string)
		read = func(s constrain.State, text string) {
			ends := s.CanStop()
			if ends {
				got = append(got, text)
			}
			for b := range 256 {
				next := s
				if n, err := next.AcceptBytes([]byte{byte(b)}); n == 1 {
					require.NoError(t, err)
					ends = true
					read(next, text+string(rune(b)))
				}
			}
			require.True(t, ends, "%s: a dead end after %s", schema, text)
		}
		read(k.Start(), "")
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, schema)
	}
}

// TestUniqueMasks compares the masks along arrays whose items differ with Accept of every token.
func TestUniqueMasks(t *testing.T) {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	tokens = append(tokens, nil)
	for _, s := range []string{`","`, `"a","`, `"a","b"`, `a","a"`, `a"`, `"a",`, `"a"]`, `","a`, `ab","b","`, `1,1`, `0,`, `,1`, `,1,`, `,0,-0`, `1,1.0,2`, `,1.0,10`, `null,`, `,null`, `\u0061"`, `\u00`, `61","`, `é"`, `b",`, `"b","a"]`, `true,false]`, `,true,`, `"",`, `,""]`} {
		tokens = append(tokens, []byte(s))
	}
	v, err := constrain.New(tokens, []int32{256})
	require.NoError(t, err)
	mask := make([]uint64, v.Words())
	r := rand.New(rand.NewPCG(13, 14))
	crossed := 0
	for _, c := range uniqueItems {
		for least := range 3 {
			schema := fmt.Sprintf(`{"type":"array","uniqueItems":true,"minItems":%d,"items":%s}`, least, c.schema)
			k, err := v.JSONSchema([]byte(schema), constrain.Options{NoWhitespace: true})
			require.NoError(t, err)
			for range testfiles.Rounds("models", 10, 50) {
				s := k.Start()
				for range 40 {
					require.NoError(t, s.Mask(mask))
					var allowed []int32
					for id := range int32(len(tokens)) {
						next := s.Clone()
						ok, err := next.Accept(id)
						require.NoError(t, err)
						require.Equal(t, ok, mask[id>>6]>>(id&63)&1 != 0, "%s: %q", schema, tokens[id])
						if ok && id != 256 && (len(tokens[id]) > 1 || strings.IndexByte(`"ab,01e-.\u6`, byte(id)) >= 0 || r.IntN(40) == 0) {
							allowed = append(allowed, id)
						}
						if ok && id > 256 {
							crossed++
						}
					}
					if len(allowed) == 0 {
						if s.CanStop() {
							break
						}
						for id := range int32(256) {
							if mask[id>>6]>>(id&63)&1 != 0 {
								allowed = append(allowed, id)
							}
						}
						require.NotEmpty(t, allowed, "%s: a dead end", schema)
					}
					ok, err := s.Accept(allowed[r.IntN(len(allowed))])
					require.NoError(t, err)
					require.True(t, ok)
				}
			}
		}
	}
	require.Greater(t, crossed, 1000)
}
