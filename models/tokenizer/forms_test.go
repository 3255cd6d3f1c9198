package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForms has what Hugging Face's library makes of texts; characters that Unicode got after
// version 9.0 stay as they are and where they are.
func TestForms(t *testing.T) {
	marks := strings.Repeat("\u0301", 40)
	for _, c := range []struct{ kind, text, want string }{
		{"NFC", "e\u0301", "é"},
		{"NFC", "a\u0345\u08CA\u0323", "a\u0345\u08CA\u0323"},            // Unicode 14
		{"NFC", "a\u1ACE\u0323\u0301", "a\u1ACE\u0323\u0301"},            // 14: ẹ́ would be one character
		{"NFC", "a\u0323\u0301\u1ACE", "ạ\u0301\u1ACE"},                  // what precedes it composes
		{"NFC", "a\u0345\U0001E08F", "a\u0345\U0001E08F"},                // 15
		{"NFC", "\U00011935\U00011930", "\U00011935\U00011930"},          // 13: U+11938
		{"NFD", "\U00011938", "\U00011938"},                              //
		{"NFKC", "\u32FF\u3299ﬁ", "\u32FF秘fi"},                           // 12.1
		{"NFKD", "\U0001FBF5\U00010784", "\U0001FBF5\U00010784"},         // 13, 14
		{"NFC", "a" + marks + "\u0323b", "ạ" + marks + "b"},              // no joiner after 30 marks
		{"NFD", "각ộ", "\u1100\u1161\u11A8o\u0323\u0302"},                 //
		{"NFC", "\u1100\u1161\u11A8 \u1100\u1161\u11A7", "각 가\u11A7"},    //
		{"NFC", "q\u0307\u0323\xFF", "q\u0323\u0307\xFF"},                // bytes that are not UTF-8 stay
		{"NFC", "\u0340\u2126\uF900", "\u0300Ω豈"},                        // singletons
		{"NFC", "\u09C7\u09BE\u0958", "\u09CB\u0915\u093C"},              // a second starter; an exclusion
		{"StripAccents", "e\u0301x\u08CAy\u1DFB", "exy"[:2] + "\u08CAy"}, // 14 stays, 9 goes
		{"BertStripAccents", "e\u0301x\u08E1", "ex\u08E1"},               // 9 stays
		{"BertCleanText", "a\u200D\u08E2\u0890", "a\u08E2\u0890"},        //
	} {
		normalize, err := normalizers[c.kind].make(Normalizer{Kind: c.kind})
		require.NoError(t, err)
		require.Equal(t, c.want, normalize(c.text), "%s of %+q", c.kind, c.text)
	}
}

func BenchmarkForms(b *testing.B) {
	for name, text := range map[string]string{"normal": strings.Repeat("Ein schöner Tag. ", 1000), "decomposed": strings.Repeat("Ein scho\u0308ner Tag. ", 1000)} {
		b.Run(name, func(b *testing.B) {
			normalize, _ := normalizers["NFC"].make(Normalizer{})
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				normalize(text)
			}
		})
	}
}
