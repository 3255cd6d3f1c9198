package ir_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
)

// roundTrip is the law of the text form.
func roundTrip(t testing.TB, f *ir.Func) {
	t.Helper()
	text := f.String()
	g, err := ir.Parse(text)
	require.NoError(t, err, text)
	require.Equal(t, text, g.String())
	require.Equal(t, f, g)
}

func TestTextRoundTrip(t *testing.T) {
	roundTrip(t, buildTiny(t))
	f, err := parse("fused", `
  v40 = rope_qkv_write v18 v15 v2 v3 v19 {interleaved=true rotated=16 theta=500000 freqscale=0.25 magnitude=1.5 heads=4} : (f16[T,4,16], cache<f16,2,16,32>) @0
  v41 = select v40 {} : f16[T,4,16] @0
  v42 = select v40 {index=1} : cache<f16,2,16,32> @0
  v43 = attention v41 v42 v2 v4 v5 v6 {scale=-2.5e-07} : f16[T,4,16] @0
  v46 = gated_short_conv v27 v25 v26 v4 v38 : (f16[T,64], state<2,64,32>) @0
  v47 = gated_delta_net v31 v32 v29 v29 v33 v27 v30 v4 v38 {keyheads=1 adjacent=true eps=1e-06 normeps=2e-06} : (f16[T,4,32], state<128,32,32>) @0
  v50 = state {layer=0 name="conv2"} : state<2,64,32> @0
  v48 = silu_short_conv v27 v25 v50 v4 v38 v11 {from=64} : (f16[T,64], state<2,64,32>) @0
  v49 = gated_mamba2 v31 v27 v29 v29 v35 v37 v4 v38 {groups=2} : (f16[T,4,32], state<64,32,32>) @0
  v44 = weight {name="a \"quoted\"\n\\name\xff é"} : f32[1]
  v45 = const {data="AAECAw=="} : i32[1]
  return "a b\tc" v43
  return "cache" v42`)
	require.NoError(t, err)
	roundTrip(t, f)
	require.Equal(t, "a \"quoted\"\n\\name\xff é", f.Values[len(f.Values)-2].Name())
}

func TestParseErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":           {"", `line 1: syntax error: a graph starts with "func"`},
		"other word":        {"graph t source {", `a graph starts with "func"`},
		"no name":           {"func 1 source {", `"1" where the graph's name should stand`},
		"no stage":          {"func t middle {}", `no stage is called "middle"`},
		"no body":           {"func t source", `the text ends where "{" should stand`},
		"no end":            {"func t source {\n v1 = input {name=\"a\"} : i32[T]\n", "line 3: syntax error: the text ends where a value or return should stand"},
		"more":              {"func t source {\n v1 = input {name=\"a\"} : i32[T]\n return \"a\" v1\n}\nfunc", `line 5: syntax error: "func" where the end should stand`},
		"no value":          {"func t source {\n x1 = input {name=\"a\"} : i32[T]\n}", `line 2: syntax error: "x1" names no value`},
		"v0":                {"func t source {\n v0 = input {name=\"a\"} : i32[T]\n}", `"v0" names no value`},
		"large ID":          {"func t source {\n v9999999 = input {name=\"a\"} : i32[T]\n}", `"v9999999" names no value`},
		"no equals":         {"func t source {\n v1 input {name=\"a\"} : i32[T]\n}", `"input" where "=" should stand`},
		"unknown op":        {"func t source {\n v1 = frobnicate v2 : i32[T]\n}", `no op is called "frobnicate"`},
		"op from digits":    {"func t source {\n v1 = 12\n}", `"12" where an op should stand`},
		"unknown operand":   {"func t source {\n\n v1 = activate v2 {activation=silu} : f32[T]\n}", "line 3: syntax error: v2 is used before it is defined"},
		"defined twice":     {"func t source {\n v1 = input {name=\"a\"} : i32[T]\n v1 = input {name=\"b\"} : i32[T]\n}", "line 3: syntax error: v1 is defined twice"},
		"no attribute":      {"func t source {\n v1 = input : i32[T]\n}", `input: ":" where "{" should stand`},
		"unknown field":     {"func t source {\n v1 = input {nom=\"a\"} : i32[T]\n}", `input: no field is called "nom"`},
		"field without =":   {"func t source {\n v1 = input {name \"a\"} : i32[T]\n}", `"\"a\"" where "=" should stand`},
		"field of bad type": {"func t source {\n v1 = input {name=5} : i32[T]\n}", `input: name: "5" where its value should stand`},
		"open string":       {"func t source {\n v1 = input {name=\"a} : i32[T]\n}", `where its value should stand`},
		"bad escape":        {"func t source {\n v1 = input {name=\"\\q\"} : i32[T]\n}", `name`},
		"bad base64":        {"func t source {\n v1 = const {data=\"?\"} : i32[1]\n}", "illegal base64"},
		"bad bool":          {"func t source {\n v1 = input {name=\"a\"} : f32[1,1,1]\n v2 = matmul v1 v1 {transb=maybe} : f32[1,1,1]\n}", `line 3: syntax error: matmul: transb: "maybe" where its value`},
		"bad number":        {"func t source {\n v1 = input {name=\"a\"} : f32[1]\n v2 = scale v1 {value=1e999} : f32[1]\n}", `"1e999" where a number should stand`},
		"number as word":    {"func t source {\n v1 = input {name=\"a\"} : f32[1]\n v2 = scale v1 {value=NaN} : f32[1]\n}", `"NaN" where a number should stand`},
		"not whole":         {"func t source {\n v1 = input {name=\"a\"} : f32[1]\n v2 = slice v1 {start=0.5} : f32[1]\n}", `"0.5" where a whole number should stand`},
		"too whole":         {"func t source {\n v1 = input {name=\"a\"} : f32[1]\n v2 = slice v1 {start=99999999999} : f32[1]\n}", `"99999999999" where a whole number should stand`},
		"no type":           {"func t source {\n v1 = input {name=\"a\"}\n}", `line 3: syntax error: "}" where ":" and a type should stand`},
		"unknown type":      {"func t source {\n v1 = input {name=\"a\"} : f99[T]\n}", `unknown element type "f99"`},
		"no shape":          {"func t source {\n v1 = input {name=\"a\"} : f32\n}", `"}" where a shape should stand`},
		"empty shape":       {"func t source {\n v1 = input {name=\"a\"} : f32[]\n}", `"]" where an extent should stand`},
		"unknown symbol":    {"func t source {\n v1 = input {name=\"a\"} : f32[Q]\n}", `bad extent "Q": "Q" is neither a size nor a symbol`},
		"cache open":        {"func t source {\n v1 = cache {layer=0} : cache[f16]\n}", `"[" where "<" should stand`},
		"cache type":        {"func t source {\n v1 = cache {layer=0} : cache<x,1,1,1>\n}", `unknown element type "x"`},
		"cache short":       {"func t source {\n v1 = cache {layer=0} : cache<f16,1>\n}", `">" where "," should stand`},
		"cache size":        {"func t source {\n v1 = cache {layer=0} : cache<f16,T,1,1>\n}", `"T" where a size should stand`},
		"cache long":        {"func t source {\n v1 = cache {layer=0} : cache<f16,1,1,1,1,1>\n}", `"1" where "latent" should stand`},
		"cache past latent": {"func t source {\n v1 = cache {layer=0} : cache<f16,1,1,1,latent,1>\n}", `"," where ">" should stand`},
		"cache window":      {"func t source {\n v1 = cache {layer=0} : cache<f16,1,1,1,T>\n}", `"T" where a window should stand`},
		"state open":        {"func t source {\n v1 = state {layer=0 name=\"a\"} : state[1]\n}", `"[" where "<" should stand`},
		"state short":       {"func t source {\n v1 = state {layer=0 name=\"a\"} : state<1,1>\n}", `">" where "," should stand`},
		"state size":        {"func t source {\n v1 = state {layer=0 name=\"a\"} : state<T,1,1>\n}", `"T" where a size should stand`},
		"state long":        {"func t source {\n v1 = state {layer=0 name=\"a\"} : state<1,1,1,1>\n}", `"," where ">" should stand`},
		"tuple":             {"func t source {\n v1 = input {name=\"a\"} : (f32[1] f32[1])\n}", `"f32" where "," or ")" should stand`},
		"deep tuple":        {"func t source {\n v1 = input {name=\"a\"} : " + strings.Repeat("(", 1000) + "\n}", "tuples nest too deep"},
		"layer":             {"func t source {\n v1 = input {name=\"a\"} : f32[1] @x\n}", `"x" where a layer should stand`},
		"result":            {"func t source {\n return v1\n}", `"v1" where the result's name in quotes should stand`},
		"result of none":    {"func t source {\n return \"a\" v1\n}", "v1 is used before it is defined"},
	} {
		_, err := ir.Parse(c.text)
		require.ErrorIs(t, err, ir.ErrSyntax, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// FuzzParse checks that no text upsets the parser and that what it accepts has
// a text form that gives the same graph.
func FuzzParse(f *testing.F) {
	golden, err := os.ReadFile("testdata/tiny.golden")
	require.NoError(f, err)
	f.Add(string(golden))
	f.Add("func t fused {" + start + "v30 = rope_qkv_write v18 v15 v2 v3 v19 {heads=4 " + rope + "} : (f16[T,4,16], cache<f16,2,16,32>) @0\nreturn \"x\" v9 }")
	f.Add("func t source { v1 = input {name=\"\\xff\"} : f32[2*B*T-3] return \"a\" v1 }")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ir.Parse(text)
		if err == nil {
			roundTrip(t, g)
		}
	})
}
