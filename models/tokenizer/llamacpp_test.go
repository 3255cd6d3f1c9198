package tokenizer

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/vocabs"
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

// TestVocabularies holds small vocabularies of all kinds to llama.cpp's ids.
func TestVocabularies(t *testing.T) {
	answers, err := vocabs.Read("testdata/llamacpp/vocabularies.txt")
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/llamacpp/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		f, err := vocabs.Vocabulary(file)
		require.NoError(t, err)
		tok, err := FromGGUF(f)
		require.NoError(t, err)
		name, compared := strings.TrimSuffix(filepath.Base(file), ".json"), 0
		for _, a := range answers {
			if !slices.Contains(a.Names, name) {
				continue
			}
			var pieces []string
			for _, id := range tok.EncodeWhole(a.Text, false) {
				pieces = append(pieces, tok.spec.Tokens[id])
			}
			require.Equal(t, a.Pieces, pieces, "%s: %q", name, a.Text)
			compared++
		}
		require.Equal(t, 181, compared, name)
	}
}

func withoutNUL(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return strings.Contains(text, "\x00") })
}
