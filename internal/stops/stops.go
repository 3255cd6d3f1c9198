// Package stops decodes generated tokens to text up to a stop text. A [Finder] finds stop texts in
// text that arrives in pieces: a possible beginning of one is held back until more text follows, so
// that stops are found across pieces and no part of one is emitted. A [Text] decodes tokens and
// applies a Finder.
//
//	f := stops.New("\n\n", "User:")
//	f.Next("one Us", false)   // "one ", ""
//	f.Next("er: two", false)  // "", "User:"
package stops

import "strings"

// Finder finds stop texts in text that arrives in pieces. Without stop texts it returns every piece
// unchanged.
type Finder struct {
	texts []string
	held  string // possible beginning of a stop text
}

// New returns a Finder of the given texts; empty ones are ignored.
func New(texts ...string) *Finder {
	f := &Finder{}
	for _, text := range texts {
		if text != "" {
			f.texts = append(f.texts, text)
		}
	}
	return f
}

// Len returns the number of stop texts.
func (f *Finder) Len() int { return len(f.texts) }

// Next adds a piece; last reports whether it is the last. It returns the text before any possible
// stop, and the first complete stop text, or "": of those at the same position the one given first
// to New. Text behind a stop is dropped.
func (f *Finder) Next(piece string, last bool) (out, stop string) {
	if len(f.texts) == 0 {
		return piece, ""
	}
	f.held += piece
	at := -1
	for _, text := range f.texts {
		if i := strings.Index(f.held, text); i >= 0 && (at < 0 || i < at) {
			at, stop = i, text
		}
	}
	if at >= 0 {
		out, f.held = f.held[:at], ""
		return out, stop
	}
	keep := 0
	for _, text := range f.texts {
		for n := min(len(text)-1, len(f.held)); n > keep && !last; n-- {
			if strings.HasSuffix(f.held, text[:n]) {
				keep = n
			}
		}
	}
	cut := len(f.held) - keep
	out, f.held = f.held[:cut], f.held[cut:]
	return out, ""
}
