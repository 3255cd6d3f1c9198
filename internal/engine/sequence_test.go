package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	_ "github.com/smelt-ml/smelt/device/cpu"
	_ "github.com/smelt-ml/smelt/device/emu"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

const vocab = 40

// shapes gives weights whatever shape is asked for.
type shapes struct{}

func (shapes) Weight(_ string, want []int) (dtype.Type, []int, bool) { return dtype.F32, want, true }

// following starts a sequence of a model without layers: its logits after a token
// are a row of the head.
func following(t *testing.T, device string, head func(after, token int) float32, chooses bool) *Sequence {
	plan, program := loadFollowing(t, device, tables(head), chooses, lower.Options{Context: 64},
		lower.Range{Name: "prefill", MinT: 2, MaxT: 5}, lower.Range{Name: "decode", MinT: 1, MaxT: 1})
	s, err := NewSequence(plan, program)
	require.NoError(t, err)
	return s
}

// tables are the model's weights, by name, row and column: each token is embedded as a
// vector of its own.
func tables(head func(after, token int) float32) func(name string, i, j int) float32 {
	return func(name string, i, j int) float32 {
		switch {
		case name == "head":
			return head(j, i)
		case i == j:
			return 1
		}
		return 0
	}
}

// loadFollowing loads that model for steps of some phases.
func loadFollowing(t *testing.T, on string, weights func(name string, i, j int) float32, chooses bool, opts lower.Options, phases ...lower.Range) (*plan.Plan, *device.Executable) {
	f, err := ir.Build("following", shapes{}, ir.Options{Block: 64}, func(b *ir.Builder) {
		x := b.Embed(b.Input(sym.Tokens), b.Weight("embedding", vocab, vocab))
		logits := b.Linear(b.GatherRows(x), b.Weight("head", vocab, vocab))
		b.Return(Logits, logits)
		if chooses {
			b.Return(Next, b.Argmax(logits))
		}
	})
	require.NoError(t, err)
	target, err := lower.NewTarget("cpu")
	require.NoError(t, err)
	for i := range phases {
		phases[i].Func = f
	}
	plan, err := lower.Lower(f.Name, phases, target, opts)
	require.NoError(t, err)
	d, err := device.Open(on, device.Options{Poison: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	program, err := d.Load(plan, func(name string) ([]byte, dtype.Type, error) {
		raw := make([]byte, 0, 4*vocab*vocab)
		for i := range vocab {
			for j := range vocab {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(weights(name, i, j)))
			}
		}
		return raw, dtype.F32, nil
	})
	require.NoError(t, err)
	return plan, program
}

// TestProfile times a prompt of two steps: every dispatch of each, and the logits that
// Feed gives afterwards are what they would be without it.
func TestProfile(t *testing.T) {
	s := following(t, "cpu", func(after, token int) float32 { return float32(token * (after + 1)) }, false)
	_, err := s.Feed(t.Context(), []int32{3, 4})
	require.NoError(t, err)
	steps, err := s.Profile(t.Context(), []int32{1, 2, 3, 4, 5, 6})
	require.NoError(t, err)
	require.Len(t, steps, 2)
	require.Equal(t, 8, s.Length())
	for i, want := range []sym.Sizes{
		{sym.T: 5, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 7},
		{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 8},
	} {
		require.Equal(t, want, steps[i].Sizes)
		require.Len(t, steps[i].Nanoseconds, len(s.r.plan.Phases[steps[i].Phase].Dispatches))
	}
	require.Equal(t, []int{0, 1}, []int{steps[0].Phase, steps[1].Phase})
	_, err = s.Feed(t.Context(), []int32{7})
	require.NoError(t, err)
	require.Nil(t, s.Instance().Counters().Nanoseconds)
	_, err = s.Profile(t.Context(), make([]int32, 99))
	require.ErrorIs(t, err, ErrContext)
}

// TestNext feeds one token and several, over more than one step, and compares what
// the device chooses with what the logits say, row by row.
func TestNext(t *testing.T) {
	for _, device := range []string{"cpu", "emu"} {
		t.Run(device, func(t *testing.T) {
			s := following(t, device, func(after, token int) float32 {
				return float32((token * 7 % 13) * (after % 5)) // with equals, and rows of zeros
			}, true)
			require.True(t, s.Chooses())
			for _, ids := range [][]int32{{3}, {5}, {1, 2, 3, 4, 6, 7, 8, 9, 39}, {10, 11}, {10}} {
				before := s.Length()
				logits, err := s.Feed(t.Context(), ids)
				require.NoError(t, err)
				want, err := Greedy(logits)
				require.NoError(t, err)
				s.Truncate(before)
				got, err := s.Next(t.Context(), ids)
				require.NoError(t, err)
				require.Equal(t, want, got, ids)
				require.Equal(t, before+len(ids), s.Length())

				s.Truncate(before)
				require.NoError(t, s.Score(t.Context(), ids, func(i int, l []float32) error {
					rows, err := s.Instance().OutputInts(Next)
					require.NoError(t, err)
					want, err := Greedy(l)
					require.NoError(t, err)
					require.Equal(t, want, rows[i%5], "row %d", i) // steps of 5
					return nil
				}))
			}
			_, err := s.Instance().Output(Next)
			require.ErrorContains(t, err, `output "next" is i32, not f32`)
			_, err = s.Instance().OutputInts(Logits)
			require.ErrorContains(t, err, `output "logits" is f32, not i32`)
		})
	}
}

// TestAppended: tokens that no step has computed come before what is fed next, also
// where that is nothing, and are no rows of Score's.
func TestAppended(t *testing.T) {
	head := func(after, token int) float32 { return float32((token*7 + after*3) % 11) }
	s := following(t, "cpu", head, true)
	_, err := s.Feed(t.Context(), nil)
	require.ErrorContains(t, err, "no tokens to feed")
	after := func(ids ...int32) []float32 {
		fresh := following(t, "cpu", head, true)
		l, err := fresh.Feed(t.Context(), ids)
		require.NoError(t, err)
		return l
	}
	s.Append(3, 5)
	require.Equal(t, 2, s.Length())
	l, err := s.Feed(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, after(3, 5), l)
	l, err = s.Feed(t.Context(), nil) // the last one again
	require.NoError(t, err)
	require.Equal(t, after(3, 5), l)

	s.Append(1, 2, 3, 4, 5, 6, 7) // more than a step takes
	rows := 0
	require.NoError(t, s.Score(t.Context(), []int32{8, 9}, func(i int, l []float32) error {
		require.Equal(t, rows, i)
		require.Equal(t, after(int32(8+i)), l)
		rows++
		return nil
	}))
	require.Equal(t, 2, rows)
	require.Equal(t, []int32{3, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9}, s.Tokens())

	s.Append(7)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Next(ctx, []int32{1})
	require.Error(t, err)
	require.Equal(t, 12, s.Length(), "what was fed is taken back, and what was appended stays")
	_, err = s.Next(t.Context(), make([]int32, 53))
	require.ErrorIs(t, err, ErrContext)
	require.ErrorContains(t, err, "it holds 11 tokens, 54 more do not fit into 64")
	s.Truncate(11)
	l, err = s.Feed(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, after(9), l)
}

func TestNextOfNaN(t *testing.T) {
	for _, device := range []string{"cpu", "emu"} {
		t.Run(device, func(t *testing.T) {
			s := following(t, device, func(_, token int) float32 {
				if token == 17 {
					return float32(math.NaN())
				}
				return float32(token)
			}, true)
			_, err := s.Next(t.Context(), []int32{4, 5})
			require.ErrorIs(t, err, ErrNaN)
			require.ErrorContains(t, err, "after 2 tokens")
			require.Zero(t, s.Length(), "the tokens are taken back")
		})
	}
}

func TestNextIsMissing(t *testing.T) {
	s := following(t, "cpu", func(after, token int) float32 { return float32(token - after) }, false)
	require.False(t, s.Chooses())
	_, err := s.Next(t.Context(), []int32{4})
	require.ErrorContains(t, err, fmt.Sprintf("the plan of following returns no %q", Next))
	logits, err := s.Feed(t.Context(), []int32{4})
	require.NoError(t, err)
	best, err := Greedy(logits)
	require.NoError(t, err)
	require.EqualValues(t, vocab-1, best)
}
