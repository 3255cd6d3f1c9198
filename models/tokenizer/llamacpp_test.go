package tokenizer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/smelt-ml/smelt/internal/vocabs"
	"github.com/stretchr/testify/require"
)

// What llama.cpp makes of texts is in testdata/llamacpp; `make tokens` makes it anew.

// TestPretokenizers holds the words of every pre-tokenizer to llama.cpp's.
func TestPretokenizers(t *testing.T) {
	answers, err := vocabs.Read("testdata/llamacpp/words.txt")
	require.NoError(t, err)
	// llama.cpp cannot read tokens that are text with NUL in it, and sees U+FFFD for what is
	// not UTF-8.
	compared := map[string]int{}
	for _, a := range answers {
		for _, name := range a.Names {
			pre, text, want, words := pretokenizers[name], a.Text, slices.Clone(a.Pieces), []string(nil)
			if pre.characters {
				text = strings.ReplaceAll(text, " ", Space)
				for i := range want {
					want[i] = strings.ReplaceAll(want[i], " ", Space)
				}
			}
			pre.words(text, func(word string) { words = append(words, string([]rune(word))) }) // with U+FFFD
			require.Equal(t, want, words, "%s: %q", name, a.Text)
			compared[name]++
		}
	}
	texts, err := vocabs.Texts(filepath.Join("testdata", "llamacpp", "texts.txt"))
	require.NoError(t, err)
	for _, name := range Pretokenizers() {
		want := len(texts)
		if pretokenizers[name].characters {
			want = len(withoutNUL(texts))
		}
		require.Equal(t, want, compared[name], name)
	}
}

func withoutNUL(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.Contains(text, "\x00") })
}
