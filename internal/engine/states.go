package engine

import (
	"slices"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/lower/plan"
)

// sequenceStates is the number of recurrent states of a [Sequence].
const sequenceStates = 4

// SequenceStates returns the number of recurrent states of a [Sequence], for
// [device.Executable.InstanceMemory]; none where the plan has none.
func SequenceStates(plan *plan.Plan) []device.Window {
	if !plan.Stateful() {
		return nil
	}
	return []device.Window{{Keys: device.States, Blocks: sequenceStates}}
}

// leftState is the recurrent state after the first tokens of a sequence.
type leftState struct {
	length int // number of tokens
	state  int32
	kept   bool // the next step writes another
}

// leftStates are the states of a sequence, the shortest first. That of the tokens in the caches is the
// last one, if there is any. States that steps of several tokens leave are kept, so that a sequence that
// is cut back is computed from the nearest: the ends of prompts, and of parts of a long one.
type leftStates []leftState

// upTo drops the states behind n tokens, and returns the number of tokens of the last one that is left.
func (l *leftStates) upTo(n int) int {
	for len(*l) > 0 && (*l)[len(*l)-1].length > n {
		*l = (*l)[:len(*l)-1]
	}
	if len(*l) == 0 {
		return 0
	}
	return (*l)[len(*l)-1].length
}

// step returns the states that the next step reads and writes. Without a free state to write it drops
// one, that between whose neighbours the fewest tokens lie. A state that the step overwrites is dropped.
func (l *leftStates) step() (next batch.State) {
	last := len(*l) - 1
	if last < 0 {
		return batch.State{Read: -1}
	}
	next.Read = (*l)[last].state
	if next.Write = next.Read; !(*l)[last].kept {
		*l = (*l)[:last]
		return next
	}
	if len(*l) == sequenceStates {
		drop, fewest := 0, (*l)[1].length
		for i := 1; i < last; i++ {
			if n := (*l)[i+1].length - (*l)[i-1].length; n < fewest {
				drop, fewest = i, n
			}
		}
		*l = slices.Delete(*l, drop, drop+1)
	}
	for next.Write = 0; slices.ContainsFunc(*l, func(s leftState) bool { return s.state == next.Write }); {
		next.Write++
	}
	return next
}
