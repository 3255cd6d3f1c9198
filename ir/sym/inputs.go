package sym

import (
	"math"
	"strconv"
	"strings"
)

// The per-step inputs, all int32. A step packs the tokens of B sequences one
// after the other; sequence b owns tokens CuSeqlens[b] to CuSeqlens[b+1].
const (
	Tokens      = "tokens"       // [T] ids
	Positions   = "positions"    // [T] position of each token in its sequence
	Ends        = "ends"         // [T] position of the last token of each token's sequence
	TokenTypes  = "token_types"  // [T] which of a pair of texts a token belongs to; 0 of a text alone
	Slots       = "slots"        // [T] where in the cache its K and V go; negative: nowhere
	CuSeqlens   = "cu_seqlens"   // [B+1] running sum of the sequences' token counts
	ContextLens = "context_lens" // [B] keys of each sequence, this step's included
	BlockTable  = "block_table"  // [B,NB] cache blocks of each sequence
	LogitRows   = "logit_rows"   // [R] tokens that the head computes logits for
	States      = "states"       // [B,2] recurrent states of each sequence: the one that it reads, negative where it begins, and the one that it writes
	Copies      = "copies"       // [C,2] cache blocks: one that is copied, and the one that becomes its copy
)

// Windowed names the input that holds what base, one of Slots and BlockTable, holds, for layers whose
// tokens see no more than the last window keys: their blocks may be others, because those that no
// later token sees are given back. 0 stands for all keys: base itself.
func Windowed(base string, window int) string {
	if window == 0 {
		return base
	}
	return base + "@" + strconv.Itoa(window)
}

// Window returns the base and the window of a name that [Windowed] made; another name's window is 0.
func Window(name string) (base string, window int) {
	base, digits, ok := strings.Cut(name, "@")
	n, err := strconv.ParseUint(digits, 10, 31)
	if !ok || err != nil || base != Slots && base != BlockTable || Windowed(base, int(n)) != name {
		return name, 0
	}
	return base, int(n)
}

// derived are inputs that follow from positions and a number, which ends their name.
var derived = []struct {
	name string // begins it
	of   func(position, n int32) int32
}{
	{Positions + "+", func(position, n int32) int32 { return position + min(n, math.MaxInt32-1-position) }},
	{Positions + "/", func(position, n int32) int32 { return position / max(n, 1) }},
}

// Ahead names the input that holds, for each token, the position n places after its own, be it
// beyond the end of the sequence.
func Ahead(n int) string { return derived[0].name + strconv.Itoa(n) }

// Stretch names the input that holds, for each token, in which stretch of n positions it is,
// from 0 on.
func Stretch(n int) string { return derived[1].name + strconv.Itoa(n) }

// derivation returns how an input of that name follows from positions; nil where it does not.
func derivation(name string) func(position int32) int32 {
	for _, d := range derived {
		digits, ok := strings.CutPrefix(name, d.name)
		if n, err := strconv.ParseUint(digits, 10, 31); ok && err == nil {
			return func(position int32) int32 { return d.of(position, int32(n)) }
		}
	}
	return nil
}

// Derived reports whether an input of that name follows from positions.
func Derived(name string) bool { return derivation(name) != nil }

// Given returns an input out of those of a step, which hold what others follow from. Layers with a
// window have the blocks of the others where a step names none for them.
func Given(inputs map[string][]int32, name string) (values []int32, ok bool) {
	if values, ok = inputs[name]; ok {
		return values, true
	}
	if base, window := Window(name); window > 0 {
		values, ok = inputs[base]
		return values, ok
	}
	of := derivation(name)
	positions, ok := inputs[Positions]
	if of == nil || !ok {
		return nil, false
	}
	values = make([]int32, len(positions))
	for t, position := range positions {
		values[t] = of(position)
	}
	return values, true
}
