package tokenizer

import "fmt"

// Placeholder returns a vocabulary of n tokens for models with random weights, n being at least
// 258. It is byte-level with 256 byte tokens, so that any text encodes, one token a byte except for
// one merge (llama.cpp requires a list of merges). The end token <|endoftext|> follows; the rest
// are texts that only a model can produce.
func Placeholder(n int) (Spec, error) {
	if n < 258 {
		return Spec{}, specError("a placeholder vocabulary of %d tokens: at least 258 are needed", n)
	}
	s := Spec{
		Algorithm: GPT2, Pre: "gpt-2",
		Tokens: make([]string, 0, n), Types: make([]Type, n),
		Merges: []string{byteText[' '] + " " + byteText[' ']},
		BOS:    None, EOS: 257, UNK: None, PAD: None,
	}
	s.Tokens = append(s.Tokens, byteText[:]...)
	s.Tokens = append(s.Tokens, byteText[' ']+byteText[' '], "<|endoftext|>")
	for id := range n {
		s.Types[id] = Normal
		if id >= len(s.Tokens) {
			s.Tokens = append(s.Tokens, fmt.Sprintf("<|filler_%d|>", id))
		}
	}
	s.Types[s.EOS] = Control
	return s, nil
}
