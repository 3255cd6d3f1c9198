package stops

import "github.com/smelt-ml/smelt/models/tokenizer"

// Text is generated text that ends with a stop token or with a stop text of its [Finder].
type Text struct {
	tokenizer *tokenizer.Tokenizer // nil: tokens have no text, and none ends the text
	decoder   *tokenizer.Decoder   // nil: only tokens end the text
	finder    *Finder
	ignore    bool
}

// TextOptions are the options of NewText.
type TextOptions struct {
	Stop []string
	// IgnoreStop continues after stop tokens.
	IgnoreStop bool
	// NoText skips decoding if there is no stop text to find.
	NoText bool
}

// NewText returns a Text that continues the given tokens. Without a tokenizer all text is empty,
// and stop texts are not allowed.
func NewText(t *tokenizer.Tokenizer, o TextOptions, before ...[]int32) *Text {
	x := &Text{tokenizer: t, finder: New(o.Stop...), ignore: o.IgnoreStop}
	if t == nil || o.NoText && x.finder.Len() == 0 {
		return x
	}
	x.decoder = t.NewDecoder(false)
	for _, ids := range before {
		x.decoder.Prime(ids)
	}
	return x
}

// Next adds a token; last reports whether it is the last. It returns the text that is final,
// whether the token or a complete stop text ends the text, and that stop text or "".
func (x *Text) Next(id int32, last bool) (out string, ended bool, stop string) {
	if x.tokenizer == nil {
		return "", false, ""
	}
	ended = x.tokenizer.IsStop(id) && !x.ignore
	if x.decoder == nil {
		return "", ended, ""
	}
	piece := x.decoder.Next(id)
	if ended || last {
		piece += x.decoder.Flush()
	}
	out, stop = x.finder.Next(piece, ended || last)
	return out, ended || stop != "", stop
}

// Rest returns the text that is held back.
func (x *Text) Rest() string {
	if x.decoder == nil {
		return ""
	}
	out, _ := x.finder.Next(x.decoder.Flush(), true)
	return out
}
