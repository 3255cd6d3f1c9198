//go:build unix

package constrain_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
)

// Bounds on what a source may take, from its text to the end of a few masks.
const (
	mostTime   = 2 * time.Second
	mostMemory = 256 << 20
)

// probe compiles a source and follows text with masks, as far as it is let through.
func probe(t testing.TB, text string, compile func() (*constrain.Constraint, error)) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := processorTime(t)
	c, err := compile()
	if err == nil {
		err = follow(c, text)
	}
	took := processorTime(t) - start
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(c)
	require.Less(t, took, mostTime)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(mostMemory))
	if err != nil {
		require.NotContains(t, err.Error(), "runtime error")
	}
}

// processorTime is what this process has taken: others may have the cores.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func follow(c *constrain.Constraint, text string) error {
	s := c.Start()
	mask := make([]uint64, (tokensOfBytewise+63)/64)
	for i := 0; i < min(len(text), 40); i++ {
		if err := s.Mask(mask); err != nil {
			return err
		}
		empty := true
		for _, w := range mask {
			empty = empty && w == 0
		}
		if empty {
			panic(fmt.Sprintf("a dead end after %q", text[:i]))
		}
		if _, err := s.Forced(nil); err != nil {
			return err
		}
		if n, err := s.AcceptBytes([]byte{text[i]}); n == 0 || err != nil {
			return err
		}
	}
	return nil
}

const tokensOfBytewise = 285

func FuzzSchema(f *testing.F) {
	v := bytewise(f)
	require.Equal(f, tokensOfBytewise, v.Len())
	deep := strings.Repeat(`{"items":`, 490) + "true" + strings.Repeat("}", 490)
	for _, s := range []string{
		`{"properties":{"a":{"$ref":"#"}},"required":["a"],"oneOf":[{"minProperties":1},{"maxProperties":0}]}`,
		`{"allOf":[{"anyOf":[{"required":["a"]},{"required":["b"]}]},{"not":{"required":["c","d"]}}],"dependencies":{"a":["c"],"b":{"minProperties":2}}}`,
		`{"pattern":"(a|aa)*b{3,900}","maxLength":2000,"minLength":1000,"not":{"pattern":"^(?!.*x)[a-z]+$"}}`,
		`{"minimum":-1e300,"multipleOf":0.001,"exclusiveMaximum":123456789.5,"not":{"multipleOf":7}}`,
		`{"prefixItems":[{"const":[1,{"a":2}]},{"enum":["a",null,1.5]}],"items":false,"contains":{"type":"string"},"minItems":1}`,
		`{"if":{"properties":{"a":{"const":1}}},"then":{"patternProperties":{"^x":false,".y":{"type":"integer"}},"additionalProperties":{"$ref":"#/if"}},"else":{"propertyNames":{"format":"uuid"}}}`,
		`{"uniqueItems":true,"minItems":2,"items":{"enum":["a","ab",null,1.5,true]}}`,
		`{"uniqueItems":true,"items":{"type":["string","number"],"maxLength":1,"pattern":"[a-cé]$","multipleOf":0.5,"maximum":3}}`,
		`{"allOf":[{"properties":{"a":{"type":"array"}}}],"anyOf":[{"properties":{"b":{}}},{"patternProperties":{"^c":{}}}],"unevaluatedProperties":{"type":"null"}}`,
		`{"prefixItems":[true],"if":{"contains":{"const":1}},"then":{"prefixItems":[true,true]},"unevaluatedItems":false}`,
		deep,
	} {
		f.Add(s, `{"a":{"b":[1,"x`, false)
		f.Add(s, `[1.5,"aaaa\u0041`, true)
	}
	f.Fuzz(func(t *testing.T, schema, text string, any bool) {
		probe(t, text, func() (*constrain.Constraint, error) {
			return v.JSONSchema([]byte(schema), constrain.Options{AnyOrder: any})
		})
	})
}

func FuzzExpression(f *testing.F) {
	v := bytewise(f)
	for _, s := range []string{`a`, `(a|b)*c{2,5}`, `^(?=.*a)(?!b)[^x-z]+$`, `((a{1,100}){1,100}){1,100}`, `(.*a){20}`, `(a|a?)+\p{L}\W`, `(x+x+)+y`, `[\s\S]{99999}(.*)*`, `.*a.{200}`} {
		f.Add(s, "aaaaaaaaaaabcab")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		probe(t, text, func() (*constrain.Constraint, error) { return v.Regexp(expr) })
	})
}

func FuzzGrammar(f *testing.F) {
	v := bytewise(f)
	for _, s := range []string{
		"root ::= (\"a\" root | [b-d]* \"x\"){2,9}\n", "root ::= root root | \"a\" | \"\"", "root ::= a? b+\na ::= b a | \"q\"\nb ::= a \"c\" | [^a]",
		"start: a* \"x\"~2..900\na: start | /[a-z]+/i\n%ignore \" \"\n", "start: A [B]\nA: \"a\"..\"f\"+\nB: A | /x./s\n%import common.WS -> W\n",
	} {
		f.Add(s, "aaabxx aaaaaaqc")
	}
	f.Fuzz(func(t *testing.T, text, input string) {
		probe(t, input, func() (*constrain.Constraint, error) { return v.Grammar(text) })
	})
}
