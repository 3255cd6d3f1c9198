package engine

// Constraint keeps the text of a request to a language, by its tokens. Its methods are called by
// one goroutine at a time, and not while Next runs.
type Constraint interface {
	// Prepare begins to find out what may follow the sequence, which Next asks for. It is
	// called before the step that Next gets a row of.
	Prepare()
	// Ready reports whether Next would not wait for that.
	Ready() bool
	// Known reports whether what may follow is known at once: nothing is guessed else.
	Known() bool
	// Forced returns the tokens that follow the one which Next has returned, whatever the
	// model says: they take no row.
	Forced() []int32
	// Guess appends at most that many tokens that probably follow, as the constraint leaves no
	// other text.
	Guess(dst []int32, most int) []int32
	// Allows returns how many of some tokens may follow, one after the other, as far as what
	// may follow each is known.
	Allows(tokens []int32) int
	// Limit sets the logits of tokens that may not follow some to -Inf, the first of a row. It
	// reports whether that is known, and any are left.
	Limit(after []Proposal, logits []float32) (ok bool, err error)
}
