package ir

// RouterScore is the function of a router's logits by which experts are compared and weighted.
// Kernels select it by its number.
type RouterScore uint8

// The scores, in the order of GGUF's expert_gating_func.
const (
	NoScore RouterScore = iota
	// SoftmaxScore is the softmax over all experts (Shazeer et al., "Outrageously Large Neural
	// Networks", 2017, without noise).
	SoftmaxScore
	// SigmoidScore is 1 / (1 + exp(−x)) (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024).
	SigmoidScore
	// ChosenSoftmaxScore compares logits; the weights are the softmax over the chosen ones. It equals
	// SoftmaxScore with normalised weights, since softmax's denominator cancels.
	ChosenSoftmaxScore
	// SqrtSoftplusScore is √ln(1 + exp(x)).
	SqrtSoftplusScore

	numScores
)

var scoreNames = [numScores]string{
	NoScore: "none", SoftmaxScore: "softmax", SigmoidScore: "sigmoid", ChosenSoftmaxScore: "chosen_softmax", SqrtSoftplusScore: "sqrt_softplus",
}

// RouterScores returns all scores in order of their numbers.
func RouterScores() []RouterScore {
	return []RouterScore{SoftmaxScore, SigmoidScore, ChosenSoftmaxScore, SqrtSoftplusScore}
}

// String returns the name in the text form.
func (s RouterScore) String() string {
	return nameOf(scoreNames[:], "score", s)
}

// UnmarshalText is the inverse of String.
func (s *RouterScore) UnmarshalText(name []byte) error {
	return numberOf(scoreNames[:], "score", name, s)
}

// Factor returns the factor of the weights.
func (a RouterAttr) Factor() float64 {
	if a.Scale == 0 {
		return 1
	}
	return a.Scale
}

// LogitFactor returns the factor of the logits.
func (a RouterAttr) LogitFactor() float64 {
	if a.Sharpness == 0 {
		return 1
	}
	return a.Sharpness
}

// vectors returns the number of operands behind the logits.
func (a RouterAttr) vectors() int {
	n := 0
	for _, has := range []bool{a.Bias, a.Gains} {
		if has {
			n++
		}
	}
	return n
}

// Vectors names the operands behind the logits; absent ones are nil.
func (a RouterAttr) Vectors(in []*Value) (bias, gains *Value) {
	rest := in[1:]
	if a.Bias {
		bias, rest = rest[0], rest[1:]
	}
	if a.Gains {
		gains = rest[0]
	}
	return bias, gains
}
