package device

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/plan"
)

// plausible returns the bits that are or'ed into random ones, of which randomBits keeps the low
// three and the sign of each byte. As halves, floats, or scales and integers of a block, the
// results are finite, of either sign, and neither huge nor denormal.
func plausible(t dtype.Type) uint64 {
	if t == dtype.F32 {
		return 0x3838383838383838 // 4e-5 to 0.7
	}
	return 0x2828282828282828 // halves of 0.03 to 0.12, bytes of 40 to 47 and -88 to -81
}

const randomBits = 0x8787878787878787

// RandomiseCaches fills the first blocks of all caches, and as many recurrent states, with
// random numbers, so that steps can be timed at a depth without computing the context.
func (s *Instance) RandomiseCaches(blocks int, rng *rand.Rand) error {
	s.running.Lock()
	defer s.running.Unlock()
	s.executable.device.lock()
	defer s.executable.device.unlock()
	switch {
	case s.closed:
		return s.executable.device.named(fmt.Errorf("the session is %w", ErrClosed))
	case blocks < 0 || blocks > s.blocks:
		return s.executable.device.named(fmt.Errorf("%d cache blocks of %d", blocks, s.blocks))
	}
	for i := range s.executable.plan.Buffers {
		b := &s.executable.plan.Buffers[i]
		if !b.Kind.Kept() {
			continue
		}
		fixed := plausible(b.DType)
		n := s.sizes[i] / int64(s.blocks) * int64(blocks)
		if one, _ := b.Bytes.IsConst(); b.Kind == plan.State {
			n = min(one*int64(blocks), s.sizes[i])
		}
		to := s.executable.device.driver.Contents(s.buffers[i], n)
		for ; len(to) >= 8; to = to[8:] {
			binary.LittleEndian.PutUint64(to, rng.Uint64()&randomBits|fixed)
		}
		for j := range to {
			to[j] = byte(rng.Uint64()&randomBits | fixed)
		}
	}
	return nil
}
