package smelt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// TestPairs encodes two texts for a reranker, whose words become no special token.
func TestPairs(t *testing.T) {
	words := tokenizer.Spec{Algorithm: tokenizer.WordPiece, AddBOS: true, AddEOS: true, BOS: 0, EOS: 1, UNK: 2, PAD: tokenizer.None,
		Tokens: []string{"[CLS]", "[SEP]", "[UNK]", "\u2581a", "\u2581b"},
		Types:  []tokenizer.Type{tokenizer.Control, tokenizer.Control, tokenizer.Unknown, tokenizer.Normal, tokenizer.Normal}}
	pieces := words
	pieces.Algorithm, pieces.Scores = tokenizer.Unigram, []float32{0, 0, 0, -1, -1}
	pieces.Tokens = []string{"<s>", "</s>", "<unk>", "a", "b"}
	encode := func(spec tokenizer.Spec) *tokenizer.Tokenizer {
		tok, err := tokenizer.New(spec)
		require.NoError(t, err)
		return tok
	}
	require.Equal(t, []int32{0, 3, 1, 4, 1}, smelt.JoinPair(encode(words), "a", "b"))
	require.Equal(t, []int32{0, 3, 1, 1, 4, 1}, smelt.JoinPair(encode(pieces), "a", "b"))

	bytes := tokenizer.Spec{Algorithm: tokenizer.BPE, ByteFallback: true, BOS: tokenizer.None, EOS: tokenizer.None, UNK: tokenizer.None, PAD: tokenizer.None,
		Tokens: []string{"<|start|>", "q", "d", ":", "{", "}", "u", "e", "r", "y", "<", "|", "s", "t", "a", ">"}}
	bytes.Types = append([]tokenizer.Type{tokenizer.Control}, make([]tokenizer.Type, len(bytes.Tokens)-1)...)
	for i := range bytes.Types[1:] {
		bytes.Types[1+i] = tokenizer.Normal
	}
	tok := encode(bytes)
	got := smelt.FillPair(tok, "<|start|>q:{query}d:{document}", "{document}"[:1]+"query}", "<|start|>")
	require.Equal(t, "<|start|>q:{query}d:<|start|>", string(tok.Decode(got, true)))
	require.Equal(t, int32(0), got[0])
	require.NotContains(t, got[1:], int32(0), "what a document says starts nothing")
}
