// Package batch writes the inputs of a step: which tokens it has, of which sequences, and
// where their keys and values go.
//
// A step packs what several sequences bring, one after the other and without padding: a
// whole prompt, a piece of one, a single token. A [Piece] says what it is and which
// blocks of the cache it owns; everything else follows from that:
//
//	step := batch.Pack(16, 4096,
//		batch.Piece{Tokens: []int32{7}, Start: 40, Blocks: []int32{3, 0, 5}},
//		batch.Piece{Tokens: prompt, Blocks: []int32{2, 4}, Rows: batch.All})
//
// Laws, for any mixture: tokens, positions, ends and slots run in parallel, a sequence's in
// their order; cu_seqlens rises from 0 to T; no two tokens share a slot where no two
// sequences share a block that both write to; position p of a sequence lies in slot
// p % block of its block p / block, so that what was written under one step is found by
// the next. The interpreter, devices, tests and measurements all take their steps from
// here.
package batch

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir/sym"
)

// Piece is what a step adds to one sequence.
type Piece struct {
	Tokens []int32 // one or more
	Start  int     // tokens of the sequence that earlier steps have written
	Blocks []int32 // its cache blocks, in order, with room for the tokens
	Rows   Rows
}

// Rows says which of a sequence's tokens get a row of logits. Rows come in the order of
// sequences, and of tokens in each.
type Rows uint8

// The zero value asks for what the next token is chosen by.
const (
	Last Rows = iota // the last token
	All              // every token
	None             // none: more of the prompt follows in another step
)

// grain is what the bound on the context is rounded up to, so that grids and choices that
// depend on it change rarely while a sequence grows.
const grain = 64

// Step is the inputs of one step and their sizes.
type Step struct {
	Inputs  map[string][]int32 // by name, as package ir has them
	Sizes   sym.Sizes
	Longest int64 // tokens of the sequence that brings most

	tokens, positions, ends, types, slots, starts, lens, table, rows, copies []int32
}

// Pack returns the step of pieces of sequences whose cache blocks have `block` slots, none of
// them longer than context.
func Pack(block, context int, pieces ...Piece) *Step {
	s := new(Step)
	s.Pack(block, context, pieces...)
	return s
}

// Pack replaces the step, in the memory that it has. It panics where a sequence brings no
// token or has no room for them: whoever gives out blocks sees to that.
func (s *Step) Pack(block, context int, pieces ...Piece) {
	s.tokens, s.positions, s.ends, s.types, s.slots, s.starts = s.tokens[:0], s.positions[:0], s.ends[:0], s.types[:0], s.slots[:0], append(s.starts[:0], 0)
	s.lens, s.table, s.rows, s.copies, s.Longest = s.lens[:0], s.table[:0], s.rows[:0], s.copies[:0], 0
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
	in := s.Inputs
	in[sym.Tokens], in[sym.Positions], in[sym.Ends], in[sym.Slots], in[sym.CuSeqlens] = s.tokens, s.positions, s.ends, s.slots, s.starts
	in[sym.TokenTypes] = s.types
	in[sym.ContextLens], in[sym.BlockTable], in[sym.LogitRows], in[sym.Copies] = s.lens, s.table, s.rows, s.copies
	s.Sizes = sym.Sizes{sym.T: int64(len(s.tokens)), sym.B: int64(len(pieces)), sym.R: int64(len(s.rows)), sym.NB: int64(width),
		sym.Smax: Smax(longest, context)}
}

// Copy is a cache block that another is to become like.
type Copy struct{ From, To int32 }

// PackCopies replaces the step by one that copies blocks and does nothing else, before the
// step of whoever writes there.
func (s *Step) PackCopies(copies ...Copy) {
	s.Pack(1, 0)
	for _, c := range copies {
		s.copies = append(s.copies, c.From, c.To)
	}
	s.Inputs[sym.Copies], s.Sizes[sym.C] = s.copies, int64(len(copies))
}

// SetTokens replaces the tokens of a step by what its pieces have there now, of which there
// must be as many: a step can be packed before all of them are known.
func (s *Step) SetTokens(pieces ...Piece) {
	s.tokens = s.tokens[:0]
	for i := range pieces {
		s.tokens = append(s.tokens, pieces[i].Tokens...)
	}
	if len(s.tokens) != int(s.Sizes[sym.T]) {
		panic(fmt.Sprintf("batch: %d tokens in the place of %d", len(s.tokens), s.Sizes[sym.T]))
	}
	s.Inputs[sym.Tokens] = s.tokens
}

// add appends a sequence, with a row of width in the table of blocks; unused entries of it
// name no block.
func (s *Step) add(q *Piece, block, width int) {
	first := len(s.tokens)
	s.tokens = append(s.tokens, q.Tokens...)
	for i := range q.Tokens {
		position := q.Start + i
		s.positions = append(s.positions, int32(position))
		s.ends = append(s.ends, int32(q.Start+len(q.Tokens)-1))
		s.types = append(s.types, 0)
		s.slots = append(s.slots, q.Blocks[position/block]*int32(block)+int32(position%block))
	}
	end := len(s.tokens)
	s.starts = append(s.starts, int32(end))
	s.lens = append(s.lens, int32(q.Start+len(q.Tokens)))
	s.table = append(s.table, q.Blocks...)
	for range width - len(q.Blocks) {
		s.table = append(s.table, -1)
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
		panic(fmt.Sprintf("batch: sequence %d brings %d tokens after %d into %d blocks of %d slots, of a context of %d",
			i, len(q.Tokens), q.Start, len(q.Blocks), block, context))
	}
}

// Smax returns the bound on the context that a step works with whose longest sequence has
// so many tokens.
func Smax(tokens, context int) int64 {
	return int64(min(context, (tokens+grain-1)/grain*grain))
}

// Contiguous returns the blocks of a sequence that owns the first ones of a cache, in
// order: as many as hold a whole context.
func Contiguous(block, context int) []int32 {
	blocks := make([]int32, (context+block-1)/block)
	for i := range blocks {
		blocks[i] = int32(i)
	}
	return blocks
}
