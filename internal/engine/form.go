package engine

// Form keeps the text of a request to a form, by its tokens. Its methods are called by one
// goroutine at a time, and not while Next runs.
type Form interface {
	// Prepare begins to find out what may follow the sequence, which Next asks for. It is
	// called before the step that Next gets a row of.
	Prepare()
	// Ready tells whether Next would not wait for that.
	Ready() bool
	// Known tells whether what may follow is known without more ado: nothing is guessed else.
	Known() bool
	// Forced are tokens that follow the one which Next has returned, whatever the model says:
	// they take no row.
	Forced() []int32
	// Guess appends at most so many tokens that probably follow, as the form leaves no other
	// text.
	Guess(dst []int32, most int) []int32
	// Allows is how many of some tokens may follow, one after the other, as far as what may
	// follow each is known.
	Allows(tokens []int32) int
	// Limit takes from logits, the first of a row, the tokens that may not follow some: they
	// are -Inf then. It reports whether that is known, and any are left.
	Limit(after []Proposal, logits []float32) (ok bool, err error)
}
