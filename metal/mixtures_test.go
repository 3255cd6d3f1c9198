//go:build fakemetal && linux

package metal_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// brings is what a step has of a sequence: its next tokens.
type brings struct {
	sequence, tokens int
	rows             batch.Rows
}

// shares lets a sequence that has nothing yet go on from a copy of another's first block.
type shares struct{ from, to int }

// meeting is one step, after some copies.
type meeting struct {
	copies []shares
	brings []brings
}

// each brings a next token of each of the first sequences.
func each(sequences int, copies ...shares) meeting {
	m := meeting{copies: copies}
	for i := range sequences {
		m.brings = append(m.brings, brings{i, 1, batch.All})
	}
	return m
}

// alone is a prompt that fills its phase, as the arena's offsets are for so many, and a token
// after it.
var alone = []meeting{{brings: []brings{{0, 16, batch.All}}}, each(1)}

// together lets ten sequences meet in every phase that tiny plans have for them: pieces of
// prompts beside tokens and rows of drafts, a token each of few and of many, one by itself.
// Rows are asked for of all tokens, of none in the middle of a prompt, of the last.
var together = []meeting{
	{brings: []brings{{3, 5, batch.All}, {1, 1, batch.Last}, {0, 7, batch.None}, {2, 3, batch.Last}}},
	{brings: []brings{{0, 9, batch.All}, {3, 4, batch.All}, {2, 1, batch.Last}, {4, 1, batch.Last}, {1, 1, batch.All}}},
	each(8, shares{3, 5}, shares{0, 6}),
	each(10),
	each(1),
	{brings: []brings{{9, 11, batch.Last}, {0, 5, batch.All}}},
}

// ofMany are options for ten sequences over blocks that none of them has in order.
func ofMany(o smelt.Options) smelt.Options {
	o.Sequences = 10
	if o.Block == 0 {
		o.Block = 8
	}
	return o
}

// ran is what steps have computed, in order, and the phase of each.
type ran struct {
	logits []float32
	chosen []int32
	phases []int
}

// begins reports whether this is how the other began.
func (r *ran) begins(other *ran) bool {
	return slices.Equal(r.logits, other.logits[:min(len(r.logits), len(other.logits))]) &&
		slices.Equal(r.chosen, other.chosen[:min(len(r.chosen), len(other.chosen))])
}

// runSteps runs steps of a program's sequences, up to the first that does not give what it gave
// in like, if that is given. ready, if given, is called when all is loaded.
func runSteps(t testing.TB, program *smelt.Program, on string, o device.Options, steps []meeting, ready func(), like *ran) (out ran) {
	t.Helper()
	loaded, err := program.Load(smelt.Device{Name: on, Threads: o.Threads, Options: o})
	require.NoError(t, err)
	defer loaded.Close()
	plan, sequences := program.Plan, program.Options().Sequences
	blocks := len(batch.Contiguous(plan.Block(), plan.Context))
	runner, err := engine.NewRunner(plan, loaded.OnDevice(), blocks*sequences)
	require.NoError(t, err)
	places := rand.New(rand.NewPCG(7, 7)).Perm(blocks * sequences)
	if sequences == 1 {
		slices.Sort(places)
	}
	all := make([]batch.Piece, sequences)
	for i, b := range places {
		s := &all[i%sequences]
		s.Blocks = append(s.Blocks, int32(b))
	}
	if ready != nil {
		ready()
	}
	for _, step := range steps {
		copies := make([]batch.Copy, len(step.copies))
		for i, c := range step.copies {
			from, to := &all[c.from], &all[c.to]
			copies[i] = batch.Copy{From: from.Blocks[0], To: to.Blocks[0]}
			to.Start = min(from.Start+len(from.Tokens), plan.Block())
		}
		if len(copies) > 0 {
			require.NoError(t, runner.Copy(t.Context(), copies...))
			out.phases = append(out.phases, runner.Instance().Counters().Phase)
		}
		pieces := make([]batch.Piece, len(step.brings))
		for i, b := range step.brings {
			s := &all[b.sequence]
			s.Start, s.Tokens, s.Rows = s.Start+len(s.Tokens), nil, b.rows
			for at := s.Start; at < s.Start+b.tokens; at++ {
				s.Tokens = append(s.Tokens, int32(1+31*at+57*b.sequence)%int32(plan.Vocab))
			}
			pieces[i] = *s
		}
		require.NoError(t, runner.Run(t.Context(), pieces...))
		logits, err := runner.Logits()
		require.NoError(t, err)
		chosen, err := runner.Chosen()
		require.NoError(t, err)
		out.logits, out.chosen = append(out.logits, logits...), append(out.chosen, chosen...)
		out.phases = append(out.phases, runner.Instance().Counters().Phase)
		if like != nil && !out.begins(like) {
			break
		}
	}
	return out
}

// TestMixturesThroughTheBridge runs mixtures of sequences over shuffled blocks in all phases
// of their plans: over the bridge each has the bits that the emulator gives, in whatever
// order dispatches run, and nothing reads what nobody wrote.
func TestMixturesThroughTheBridge(t *testing.T) {
	ways := map[string]smelt.Options{
		"f16":       {Level: 1},
		"q8_0":      {Level: 1, KV: dtype.Q8_0},
		"same bits": {Level: 1, SameBits: true},
		"xsplit":    fixture.With(smelt.Options{Level: 1, Block: 16}, compiler.Knobs{Debug: xsplit(t)}),
		"O0":        {Level: smelt.Unoptimised},
	}
	for _, name := range []string{"tiny-qwen3", "tiny-llama", mixture} {
		for way, options := range ways {
			if name == mixture && way != "f16" && way != "same bits" { // which group tokens by their experts, and do not
				continue
			}
			if name == "tiny-llama" && way == "O0" && !everyBarrier() { // the slowest, as that of the other model
				continue
			}
			t.Run(name+"/"+way, func(t *testing.T) {
				program := tiny(t, name, ofMany(options))
				want := runSteps(t, program, "emu", device.Options{}, together, nil, nil)
				phases := map[int]bool{}
				for _, ph := range want.phases {
					phases[ph] = true
				}
				require.Len(t, phases, len(program.Plan.Phases), "%v", slices.Sorted(maps.Keys(phases)))
				fake(t, fakemetal.Options{Poison: true, Unwritten: true, Shuffle: true, Seed: 1, DelayUS: 100}) // misuse would end the process
				require.Equal(t, want, runSteps(t, program, "metal", device.Options{Poison: true}, together, nil, nil))
				nothingLeft(t)
			})
		}
	}
}
