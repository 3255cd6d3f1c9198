package tokenizer

import "slices"

// Metadata is the vocabulary as GGUF metadata. Two things are brought into a form
// that GGUF has, as llama.cpp's converter does: normal form C is left out, and a
// vocabulary of kind [BPE] gets scores in place of merges. What is left that GGUF
// cannot say is an error.
func (t *Tokenizer) Metadata() ([]Entry, error) {
	s := t.spec
	s.Normalize = slices.DeleteFunc(slices.Clone(s.Normalize), func(n Normalizer) bool { return n.Kind == "NFC" })
	if s.Algorithm == BPE && !pretokenizers[s.Pre].characters {
		if err := s.scoreMerges(); err != nil {
			return nil, err
		}
	}
	return s.Metadata()
}

// scoreMerges makes a [Llama] vocabulary of one of kind [BPE]: the score of a token
// is the rank of the first merge that makes it, negated. That gives the same ids
// where, as in vocabularies that SentencePiece trained, the merges are those of
// every pair that joins to a token, in the order of these tokens; other ones are
// refused.
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
	for text := range ids {
		for cut := range text {
			_, left := ids[text[:cut]]
			if _, right := ids[text[cut:]]; left && right && !listed[text[:cut]+" "+text[cut:]] {
				return specError("GGUF cannot keep %q and %q from merging", text[:cut], text[cut:])
			}
		}
	}
	s.Algorithm, s.Scores, s.Merges, s.Pre = Llama, scores, nil, ""
	return nil
}
