package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// stream decodes token by token.
func stream(t *testing.T, d *Decoder, ids []int32) string {
	var text string
	whole := true
	for _, id := range ids {
		part := d.Next(id)
		whole = whole && utf8.ValidString(part)
		text += part
		require.True(t, len(d.pending) == 0 || !utf8.FullRune(d.pending), "%q is held back", d.pending)
	}
	text += d.Flush()
	require.True(t, whole || !utf8.ValidString(text), "a character of %q was cut", text)
	return text
}

func TestStream(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for name, tok := range synthetic(t) {
		for range 1000 {
			ids := tok.Encode(someText(r), true)
			for range r.IntN(6) { // bytes that make no characters
				ids = append(ids, int32(r.IntN(tok.Len()+4)-2))
			}
			for _, special := range []bool{false, true} {
				require.Equal(t, string(tok.Decode(ids, special)), stream(t, tok.NewDecoder(special), ids), name)
			}
			// Any cut into a prompt and what follows it, between characters.
			cut := r.IntN(len(ids) + 1)
			head := tok.Decode(ids[:cut], true)
			if utf8.Valid(head) {
				d := tok.NewDecoder(true)
				d.Prime(ids[:cut])
				require.Equal(t, string(tok.Decode(ids, true)), string(head)+stream(t, d, ids[cut:]), name)
			}
		}
	}
}

func TestPiece(t *testing.T) {
	tok := synthetic(t)["spm"]
	for text, want := range map[string]string{"▁hello": " hello", "<0xE2>": "\xe2", "<s>": "<s>", "<think>": "<think>", "▁▁": "  "} {
		require.Equal(t, want, string(tok.Piece(tok.spec.find(text))), text)
	}
	for _, id := range []int32{None, -7, int32(tok.Len()), 1 << 30} {
		require.Empty(t, tok.Piece(id))
		require.Equal(t, Undefined, tok.Type(id))
		require.False(t, tok.IsStop(id))
	}
	require.Equal(t, "hello", string(tok.Decode([]int32{1, tok.spec.find("▁hello"), 2}, false)))
}

func ExampleDecoder() {
	spec, _ := Placeholder(300)
	t, _ := New(spec)
	prompt, rest := t.Encode("caf", true), t.Encode("é", true)
	d := t.NewDecoder(false)
	d.Prime(prompt)
	for _, id := range rest { // the two bytes of é
		fmt.Printf("%q ", d.Next(id))
	}
	fmt.Printf("%q", d.Flush())
	// Output: "" "é" ""
}
