package integration_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// stateful lists the families that have recurrent states.
var stateful = []string{"lfm2", "qwen35", "mamba2", "falcon-h1"}

// TestStatesGoBack: what is fed to a sequence, cut off it, fed anew or broken off in the middle
// leaves the logits that the sequence as it stands has, bit by bit, whatever its blocks.
func TestStatesGoBack(t *testing.T) {
	for _, family := range stateful {
		for _, c := range parity.Cases(family)[:2] {
			path := fixture.Case(t, c, "f16")
			for _, device := range parityWays {
				if device == "emu" && !testfiles.Full("models") {
					continue // which takes other kernels for a token by itself
				}
				for _, block := range []int{0, 1, 8} {
					opts := parityOptions(t, device)
					opts.Block = block
					s, whole := fixture.Session(t, path, device, opts), fixture.Session(t, path, device, opts)
					r := rand.New(rand.NewPCG(uint64(block), 1))
					for range 100 {
						var got []float32
						var err error
						switch more := s.Context() - s.Length(); r.IntN(4) {
						case 0:
							s.Truncate(r.IntN(s.Length() + 1))
							continue
						case 1: // most are broken off between two dispatches
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(500))*time.Microsecond)
							if got, err = s.Feed(ctx, slices.Repeat([]int32{3}, min(12, more))); err != nil {
								cancel()
								continue
							}
							cancel()
						case 2:
							if got, err = s.Feed(t.Context(), nil); s.Length() == 0 {
								continue
							}
						default:
							ids := make([]int32, min(1+r.IntN(12), more))
							for i := range ids {
								ids[i] = int32(r.IntN(parity.Vocab - 8))
							}
							if got, err = s.Feed(t.Context(), ids); s.Length() == 0 {
								continue
							}
						}
						require.NoError(t, err)
						got = slices.Clone(got)
						whole.Reset()
						want, err := whole.Feed(t.Context(), s.Tokens())
						require.NoError(t, err)
						require.Equal(t, want, got, "%s on %s, blocks of %d, after %d tokens", c.Name, device, block, s.Length())
					}
				}
			}
		}
	}
}

// TestStatesAreNotGuessed: an engine that shall guess, or a draft, with recurrent states is
// refused by name.
func TestStatesAreNotGuessed(t *testing.T) {
	for _, family := range stateful {
		l := fixture.Load(t, fixture.Case(t, parity.Cases(family)[0], "f16"), fixture.Options(t, "cpu", dtype.F16), smelt.Device{Name: "cpu"})
		other := fixture.Load(t, fixture.Case(t, parity.Cases("llama")[0], "f16"), fixture.Options(t, "cpu", dtype.F16), smelt.Device{Name: "cpu"})
		for _, err := range []error{
			refused(l, smelt.EngineOptions{Speculate: engine.SpeculateNgram}), refused(l, smelt.EngineOptions{Draft: other}), refused(other, smelt.EngineOptions{Draft: l}),
		} {
			require.ErrorContains(t, err, "drafts cannot be made so")
			require.ErrorContains(t, err, "has recurrent states")
		}
	}
}

func refused(l *smelt.Loaded, o smelt.EngineOptions) error {
	e, err := l.NewEngine(o)
	if err == nil {
		err = errors.Join(errors.New("it is not"), e.Close())
	}
	return err
}
