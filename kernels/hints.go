package kernels

// Hint is a tuning parameter of native kernels, such as the prefetch distance; kernels/abi/abi.h
// defines each. No hint changes a bit of a result.
type Hint int

// The hints, with the numbers of abi.h.
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
