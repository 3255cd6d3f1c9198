package stops

import "github.com/smelt-ml/smelt/models/tokenizer"

// Text is one that is generated token by token, up to what stops it: a token that ends texts, or
// a text that its [Finder] finds.
type Text struct {
	tokenizer *tokenizer.Tokenizer // nil: tokens have no text, and none ends one
	decoder   *tokenizer.Decoder   // nil: only tokens end the text
	finder    *Finder
	ignore    bool
}

// TextOptions say how a text is made.
type TextOptions struct {
	Stop []string
	// IgnoreStop goes on after tokens that end a text.
	IgnoreStop bool
	// NoText makes none where there is no Stop to be found.
	NoText bool
}

// NewText begins a text after tokens that come one after the other. Without a tokenizer, which
// has no use for stops then, all of it is empty.
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

// Next returns the text that is certain with a token, the last one or not; whether the token, or
// a stop that is whole with it, ends the text; and the stop, or "".
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

// Rest returns what was held back.
func (x *Text) Rest() string {
	if x.decoder == nil {
		return ""
	}
	out, _ := x.finder.Next(x.decoder.Flush(), true)
	return out
}
