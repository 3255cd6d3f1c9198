// Package batch builds the inputs of a step: its tokens, the sequences that they belong to, and the
// cache slots of their keys and values.
//
// A step packs pieces of several sequences one after the other without padding: a whole prompt, a
// part of one, or a single token. A [Piece] gives its tokens, its position and its sequence's cache
// blocks; everything else follows from that:
//
//	step := batch.Pack(16, 4096,
//		batch.Piece{Tokens: []int32{7}, Start: 40, Blocks: []int32{3, 0, 5}},
//		batch.Piece{Tokens: prompt, Blocks: []int32{2, 4}, Rows: batch.All})
//
// Laws, for any mixture: tokens, positions, span ends and slots are parallel arrays in the order of
// the sequences; cu_seqlens rises from 0 to T; no two tokens share a slot if no two sequences share
// a block that both write to; position p of a sequence is in slot p % block of its block p / block,
// so that the next step finds what this one wrote.
//
// The interpreter, devices, tests and benchmarks all build their steps here.
package batch

import (
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir/sym"
)

// Piece is the tokens that a step adds to one sequence.
type Piece struct {
	Tokens []int32 // at least one
	Start  int     // number of the sequence's tokens that earlier steps have written
	Blocks []int32 // the sequence's cache blocks in order, with room for Tokens
	Second int     // number of the first token of the second of two texts; 0: there is one
	Rows   Rows
	State  State // of layers with recurrent states
	// Windows are its blocks in the caches of layers with a window whose blocks are not Blocks, as many
	// lists in each piece of a step.
	Windows []Window
}

// Window is a sequence's blocks for layers whose tokens see Keys keys. They have room for the tokens
// of the step; those that no token sees stand for others, so that a reader finds no foreign one.
type Window struct {
	Keys   int
	Blocks []int32
}

// State names a sequence's recurrent states in a step: the one after its tokens before the step, and the
// one that the step writes. They may be the same. A sequence that begins reads none.
type State struct{ Read, Write int32 }

// Rows selects the tokens of a piece that get a row of logits. Rows are in the order of sequences,
// then of tokens.
type Rows uint8

// The zero value is for choosing the next token.
const (
	Last Rows = iota // the last token
	All              // every token
	None             // no token: more of the prompt follows in another step
)

// grain is the multiple to which the bound on the context is rounded up, so that grids and choices
// that depend on it change rarely as a sequence grows.
const grain = 64

// Step is the inputs of one step and their sizes.
type Step struct {
	Inputs  map[string][]int32 // by name, see package ir
	Sizes   sym.Sizes
	Longest int64 // tokens of the longest piece

	tokens, positions, ends, types, slots, starts, lens, table, rows, states, copies []int32

	windows []window
}

// window is the inputs of a step that find the blocks of layers with a window.
type window struct {
	keys                 int
	slotsName, tableName string
	slots, table         []int32
}

// Pack returns the step of pieces. Cache blocks have block slots, and no sequence is longer than
// context.
func Pack(block, context int, pieces ...Piece) *Step {
	s := new(Step)
	s.Pack(block, context, pieces...)
	return s
}

// Pack overwrites s with the step of pieces and reuses its memory. It panics if a piece has no
// token, or more than its blocks hold: the allocator of blocks prevents that.
func (s *Step) Pack(block, context int, pieces ...Piece) {
	s.tokens, s.positions, s.ends, s.types, s.slots, s.starts = s.tokens[:0], s.positions[:0], s.ends[:0], s.types[:0], s.slots[:0], append(s.starts[:0], 0)
	s.lens, s.table, s.rows, s.states, s.copies, s.Longest = s.lens[:0], s.table[:0], s.rows[:0], s.states[:0], s.copies[:0], 0
	width, longest := 0, 0
	for i := range pieces {
		q := &pieces[i]
		q.check(i, block, context)
		width, longest = max(width, len(q.Blocks)), max(longest, q.Start+len(q.Tokens))
		s.Longest = max(s.Longest, int64(len(q.Tokens)))
	}
	for i := range pieces {
		s.add(&pieces[i], block, width)
	}
	if s.Inputs == nil {
		s.Inputs = make(map[string][]int32)
	}
	s.addWindows(pieces, block, width)
	in := s.Inputs
	in[sym.Tokens], in[sym.Positions], in[sym.Ends], in[sym.Slots], in[sym.CuSeqlens] = s.tokens, s.positions, s.ends, s.slots, s.starts
	in[sym.TokenTypes], in[sym.States] = s.types, s.states
	in[sym.ContextLens], in[sym.BlockTable], in[sym.LogitRows], in[sym.Copies] = s.lens, s.table, s.rows, s.copies
	s.Sizes = sym.Sizes{sym.T: int64(len(s.tokens)), sym.B: int64(len(pieces)), sym.R: int64(len(s.rows)), sym.NB: int64(width),
		sym.Smax: Smax(longest, context)}
}

// addWindows writes the inputs of layers with a window whose blocks are not those of the others.
func (s *Step) addWindows(pieces []Piece, block, width int) {
	var lists []Window
	if len(pieces) > 0 {
		lists = pieces[0].Windows
	}
	if !slices.EqualFunc(s.windows, lists, func(have window, want Window) bool { return have.keys == want.Keys }) {
		for i := range s.windows {
			delete(s.Inputs, s.windows[i].slotsName)
			delete(s.Inputs, s.windows[i].tableName)
		}
		s.windows = s.windows[:0]
		for _, w := range lists {
			s.windows = append(s.windows, window{keys: w.Keys, slotsName: sym.Windowed(sym.Slots, w.Keys), tableName: sym.Windowed(sym.BlockTable, w.Keys)})
		}
	}
	for i := range s.windows {
		w := &s.windows[i]
		w.slots, w.table = w.slots[:0], w.table[:0]
		for j := range pieces {
			q, of := &pieces[j], &pieces[j].Windows[i]
			if of.Keys != w.keys || q.Start+len(q.Tokens) > len(of.Blocks)*block || len(of.Blocks) > width {
				panic(fmt.Sprintf("batch: sequence %d adds %d tokens after %d to %d blocks of %d slots for layers that see %d keys, where others see %d",
					j, len(q.Tokens), q.Start, len(of.Blocks), block, of.Keys, w.keys))
			}
			w.slots = appendSlots(w.slots, q.Start, len(q.Tokens), of.Blocks, block)
			w.table = appendRow(w.table, of.Blocks, width)
		}
		s.Inputs[w.slotsName], s.Inputs[w.tableName] = w.slots, w.table
	}
}

// appendSlots appends the slots of n tokens from the one at position start on.
func appendSlots(slots []int32, start, n int, blocks []int32, block int) []int32 {
	for position := start; position < start+n; position++ {
		slots = append(slots, blocks[position/block]*int32(block)+int32(position%block))
	}
	return slots
}

// appendRow appends a row of a block table.
func appendRow(table, blocks []int32, width int) []int32 {
	table = append(table, blocks...)
	for range width - len(blocks) {
		table = append(table, -1)
	}
	return table
}

// Copy copies the cache block From to the block To.
type Copy struct{ From, To int32 }

// PackCopies overwrites s with a step that only copies blocks. It runs before the step that writes
// to them.
func (s *Step) PackCopies(copies ...Copy) {
	s.Pack(1, 0)
	for _, c := range copies {
		s.copies = append(s.copies, c.From, c.To)
	}
	s.Inputs[sym.Copies], s.Sizes[sym.C] = s.copies, int64(len(copies))
}

// SetTokens replaces the tokens of a packed step by those of the same pieces, which must have as
// many. A step can thus be packed before its tokens are known.
func (s *Step) SetTokens(pieces ...Piece) {
	s.tokens = s.tokens[:0]
	for i := range pieces {
		s.tokens = append(s.tokens, pieces[i].Tokens...)
	}
	if len(s.tokens) != int(s.Sizes[sym.T]) {
		panic(fmt.Sprintf("batch: SetTokens: %d tokens, want %d", len(s.tokens), s.Sizes[sym.T]))
	}
	s.Inputs[sym.Tokens] = s.tokens
}

// add appends a piece and its row of the block table; unused entries of the row are -1.
func (s *Step) add(q *Piece, block, width int) {
	first := len(s.tokens)
	s.tokens = append(s.tokens, q.Tokens...)
	for i := range q.Tokens {
		position := q.Start + i
		s.positions = append(s.positions, int32(position))
		s.ends = append(s.ends, int32(q.Start+len(q.Tokens)-1))
		s.types = append(s.types, 0)
		if q.Second > 0 && i >= q.Second {
			s.types[len(s.types)-1] = 1
		}
	}
	s.slots = appendSlots(s.slots, q.Start, len(q.Tokens), q.Blocks, block)
	end := len(s.tokens)
	s.starts = append(s.starts, int32(end))
	s.lens = append(s.lens, int32(q.Start+len(q.Tokens)))
	s.table = appendRow(s.table, q.Blocks, width)
	if s.states = append(s.states, q.State.Read, q.State.Write); q.Start == 0 {
		s.states[len(s.states)-2] = -1
	}
	switch q.Rows {
	case Last:
		first = end - 1
	case None:
		first = end
	}
	for t := first; t < end; t++ {
		s.rows = append(s.rows, int32(t))
	}
}

func (q *Piece) check(i, block, context int) {
	end := q.Start + len(q.Tokens)
	if len(q.Tokens) == 0 || q.Start < 0 || end > context || end > len(q.Blocks)*block {
		panic(fmt.Sprintf("batch: sequence %d adds %d tokens after %d to %d blocks of %d slots, of a context of %d",
			i, len(q.Tokens), q.Start, len(q.Blocks), block, context))
	}
}

// Smax returns the bound on the context of a step whose longest sequence has that many tokens.
func Smax(tokens, context int) int64 {
	return int64(min(context, (tokens+grain-1)/grain*grain))
}

// Contiguous returns the first blocks of a cache, in order, as many as a whole context needs.
func Contiguous(block, context int) []int32 {
	blocks := make([]int32, (context+block-1)/block)
	for i := range blocks {
		blocks[i] = int32(i)
	}
	return blocks
}
