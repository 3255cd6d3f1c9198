package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A Normalizer changes the text between special tokens before it is split into words.
type Normalizer struct {
	Kind     string // a key of normalizers
	Old, New string // parameters of the kind: text to replace, and its replacement
}

// A normalizerKind makes normalizers.
type normalizerKind struct {
	make   func(n Normalizer) (func(string) string, error)
	growth func(n Normalizer) float64 // a bound of the bytes that a byte can become
}

// normalizers holds the normalizers by kind: those of tokenizer.json, split into elementary ones,
// and llama.cpp's own.
var normalizers = map[string]normalizerKind{
	// The growth of normal forms is Unicode's own (UAX 15, "Normalization Forms", factors in UTF-8).
	"NFC":  {always(unicodeForm{norm.NFC, norm.NFD, true}.normalize), times(3)},
	"NFD":  {always(unicodeForm{norm.NFD, norm.NFD, false}.normalize), times(3)},
	"NFKC": {always(unicodeForm{norm.NFKC, norm.NFKD, true}.normalize), times(11)},
	"NFKD": {always(unicodeForm{norm.NFKD, norm.NFKD, false}.normalize), times(11)},

	"Lowercase":    {always(lowercase), times(1.5)},
	"StripAccents": {always(dropRunes(func(r rune) bool { return unicode.IsMark(r) && assigned9(r) })), times(1)},
	"StripLeft":    {always(func(s string) string { return strings.TrimLeftFunc(s, unicode.IsSpace) }), times(1)},
	"StripRight":   {always(func(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }), times(1)},
	"Prepend":      {prepend, func(n Normalizer) float64 { return 1 + float64(len(n.New)) }},
	"Replace": {
		func(n Normalizer) (func(string) string, error) {
			return func(s string) string { return strings.ReplaceAll(s, n.Old, n.New) }, nil
		},
		func(n Normalizer) float64 {
			if n.Old == "" {
				return 1 + float64(len(n.New))
			}
			return max(1, float64(len(n.New))/float64(len(n.Old)))
		},
	},
	"ReplaceRegex": {replaceRegex, func(n Normalizer) float64 { return 1 + float64(len(n.New)) }},
	"Nmt":          {always(nmt), times(1)},
	"Precompiled": {
		func(n Normalizer) (func(string) string, error) {
			m, err := newCharsmap(n.Old)
			return m.precompiled, err
		},
		charsmapGrowth,
	},

	// The parts of BertNormalizer.
	"BertCleanText":    {always(bertCleanText), times(1)},
	"BertIdeographs":   {always(bertIdeographs), times(5. / 3)},
	"BertStripAccents": {always(dropRunes(func(r rune) bool { return unicode.Is(unicode.Mn, r) && assigned8(r) })), times(1)},

	// BERT's normalizer in llama.cpp (llm_tokenizer_wpm_session), applied between spaces. It keeps
	// the first character of a decomposition, even if that is a letter rather than a base: of
	// Hangul syllables the first letter.
	kindGGMLBERT: {
		func(n Normalizer) (func(string) string, error) { return readGGMLBERT(n).normalize, nil },
		times(5),
	},
	kindGGMLUnigram: {
		func(n Normalizer) (func(string) string, error) {
			u, err := readGGMLUnigram(n)
			return u.normalize, err
		},
		func(n Normalizer) float64 { return 4 * charsmapGrowth(n) }, // Space for a space, and before words
	},
}

const (
	kindGGMLBERT    = "llama.cpp BERT"
	kindGGMLUnigram = "llama.cpp Unigram"
)

func times(factor float64) func(Normalizer) float64 {
	return func(Normalizer) float64 { return factor }
}

func charsmapGrowth(n Normalizer) float64 {
	m, _ := newCharsmap(n.Old) // its error is that of make
	return m.growth()
}

func always(f func(string) string) func(Normalizer) (func(string) string, error) {
	return func(Normalizer) (func(string) string, error) { return f, nil }
}

func prepend(n Normalizer) (func(string) string, error) {
	return func(s string) string {
		if s == "" {
			return ""
		}
		return n.New + s
	}, nil
}

func replaceRegex(n Normalizer) (func(string) string, error) {
	p := knownRegexes[n.Old]
	if p == nil {
		return nil, specError("unknown pattern %q", n.Old)
	}
	return func(s string) string {
		return p.replace(s, n.New)
	}, nil
}

// nmt drops control characters and replaces all white space, zero-width characters included, by
// spaces (SentencePiece's rule "nmt").
func nmt(s string) string {
	return mapRunes(s, func(out *strings.Builder, r rune) {
		switch {
		case r >= 0x01 && r <= 0x08, r == 0x0B, r >= 0x0E && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029, r == 0x2581, r == 0xFEFF, r == utf8.RuneError:
			out.WriteByte(' ')
		default:
			out.WriteRune(r)
		}
	})
}

// mapRunes calls write for each character; bytes that are not UTF-8 stay.
func mapRunes(s string, write func(out *strings.Builder, r rune)) string {
	var out strings.Builder
	out.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			out.WriteByte(s[i])
		} else {
			write(&out, r)
		}
		i += n
	}
	return out.String()
}

func dropRunes(drop func(rune) bool) func(string) string {
	return func(s string) string {
		return mapRunes(s, func(out *strings.Builder, r rune) {
			if !drop(r) {
				out.WriteRune(r)
			}
		})
	}
}

// lowercase maps each character by itself, like Rust's char::to_lowercase: only İ becomes two.
func lowercase(s string) string {
	return mapRunes(s, func(out *strings.Builder, r rune) {
		out.WriteRune(unicode.ToLower(r))
		if r == 'İ' {
			out.WriteRune('\u0307')
		}
	})
}

// bertCleanText drops control characters and replaces white space by spaces.
func bertCleanText(s string) string {
	var out strings.Builder
	for _, r := range s { // U+FFFD, which stands for bytes that are not UTF-8 as well, is dropped
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			out.WriteByte(' ')
		case r == 0 || r == utf8.RuneError || isOther(r) && assigned8(r):
		case unicode.IsSpace(r):
			out.WriteByte(' ')
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// isOther reports whether a character is of general category C, except for unassigned ones.
func isOther(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs) }

func bertIdeographs(s string) string {
	return mapRunes(s, func(out *strings.Builder, r rune) {
		if bertIdeograph(r) {
			out.WriteByte(' ')
			out.WriteRune(r)
			out.WriteByte(' ')
		} else {
			out.WriteRune(r)
		}
	})
}

// bertIdeograph reports whether BERT treats a character as a word: Chinese ones, but not kana or
// Hangul. The gap before U+2B920 is in the original.
func bertIdeograph(r rune) bool {
	return r >= 0x4E00 && r <= 0x9FFF || r >= 0x3400 && r <= 0x4DBF || r >= 0x20000 && r <= 0x2A6DF ||
		r >= 0x2A700 && r <= 0x2B73F || r >= 0x2B740 && r <= 0x2B81F || r >= 0x2B920 && r <= 0x2CEAF ||
		r >= 0xF900 && r <= 0xFAFF || r >= 0x2F800 && r <= 0x2FA1F
}

// ggmlBERT is llama.cpp's normalizer of BERT.
type ggmlBERT struct{ lower, noAccents bool }

// Options in Normalizer.New of this kind.
const optionLower, optionNoAccents = "lower case", "no accents"

func ggmlBERTNormalizer(lower, noAccents bool) Normalizer {
	var options []string
	if lower {
		options = append(options, optionLower)
	}
	if noAccents {
		options = append(options, optionNoAccents)
	}
	return Normalizer{Kind: kindGGMLBERT, New: strings.Join(options, ", ")}
}

func readGGMLBERT(n Normalizer) ggmlBERT {
	return ggmlBERT{strings.Contains(n.New, optionLower), strings.Contains(n.New, optionNoAccents)}
}

// ggmlBERT returns the vocabulary's normalizer if it is llama.cpp's of BERT, else nil.
func (s *Spec) ggmlBERT() *ggmlBERT {
	if len(s.Normalize) != 1 || s.Normalize[0].Kind != kindGGMLBERT {
		return nil
	}
	b := readGGMLBERT(s.Normalize[0])
	return &b
}

func (b ggmlBERT) normalize(s string) string {
	var out strings.Builder
	for _, r := range s {
		if b.noAccents {
			r = baseRune(r)
		}
		switch {
		case unicode.IsSpace(r):
			out.WriteByte(' ')
			continue
		case r == 0, r == utf8.RuneError, isOther(r), b.noAccents && unicode.IsMark(r):
			continue
		}
		word := unicode.IsPunct(r) || r < 0x7F && unicode.IsSymbol(r) || bertIdeograph(r)
		if b.lower {
			r = unicode.ToLower(r)
		}
		if word {
			out.WriteByte(' ')
		}
		out.WriteRune(r)
		if word {
			out.WriteByte(' ')
		}
	}
	return out.String()
}

// baseRune returns the first character of the canonical decomposition.
func baseRune(r rune) rune {
	switch {
	case r < 0x80:
		return r
	case r >= firstHangul && r <= lastHangul: // norm.Properties does not decompose syllables
		return firstJamo + (r-firstHangul)/hangulPerJamo
	}
	var buffer [utf8.UTFMax]byte
	d := norm.NFD.Properties(utf8.AppendRune(buffer[:0], r)).Decomposition()
	if d == nil {
		return r
	}
	base, _ := utf8.DecodeRune(d)
	return base
}
