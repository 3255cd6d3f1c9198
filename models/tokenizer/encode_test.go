package tokenizer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/vocabs"
)

// slow joins neighbours as the definition of BPE says: look at all pairs, take
// the best, leftmost first, and start again. It works on texts, as llama.cpp.
func slow(symbols []string, best func(left, right string) (rank float64, ok bool)) []string {
	for {
		at, least := -1, 0.0
		for i := 1; i < len(symbols); i++ {
			if rank, ok := best(symbols[i-1], symbols[i]); ok && (at < 0 || rank < least) {
				at, least = i, rank
			}
		}
		if at < 0 {
			return symbols
		}
		symbols[at-1] += symbols[at]
		symbols = append(symbols[:at], symbols[at+1:]...)
	}
}

func TestMergeOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	for range 300 {
		merges, pieces := Spec{Algorithm: GPT2}, Spec{Algorithm: Llama, Prefix: NoPrefix}
		for b := range 256 {
			merges.special(byteText[b], Normal)
		}
		for _, c := range []string{"a", "b", "c"} {
			pieces.special(c, Normal)
		}
		ranks := map[[2]string]float64{}
		for i := range 20 {
			left, right := letters(1+r.IntN(3)), letters(1+r.IntN(3))
			merges.Merges = append(merges.Merges, left+" "+right)
			if _, ok := ranks[[2]string{left, right}]; !ok {
				ranks[[2]string{left, right}] = float64(i)
			}
			if r.IntN(4) > 0 && merges.find(left+right) == None { // some results are no tokens
				merges.special(left+right, Normal)
			}
			if pieces.find(left+right) == None {
				pieces.special(left+right, Normal)
			}
		}
		for range pieces.Tokens {
			pieces.Scores = append(pieces.Scores, float32(r.IntN(7)-3)) // many are equal
		}
		byMerges, err := New(merges)
		require.NoError(t, err)
		byScores, err := New(pieces)
		require.NoError(t, err)
		for range 20 {
			text := letters(r.IntN(40))
			var want []int32
			for _, s := range slow(strings.Split(text, ""), func(l, r string) (float64, bool) {
				rank, ok := ranks[[2]string{l, r}]
				return rank, ok
			}) {
				if id := merges.find(s); id != None {
					want = append(want, id)
					continue
				}
				for _, c := range strings.Split(s, "") {
					want = append(want, merges.find(c))
				}
			}
			require.Equal(t, want, append([]int32(nil), byMerges.Encode(text, false)...), "%q by %q", text, merges.Merges)

			want = nil
			for _, s := range slow(strings.Split(text, ""), func(l, r string) (float64, bool) {
				id := pieces.find(l + r)
				if id == None {
					return 0, false
				}
				return -float64(pieces.Scores[id]), true
			}) {
				want = append(want, pieces.find(s))
			}
			require.Equal(t, want, append([]int32(nil), byScores.Encode(text, false)...), "%q by %v", text, pieces.Tokens)
		}
	}
}

// TestWordwise checks that cutting a SentencePiece text before its words, where
// the vocabulary allows it, changes nothing.
func TestWordwise(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, spec := range []Spec{pieceSpec(), charSpec()} {
		cut, err := New(spec)
		require.NoError(t, err)
		require.True(t, cut.tables().wordwise)
		whole, err := New(spec)
		require.NoError(t, err)
		whole.tables().wordwise = false
		for range 2000 {
			text := someText(r)
			require.Equal(t, whole.Encode(text, true), cut.Encode(text, true), "%q", text)
		}
	}
	across := pieceSpec()
	across.special("o▁w", Normal)
	across.Scores = append(across.Scores, 5)
	tok, err := New(across)
	require.NoError(t, err)
	require.False(t, tok.tables().wordwise)
	require.Contains(t, tok.Encode("o w", false), across.find("o▁w"))
}

func TestWords(t *testing.T) {
	for _, c := range []struct {
		pre, text string
		words     []string
	}{
		{"gpt-2", "I've 1234  x\n\n y!", []string{"I", "'ve", " 1234", " ", " x", "\n\n", " y", "!"}},
		{"gpt-2", "WE'LL", []string{"WE", "'", "LL"}},
		{"llama-bpe", "WE'LL 12345 (x)\n\n y", []string{"WE", "'LL", " ", "123", "45", " (", "x", ")\n\n", " y"}},
		{"qwen2", "a 123\r\n  b", []string{"a", " ", "1", "2", "3", "\r\n", " ", " b"}},
		{"smollm", "a12 b", []string{"a", "1", "2", " b"}},
		{"default", "ab$$12345!", []string{"ab", "$$", "123", "45", "!"}},
		{"metaspace", "ab▁c▁▁d", []string{"ab", "▁c", "▁", "▁d"}},
		{"", "a b", []string{"a b"}},
		{"qwen2", "a\xff\xfe b\xe2\x96", []string{"a", "\xff\xfe", " b", "\xe2\x96"}},
	} {
		var words []string
		pretokenizers[c.pre].words(c.text, func(w string) { words = append(words, w) })
		require.Equal(t, c.words, words, "%s %q", c.pre, c.text)
	}
}

// TestHostile bounds the time for texts that defeat careless implementations: a
// quadratic one takes an hour where half a second is usual (five under -race).
func TestHostile(t *testing.T) {
	const n = 1 << 20
	texts := map[string]string{
		"spaces":        strings.Repeat(" ", n),
		"spaces then x": strings.Repeat(" ", n) + "x",
		"newlines":      strings.Repeat("\n ", n/2),
		"letters":       strings.Repeat("a", n),
		"digits":        strings.Repeat("1", n),
		"quotes":        strings.Repeat("'", n),
		"not UTF-8":     strings.Repeat("\xff\xe2\x96", n/3),
		"control texts": strings.Repeat("<|end|></s>", n/11),
		"half of one":   strings.Repeat("<|end|", n/6),
		"kanji":         strings.Repeat("日", n/3),
	}
	tokenizers := synthetic(t)
	delete(tokenizers, "words") // which give no spaces back
	delete(tokenizers, "unigrams")
	for name, tok := range tokenizers {
		for what, text := range texts {
			if name != "qwen2" && name != "spm" {
				text = text[:n/30] // the same code with other patterns
			}
			start := time.Now()
			ids := tok.Encode(text, true)
			require.Less(t, time.Since(start), 30*time.Second, "%s: %s", name, what)
			require.Equal(t, text, string(tok.Decode(ids, true)), "%s: %s", name, what)
		}
	}
}

// hostile are texts of 100 KB that make careless implementations quadratic.
var hostile = func() map[string]string {
	const n = 100_000
	texts := map[string]string{
		"nothing but quotes": strings.Repeat("'", n), "words": strings.Repeat("a ", n/2), "lines and spaces": strings.Repeat("\n ", n/2),
		"half of an image": strings.Repeat("IMGIMGA", n/7), "é and A": "é" + strings.Repeat("A", n),
	}
	for what, unit := range map[string]string{
		"letters": "a", "upper case": "A", "é": "é", "kanji": "日", "spaces": " ", "wide spaces": "\u3000", "lines": "\n",
		"digits": "1", "emoji": "🦊", "marks": "\u0301", "signs": "<",
	} {
		run := strings.Repeat(unit, n/len(unit))
		texts[what], texts[what+" then x"] = run, run+"x"
	}
	return texts
}()

// requireFast does what takes linear time in a second of the processor's time, at the second
// attempt where others slowed the first down: it is usually a fifth of that, and minutes if
// quadratic.
func requireFast(t *testing.T, do func(), of string, args ...any) {
	t.Helper()
	least := time.Hour
	for range 2 {
		start := processorTime(t)
		do()
		if least = min(least, processorTime(t)-start); least < underRace*time.Second {
			return
		}
	}
	require.Less(t, least, underRace*time.Second, append([]any{of}, args...)...)
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	var used unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestVocabulariesLinear(t *testing.T) {
	tokenizers := synthetic(t)
	for name, tok := range tokenizers {
		tok.Encode("", false)
		for what, text := range hostile {
			requireFast(t, func() { tok.Encode(text, true) }, "%s: %s", name, what)
		}
	}
}

func TestPretokenizersLinear(t *testing.T) {
	var done []pretokenizer
	for _, name := range Pretokenizers() {
		p := pretokenizers[name]
		if slices.ContainsFunc(done, func(d pretokenizer) bool { return slices.Equal(d.cuts, p.cuts) }) {
			continue
		}
		done = append(done, p)
		for what, text := range hostile {
			requireFast(t, func() { p.words(text, func(string) {}) }, "%s: %s", name, what)
		}
	}
}

func TestCorpora(t *testing.T) {
	tokenizers := map[string]*Tokenizer{}
	for _, name := range ggmlVocabularies {
		tokenizers[name] = ggmlVocabulary(t, name)
	}
	for _, path := range []string{"tinyshakespeare.txt", "wikitext-2-raw/wiki.test.raw", "cs336/german.txt", "cs336/address.txt", "cs336/corpus.en", "cs336/tinystories_sample.txt"} {
		text := string(read(t, testfiles.Data(t, "corpora/"+path)))
		require.True(t, utf8.ValidString(text))
		for name, tok := range tokenizers {
			ids := tok.Encode(text, false)
			require.True(t, text == string(tok.Decode(ids, true)), "%s with %s", path, name)
		}
	}
}

func TestSpecialTokens(t *testing.T) {
	spec := pieceSpec()
	spec.special("<thinking>", UserDefined)
	spec.special("<pad>", Control)
	spec.special("ing><", Control)
	spec.Scores = make([]float32, len(spec.Tokens))
	spec.StripRight = []int32{spec.find("<pad>")}
	spec.StripLeft = []int32{spec.find("<thinking>")}
	tok, err := New(spec)
	require.NoError(t, err)
	for _, c := range []struct {
		text    string
		special bool
		want    string // pieces
	}{
		{"<s>a</s>", true, "<s>|▁|a|</s>"},
		{"a</s>", false, "▁|a|</s|<0x3E>"}, // the text, not the token
		{"a<think>a", false, "▁|a|<think>|▁|a"},
		{"<thinking>", false, "<thinking>"}, // the longest first
		{"a <pad> \n a", true, "▁|a|▁|<pad>|▁|a"},
		{"a \t<thinking> a", false, "▁|a|<thinking>|▁▁|a"},
		{"<thinking><", true, "<thinking>|▁|<"}, // longest first, though ing>< is one too
		{"", true, ""},
		{"<pad>  ", true, "<pad>"},
	} {
		var pieces []string
		for _, id := range tok.Encode(c.text, c.special) {
			pieces = append(pieces, spec.Tokens[id])
		}
		require.Equal(t, c.want, strings.Join(pieces, "|"), "%q", c.text)
	}
}

// TestPrefix has the four ways to put a space before text.
func TestPrefix(t *testing.T) {
	for _, c := range []struct {
		prefix SpacePrefix
		text   string
		want   string
		back   string
	}{
		{NoPrefix, "a</s>a", "a|</s>|a", "a</s>a"},
		{PrefixAlways, "a</s>a", "▁|a|</s>|▁|a", "a</s>a"},
		{PrefixAlways, " a</s> a", "▁▁|a|</s>|▁▁|a", " a</s> a"},
		{PrefixMissing, "a</s> a", "▁|a|</s>|▁|a", "a</s>a"},
		{PrefixMissing, " a", "▁|a", "a"},
		{PrefixMissingFirst, "a</s>a", "▁|a|</s>|a", "a</s>a"},
		{PrefixMissingFirst, "a</s> a", "▁|a|</s>|▁|a", "a</s> a"},
	} {
		spec := pieceSpec()
		spec.Prefix = c.prefix
		tok, err := New(spec)
		require.NoError(t, err)
		var pieces []string
		ids := tok.Encode(c.text, true)
		for _, id := range ids {
			pieces = append(pieces, spec.Tokens[id])
		}
		require.Equal(t, c.want, strings.Join(pieces, "|"), "%v %q", c.prefix, c.text)
		require.Equal(t, c.back, string(tok.Decode(ids, true)), "%v %q", c.prefix, c.text)
	}
}

// TestEncodeAfter encodes a text in two parts, wherever a space or a special token
// begins or ends: together they are the ids of the text, whatever puts spaces before it.
func TestEncodeAfter(t *testing.T) {
	for prefix := NoPrefix; prefix <= PrefixMissingFirst; prefix++ {
		spec := pieceSpec()
		spec.Prefix = prefix
		tok, err := New(spec)
		require.NoError(t, err)
		for _, parts := range [][2]string{
			{"", "a a"}, {"a", " a"}, {" a", " a"}, {"a", "</s>a"}, {"a</s>", "a"}, {"a</s>", " a"}, {"</s>", "a"}, {"a a", ""}, {"a", "<think>a"}, {"a<think>", "a"},
		} {
			first := tok.Encode(parts[0], true)
			after := tok.EncodeAfter(first, parts[1], true)
			require.Equal(t, tok.Encode(parts[0]+parts[1], true), append(first, after...), "prefix %v, %q", prefix, parts)
		}
		// The start token that stands before a prompt is no part of its text.
		require.Equal(t, tok.Encode("a", true), tok.EncodeAfter([]int32{spec.BOS}, "a", true), "prefix %v", prefix)
	}
}

func TestWordPiece(t *testing.T) {
	for _, c := range []struct {
		lower, noAccents bool
		longest          int
		text             string
		want             string
	}{
		{true, true, 0, "Hello, unaffable  world!", "[CLS]|▁hello|▁,|▁un|aff|able|▁world|▁!|[SEP]"},
		{true, true, 0, "helloa helloaa hellox", "[CLS]|▁hello|a|▁hello|a|a|[UNK]|[SEP]"},
		{true, true, 0, "É é e\u0301\u200d 日a", "[CLS]|▁e|▁e|▁e|▁日|▁a|[SEP]"},
		{true, false, 0, "É E", "[CLS]|[UNK]|▁e|[SEP]"},
		{false, false, 0, "E e", "[CLS]|[UNK]|▁e|[SEP]"},
		{true, true, 5, "hello helloa", "[CLS]|▁hello|[UNK]|[SEP]"},
		{true, true, 0, "\xff\x00", "[CLS]|[SEP]"},
		{true, true, 0, "", "[CLS]|[SEP]"},
	} {
		spec := wordSpec()
		spec.Normalize = []Normalizer{ggmlBERTNormalizer(c.lower, c.noAccents)}
		spec.MaxWord = c.longest
		tok, err := New(spec)
		require.NoError(t, err)
		var pieces []string
		for _, id := range tok.EncodeWhole(c.text, false) {
			pieces = append(pieces, spec.Tokens[id])
		}
		require.Equal(t, c.want, strings.Join(pieces, "|"), "%q", c.text)
	}
}

// TestContinuing has pieces as tokenizer.json has them. Those that go on may begin with the
// character that begins words elsewhere.
func TestContinuing(t *testing.T) {
	spec := Spec{Algorithm: WordPiece, Pre: preSpaces, Continuing: "##", Tokens: []string{"[UNK]", "a", "##▁", "##b", "##a"}, BOS: None, EOS: None, PAD: None}
	tok, err := New(spec)
	require.NoError(t, err)
	for text, want := range map[string][]int32{"a▁b": {1, 2, 3}, "▁b": {0}, "aab b a": {1, 4, 3, 0, 1}, "a##b": {0}} {
		require.Equal(t, want, tok.Encode(text, false), text)
	}
	require.Equal(t, "aab a", string(tok.Decode([]int32{1, 4, 3, 1}, true)))
}

// TestPLaMo compares with the definition: of all ways to cut a text, the one with the largest sum, and of
// equal sums the one whose first piece is longest.
func TestPLaMo(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 10))
	for range 100 {
		spec := Spec{Algorithm: PLaMo2, BOS: None, EOS: None, UNK: None, PAD: None}
		for b := range 256 {
			spec.special(fmt.Sprintf("<0x%02X>", b), Byte)
		}
		for range 12 {
			text := ""
			for range 1 + r.IntN(3) {
				text += []string{"a", "b", "▁", "é"}[r.IntN(4)]
			}
			if spec.find(text) == None {
				spec.special(text, Normal)
			}
		}
		for id := range spec.Tokens {
			spec.Scores = append(spec.Scores, -float32(id%3)-1+0.00001*float32(r.IntN(3))) // sums tie once rounded
		}
		tok, err := New(spec)
		require.NoError(t, err)
		var best func(text string) (float64, []int32)
		best = func(text string) (most float64, ids []int32) {
			if text == "" {
				return 0, nil
			}
			_, size := utf8.DecodeRuneInString(text)
			score, rest := best(text[size:])
			most = score - 1e7
			for _, b := range []byte(text[:size]) {
				ids = append(ids, int32(b))
			}
			ids = append(ids, rest...)
			for n := 1; n <= len(text); n++ {
				if id := spec.find(text[:n]); id != None {
					if score, rest := best(text[n:]); score+math.Round(float64(spec.Scores[id])*1e4) >= most {
						most, ids = score+math.Round(float64(spec.Scores[id])*1e4), append([]int32{id}, rest...)
					}
				}
			}
			return most, ids
		}
		for range 20 {
			text := ""
			for range r.IntN(9) {
				text += []string{"a", "b", "▁", "é", " ", "\n"}[r.IntN(6)]
			}
			_, want := best(text)
			require.Equal(t, want, append([]int32(nil), tok.Encode(text, false)...), "%q by %q %v", text, spec.Tokens[256:], spec.Scores[256:])
			require.Equal(t, text, string(tok.Decode(want, false)))
		}
		require.Equal(t, tok.Encode("a\ufffdb", false), tok.Encode("\ufeffa\xffb", false))
		entries, err := spec.Metadata()
		require.NoError(t, err)
		again, err := SpecFromGGUF(write(t, entries))
		require.NoError(t, err)
		require.Equal(t, spec, again)
	}
	spec := Spec{Algorithm: PLaMo2, Tokens: []string{"a"}, Scores: []float32{0}, BOS: None, EOS: None, UNK: None, PAD: None}
	_, err := New(spec)
	require.ErrorContains(t, err, "0 bytes have a token, not 256")
}

// TestUnigram compares with the definition: of all ways to cut a text, the one with the
// largest sum of scores.
func TestUnigram(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 200 {
		spec := Spec{Algorithm: Unigram, Tokens: []string{"<unk>"}, Types: []Type{Unknown}, BOS: None, EOS: None, PAD: None}
		for range 12 {
			text := ""
			for range 1 + r.IntN(3) {
				text += string("abcé"[r.IntN(3):][:1])
			}
			if spec.find(text) == None {
				spec.special(text, Normal)
			}
		}
		for range spec.Tokens {
			spec.Scores = append(spec.Scores, -10*r.Float32())
		}
		tok, err := New(spec)
		require.NoError(t, err)
		unknown := float64(slices.Min(spec.Scores[1:]) - unknownPenalty)
		var best func(text string) float64
		best = func(text string) float64 {
			if text == "" {
				return 0
			}
			_, size := utf8.DecodeRuneInString(text)
			most := math.Inf(-1)
			if spec.find(text[:size]) == None {
				most = unknown + best(text[size:])
			}
			for n := 1; n <= len(text); n++ {
				if id := spec.find(text[:n]); id != None {
					most = max(most, float64(spec.Scores[id])+best(text[n:]))
				}
			}
			return most
		}
		for range 20 {
			text := ""
			for range r.IntN(9) {
				text += []string{"a", "b", "c", "é"}[r.IntN(4)]
			}
			if text == "" {
				continue
			}
			e := encoder{t: tok, tables: tok.tables()}
			e.unigramWord(text)
			require.InDelta(t, best(text), e.paths[len(text)].score, 1e-6, "%q by %q %v", text, spec.Tokens, spec.Scores)
			rest := text // what is known stands in the text, in this order
			for _, id := range e.ids {
				if id != spec.UNK {
					at := strings.Index(rest, spec.Tokens[id])
					require.GreaterOrEqual(t, at, 0, "%q", text)
					rest = rest[at+len(spec.Tokens[id]):]
				}
			}
		}
	}
}

// TestUnspellable has vocabularies that lack byte tokens.
func TestUnspellable(t *testing.T) {
	spec := Spec{Algorithm: GPT2, Tokens: []string{"a", "ab", "?"}, Merges: []string{"a b", "b c"}, BOS: None, EOS: None, UNK: None, PAD: None}
	tok, err := New(spec)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 0}, tok.Encode("xabca", false))
	spec.UNK = 2
	tok, err = New(spec)
	require.NoError(t, err)
	require.Equal(t, []int32{2, 1, 2, 0, 2, 2}, tok.Encode("xabcazz", false))
}

// FuzzRoundTrip: any bytes come back, but for what an encoding cannot tell
// apart: SentencePiece's mark for a space from a space.
func FuzzRoundTrip(f *testing.F) {
	for _, text := range []string{"", " ", "hello wor", "  a\n\n", "<|end|>a</s> a<think>", "\xff\xe2\x96\x81 \xf0\x9f", "\x00'LL 123", "é日本🦊", "e\u0301 ﬁ"} {
		f.Add(text)
	}
	tokenizers := synthetic(f)
	delete(tokenizers, "words") // what these leave out does not come back
	delete(tokenizers, "unigrams")
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range tokenizers {
			want := text
			if tok.spec.Algorithm != GPT2 {
				want = strings.ReplaceAll(text, Space, " ")
			}
			for _, special := range []bool{false, true} {
				ids := tok.Encode(text, special)
				require.Equal(t, want, string(tok.Decode(ids, true)), "%s", name)
				for _, id := range ids {
					require.False(t, !special && tok.Type(id) == Control, "%s: control token %d out of text", name, id)
				}
			}
		}
	})
}

// FuzzCharsmap: a table is read or refused, and what is read ends, whatever it points to.
func FuzzCharsmap(f *testing.F) {
	file, err := vocabs.Vocabulary("testdata/llamacpp/t5.json")
	require.NoError(f, err)
	spec, err := SpecFromGGUF(file)
	require.NoError(f, err)
	f.Add([]byte(spec.Normalize[0].Old), "e\u0301 ﬁ１\n")
	f.Add([]byte("\x04\x00\x00\x00\x00\x05\x00\x00\x00"), "a")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		m, err := newCharsmap(string(data))
		if err != nil {
			require.ErrorIs(t, err, ErrSpec)
			return
		}
		m.precompiled(text)
		u := ggmlUnigram{m, true, true}
		require.True(t, utf8.ValidString(strings.ToValidUTF8(u.normalize(text), "")))
	})
}

// TestEncodeQuoted: of a control token nothing may be quoted, and what is quoted changes nothing
// else.
func TestEncodeQuoted(t *testing.T) {
	s, err := Placeholder(300)
	require.NoError(t, err)
	for i, text := range []string{"<|a|>", "<|a|>b", "user"} {
		s.Tokens[260+i], s.Types[260+i] = text, Control
	}
	s.Types[262] = UserDefined
	s.StripRight = []int32{260}
	tok, err := New(s)
	require.NoError(t, err)
	s.LeftmostSpecial, s.Normalized = true, []int32{260, 262} // as a tokenizer.json has it
	leftmost, err := New(s)
	require.NoError(t, err)
	const text = "x<|a|> <|a|>b user<|a|>"
	for _, c := range []struct {
		quoted []Range
		want   []int32 // special tokens
	}{
		{nil, []int32{260, 261, 262, 260}},
		{[]Range{{0, 1}, {6, 7}, {13, 18}}, []int32{260, 261, 262, 260}},
		{[]Range{{12, 13}}, []int32{260, 260, 262, 260}}, // the longer one has a quoted byte, the shorter one in it has none
		{[]Range{{3, 4}, {7, 8}, {22, 23}}, []int32{262}},
		{[]Range{{0, len(text)}}, []int32{262}},
	} {
		for _, tok := range []*Tokenizer{tok, leftmost} {
			ids := tok.EncodeQuoted(text, c.quoted)
			var special []int32
			for _, id := range ids {
				if id >= 258 {
					special = append(special, id)
				}
			}
			require.Equal(t, c.want, special, c.quoted)
		}
	}
	require.Equal(t, tok.Encode(text, true), tok.EncodeQuoted(text, nil))
	require.Equal(t, tok.Encode(text, false), tok.EncodeQuoted(text, []Range{{0, len(text)}}))
}
