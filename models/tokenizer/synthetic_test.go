package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Small vocabularies for tests that need no model.

// byteLevelSpec has all bytes, some merges, and special tokens of both kinds.
func byteLevelSpec(pre string) Spec {
	s := Spec{Algorithm: GPT2, Pre: pre, BOS: None, EOS: None, UNK: None, PAD: None}
	s.Tokens = append(s.Tokens, byteText[:]...)
	for _, m := range []string{"h e", "l l", "he ll", "hell o", "Ġ hello", "Ġ w", "o r", "Ġw or", "Ġ Ġ", "ĠĠ ĠĠ", "a a", "aa aa", "Ã ©", "1 2", "12 3", "Ċ Ċ"} {
		left, right := splitMerge(m)
		s.Merges = append(s.Merges, m)
		s.Tokens = append(s.Tokens, left+right)
	}
	s.special("<|end|>", Control)
	s.special("<think>", UserDefined)
	s.EOS = s.find("<|end|>")
	return s
}

// pieceSpec is a SentencePiece vocabulary of the same sort.
func pieceSpec() Spec {
	s := Spec{Algorithm: Llama, Prefix: PrefixAlways, AddBOS: true, UNK: 0, BOS: 1, EOS: 2, PAD: None}
	s.special("<unk>", Unknown)
	s.special("<s>", Control)
	s.special("</s>", Control)
	for b := range 256 {
		s.special(fmt.Sprintf("<0x%02X>", b), Byte)
	}
	for _, text := range []string{"▁", "h", "e", "l", "o", "w", "r", "d", "a", "b", "é", "he", "ll", "hell", "hello", "▁hello", "▁w", "or", "▁wor", "▁▁", "▁▁▁▁", "aa", "aaaa", "<", "/s", "s>", "</s"} {
		s.special(text, Normal)
	}
	s.special("<think>", UserDefined)
	for id := range s.Tokens {
		s.Scores = append(s.Scores, -float32(id/2)) // pairs of equal scores
	}
	return s
}

// charSpec is the second kind as Hugging Face has it.
func charSpec() Spec {
	p := pieceSpec()
	s := Spec{Algorithm: BPE, Prefix: PrefixAlways, ByteFallback: true, AddBOS: true, UNK: 0, BOS: 1, EOS: 2, PAD: None, Tokens: p.Tokens, Types: p.Types}
	s.Merges = []string{"h e", "l l", "he ll", "hell o", "▁ hello", "▁ w", "o r", "▁w or", "▁ ▁", "▁▁ ▁▁", "a a", "aa aa"}
	return s
}

// wordSpec is BERT's kind. It spells no capitals, no accents and no bytes.
func wordSpec() Spec {
	s := Spec{Algorithm: WordPiece, Pre: preSpaces, Normalize: []Normalizer{ggmlBERTNormalizer(true, true)}, AddBOS: true, AddEOS: true}
	for _, text := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]"} {
		s.special(text, Control)
	}
	s.Types[1] = Unknown
	s.PAD, s.UNK, s.BOS, s.EOS = 0, 1, 2, 3
	for _, text := range []string{"▁hello", "▁he", "llo", "▁world", "▁un", "aff", "able", "▁a", "a", "▁,", "▁.", "▁1", "2", "3", "▁日", "▁e", "▁!"} {
		s.special(text, Normal)
	}
	return s
}

// unigramSpec is T5's kind. It has one space between words and no bytes.
func unigramSpec() Spec {
	s := Spec{Algorithm: Unigram, Normalize: []Normalizer{ggmlUnigramNormalizer("", true, true)}, AddEOS: true, PAD: 0, EOS: 1, UNK: 2, BOS: None}
	s.special("<pad>", Control)
	s.special("</s>", Control)
	s.special("<unk>", Unknown)
	for _, text := range []string{"▁", "a", "b", "aa", "▁a", "h", "e", "l", "o", "▁hello", "▁wor", "ld", "é", "1", "12"} {
		s.special(text, Normal)
	}
	s.special("<think>", UserDefined)
	for id := range s.Tokens {
		s.Scores = append(s.Scores, -float32(id%7)-1)
	}
	return s
}

func (s *Spec) special(text string, k Type) {
	for len(s.Types) < len(s.Tokens) {
		s.Types = append(s.Types, Normal)
	}
	s.Tokens, s.Types = append(s.Tokens, text), append(s.Types, k)
}

func (s *Spec) find(text string) int32 {
	for id, t := range s.Tokens {
		if t == text {
			return int32(id)
		}
	}
	return None
}

func synthetic(t testing.TB) map[string]*Tokenizer {
	list := map[string]*Tokenizer{}
	for name, spec := range map[string]Spec{
		"gpt-2": byteLevelSpec("gpt-2"), "llama-bpe": byteLevelSpec("llama-bpe"), "qwen2": byteLevelSpec("qwen2"),
		"default": byteLevelSpec("default"), "smollm": byteLevelSpec("smollm"),
		"spm": pieceSpec(), "chars": charSpec(), "words": wordSpec(), "unigrams": unigramSpec(),
	} {
		tok, err := New(spec)
		require.NoError(t, err)
		list[name] = tok
	}
	return list
}

// someText draws a text that is rich in what the vocabularies know.
func someText(r *rand.Rand) string {
	parts := []string{"hello", " ", "  ", "\n", "a", "aaaa", "wor", "é", "<|end|>", "</s>", "<think>", "<", "'s", "123", "1", "\xff", "\xe2\x96", "🦊", "日本", "\r\n", "\t", "'LL", "!?", "x"}
	var text string
	for range r.IntN(12) {
		text += parts[r.IntN(len(parts))]
	}
	return text
}
