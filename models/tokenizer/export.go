package tokenizer

import (
	"slices"
	"strings"

	"github.com/samber/lo"
)

// Metadata returns the vocabulary as GGUF metadata. Settings of a tokenizer.json are converted to a
// form that GGUF has, as llama.cpp's converter does: NFC is left out, a vocabulary of kind [BPE]
// gets scores in place of merges, steps get the name of the nearest pre-tokenizer, and BERT's and
// T5's normalizers become llama.cpp's. Settings without such a form are errors.
func (t *Tokenizer) Metadata() ([]Entry, error) {
	s := t.spec
	s.Normalized, s.Apart, s.LeftmostSpecial = nil, nil, false
	switch s.Algorithm {
	case WordPiece:
		s.ggmlWords()
	case Unigram:
		s.ggmlUnigrams()
	default:
		s.Normalize = slices.DeleteFunc(slices.Clone(s.Normalize), func(n Normalizer) bool { return n.Kind == "NFC" })
		for _, x := range namedSteps {
			if s.Algorithm == GPT2 && slices.Equal(s.Steps, x.steps) {
				s.Pre, s.Steps, s.IgnoreMerges = x.pre, nil, pretokenizers[x.pre].ignoreMerges
			}
		}
	}
	if s.Algorithm == BPE && !pretokenizers[s.Pre].characters {
		if err := s.scoreMerges(); err != nil {
			return nil, err
		}
	}
	return s.Metadata()
}

// namedSteps are the steps of tokenizer.json files for which GGUF has a pre-tokenizer's name,
// although llama.cpp's words differ in rare cases.
var namedSteps = func() (list []struct {
	pre   string
	steps []Step
}) {
	isolate := func(pattern string) Step { return Step{Kind: stepCut, Pattern: pattern, Behavior: "Isolated"} }
	inBytes := func(s Step) Step { s.Alphabet = true; return s }
	for pre, steps := range map[string][]Step{
		"tekken":         {isolate(tekkenCased.hf[0])},
		"gpt-4o":         {isolate(o200kCased.hf[0])},
		"deepseek-llm":   {isolate("[\r\n]"), isolate(deepseekLetters.hf[0]), isolate(deepseekSigns.hf[0]), isolate(trailingSpace.hf[0]), isolate(deepseekCJKSpaces.hf[0]), isolate("number")},
		"deepseek-coder": {isolate("[\r\n]"), isolate(spaceLetters.hf[0]), isolate(spacePunctuation.hf[0]), isolate(deepseekCJKSpaces.hf[0]), isolate("number")},
		"falcon": {
			{Kind: stepCut, Pattern: "punctuation", Behavior: "Contiguous"}, isolate("byte level"),
			inBytes(Step{Kind: stepCut, Pattern: "number", Behavior: "Contiguous"}), inBytes(isolate(threeDigits.hf[0])),
		},
	} {
		list = append(list, struct {
			pre   string
			steps []Step
		}{pre, steps})
	}
	return list
}()

// ggmlWords converts the steps of BertNormalizer and BertPreTokenizer to GGUF's form, in which
// Space begins the pieces at the start of words.
func (s *Spec) ggmlWords() {
	bert := []Step{{Kind: stepCut, Pattern: "white space", Behavior: "Removed"}, {Kind: stepCut, Pattern: "punctuation", Behavior: "Isolated"}}
	kinds := func(want ...string) bool {
		return slices.EqualFunc(s.Normalize, want, func(n Normalizer, kind string) bool { return n.Kind == kind })
	}
	lower := kinds("BertCleanText", "BertIdeographs", "NFD", "BertStripAccents", "Lowercase") || kinds("BertCleanText", "BertIdeographs", "Lowercase")
	noAccents := kinds("BertCleanText", "BertIdeographs", "NFD", "BertStripAccents", "Lowercase") || kinds("BertCleanText", "BertIdeographs", "NFD", "BertStripAccents")
	if s.Continuing == "" || !slices.Equal(s.Steps, bert) || !lower && !noAccents && !kinds("BertCleanText", "BertIdeographs") {
		return
	}
	s.Tokens = slices.Clone(s.Tokens)
	for id, text := range s.Tokens {
		if s.typeOf(id) != Normal {
			continue
		}
		inner, ok := strings.CutPrefix(text, s.Continuing)
		switch {
		case !ok || inner == "":
			inner = Space + text
		case strings.HasPrefix(inner, Space):
			return // Space would mark it as the start of a word
		}
		s.Tokens[id] = inner
	}
	s.Normalize, s.Steps, s.Pre, s.Prefix = []Normalizer{ggmlBERTNormalizer(lower, noAccents)}, nil, preSpaces, NoPrefix
	s.Continuing, s.MaxWord = "", 0
}

// ggmlUnigrams converts SentencePiece's steps, a precompiled table and one space between words, to
// GGUF's form, unless some piece spans two words.
func (s *Spec) ggmlUnigrams() {
	marks := []Step{{Kind: stepMetaspace}, {Kind: stepCut, Pattern: literalPattern + Space, Behavior: "MergedWithNext"}}
	split := append([]Step{{Kind: stepCut, Pattern: "white space", Behavior: "Removed"}}, marks...)
	oneSpace := Normalizer{"ReplaceRegex", spaceRun.hf[0], " "}
	table := ""
	normalize := slices.Clone(s.Normalize)
	if len(normalize) > 0 && normalize[0].Kind == "Precompiled" {
		table, normalize = normalize[0].Old, normalize[1:]
	}
	merged := slices.Equal(s.Steps, split)
	if len(normalize) == 1 && normalize[0] == oneSpace {
		merged, normalize = true, nil
	}
	for id, text := range s.Tokens {
		if s.typeOf(id) == Normal && !wordStarts(text) {
			return
		}
	}
	if len(normalize) > 0 || !slices.Equal(s.Steps, marks) && !slices.Equal(s.Steps, split) {
		return
	}
	s.Normalize, s.Steps, s.Prefix = []Normalizer{ggmlUnigramNormalizer(table, true, merged)}, nil, NoPrefix
}

// scoreMerges turns a vocabulary of kind [BPE] into a [Llama] one: a token's score is the negated
// rank of the first merge that results in it. The ids stay the same if the merges are all pairs
// that join to a token, in the order of these tokens, as in vocabularies that SentencePiece
// trained; others are refused.
func (s *Spec) scoreMerges() error {
	ids := make(map[string]int32, len(s.Tokens))
	for id, text := range s.Tokens {
		if _, ok := ids[text]; !ok && text != "" && s.typeOf(id) == Normal {
			ids[text] = int32(id)
		}
	}
	scores := make([]float32, len(s.Tokens))
	listed := make(map[string]bool, len(s.Merges))
	last := None
	for rank, m := range s.Merges {
		left, right := splitMerge(m)
		id, ok := ids[left+right]
		if !ok {
			return specError("GGUF cannot express the merge %q, which makes no token", m)
		}
		listed[m] = true
		switch {
		case scores[id] == 0:
			scores[id] = -float32(rank + 1)
		case id != last:
			return specError("GGUF cannot express the merge %q, apart from others that make the same token", m)
		}
		last = id
	}
	for id, text := range s.Tokens {
		if first, ok := ids[text]; !ok || first != int32(id) {
			continue
		}
		for cut := range text {
			_, left := ids[text[:cut]]
			if _, right := ids[text[cut:]]; left && right && !listed[text[:cut]+" "+text[cut:]] {
				return specError("GGUF cannot keep %q and %q from merging", text[:cut], text[cut:])
			}
		}
	}
	s.Algorithm, s.Scores, s.Merges, s.Pre = Llama, scores, nil, ""
	if lo.CountBy(s.Types, func(t Type) bool { return t == Byte }) == 256 {
		s.FuseUNK = false // every character is known
	}
	return nil
}
