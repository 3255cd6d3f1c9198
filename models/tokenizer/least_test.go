package tokenizer_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// TestAtLeast: no text has fewer tokens than AtLeast returns, and a long one has a bound.
func TestAtLeast(t *testing.T) {
	for _, path := range []string{"tiny-qwen3/gguf/tiny-qwen3-F16.gguf", "tiny-llama/gguf/tiny-llama-F16.gguf"} {
		f, err := gguf.Open(testfiles.Model(t, path))
		require.NoError(t, err)
		defer f.Close()
		tok, err := tokenizer.FromGGUF(f)
		require.NoError(t, err)
		require.Greater(t, tok.AtLeast(strings.Repeat("a", 1<<20)), 1<<10)
		r := rand.New(rand.NewPCG(1, 2))
		longest := ""
		for id := range tok.Len() {
			if piece := string(tok.Piece(int32(id))); len(piece) > len(longest) {
				longest = piece
			}
		}
		for range 2000 {
			var b strings.Builder
			for range r.IntN(40) {
				switch r.IntN(6) {
				case 0:
					b.WriteString(strings.Repeat(longest, r.IntN(9)))
				case 1:
					b.WriteString(strings.Repeat(" \n\t"[r.IntN(3):][:1], r.IntN(99)))
				case 2:
					b.WriteRune(rune(r.IntN(0x30000)))
				case 3:
					b.WriteByte(byte(r.IntN(256)))
				default:
					b.Write(tok.Piece(int32(r.IntN(tok.Len()))))
				}
			}
			for _, special := range []bool{false, true} {
				require.GreaterOrEqual(t, len(tok.Encode(b.String(), special)), tok.AtLeast(b.String()), "%q", b.String())
			}
		}
	}
}
