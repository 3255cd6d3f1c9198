package tokenizer

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A pretokenizer splits text into words by successive cuts. Each cut is applied to every word that
// the one before left, by itself, so that a look-ahead ends with its word.
type pretokenizer struct {
	cuts         []cut
	characters   bool // words are merged by characters, with Space for spaces ([BPE]), not bytes
	wholeLines   bool // a word of line ends that is a token is not split
	ignoreMerges bool // vocabularies of this name have Spec.IgnoreMerges
	addBOS       bool // vocabularies of this name start with BOS unless the file has add_bos_token
}

// pretokenizers holds the patterns by llama.cpp's values of tokenizer.ggml.pre (llama-vocab.cpp),
// and by names of smelt's own. Where llama.cpp's pattern differs from the model's tokenizer.json
// (docs/tokenizers.md), this is llama.cpp's.
var pretokenizers = func() map[string]pretokenizer {
	table := map[string]pretokenizer{
		"":          {},
		"metaspace": {cuts: isolate(beforeSpace)},
		preSpaces:   {cuts: []cut{{pattern: whiteSpace, behavior: removed}}},
	}
	for _, row := range []struct {
		names string
		pretokenizer
	}{
		{"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert " +
			"jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
			pretokenizer{cuts: isolate(gpt2Words)}},
		{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
			pretokenizer{cuts: isolate(llama3Words), ignoreMerges: true, addBOS: true}},
		{"dbrx smaug-bpe glm4 chatglm-bpe",
			pretokenizer{cuts: isolate(llama3Words)}},
		{"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
			pretokenizer{cuts: isolate(qwen2Words)}},
		{"qwen35", pretokenizer{cuts: isolate(qwen35Words)}},
		{"ufakzeka", pretokenizer{cuts: isolate(ufakzekaWords)}},
		{"laguna", pretokenizer{cuts: isolate(lines, qwen2Words)}},
		{"seed-coder", pretokenizer{cuts: isolate(seedCoderWords)}},
		{"bailingmoe bailingmoe2 llada-moe", pretokenizer{cuts: isolate(bailingWords)}},
		{"exaone-moe", pretokenizer{cuts: isolate(exaoneMoEWords)}},
		{"minicpm5",
			pretokenizer{cuts: isolate(threeNumbers, minicpm5Words), ignoreMerges: true}},
		{"jais-2", pretokenizer{cuts: isolate(llama3Words, spacesByPowers)}},
		{"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
			pretokenizer{cuts: isolate(oneDigit, gpt2Words)}},
		{"default",
			pretokenizer{cuts: isolate(punctuation, gpt2Words, digitRun, threeDigits)}},
		{"falcon",
			pretokenizer{cuts: isolate(falconPunctuation, gpt2Words, threeDigits)}},
		{"chameleon",
			pretokenizer{cuts: isolate(sentinels, imageTokens, indents, oneDigit, onePunctuation, gpt2Words), addBOS: true}},
		{"tekken",
			pretokenizer{cuts: isolate(tekkenWords), ignoreMerges: true, addBOS: true}},
		{"gpt-4o llama4 kanana2 talkie minimax-m2", pretokenizer{cuts: isolate(o200kWords)}},
		{"granite-embed-multi-97m",
			pretokenizer{cuts: isolate(graniteWords), ignoreMerges: true}},
		{"tiny_aya cohere2moe", pretokenizer{cuts: isolate(afterThreesFromRight, ayaWords)}},
		{"youtu",
			pretokenizer{cuts: isolate(youtuScripts, youtuWords), ignoreMerges: true}},
		{"deepseek-llm",
			pretokenizer{cuts: isolate(oneNewline, deepseekLetters, deepseekPunctuation, trailingSpace, deepseekCJK, digitRun)}},
		{"deepseek-coder",
			pretokenizer{cuts: isolate(oneNewline, spaceLetters, spacePunctuation, deepseekCJK, oneDigit)}},
		{"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
			pretokenizer{cuts: isolate(threeNumbers, hanKana, deepseek3Words)}},
		{"spark2_5",
			pretokenizer{cuts: isolate(threeNumbers, hanKana, sparkWords, oneDigit)}},
		{"afmoe", pretokenizer{cuts: isolate(afterThreesFromRight, asianScripts, deepseek3Words)}},
		{"kimi-k2", pretokenizer{cuts: isolate(kimiWords)}},
		{"superbpe", pretokenizer{cuts: isolate(digitRun, threesFromRight)}},
		{"bloom poro-chat gpt3-finnish", pretokenizer{cuts: isolate(bloomWords)}},
		{"viking", pretokenizer{cuts: isolate(bloomWords, oneDigit)}},
		{"gemma4 granite-embed-multi-311m",
			pretokenizer{cuts: isolate(lines), characters: true, wholeLines: true, addBOS: true}},
		{"sarvam-moe", pretokenizer{cuts: isolate(lines), characters: true}},
	} {
		for _, name := range strings.Fields(row.names) {
			table[name] = row.pretokenizer
		}
	}
	return table
}()

// preSpaces is the pre-tokenizer of texts whose normalizer keeps spaces between words.
const preSpaces = "spaces"

// Pretokenizers returns the supported values of tokenizer.ggml.pre, sorted.
func Pretokenizers() []string {
	names := slices.Sorted(maps.Keys(pretokenizers))
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || name == "metaspace" || name == preSpaces })
}

// A cut splits text into the matches of a pattern and the text between them.
type cut struct {
	*pattern
	behavior
	invert bool // matches and the text between them are swapped
}

// behavior is the treatment of a match.
type behavior uint8

const (
	isolated   behavior = iota // it is a word
	removed                    // it is dropped
	toPrevious                 // it ends the word before it, unless that is a match too
	toNext                     // it begins the word after it, unless that is a match too
	contiguous                 // it is one word with the matches that touch it
)

func isolate(patterns ...*pattern) []cut {
	cuts := make([]cut, len(patterns))
	for i, p := range patterns {
		cuts[i] = cut{pattern: p}
	}
	return cuts
}

// pattern finds matches in a word: by a regular expression, compiled at its first use, or by a
// function where an expression would look far ahead from every character. No expression backtracks
// more than once over a character, so that their time is linear (checked by a test) and no time
// limit is set. They need look-ahead, which Go's regexp lacks; regexp2's second version iterates
// matches without allocating, in half the time of the first.
type pattern struct {
	source string   // in regexp2's syntax
	hf     []string // spellings in tokenizer.json files
	// matches calls yield with the ends of each match in turn.
	matches func(runes []rune, yield func(start, end int))
}

func newPattern(source string, hf ...string) *pattern {
	compiled := sync.OnceValue(func() *regexp2.Regexp {
		return regexp2.MustCompile(source, regexp2.OptionMaxBacktrackingStackSize(-1))
	})
	return &pattern{source, hf, func(runes []rune, yield func(start, end int)) {
		err := compiled().FindRunesMatches(runes, 0, func(m regexp2.MatchView) bool {
			start, n, _ := m.GroupRange(0)
			yield(start, start+n)
			return true
		})
		if err != nil { // without time and stack limits no error remains
			panic("tokenizer: pattern " + source + ": " + err.Error())
		}
	}}
}

// replace replaces every match by a text.
func (p *pattern) replace(text, by string) string {
	runes := make([]rune, 0, len(text))
	offsets := make([]int, 0, len(text)+1)
	for i, r := range text {
		runes, offsets = append(runes, r), append(offsets, i)
	}
	offsets = append(offsets, len(text))
	var out strings.Builder
	last := 0
	p.matches(runes, func(start, end int) {
		out.WriteString(text[offsets[last]:offsets[start]])
		out.WriteString(by)
		last = end
	})
	out.WriteString(text[offsets[last]:])
	return out.String()
}

const (
	contraction = `'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]`
	spaces      = `\s*[\r\n]+|\s+(?!\S)|\s+` // ends most patterns: lines, spaces but the last before a word, others
)

var (
	gpt2Words = newPattern(
		`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
	)
	llama3Words = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|`+spaces,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	)
	qwen2Words = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|`+spaces,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	)
	qwen35Words = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|`+spaces,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	)
	ufakzekaWords  = newPattern(`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spaces)
	seedCoderWords = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|`+spaces,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`,
	)
	bailingWords = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
		`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
	)
	exaoneMoEWords = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}(?:\p{M}| ?\p{L})*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`,
	)
	minicpm5Words = newPattern(
		contraction+`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|`+spaces,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	)
	deepseek3Words = newPattern(
		"[!-/:-@\\[-`{-~][A-Za-z]+"+`|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|`+spaces,
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
	)
	sparkWords = newPattern("[!-/:-@\\[-`{-~][A-Za-z]+" + `|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+`)

	// The patterns of these models' files distinguish upper and lower case by
	// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}]. llama.cpp's do so for ASCII
	// only, or not at all.
	tekkenWords  = newPattern(cased(`\p{L}`, ``) + `|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces)
	o200kWords   = newPattern(cased(`\p{L}`, `(?:`+contraction+`)?`) + `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces)
	graniteWords = newPattern(cased(`\p{L}\p{M}`, `(?:`+contraction+`)?`) + `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces)
	ayaWords     = newPattern(`[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:` + contraction + `)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces)
	youtuWords   = newPattern(`[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:` + contraction + `)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spaces)
	kimiWords    = newPattern(`[` + han + `]+|[^\r\n\p{L}\p{N}]?[\p{L}-[` + han + `]]+(?:` + contraction + `)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spaces)

	deepseekLetters     = newPattern(`\s?[`+deepseekAlphabets+`]+`, `\s?[`+deepseekAlphabets+`]+`)
	deepseekPunctuation = newPattern(`\s?[!-/:-~！-／：-～‘-‟\u3000-。-[\s]]+`)
	deepseekCJK         = newPattern(`[一-龥ࠀ-一가-퟿-[\s]]+`)
	spaceLetters        = newPattern(`\s?\p{L}+`, `\s?\p{L}+`)
	spacePunctuation    = newPattern(`\s?\p{P}+`, `\s?\p{P}+`)
	trailingSpace       = newPattern(`(?<!\s)\s+\z`, `\s+$`) // looks ahead to the end only from the first space of a run
	oneNewline          = newPattern(`[\r\n]`, "[\r\n]")
	lines               = newPattern(`[^\n]+|\n+`)
	hanKana             = newPattern(`[一-龥\u3040-ゟ゠-ヿ]+`, `[一-龥぀-ゟ゠-ヿ]+`)
	asianScripts        = newPattern(`[一-鿿㐀-䶿\u8c48-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+`)
	youtuScripts        = newPattern(`[가-힣ㄱ-\u318e]+|[！…“”‘’—：；，、-〿︰-﹏]+|[\u3105-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+`)
	bloomWords          = newPattern(` ?[^(\s|.,!?…。，、।۔،)]+`, ` ?[^(\s|[.,!?…。，、।۔،])]+`)

	oneDigit          = newPattern(`\p{N}`, `\p{N}`)
	digitRun          = newPattern(`\p{N}+`, `\p{N}+`)
	threeNumbers      = newPattern(`\p{N}{1,3}`, `\p{N}{1,3}`)
	threeDigits       = newPattern(`[0-9][0-9][0-9]`, `[0-9][0-9][0-9]`)
	punctuation       = newPattern(`[\p{P}$+<=>^~|]+`)
	falconPunctuation = newPattern("[\\p{P}$+<=>^~|`]+")
	onePunctuation    = newPattern("[\\p{P}!-/:-@\\[-`{-~]")
	sentinels         = newPattern(`<sentinel:[0-9]+>`, `<sentinel:[0-9]+>`)
	imageTokens       = newPattern(`IMGIMG[A-I]{1,4}Z`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`)
	indents           = newPattern(`[\t\n]|    |  `, `([\t\n]|    |  )`)
	whiteSpace        = newPattern(`\s+`)
	beforeSpace       = newPattern(Space + `[^` + Space + `]*`)
)

// cased returns a pattern of a word of these letters, upper case before lower case, and its
// optional ending.
func cased(letters, end string) string {
	upper, lower := `[`+letters+`-[a-z]]`, `[`+letters+`-[A-Z]]`
	return `[^\r\n\p{L}\p{N}]?` + upper + `*` + lower + `+` + end + `|[^\r\n\p{L}\p{N}]?` + upper + `+` + lower + `*` + end
}

const (
	// Chinese characters, as defined by Kimi K2.
	han = "一-\u9fff㐀-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"
	// Letters with case, as DeepSeek LLM lists them.
	deepseekAlphabets = `A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃`
)

// threesFromRight cuts where the rest of a run of ASCII digits is whole groups of three:
// (?=(\d{3})+(?!\d)), which would scan the whole run from every digit.
var threesFromRight = &pattern{source: "threes from the right", matches: func(runes []rune, yield func(start, end int)) {
	digitRuns(runes, func(r rune) bool { return '0' <= r && r <= '9' }, func(start, end int) {
		for at := start + (end-start)%3; at < end; at += 3 {
			yield(at, at)
		}
	})
}}

// afterThreesFromRight cuts behind each group of three digits of any script, counted from the
// right, but not before the first group: the text before it stays in its word, for the next pattern
// to cut.
var afterThreesFromRight = &pattern{source: "after threes from the right", matches: func(runes []rune, yield func(start, end int)) {
	last := 0
	digitRuns(runes, unicode.IsNumber, func(start, end int) {
		for to := start + (end-start-1)%3 + 1; to <= end; to += 3 {
			yield(last, to)
			last = to
		}
	})
}}

// digitRuns calls yield with the bounds of each run of digits.
func digitRuns(runes []rune, digit func(rune) bool, yield func(start, end int)) {
	for i := 0; i < len(runes); i++ {
		start := i
		for i < len(runes) && digit(runes[i]) {
			i++
		}
		if i > start {
			yield(start, i)
		}
	}
}

// spacesByPowers cuts a word of spaces without line ends into runs of 512, 256, …, 4 and 2.
var spacesByPowers = &pattern{source: "spaces by powers of two", matches: func(runes []rune, yield func(start, end int)) {
	for _, r := range runes {
		if r == '\r' || r == '\n' || !unicode.IsSpace(r) {
			return
		}
	}
	for at := 0; at < len(runes); {
		n := min(512, 1<<(bits.Len(uint(len(runes)-at))-1))
		yield(at, at+n)
		at += n
	}
}}

// words calls yield with the words of text, in order; joined they are text without what is removed.
func (p pretokenizer) words(text string, yield func(word string)) {
	if len(p.cuts) == 0 {
		yield(text)
		return
	}
	// A byte that is not UTF-8 is one U+FFFD to the patterns: a symbol.
	runes := make([]rune, 0, len(text))
	for _, r := range text {
		runes = append(runes, r)
	}
	at := 0
	split(p.cuts, runes, func(n int, kept bool) {
		start := at
		for range n {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
		}
		if kept {
			yield(text[start:at])
		}
	})
}

// split calls yield with the length of each word in turn, in runes, and whether it is kept.
func split(cuts []cut, runes []rune, yield func(n int, kept bool)) {
	// One character cannot be cut; skipping it avoids a search per cut in each character of a text
	// of line ends or digits.
	if len(cuts) == 0 || len(runes) == 1 && !slices.ContainsFunc(cuts, func(c cut) bool { return c.behavior == removed }) {
		yield(len(runes), true)
		return
	}
	last := 0
	cuts[0].parts(runes, func(end int, kept bool) {
		switch {
		case end == last:
		case kept:
			split(cuts[1:], runes[last:end], yield)
		default:
			yield(end-last, false)
		}
		last = end
	})
}

// parts calls yield with the end of each part of a word in turn, and whether it is kept.
func (c cut) parts(runes []rune, yield func(end int, kept bool)) {
	last, open, openMatch := 0, false, false // open: the part that ends at last may still grow
	part := func(to int, match bool) {
		switch {
		case c.behavior == isolated:
			yield(to, true)
		case c.behavior == removed:
			yield(to, !match)
		case open && !c.joins(openMatch, match):
			yield(last, true)
		}
		open, openMatch, last = true, match, to
	}
	c.matches(runes, func(start, end int) {
		if start > last {
			part(start, c.invert)
		}
		part(end, !c.invert)
	})
	if len(runes) > last {
		part(len(runes), c.invert)
	}
	if open && c.behavior > removed {
		yield(last, true)
	}
}

// joins reports whether a part continues with the next one.
func (c cut) joins(match, next bool) bool {
	switch c.behavior {
	case toPrevious:
		return next && !match
	case toNext:
		return match && !next
	}
	return match == next
}
