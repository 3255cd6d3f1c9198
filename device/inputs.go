package device

import (
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// check validates the values of one input before a step, as kernels address the cache
// with them unchecked.
type check struct {
	input  string
	blocks int32 // of the instance's caches
	states int32 // of the instance's recurrent states
	block  int32 // slots of a block
	vocab  int64 // rows of the embedding table; 0 without one
	phases []plan.Phase
	run    func(c check, step *Step) error
}

var inputChecks = []check{
	{input: sym.Tokens, run: checkTokens},
	{input: sym.Positions, run: checkPositions},
	{input: sym.Ends, run: checkEnds},
	{input: sym.TokenTypes, run: checkTokenTypes},
	{input: sym.Slots, run: checkSlots},
	{input: sym.CuSeqlens, run: checkCuSeqlens},
	{input: sym.ContextLens, run: checkContextLens},
	{input: sym.BlockTable, run: checkBlockTable},
	{input: sym.LogitRows, run: checkLogitRows},
	{input: sym.Copies, run: checkCopies},
	{input: sym.States, run: checkStates},
}

// of returns the values of the input.
func (c *check) of(step *Step) []int32 {
	values, _ := sym.Given(step.Inputs, c.input)
	return values
}

// inputChecks returns the checks of the Plan's inputs, for an instance with these numbers of cache
// blocks.
func (p *Executable) inputChecks(blocks int, windows []Window) []check {
	block := 0
	for _, c := range p.plan.Caches {
		if c.Block > 0 && (block == 0 || c.Block < block) {
			block = c.Block
		}
	}
	var list []check
	have := p.Inputs()
	for _, c := range inputChecks {
		for _, name := range have {
			base, window := sym.Window(name)
			if base != c.input {
				continue
			}
			c := c
			c.input, c.vocab, c.phases = name, p.plan.Vocab, p.plan.Phases
			c.blocks, c.block, c.states = int32(blocksOf(window, blocks, windows)), int32(block), int32(blocksOf(States, 1, windows))
			if base == sym.Copies { // in the caches of all layers
				for _, w := range windows {
					if w.Keys != States {
						c.blocks = min(c.blocks, int32(w.Blocks))
					}
				}
			}
			list = append(list, c)
		}
	}
	return list
}

// checkStates rejects a sequence that writes a state which another reads or writes, as sequences run in
// any order.
func checkStates(c check, step *Step) error {
	states := step.Inputs[sym.States]
	for b := range len(states) / 2 {
		read, write := states[2*b], states[2*b+1]
		if read >= c.states || write < 0 || write >= c.states {
			return fmt.Errorf("sequence %d reads recurrent state %d and writes %d; there are %d", b, read, write, c.states)
		}
		for other, state := range states {
			if other/2 != b && state == write {
				return fmt.Errorf("sequence %d writes recurrent state %d, which sequence %d has too", b, write, other/2)
			}
		}
	}
	return nil
}

func checkTokens(c check, step *Step) error {
	for t, id := range step.Inputs[sym.Tokens] {
		if c.vocab > 0 && (id < 0 || int64(id) >= c.vocab) {
			return fmt.Errorf("token %d has the id %d; the vocabulary has %d", t, id, c.vocab)
		}
	}
	return nil
}

func checkPositions(_ check, step *Step) error {
	for t, position := range step.Inputs[sym.Positions] {
		if position < 0 || position == math.MaxInt32 {
			return fmt.Errorf("token %d is at position %d", t, position)
		}
	}
	return nil
}

func checkEnds(_ check, step *Step) error {
	for t, end := range step.Inputs[sym.Ends] {
		if end < 0 || int64(end) >= step.Sizes[sym.Smax] {
			return fmt.Errorf("the sequence of token %d ends at position %d; Smax is %d", t, end, step.Sizes[sym.Smax])
		}
	}
	return nil
}

func checkTokenTypes(_ check, step *Step) error {
	for t, of := range step.Inputs[sym.TokenTypes] {
		if of != 0 && of != 1 {
			return fmt.Errorf("token %d is of type %d, not 0 or 1", t, of)
		}
	}
	return nil
}

func checkSlots(c check, step *Step) error {
	end := int64(c.blocks) * int64(c.block)
	for t, slot := range c.of(step) {
		if int64(slot) >= end {
			return fmt.Errorf("token %d is written to slot %d of %d", t, slot, end)
		}
	}
	return nil
}

func checkCuSeqlens(c check, step *Step) error {
	ph, longest := &c.phases[step.Phase], int64(0)
	sums := step.Inputs[sym.CuSeqlens]
	for b, n := range sums {
		if b == 0 && n != 0 || b > 0 && n < sums[b-1] {
			return fmt.Errorf("element %d is %d; a running sum from 0 is needed", b, n)
		}
		if b > 0 {
			longest = max(longest, int64(n-sums[b-1]))
		}
	}
	if last := sums[len(sums)-1]; int64(last) != step.Sizes[sym.T] {
		return fmt.Errorf("the last element is %d; the step has %d tokens", last, step.Sizes[sym.T])
	}
	if !ph.Longest.Holds(longest) {
		return fmt.Errorf("the longest sequence has %d tokens; %s takes %d to %d", longest, ph.Name, ph.Longest.Min, ph.Longest.Max)
	}
	return nil
}

func checkContextLens(c check, step *Step) error {
	slots := step.Sizes[sym.NB] * int64(c.block)
	_, paged := step.Inputs[sym.BlockTable]
	for b, n := range step.Inputs[sym.ContextLens] {
		if n < 0 || int64(n) > step.Sizes[sym.Smax] || paged && c.block > 0 && int64(n) > slots {
			return fmt.Errorf("sequence %d has %d keys; Smax is %d, and its %d blocks hold %d", b, n, step.Sizes[sym.Smax], step.Sizes[sym.NB], slots)
		}
	}
	return nil
}

// checkBlockTable validates the entries that are in use according to context_lens; the
// others may hold anything.
func checkBlockTable(c check, step *Step) error {
	table, lens, perTable := c.of(step), step.Inputs[sym.ContextLens], int(step.Sizes[sym.NB])
	if c.block == 0 {
		return nil // no kernel reads it
	}
	if int64(len(lens)) != step.Sizes[sym.B] {
		return errors.New("the input context_lens is needed too")
	}
	for b, n := range lens {
		for i := range (int(n) + int(c.block) - 1) / int(c.block) {
			if block := table[b*perTable+i]; block < 0 || block >= c.blocks {
				return fmt.Errorf("block %d of sequence %d is number %d of %d", i, b, block, c.blocks)
			}
		}
	}
	return nil
}

func checkLogitRows(_ check, step *Step) error {
	for i, row := range step.Inputs[sym.LogitRows] {
		if row < 0 || int64(row) >= step.Sizes[sym.T] {
			return fmt.Errorf("row %d is of token %d of %d", i, row, step.Sizes[sym.T])
		}
	}
	return nil
}

// checkCopies rejects copies of which one writes a block that another reads or writes, as they run
// in any order.
func checkCopies(c check, step *Step) error {
	copies := step.Inputs[sym.Copies]
	for i, block := range copies {
		if block < 0 || block >= c.blocks {
			return fmt.Errorf("copy %d is from block %d to %d; there are %d", i/2, copies[i&^1], copies[i|1], c.blocks)
		}
		for j := 1; j < len(copies); j += 2 {
			if j != i && copies[j] == block {
				return fmt.Errorf("copies %d and %d share block %d, which one of them writes", i/2, j/2, block)
			}
		}
	}
	return nil
}
