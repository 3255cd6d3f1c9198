package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// FillRandom extends or cuts the sequence to n tokens with random cache contents. That is faster
// than prefill, and suffices where only the time of later steps matters.
func (s *Sequence) FillRandom(n int, rng *rand.Rand) error {
	if n < 0 || n > s.Context() {
		return fmt.Errorf("%w: %d tokens of %d", ErrContext, n, s.Context())
	}
	if err := s.r.run.RandomiseCaches((n+s.r.block-1)/s.r.block, rng); err != nil {
		return err
	}
	s.tokens, s.length, s.cut, s.states = slices.Repeat([]int32{0}, n), n, n, nil
	if s.r.stateful && n > 0 {
		s.states = leftStates{{length: n, kept: true}}
	}
	return nil
}
