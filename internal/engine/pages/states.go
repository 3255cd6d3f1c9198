package pages

import (
	"slices"
	"sort"

	"github.com/smelt-ml/smelt/internal/batch"
)

// States returns the number of recurrent states that a number of sequences needs: the one that a step
// reads and the one that it writes.
func States(sequences int) int { return 2 * sequences }

// states are the recurrent states of one sequence.
type states struct {
	own   *Pool // nil: none
	after int32 // the state after the computed tokens; none before the first
	next  int32 // the one that the next step writes; none until it is known
	block int   // that after is at the end of, where it is known
}

func statesOf(own *Pool) states { return states{own: own, after: none, next: none} }

// knows reports whether the state at the end of a block is known.
func (s *states) knows(id *Identity) bool { return s.own == nil || s.own.knows(id) }

// hold begins with the known state at the end of the first hits blocks.
func (s *states) hold(chain []Identity, hits int) {
	if s.own != nil && hits > 0 {
		s.after, s.block = s.own.known[chain[hits-1]], hits-1
		s.own.hold(s.after)
	}
}

// reach finds a state for the next step to write: the one that it reads, unless that is known.
func (s *states) reach() {
	switch {
	case s.own == nil || s.next != none:
	case s.after != none && s.own.writable(s.after):
		s.next = s.after
	default:
		s.next = s.own.take()
	}
}

// commit records that a step has written the state after the computed tokens. At the end of a block it
// can be shared.
func (s *states) commit(t *Table, computed int) {
	if s.own == nil || s.next == none {
		return
	}
	if s.next != s.after {
		s.drop(t)
	}
	s.after, s.next = s.next, none
	if computed%s.own.slots == 0 {
		s.block = computed/s.own.slots - 1
		s.after, _ = s.own.know(s.after, t.chain[s.block])
	}
}

// drop gives the state before the last step back. One at which others may go on is evicted after those
// at which nobody is known to.
func (s *states) drop(t *Table) {
	if s.after != none {
		s.own.pass(s.after, s.block+1 != t.ends[1] && !slices.Contains(t.stops, s.block+1))
	}
}

func (s *states) release(t *Table) {
	if s.own == nil {
		return
	}
	if s.next != s.after && s.next != none {
		s.own.drop(s.next)
	}
	s.drop(t)
	s.after, s.next = none, none
}

// State returns the recurrent states that the next step reads and writes, once [Table.Reach] has found
// them.
func (t *Table) State() batch.State {
	if t.states.own == nil {
		return batch.State{}
	}
	return batch.State{Read: t.states.after, Write: t.states.next}
}

// Recurs reports whether the pool has recurrent states.
func (p *Pool) Recurs() bool { return p.states != nil }

// Common returns the number of the first blocks that the sequences of two tables have in common. One
// token of the first sequence at least lies behind them.
func (t *Table) Common(tokens []int32, other *Table, theirs []int32) int {
	most := min(len(tokens)-1, len(theirs)) / t.pool.slots
	return sort.Search(most, func(i int) bool { return *t.identity(i, tokens) != *other.identity(i, theirs) })
}

// Leave makes the steps of a sequence leave a recurrent state behind its first blocks, if these are not
// computed yet.
func (t *Table) Leave(blocks, computed int) {
	if blocks*t.pool.slots > computed && !slices.Contains(t.stops, blocks) {
		t.stops = append(t.stops, blocks)
	}
}

// Stop returns the number of tokens, at most n, that a step from the token at position from on should
// take. Where layers have recurrent states it ends at those ends of blocks at which others may go on,
// since no other step leaves a state there.
func (t *Table) Stop(from, n int) int {
	if t.states.own == nil {
		return n
	}
	for _, end := range t.stops {
		if left := end*t.pool.slots - from; left > 0 {
			n = min(n, left)
		}
	}
	return n
}
