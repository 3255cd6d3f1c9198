package tokenizer

import "slices"

// Files seldom list the tokens that end a generation, or mark them as control tokens, so that smelt
// recognises them by their texts, like llama.cpp (llama-vocab.cpp). Unlike llama.cpp, a normal
// token that merges can produce stays text: Qwen's vocabularies have such a </s>, at which
// llama.cpp stops.
var (
	// End of a turn, of a message, of a text.
	stopTexts = []string{
		"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
		"<end_of_turn>", "<|endoftext|>", "</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
		"<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
		// Fill in the middle: padding, repository, next file.
		"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
		"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>",
		"<|file_sep|>",
	}
	// Fill in the middle: control tokens that end nothing.
	controlTexts = []string{
		"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>",
		"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>",
		"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>",
	}
)

// knownTexts holds every text above; the value reports whether it is a stop token.
var knownTexts = func() map[string]bool {
	m := map[string]bool{}
	for _, text := range stopTexts {
		m[text] = true
	}
	for _, text := range controlTexts {
		m[text] = false
	}
	return m
}()

// notStops are stop texts that end nothing in vocabularies with certain other tokens: in gpt-oss'
// and Solar's <|end|> ends a message, and the next one of the same turn follows; Gemma 4 has a </s>
// for HTML.
var notStops = []struct {
	text string
	with []string
}{
	{"<|end|>", []string{"<|return|>", "<|call|>"}},
	{"<|end|>", []string{"<|calls|>", "<|flush|>"}},
	{"</s>", []string{"<|tool_response>"}},
}

// endings returns the types with known control tokens marked, and the sorted ids of the tokens that
// end a generation.
func endings(s *Spec) ([]Type, []int32) {
	types := make([]Type, len(s.Tokens))
	stop := slices.Clone(s.Stop)
	if s.EOS != None {
		stop = append(stop, s.EOS)
	}
	found := map[string]int32{} // of knownTexts
	for id, text := range s.Tokens {
		types[id] = s.typeOf(id)
		if n := len(text); n < 4 || n > 32 || text[0] >= 'A' && text[0] <= 'z' && text[0] != '[' && text[0] != '_' {
			continue // skips the map for almost all of a vocabulary
		}
		if ends, ok := knownTexts[text]; ok && !(types[id] == Normal && s.merges(text)) {
			types[id] = Control
			found[text] = int32(id)
			if ends {
				stop = append(stop, int32(id))
			}
		}
	}
	for _, n := range notStops {
		if id, ok := found[n.text]; ok && id != s.EOS && !slices.ContainsFunc(n.with, func(text string) bool { _, ok := found[text]; return !ok }) {
			stop = slices.DeleteFunc(stop, func(stop int32) bool { return stop == id })
		}
	}
	for _, id := range stop {
		if types[id] == UserDefined { // else any text that has it would end a generation
			types[id] = Control
		}
	}
	slices.Sort(stop)
	return types, slices.Compact(stop)
}

// unknown returns the token that stands for text that the vocabulary cannot spell, or [None] if
// that is a control token with another meaning: where bytes are spelled, or where it begins or ends
// something. llama.cpp and Hugging Face's library drop such bytes.
func unknown(s *Spec, types []Type, stop []int32) int32 {
	_, known := knownTexts[s.text(s.UNK)]
	if s.UNK != None && types[s.UNK] == Control && (known || s.Algorithm == GPT2 || s.UNK == s.BOS || slices.Contains(stop, s.UNK)) {
		return None
	}
	return s.UNK
}

// merges reports whether some merge results in the text.
func (s *Spec) merges(text string) bool {
	return slices.ContainsFunc(s.Merges, func(m string) bool {
		if len(m) != len(text)+1 {
			return false
		}
		left, right := splitMerge(m)
		return text[:len(left)] == left && text[len(left):] == right
	})
}
