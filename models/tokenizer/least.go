package tokenizer

import "slices"

// shrinks is the factor by which a normalizer shortens a text at most, by kind. Replacing is
// judged by its parameters; of other kinds nothing is known.
var shrinks = map[string]int{
	"Prepend":   1,
	"Lowercase": 3, // K (U+212A) becomes k
	"NFC":       3, // three letters of Hangul become a syllable
	"NFD":       3, // it also maps characters to shorter equal ones, Ω (U+2126) to Ω
}

// AtLeast returns a number of tokens that a text has at least, from its length and the longest
// token; 0 for vocabularies that may drop text.
func (t *Tokenizer) AtLeast(text string) int {
	longest := t.longest()
	if longest == 0 {
		return 0
	}
	n := len(text)
	if len(t.spec.StripLeft)+len(t.spec.StripRight) > 0 { // white space beside such a token is part of it
		n = 0
		for i := range len(text) {
			if text[i] > ' ' && text[i] < 0x7F {
				n++
			}
		}
	}
	return n / longest
}

// newLongest returns a bound on the bytes of a text that one token covers; 0: none is known.
func (t *Tokenizer) newLongest() int {
	s := &t.spec
	if s.Algorithm != Llama && s.Algorithm != GPT2 && (s.Algorithm != BPE || !s.ByteFallback) ||
		slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Behavior == "Removed" }) {
		return 0
	}
	for _, id := range t.tables().bytes {
		if id == None || int(id) >= t.Len() {
			return 0 // such a byte is dropped, or shares a token with others
		}
	}
	longest := 0
	for id := range t.Len() {
		longest = max(longest, len(t.Piece(int32(id))), len(s.Tokens[id]))
	}
	for _, n := range s.Normalize {
		factor := shrinks[n.Kind]
		if n.Kind == "Replace" && len(n.New) >= len(n.Old) {
			factor = 1
		}
		longest *= factor
	}
	return longest
}
