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
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
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
					continue
				}
				for _, block := range []int{0, 1, 8} {
					opts := parityOptions(t, device)
					opts.Block, opts.SameBits = block, true // else plans for GPUs take other kernels for a token by itself
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

// TestStatesOfTexts: texts that are embedded together have what each has alone.
func TestStatesOfTexts(t *testing.T) {
	texts := [][]int32{{1, 2, 3, 4, 5, 6, 7}, {3}, {9, 8, 7, 6}}
	for _, family := range stateful {
		opts := parityOptions(t, "cpu")
		opts.Embeddings, opts.SameBits = true, true
		l := fixture.Load(t, fixture.Case(t, parity.Cases(family)[0], "f16"), opts, smelt.Device{Name: "cpu"})
		e, err := l.NewEmbedder("last")
		require.NoError(t, err)
		defer e.Close()
		together, err := e.Embed(t.Context(), texts)
		require.NoError(t, err)
		for i := range texts {
			alone, err := e.Embed(t.Context(), texts[i:i+1])
			require.NoError(t, err)
			require.Equal(t, alone[0], together[i], "text %d of %s", i, family)
		}
	}
}

// TestStatesNeedFewBlocks: where no cache grows with its blocks, bytes for more of them make no more.
func TestStatesNeedFewBlocks(t *testing.T) {
	opts := parityOptions(t, "cpu")
	opts.Context, opts.Block = 64, 8
	l := fixture.Load(t, fixture.Case(t, parity.Cases("mamba2")[0], "f16"), opts, smelt.Device{Name: "cpu"})
	e := fixture.Engine(t, l, smelt.EngineOptions{Sequences: 2, CacheBytes: 1 << 30})
	require.Equal(t, 2*e.Context()/e.BlockSize(), e.Stats().Blocks)
}

// TestStatesAreChecked: a step that would read or write no state, or one that another sequence writes, is
// refused before a kernel runs.
func TestStatesAreChecked(t *testing.T) {
	opts := parityOptions(t, "cpu")
	opts.Sequences, opts.Block = 2, 5
	run := onDevice(t, fixture.Load(t, fixture.Case(t, parity.Cases("lfm2")[0], "f16"), opts, smelt.Device{Name: "cpu"}), 4)
	pieces := []batch.Piece{
		{Tokens: []int32{1, 2}, Blocks: []int32{0}},
		{Tokens: []int32{3}, Blocks: []int32{1}, State: batch.State{Write: 1}},
	}
	for want, states := range map[string][]int32{
		"": {-1, 0, -1, 1},
		"sequence 0 reads recurrent state 4 and writes 0; there are 4":  {4, 0, -1, 1},
		"sequence 1 reads recurrent state -1 and writes 4; there are 4": {-1, 0, -1, 4},
		"sequence 1 reads recurrent state 1 and writes -1":              {-1, 0, 1, -1},
		"sequence 0 writes recurrent state 0, which sequence 1 has too": {-1, 0, 0, 1},
		"sequence 0 writes recurrent state 3, which sequence 1 has":     {-1, 3, -1, 3},
	} {
		_, _, err := run(func(s *batch.Step) { s.Inputs[sym.States] = states }, pieces...)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, device.ErrStep)
		require.ErrorContains(t, err, want)
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
