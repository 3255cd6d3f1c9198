package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A Step is one operation of a tokenizer.json's pre_tokenizer, applied to every word that the steps
// before it left.
type Step struct {
	Kind     string // one of the constants below
	Pattern  string // of a cut: a known name or regular expression, or a literal text
	Behavior string // of a cut: a key of behaviors
	Invert   bool   // of a cut: the matches are the text between those of the pattern
	Alphabet bool   // of a cut: the pattern is applied to GPT-2's alphabet, as after ByteLevel
}

// The kinds of steps.
const (
	stepCut             = "cut"
	stepMetaspace       = "metaspace"        // replaces spaces by Space and puts one before every word
	stepMetaspaceFirst  = "metaspace, first" // puts one before the first word of a text only
	stepMetaspaceInside = "metaspace, never" // puts none
	stepPrefixSpace     = "prefix space"     // puts a space before every word that begins with none
	stepWhole           = "whole"            // does nothing
)

var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "MergedWithPrevious": toPrevious, "MergedWithNext": toNext, "Contiguous": contiguous,
}

// namedPatterns are the patterns of components without one of their own.
var namedPatterns = map[string]*pattern{
	"white space": newPattern(`\s`), "number": oneDigit, "punctuation": onePunctuation,
	// Rust's \w+|[^\w\s]+.
	"word":       newPattern(`[` + wordRunes + `]+|[^` + wordRunes + `\s]+`),
	"byte level": gpt2Words,
}

// wordRunes are the characters of \w in Rust's regular expressions (Unicode, UTS 18, annex C).
const wordRunes = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\u200c\u200dⒶ-ⓩ🄰-🅉🅐-🅩🅰-🆉`

// knownRegexes are all supported regular expressions, as spelled in tokenizer.json files.
var knownRegexes = func() map[string]*pattern {
	table := map[string]*pattern{}
	for _, p := range []*pattern{
		gpt2Words, llama3Words, qwen2Words, qwen35Words, seedCoderWords, bailingWords, exaoneMoEWords, minicpm5Words, deepseek3Words,
		deepseekLetters, deepseekSigns, deepseekCJKSpaces, spaceLetters, spacePunctuation, trailingSpace, oneNewline, hanKana, bloomWords,
		oneDigit, digitRun, threeNumbers, threeDigits, sentinels, imageTokens, indents,
		tekkenCased, o200kCased, asciiThrees, spaceRun, spacesRun,
	} {
		for _, source := range p.hf {
			table[source] = p
		}
	}
	return table
}()

const (
	upperRunes = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lowerRunes = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	casedWords = `[^\r\n\p{L}\p{N}]?` + upperRunes + `*` + lowerRunes + `+%s|[^\r\n\p{L}\p{N}]?` + upperRunes + `+` + lowerRunes + `*%s`
)

// Patterns that only tokenizer.json files use. DeepSeek's classes include white space there.
var (
	tekkenCased = newPattern(
		strings.ReplaceAll(casedWords, "%s", "")+`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|`+spaces,
		strings.ReplaceAll(casedWords, "%s", "")+`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|`+spaces,
	)
	o200kCased = newPattern(
		strings.ReplaceAll(casedWords, "%s", `(?:`+contraction+`)?`)+`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|`+spaces,
		strings.ReplaceAll(casedWords, "%s", `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`)+`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|`+spaces,
	)
	deepseekSigns     = newPattern(`\s?[!-/:-~！-／：-～‘-‟\u3000-。]+`, `\s?[!-/:-~！-／：-～‘-‟　-。]+`)
	deepseekCJKSpaces = newPattern(`[一-龥ࠀ-一가-퟿]+`, `[一-龥ࠀ-一가-퟿]+`)
	asciiThrees       = newPattern(`[0-9]{3}`, `[0-9]{3}`)
	spaceRun          = newPattern(` {2,}`, ` {2,}`)
	spacesRun         = newPattern(`\s+`, `\s+`)
)

// cutOf returns the cut of a step of kind stepCut.
func (s *Step) cutOf() (c cut, err error) {
	b, ok := behaviors[s.Behavior]
	if !ok {
		return c, specError("pre_tokenizer: behavior %q is not known", s.Behavior)
	}
	p := namedPatterns[s.Pattern]
	if p == nil {
		p = knownRegexes[s.Pattern]
	}
	if text, literal := strings.CutPrefix(s.Pattern, literalPattern); literal {
		if text == "" {
			return c, specError("pre_tokenizer: an empty pattern")
		}
		p = newLiteral(text)
	}
	if p == nil {
		return c, specError("pre_tokenizer Split: unknown pattern %q", s.Pattern)
	}
	return cut{p, b, s.Invert}, nil
}

// literalPattern precedes a pattern that is a literal text.
const literalPattern = "text "

func newLiteral(text string) *pattern {
	want := []rune(text)
	return &pattern{source: text, matches: func(runes []rune, yield func(start, end int)) {
		for i := 0; i+len(want) <= len(runes); {
			if !equalRunes(runes[i:i+len(want)], want) {
				i++
				continue
			}
			yield(i, i+len(want))
			i += len(want)
		}
	}}
}

func equalRunes(a, b []rune) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A stage is a step with its compiled cut.
type stage struct {
	Step
	cut
}

func newStages(steps []Step) ([]stage, error) {
	var stages []stage
	for _, s := range steps {
		x := stage{Step: s}
		switch s.Kind {
		case stepCut:
			c, err := s.cutOf()
			if err != nil {
				return nil, err
			}
			x.cut = c
		case stepMetaspace, stepMetaspaceFirst, stepMetaspaceInside, stepPrefixSpace, stepWhole:
		default:
			return nil, specError("unknown step %q", s.Kind)
		}
		stages = append(stages, x)
	}
	return stages, nil
}

// runSteps calls yield with the words of a text. prefixed permits spaces before words; first marks
// the beginning of the whole text.
func runSteps(stages []stage, text string, prefixed, first bool, yield func(word string)) {
	if text == "" {
		return
	}
	cuts := 0
	for cuts < len(stages) && stages[cuts].Kind == stepCut && stages[cuts].Alphabet == stages[0].Alphabet {
		cuts++
	}
	if cuts > 0 {
		rest := stages[cuts:]
		runCuts(stages[:cuts], text, func(at int, word string) { runSteps(rest, word, prefixed, first && at == 0, yield) })
		return
	}
	if len(stages) == 0 {
		yield(text)
		return
	}
	s, rest := &stages[0], stages[1:]
	switch s.Kind {
	case stepPrefixSpace:
		if prefixed && text[0] != ' ' {
			text = " " + text
		}
	case stepMetaspace, stepMetaspaceFirst, stepMetaspaceInside:
		text = strings.ReplaceAll(text, " ", Space)
		if prefixed && (s.Kind == stepMetaspace || s.Kind == stepMetaspaceFirst && first) && !strings.HasPrefix(text, Space) {
			text = Space + text
		}
	}
	runSteps(rest, text, prefixed, first, yield)
}

// runCuts calls yield with each word that successive cuts of one alphabet keep, and its offset.
func runCuts(stages []stage, text string, yield func(at int, word string)) {
	alphabet := stages[0].Alphabet
	runes := make([]rune, 0, len(text))
	if alphabet {
		for i := range len(text) {
			r, _ := utf8.DecodeRuneInString(byteText[text[i]])
			runes = append(runes, r)
		}
	} else {
		for _, r := range text {
			runes = append(runes, r)
		}
	}
	cuts := make([]cut, len(stages))
	for i := range stages {
		cuts[i] = stages[i].cut
	}
	at := 0
	split(cuts, runes, func(n int, kept bool) {
		start := at
		if alphabet {
			at += n
		} else {
			for range n {
				_, size := utf8.DecodeRuneInString(text[at:])
				at += size
			}
		}
		if kept && at > start {
			yield(start, text[start:at])
		}
	})
}
