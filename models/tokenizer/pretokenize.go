package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A pretokenizer cuts text into words by patterns that are applied one after
// the other: each to every word that the one before left, alone, so that a
// look-ahead sees no further than its word. What no match covers is a word too.
//
// The patterns look ahead, which Go's regexp cannot. None of them backtracks
// more than once over a character: their time is linear (a test holds them to
// it), so no time limit is set. regexp2's second version walks matches without
// allocating and takes half the time of the first.
type pretokenizer struct {
	patterns     []*pattern
	ignoreMerges bool // the vocabularies of this name have Spec.IgnoreMerges
	addBOS       bool // and start with BOS unless the file says otherwise
}

// pretokenizers by name: llama.cpp's values of tokenizer.ggml.pre that mean
// these patterns (llama-vocab.cpp), and "metaspace" for Hugging Face files.
var pretokenizers = func() map[string]pretokenizer {
	table := map[string]pretokenizer{
		"":          {},
		"metaspace": {patterns: []*pattern{beforeSpace}},
	}
	for _, row := range []struct {
		names string
		pretokenizer
	}{
		{"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum",
			pretokenizer{patterns: []*pattern{gpt2Words}}},
		{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
			pretokenizer{patterns: []*pattern{llama3Words}, ignoreMerges: true, addBOS: true}},
		{"dbrx smaug-bpe",
			pretokenizer{patterns: []*pattern{llama3Words}}},
		{"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
			pretokenizer{patterns: []*pattern{qwen2Words}}},
		{"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
			pretokenizer{patterns: []*pattern{oneDigit, gpt2Words}}},
		{"default",
			pretokenizer{patterns: []*pattern{punctuation, gpt2Words, digitRun, threeDigits}}},
	} {
		for _, name := range strings.Fields(row.names) {
			table[name] = row.pretokenizer
		}
	}
	return table
}()

// pattern is one regular expression, compiled when it is first used.
type pattern struct {
	source string   // in regexp2's syntax
	hf     []string // how tokenizer.json files write it
	regexp func() *regexp2.Regexp
}

func newPattern(source string, hf ...string) *pattern {
	return &pattern{source, hf, sync.OnceValue(func() *regexp2.Regexp {
		return regexp2.MustCompile(source, regexp2.OptionMaxBacktrackingStackSize(-1))
	})}
}

const contraction = `'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]`

var (
	gpt2Words = newPattern(
		`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
	)
	llama3Words = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	)
	qwen2Words = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	)
	oneDigit    = newPattern(`\p{N}`, `\p{N}`)
	digitRun    = newPattern(`\p{N}+`)
	threeDigits = newPattern(`[0-9][0-9][0-9]`)
	punctuation = newPattern(`[\p{P}$+<=>^~|]+`)
	beforeSpace = newPattern(Space + `[^` + Space + `]*`)
)

// words calls yield with the words of text, in order; together they are text.
func (p pretokenizer) words(text string, yield func(word string)) {
	if len(p.patterns) == 0 {
		yield(text)
		return
	}
	// A byte that is not UTF-8 is one U+FFFD to the patterns: a symbol.
	runes := make([]rune, 0, len(text))
	for _, r := range text {
		runes = append(runes, r)
	}
	at := 0
	split(p.patterns, runes, func(n int) {
		start := at
		for range n {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
		}
		yield(text[start:at])
	})
}

// split calls yield with the length of each word in turn, in runes.
func split(patterns []*pattern, runes []rune, yield func(n int)) {
	if len(patterns) == 0 {
		yield(len(runes))
		return
	}
	end := 0
	word := func(to int) {
		if to > end {
			split(patterns[1:], runes[end:to], yield)
			end = to
		}
	}
	err := patterns[0].regexp().FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
		start, n, _ := m.GroupRange(0)
		word(start)
		word(start + n)
		return true
	})
	if err != nil { // no time limit, no stack limit: nothing is left that can fail
		panic("tokenizer: pattern " + patterns[0].source + ": " + err.Error())
	}
	word(len(runes))
}
