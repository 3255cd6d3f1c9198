package kernels

// Hint is what a native kernel may be told of how to go about its work: a number of
// kernels/abi/abi.h, which says what each means. No hint changes a bit of a result.
type Hint int

// The hints.
const (
	HintStreams Hint = iota
	HintAhead
	HintPiece
	HintPairs
	NumHints = iota
)

var hintNames = [NumHints]string{"streams", "ahead", "piece", "pairs"}

// String returns the lower-case name.
func (h Hint) String() string { return hintNames[h] }
