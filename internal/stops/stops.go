// Package stops makes text of the tokens that a model generates, up to what stops it. A [Finder]
// finds texts that end another while it comes in pieces: what may be the beginning of one waits
// for what follows, so that a stop is found wherever pieces are cut, and nothing of it is given
// out. A [Text] decodes tokens and looks for stops in that.
//
//	f := stops.New("\n\n", "User:")
//	f.Next("one Us", false)   // "one ", ""
//	f.Next("er: two", false)  // "", "User:"
package stops

import "strings"

// Finder finds texts in one that comes in pieces. Without texts it passes everything on.
type Finder struct {
	texts []string
	held  string // what may be the beginning of one
}

// New finds these; an empty one stops nothing.
func New(texts ...string) *Finder {
	f := &Finder{}
	for _, text := range texts {
		if text != "" {
			f.texts = append(f.texts, text)
		}
	}
	return f
}

// Len is the number of texts.
func (f *Finder) Len() int { return len(f.texts) }

// Next takes a piece, the last one or not. It returns what is certain to come before any stop,
// and the stop that comes first, if one is whole: of those at one place the first that New was
// given. Nothing that comes after it is given out.
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
