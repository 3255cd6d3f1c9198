package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Piece returns the text of a single token, with its leading space; control tokens by their names;
// nothing for unused tokens and ids outside the vocabulary. It need not be UTF-8, since a character
// may span several tokens.
func (t *Tokenizer) Piece(id int32) []byte { return t.appendPiece(nil, id) }

func (t *Tokenizer) appendPiece(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t.types) {
		return dst
	}
	text := t.spec.Tokens[id]
	switch t.types[id] {
	case Control, Unknown, UserDefined:
		return append(dst, text...)
	case Byte:
		if b, ok := byteToken(text); ok {
			return append(dst, b)
		}
	case Normal:
		if t.spec.Algorithm == GPT2 {
			return appendBytes(dst, text)
		}
		if mark := t.spec.Continuing; mark != "" {
			if inner, ok := strings.CutPrefix(text, mark); ok {
				return append(dst, inner...)
			}
			return append(append(dst, ' '), text...)
		}
		if t.spec.Algorithm == PLaMo2 {
			return append(dst, text...)
		}
		return append(dst, strings.ReplaceAll(text, Space, " ")...)
	}
	return dst
}

// Decode returns the text of ids, byte for byte, by the rules of a [Decoder].
func (t *Tokenizer) Decode(ids []int32, special bool) []byte {
	d := t.NewDecoder(special)
	text := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		text = d.appendText(text, id)
	}
	return text
}

// Decoder turns a stream of tokens into text. It holds back an incomplete character until its
// remaining bytes have come; bytes that cannot become UTF-8 pass through at once. Its output,
// joined with Flush, equals that of [Tokenizer.Decode].
//
// Where encoding puts a space before text (see [SpacePrefix]), one space is dropped: at the start,
// and after special tokens. Words of a [WordPiece] vocabulary are separated by one space, except
// before . , ? and !.
type Decoder struct {
	t       *Tokenizer
	special bool
	start   bool // no text since the start, or since a special token that restarts
	pending []byte
}

// NewDecoder returns a Decoder for a text. Unless special is set, control and unknown tokens give
// no text.
func (t *Tokenizer) NewDecoder(special bool) *Decoder {
	return &Decoder{t: t, special: special, start: true}
}

// Prime feeds tokens without returning their text, so that the continuation of a prompt keeps its
// space.
func (d *Decoder) Prime(ids []int32) {
	for _, id := range ids {
		d.Next(id)
	}
	d.pending = d.pending[:0]
}

// Next takes a token and returns the characters that it completes.
func (d *Decoder) Next(id int32) string {
	d.pending = d.appendText(d.pending, id)
	n := len(d.pending)
	for i := n - 1; i >= 0 && i >= n-utf8.UTFMax+1; i-- {
		if utf8.RuneStart(d.pending[i]) {
			if !utf8.FullRune(d.pending[i:]) {
				n = i
			}
			break
		}
	}
	text := string(d.pending[:n])
	d.pending = append(d.pending[:0], d.pending[n:]...)
	return text
}

// Flush returns the bytes held back, which are not a character, and ends the text.
func (d *Decoder) Flush() string {
	text := string(d.pending)
	d.pending, d.start = d.pending[:0], true
	return text
}

func (d *Decoder) appendText(dst []byte, id int32) []byte {
	n := len(dst)
	switch d.t.Type(id) {
	case Control, Unknown:
		if d.special {
			dst = d.t.appendPiece(dst, id)
		}
		d.restart(d.special)
		return dst
	case UserDefined:
		d.restart(true)
		return d.t.appendPiece(dst, id)
	}
	dst = d.t.appendPiece(dst, id)
	if len(dst) == n {
		return dst
	}
	if dst[n] == ' ' && (d.start && d.t.spec.spaced() || d.t.spec.Algorithm == WordPiece && closes(dst[n+1:])) {
		dst = append(dst[:n], dst[n+1:]...)
	}
	d.start = false
	return dst
}

// closes reports whether a word is a punctuation mark without a space before it. BERT's
// vocabularies do not record where there was one.
func closes(word []byte) bool { return len(word) == 1 && strings.IndexByte(".,?!", word[0]) >= 0 }

// restart is called after a special token: the text behind it has a prefix of its own, unless only
// the start of a text has one. A start token at that start changes nothing.
func (d *Decoder) restart(shown bool) {
	if d.t.spec.Algorithm == WordPiece {
		d.start = d.start && !shown
		return
	}
	d.start = d.start || d.t.spec.Prefix != PrefixMissingFirst
}
