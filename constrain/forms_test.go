package constrain_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/constrain"
)

// Tokens of the vocabulary with marks, behind those of the single bytes.
const (
	endToken int32 = 256 + iota
	openToken
	closeToken
	mixedToken // a b <
)

// withMarks is a vocabulary of single bytes, two tokens that are no text, and a longer one.
func withMarks(t testing.TB) *constrain.Vocabulary {
	tokens := make([][]byte, mixedToken+1)
	for b := range 256 {
		tokens[b] = []byte{byte(b)}
	}
	tokens[mixedToken] = []byte("ab<")
	v, err := constrain.New(tokens, []int32{endToken})
	require.NoError(t, err)
	return v
}

// spell is a text's bytes as tokens; «, » and ‹ are those that are none.
func spell(text string) (ids []int32) {
	marks := map[string]int32{"«": openToken, "»": closeToken, "‹": mixedToken}
	for i := 0; i < len(text); i++ {
		id := int32(text[i])
		for mark, token := range marks {
			if strings.HasPrefix(text[i:], mark) {
				id = token
				i += len(mark) - 1
			}
		}
		ids = append(ids, id)
	}
	return ids
}

func TestForms(t *testing.T) {
	v := withMarks(t)
	open, end := constrain.Token(openToken), constrain.Token(closeToken)
	schema := func(s string) constrain.Form {
		return constrain.Schema("x", []byte(s), "", constrain.Options{OneSpace: true})
	}
	document := `{"$defs": {"n": {"type": "integer"}}, "properties": {"a/b": {"items": {"$ref": "#/$defs/n"}, "type": "array"}}}`
	for name, c := range map[string]struct {
		form    constrain.Form
		is, not []string
	}{
		"nothing":  {constrain.Form{}, []string{""}, []string{"a", "«"}},
		"literal":  {constrain.Literal("añ"), []string{"añ"}, []string{"", "a", "añb"}},
		"token":    {constrain.Sequence(open, constrain.Literal("a"), end), []string{"«a»"}, []string{"a", "\xff[257]a»", "«a", "»a»", "«a»»"}},
		"schema":   {constrain.Sequence(constrain.Literal("f("), schema(`{"type": "array"}`), constrain.Literal(")")), []string{"f([])", `f([1 , "é"])`, `f([ 1])`}, []string{"f( [])", "f([] )", `f(["»"])`, "f(1)", "f([  ])", "f([)", "f([\n])"}},
		"part":     {constrain.Schema("x", []byte(document), "/properties/a~1b", constrain.Options{NoWhitespace: true}), []string{"[1,2]"}, []string{`["a"]`, "1", "[1, 2]"}},
		"one of":   {constrain.OneOf(constrain.Literal("a"), open, constrain.Sequence(constrain.Literal("ab"), schema("true"))), []string{"a", "«", "ab1", `ab{"a": 1}`}, []string{"", "ab", "a«"}},
		"optional": {constrain.Sequence(constrain.Optional(schema(`{"const": 1}`)), open), []string{"«", "1«"}, []string{"11«", "1"}},
		"many":     {constrain.Many(constrain.Sequence(open, schema(`{"enum": [1, "é"]}`)), 1), []string{"«1", `«1«"é"`}, []string{`«"»"`, "", "«", "1"}},
		"free":     {constrain.Free{Without: []string{"<x>", "aa"}, Begins: []string{"{"}}.Form(), []string{"", "<x", "<<x", "a{aba", "日", "‹x"}, []string{"a<x>", "aaa", "{", "«", "ab<x>", "\xe6"}},
		"tokens":   {constrain.Free{Without: []string{"ab"}, Tokens: true, WithoutTokens: []int32{closeToken}}.Form(), []string{"", "«", "a«b", "««日«"}, []string{"»", "ab", "«»", "‹"}},
		"until":    {constrain.Sequence(constrain.Free{Without: []string{"</t>"}}.Form(), constrain.Literal("</t>"), schema("true")), []string{"</t>1", "a</t</t>{}", "<</t>1"}, []string{"</t>", "</t>1</t>1", "a1"}},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := v.Form(t.Context(), c.form)
			require.NoError(t, err)
			for i, texts := range [][]string{c.is, c.not} {
				for _, text := range texts {
					s, accepted := k.Start(), true
					for _, id := range spell(text) {
						ok, err := s.Accept(id)
						require.NoError(t, err)
						accepted = accepted && ok
					}
					require.Equal(t, i == 0, accepted && s.CanStop(), "%q", text)
				}
			}
			consistent(t, v, k)
		})
	}
	for want, f := range map[string]constrain.Form{
		"x: schema at #/uniqueItems":                schema(`{"type": "array", "uniqueItems": true}`),
		"x: schema at #: no value":                  schema(`false`),
		"x: the schema is not valid JSON":           schema(`{`),
		`x: "#/a" matches nothing in this document`: constrain.Schema("x", []byte(`{}`), "/a", constrain.Options{}),
		"no text matches":                           constrain.Sequence(constrain.Literal("a"), constrain.OneOf()),
		"Begins contains the empty text":            constrain.Free{Without: []string{""}}.Form(),
		"token 256 cannot be part":                  constrain.Many(constrain.Token(endToken), 0),
		"token 97 cannot be part":                   constrain.Token('a'),
		"token 400 cannot be part":                  constrain.Token(400),
		"is not valid UTF-8":                        constrain.Literal("a\xff"),
	} {
		_, err := v.Form(t.Context(), f)
		require.ErrorContains(t, err, want)
	}
	k, err := v.Form(t.Context(), schema(`{"type": "string", "format": "odd"}`))
	require.NoError(t, err)
	require.NotEmpty(t, k.Notes())
}

// consistent compares masks with the tokens that are accepted, and finds no dead end.
func consistent(t *testing.T, v *constrain.Vocabulary, c *constrain.Constraint) {
	r := rand.New(rand.NewPCG(5, 6))
	mask := make([]uint64, v.Words())
	for range 10 {
		s := c.Start()
		for range 20 {
			require.NoError(t, s.Mask(mask))
			var allowed []int32
			for id := range int32(v.Len()) {
				next := s
				ok, err := next.Accept(id)
				require.NoError(t, err)
				require.Equal(t, ok, mask[id>>6]>>(id&63)&1 != 0, "token %d", id)
				if ok && id != endToken {
					allowed = append(allowed, id)
				}
			}
			require.True(t, len(allowed) > 0 || s.CanStop(), "a dead end")
			if len(allowed) == 0 {
				break
			}
			ok, err := s.Accept(allowed[r.IntN(len(allowed))])
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
}

// TestHalfPairs: an escape that could only be the second half of a character is refused where it
// becomes one.
func TestHalfPairs(t *testing.T) {
	c, err := withMarks(t).JSON(constrain.Options{})
	require.NoError(t, err)
	for text, want := range map[string]int{`"\udc`: 4, `"\uDf`: 4, `"\ud83d\ud`: 10, `"\ud83dx`: 7, `"\ud83d\ude00`: 13} {
		s := c.Start()
		n, err := s.AcceptBytes([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, n, text)
	}
}
