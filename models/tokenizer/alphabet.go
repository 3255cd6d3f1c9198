package tokenizer

import "unicode/utf8"

// GPT-2 represents each byte as one printable character: printable bytes of Latin-1 as themselves,
// the other 68 as U+0100 and up, in order. Vocabularies and merges of byte-level BPE use this
// alphabet (bytes_to_unicode in OpenAI's encoder.py).
var (
	byteText  [256]string // the character of a byte
	runeBytes [324]int16  // the byte of a character; -1: not in the alphabet
)

func init() {
	for r := range runeBytes {
		runeBytes[r] = -1
	}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if printable := r > ' ' && r < 0x7F || r > 0xA0 && r != 0xAD; !printable {
			r = next
			next++
		}
		byteText[b] = string(r)
		runeBytes[r] = int16(b)
	}
}

// appendAlphabet appends bytes in the alphabet.
func appendAlphabet(dst []byte, raw string) []byte {
	for i := range len(raw) {
		dst = append(dst, byteText[raw[i]]...)
	}
	return dst
}

// appendBytes appends the bytes of text in the alphabet. Other characters, which only added tokens
// have, are appended unchanged.
func appendBytes(dst []byte, text string) []byte {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if int(r) < len(runeBytes) && runeBytes[r] >= 0 {
			dst = append(dst, byte(runeBytes[r]))
		} else {
			dst = append(dst, text[i:i+n]...)
		}
		i += n
	}
	return dst
}
