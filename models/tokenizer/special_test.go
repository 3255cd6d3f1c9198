package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// slowSplit finds special tokens as the rules say: the longest first, in all text that is left.
func slowSplit(p *specials, text string, control bool, quoted []Range) []fragment {
	list := []fragment{{text, None, 0}}
	for _, sp := range p.order {
		if sp.control && !control {
			continue
		}
		var out []fragment
		for _, f := range list {
			from := 0
			for f.id == None {
				at := strings.Index(f.text[from:], sp.text)
				if at < 0 {
					break
				}
				if at += from; sp.control && touches(quoted, f.at+at, f.at+at+len(sp.text)) {
					from = at + 1
					continue
				}
				left, right := f.text[:at], f.text[at+len(sp.text):]
				if sp.stripLeft {
					left = strings.TrimRight(left, asciiSpace)
				}
				if sp.stripRight {
					right = strings.TrimLeft(right, asciiSpace)
				}
				if left != "" {
					out = append(out, fragment{left, None, f.at})
				}
				out = append(out, fragment{id: sp.id})
				f.text, f.at, from = right, f.at+len(f.text)-len(right), 0
			}
			if f.id != None || f.text != "" {
				out = append(out, f)
			}
		}
		list = out
	}
	return list
}

// TestSpecialDefinition compares with slowSplit: texts that begin and end with each other, equal
// ones, those that absorb white space, and quotes.
func TestSpecialDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	word := func(n int) string {
		b := make([]byte, 1+r.IntN(n))
		for i := range b {
			b[i] = "ab a"[r.IntN(4)]
		}
		return string(b)
	}
	found := 0
	for range 3000 {
		s := byteLevelSpec("gpt-2")
		for range 1 + r.IntN(8) {
			s.special(word(4), []Type{Control, UserDefined}[r.IntN(2)])
			id := int32(len(s.Tokens) - 1)
			if r.IntN(4) == 0 {
				s.StripLeft = append(s.StripLeft, id)
			}
			if r.IntN(4) == 0 {
				s.StripRight = append(s.StripRight, id)
			}
		}
		p := made(t, s, nil).specials()
		for range 10 {
			text, control := word(30), r.IntN(3) > 0
			var quoted []Range
			for at := r.IntN(10); control && at < len(text); at += 1 + r.IntN(10) {
				end := min(len(text), at+1+r.IntN(4))
				quoted = append(quoted, Range{at, end})
				at = end
			}
			want := slowSplit(p, text, control, quoted)
			require.Equal(t, want, p.split(text, control, quoted), "%q, %v, %+v", text, quoted, p.order)
			found += len(want) - 1
		}
	}
	require.Greater(t, found, 50_000)
}

// TestManySpecials: the time for a text does not depend on how many special tokens are in it, or
// begin with each other.
func TestManySpecials(t *testing.T) {
	s := byteLevelSpec("gpt-2")
	var text strings.Builder
	for i := range 100_000 {
		token := "<" + strings.Repeat("x", 1+i%7) + string(rune(0x4e00+i/7)) + ">"
		s.special(token, UserDefined)
		text.WriteString(token)
	}
	tok := made(t, s, nil)
	tok.Encode("", false)
	requireFast(t, func() { require.Len(t, tok.Encode(text.String(), true), 100_000) }, "many")

	s = byteLevelSpec("gpt-2")
	for n := 1; n <= maxSearched; n++ {
		s.special(strings.Repeat("b", n), UserDefined)
	}
	tok = made(t, s, nil)
	tok.Encode("", false)
	requireFast(t, func() { tok.Encode(strings.Repeat("b", 50_000), true) }, "nested")
}
