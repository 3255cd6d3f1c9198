package device

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// plausible says what random bits are or'ed with, three of each byte's low ones and its sign
// being left of them: as halves, floats, or scales and integers of a block the bytes are
// then finite, of either sign, and neither huge nor denormal.
func plausible(t dtype.Type) uint64 {
	if t == dtype.F32 {
		return 0x3838383838383838 // 4e-5 to 0.7
	}
	return 0x2828282828282828 // halves of 0.03 to 0.12, bytes of 40 to 47 and -88 to -81
}

const randomBits = 0x8787878787878787

// RandomiseCaches writes random contents into the first blocks of all caches and states. A step that
// reads them takes as long as it does with real ones, and nobody had to compute those:
// this is for timing at a depth.
func (s *Instance) RandomiseCaches(blocks int, rng *rand.Rand) error {
	s.running.Lock()
	defer s.running.Unlock()
	s.executable.device.lock()
	defer s.executable.device.unlock()
	switch {
	case s.closed:
		return fmt.Errorf("device: the session is %w", ErrClosed)
	case blocks < 0 || blocks > s.blocks:
		return fmt.Errorf("device: %d cache blocks of %d", blocks, s.blocks)
	}
	for i := range s.executable.plan.Buffers {
		b := &s.executable.plan.Buffers[i]
		if !b.Kind.Kept() {
			continue
		}
		fixed := plausible(b.DType)
		n := s.sizes[i] / int64(s.blocks) * int64(blocks)
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
