package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// TestOwners checks that a map gives each token and tile the sequence that a search in cu_seqlens
// finds, for sequences with Least to Most tokens, and that Count and Bytes bound the map.
func TestOwners(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		o := Owners{Tile: []int64{1, 2, 4, 8, 32}[r.IntN(5)], Least: 1, Most: MaxTokens}
		if r.IntN(2) == 0 {
			o.Least = 1 + r.Int64N(5)
			o.Most = o.Least + r.Int64N(40)
		}
		lens := make([]int32, 1+r.IntN(9))
		starts := []int32{0}
		for i := range lens {
			lens[i] = int32(r.IntN([]int{2, 10, 100}[r.IntN(3)]))
			starts = append(starts, starts[i]+lens[i])
		}
		sizes := sym.Sizes{sym.T: int64(starts[len(lens)]), sym.B: int64(len(lens))}
		count, bytes := o.Count(), o.Bytes()
		require.GreaterOrEqual(t, bytes.Eval(&sizes), 4*count.Eval(&sizes))
		got := make([]int32, bytes.Eval(&sizes)/4)
		for i := range got {
			got[i] = 7 // of the step before
		}
		o.Fill(got, starts)

		want := make([]int32, len(got))
		for i := range want {
			want[i] = -1
			for seq, n := range lens { // the last one that starts at or before it
				first, tiles := int64(starts[seq]), int64(n)
				if o.Tile > 1 {
					first, tiles = first/o.Tile+int64(seq), (int64(n)+o.Tile-1)/o.Tile
				}
				if int64(i) >= first && int64(i) < first+tiles && int64(n) >= o.Least && int64(n) <= o.Most {
					want[i] = int32(seq)
				}
			}
		}
		require.Equal(t, want, got, "%+v of %v", o, lens)
	}
}

// TestOwnersOfPlans checks that validation accepts owners only where a device can write them.
func TestOwnersOfPlans(t *testing.T) {
	plan := func(change func(p *Plan, b *Buffer)) error {
		o := &Owners{Tile: 32, Least: 1, Most: MaxTokens}
		p := &Plan{Context: 8, Phases: []Phase{{Least: sym.Sizes{sym.T: 1}, Bounds: sym.Sizes{sym.T: 8, sym.Smax: 8}, Longest: Interval{1, 8}}}, Buffers: []Buffer{
			{Kind: Input, Name: sym.CuSeqlens, DType: dtype.I32, Bytes: Size(sym.B).Times(4).Plus(Number(4))},
			{Kind: Input, Name: o.Name(), DType: dtype.I32, Bytes: o.Bytes(), Owners: o},
		}}
		change(p, &p.Buffers[1])
		return p.Validate()
	}
	require.NoError(t, plan(func(*Plan, *Buffer) {}))
	for want, change := range map[string]func(p *Plan, b *Buffer){
		"owners without cu_seqlens":         func(p *Plan, b *Buffer) { p.Buffers = []Buffer{*b} },
		"is no input of integers":           func(_ *Plan, b *Buffer) { b.Kind = Arena },
		"bytes of owners":                   func(_ *Plan, b *Buffer) { b.Bytes = Number(4) },
		fmt.Sprintf("owners %+v", Owners{}): func(_ *Plan, b *Buffer) { b.Owners = &Owners{} },
	} {
		require.ErrorContains(t, plan(change), want)
	}
}
