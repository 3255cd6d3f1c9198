package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// FillRandom makes the sequence n tokens long, with random contents of the caches in the
// place of its tokens: quick, and as good as tokens where only the time of what follows
// matters.
func (s *Sequence) FillRandom(n int, rng *rand.Rand) error {
	if n < 0 || n > s.Context() {
		return fmt.Errorf("%w: %d tokens of %d", ErrContext, n, s.Context())
	}
	if err := s.r.run.RandomiseCaches((n+s.r.block-1)/s.r.block, rng); err != nil {
		return err
	}
	s.tokens, s.length, s.reached = slices.Repeat([]int32{0}, n), n, n
	return nil
}
