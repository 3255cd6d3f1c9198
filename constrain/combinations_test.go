package constrain_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
)

// randomSchema returns a schema of combinations, closed objects and counted items.
func randomSchema(r *rand.Rand, depth int) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	sub := func() string { return randomSchema(r, depth-1) }
	list := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = sub()
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	if depth == 0 {
		return pick(`true`, `false`, `{"type":"integer"}`, `{"type":"string"}`, `{"const":1}`, `{"enum":["s",null]}`, `{"type":["object","integer"]}`, `{"maximum":1}`)
	}
	var words []string
	for range 1 + r.IntN(3) {
		words = append(words, pick(
			`"additionalProperties":`+sub(), `"additionalProperties":false`, `"properties":{"a":`+sub()+`,"b":`+sub()+`}`, `"properties":{"a":true}`,
			`"patternProperties":{"^`+pick("a", "c", "[ab]")+`":`+sub()+`}`, `"propertyNames":{"pattern":"`+pick("a", "^b", "c$")+`"}`, `"required":["`+pick("a", "b", "c")+`"]`,
			fmt.Sprintf(`"maxProperties":%d`, r.IntN(3)), `"minProperties":1`,
			`"items":`+sub(), `"prefixItems":`+list(), `"contains":`+sub(), fmt.Sprintf(`"contains":%s,"minContains":%d`, sub(), r.IntN(3)), fmt.Sprintf(`"contains":%s,"maxContains":%d`, sub(), r.IntN(3)),
			fmt.Sprintf(`"minItems":%d`, r.IntN(3)), fmt.Sprintf(`"maxItems":%d`, r.IntN(4)), `"type":"`+pick("object", "object", "array", "array", "integer")+`"`,
			`"unevaluatedProperties":`+sub(), `"unevaluatedProperties":false`, `"unevaluatedItems":`+sub(), `"unevaluatedItems":false`, `"dependentSchemas":{"a":`+sub()+`}`,
			`"not":`+sub(), `"oneOf":`+list(), `"oneOf":`+list(), `"anyOf":`+list(), `"allOf":`+list(), `"if":`+sub()+`,"then":`+sub()+`,"else":`+sub(), `"if":`+sub()+`,"else":`+sub(),
		))
	}
	// The last of equal keywords counts.
	return "{" + strings.Join(words, ",") + "}"
}

func randomValue(r *rand.Rand, depth int) string {
	var parts []string
	kind := r.IntN(5)
	if depth == 0 {
		kind = 4
	}
	switch kind {
	case 0, 1:
		for range r.IntN(4) {
			parts = append(parts, `"`+[]string{"a", "b", "c", "ac"}[r.IntN(4)]+`":`+randomValue(r, depth-1))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case 2, 3:
		for range r.IntN(4) {
			parts = append(parts, randomValue(r, depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return []string{"1", "2", `"s"`, "null", `"x"`, "{}", "[]"}[r.IntN(7)]
}

// orders returns the texts of an object with its properties in each order.
func orders(text string) []string {
	if !strings.HasPrefix(text, `{"`) || strings.Count(text, "{") > 1 || strings.Contains(text, "[") {
		return []string{text}
	}
	var all []string
	var permute func(done, rest []string)
	permute = func(done, rest []string) {
		if len(rest) == 0 {
			all = append(all, "{"+strings.Join(done, ",")+"}")
		}
		for i := range rest {
			others := append(append([]string{}, rest[:i]...), rest[i+1:]...)
			permute(append(append([]string{}, done...), rest[i]), others)
		}
	}
	permute(nil, strings.Split(text[1:len(text)-1], ","))
	return all
}

// TestCombinations compares schemas made at random with another implementation of JSON Schema. An
// accepted text is valid, and a valid text is accepted, in another order where needed.
func TestCombinations(t *testing.T) {
	v := bytewise(t)
	r := rand.New(rand.NewPCG(9, 10))
	pairs, accepted, compiled, refused := 0, 0, 0, 0
	for pairs < 40_000 {
		schema := randomSchema(r, 1+r.IntN(2))
		c, err := v.JSONSchema([]byte(schema), constrain.Options{AnyOrder: true})
		if err != nil && !strings.Contains(err.Error(), "no value matches") {
			refused++
			continue
		}
		compiled++
		decoded, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
		require.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		require.NoError(t, compiler.AddResource("file:///schema.json", decoded))
		oracle, err := compiler.Compile("file:///schema.json")
		require.NoError(t, err, schema)
		for range 40 {
			text := randomValue(r, 2)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			require.NoError(t, err)
			valid := oracle.Validate(value) == nil
			ok := c != nil && reads(t, c, text)
			pairs++
			if ok {
				accepted++
				require.True(t, valid, "%s on %s", schema, text)
			}
			if valid && !ok && !repeats(text) {
				require.NotNil(t, c, "%s on %s", schema, text)
				for _, other := range orders(text) {
					ok = ok || reads(t, c, other)
				}
				require.True(t, ok || len(orders(text)) == 1 && strings.Count(text, ":") > 1, "%s on %s", schema, text)
			}
		}
	}
	t.Logf("%d pairs, %d accepted; %d schemas, %d refused", pairs, accepted, compiled, refused)
	require.Greater(t, accepted, pairs/20)
	require.Less(t, refused, compiled/10)
}

// repeats reports whether an object of text has a name twice, as far as counting tells.
func repeats(text string) bool {
	for _, name := range []string{`"a":`, `"b":`, `"c":`, `"ac":`} {
		if strings.Count(text, name) > 1 {
			return true
		}
	}
	return false
}
