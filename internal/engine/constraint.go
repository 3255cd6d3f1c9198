package engine

// Constraint restricts the text of a request to a language, token by token. Its methods are
// called by one goroutine at a time, and not while [Request].Next runs.
type Constraint interface {
	// Prepare starts computing which tokens may follow the sequence. It is called before the
	// step whose row Next receives.
	Prepare()
	// Ready reports whether Next would return without waiting for that computation.
	Ready() bool
	// Known reports whether the tokens that may follow are known without computation. Only then
	// are tokens guessed.
	Known() bool
	// Forced returns the tokens without alternative after the one that Next returned. They need
	// no row of logits.
	Forced() []int32
	// Guess appends at most most tokens that probably follow, because the constraint leaves no
	// other text.
	Guess(dst []int32, most int) []int32
	// Allows returns the length of the longest prefix of tokens that may follow, ending where
	// the constraint does not know what may follow.
	Allows(tokens []int32) int
	// Limit sets the logits of tokens that may not follow the tokens in after to -Inf in the
	// first row. It reports whether the allowed tokens are known and any is left.
	Limit(after []Proposal, logits []float32) (ok bool, err error)
}
