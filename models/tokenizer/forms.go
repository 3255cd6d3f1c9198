package tokenizer

import (
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// Hugging Face's library has tables of old versions of Unicode: those of its normal forms and of
// StripAccents are of 9.0, those of BertNormalizer of 8.0. Models were trained on the ids that
// these give, so a character of a later version has no properties here either, whatever the
// version of Go's tables.
var assigned8, assigned9 = assigned("8.0.0"), assigned("9.0.0")

func assigned(version string) func(rune) bool {
	table := sync.OnceValue(func() *unicode.RangeTable { return rangetable.Assigned(version) })
	return func(r rune) bool { return unicode.Is(table(), r) }
}

// unicodeForm is a normal form of Unicode 9.0. Unlike those of package norm, it puts no joiners
// into runs of more than 30 marks.
type unicodeForm struct {
	newest    norm.Form // the same form in Go's tables: a text that it leaves is normal in 9.0 too
	decompose norm.Form
	compose   bool
}

// A combining is a character, and its canonical combining class.
type combining struct {
	r     rune // a byte that is not UTF-8 is ^byte
	class uint8
}

func (f unicodeForm) normalize(s string) string {
	if f.newest.IsNormalString(s) {
		return s
	}
	list := make([]combining, 0, len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			r = ^rune(s[i])
		}
		list = f.append(list, r, s[i:i+n])
		i += n
	}
	for i := 0; i < len(list); i++ {
		first := i
		for i < len(list) && list[i].class > 0 {
			i++
		}
		if i-first > 1 {
			slices.SortStableFunc(list[first:i], func(a, b combining) int { return int(a.class) - int(b.class) })
		}
	}
	if f.compose {
		list = compose(list)
	}
	out := make([]byte, 0, len(s))
	for _, c := range list {
		if c.r < 0 {
			out = append(out, byte(^c.r))
		} else {
			out = utf8.AppendRune(out, c.r)
		}
	}
	return string(out)
}

// append appends the decomposition of a character.
func (f unicodeForm) append(list []combining, r rune, text string) []combining {
	switch {
	case r < utf8.RuneSelf, !assigned9(r):
		return append(list, combining{r: r})
	case r >= firstHangul && r <= lastHangul: // package norm has no properties for syllables
		r -= firstHangul
		list = append(list, combining{r: firstJamo + r/hangulPerJamo}, combining{r: firstVowel + r%hangulPerJamo/hangulPerVowel})
		if r %= hangulPerVowel; r > 0 {
			list = append(list, combining{r: beforeFinals + r})
		}
		return list
	}
	p := f.decompose.PropertiesString(text)
	d := p.Decomposition()
	if d == nil {
		return append(list, combining{r, p.CCC()})
	}
	for len(d) > 0 {
		r, n := utf8.DecodeRune(d)
		list = append(list, combining{r, f.decompose.Properties(d[:n]).CCC()})
		d = d[n:]
	}
	return list
}

// compose joins each character with the last one of class 0 before it if they have a joint
// character and nothing between them is of class 0, or of its own class or above.
func compose(list []combining) []combining {
	out, starter := list[:0], -1
	for _, c := range list {
		if last := len(out) - 1; starter >= 0 && (last == starter || out[last].class < c.class) {
			if r, ok := composed(out[starter].r, c.r); ok {
				out[starter].r = r
				continue
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}

// composed returns the character that two characters make.
func composed(a, b rune) (rune, bool) {
	if a < 0 || b < utf8.RuneSelf || !assigned9(a) || !assigned9(b) {
		return 0, false
	}
	var buffer [2 * utf8.UTFMax]byte
	pair := utf8.AppendRune(buffer[:0], a)
	if norm.NFC.Properties(utf8.AppendRune(nil, b)).BoundaryBefore() {
		return 0, false
	}
	pair = norm.NFC.Bytes(utf8.AppendRune(pair, b))
	r, n := utf8.DecodeRune(pair)
	return r, n == len(pair)
}

// Hangul syllables, by the letters that they consist of (Unicode, 3.12).
const (
	firstHangul, lastHangul         = 0xAC00, 0xD7A3
	firstJamo, hangulPerJamo        = 0x1100, 588
	firstVowel, hangulPerVowel      = 0x1161, 28
	beforeFinals               rune = 0x11A7
)
