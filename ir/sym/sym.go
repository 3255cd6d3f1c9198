// Package sym names what graphs and Plans leave open until a step runs: its sizes and its
// inputs. Every room may import it: a graph's shapes, a Plan's expressions and the device that
// evaluates them speak of the same symbols.
//
// A step of one sequence's single token over 100 keys has these sizes, and these inputs among
// others:
//
//	sizes := sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 100}
//	inputs := map[string][]int32{sym.Tokens: {7}, sym.Positions: {99}, sym.CuSeqlens: {0, 1}}
package sym

import "fmt"

// Sym is a size that is known only when a step runs.
type Sym uint8

// The symbols. A graph uses no others: every shape, grid and parameter of a
// Plan is an expression of these.
const (
	T    Sym = iota // tokens in the step, packed over all sequences
	B               // sequences in the step
	R               // rows that the head computes logits for
	NB              // cache blocks in a sequence's block table
	Smax            // a bound on the context length; for grids and buffers, never for masks
	C               // cache blocks that are copied, by steps that do nothing else
	count
)

// Count is the number of symbols, the length of Sizes.
const Count = int(count)

var names = [Count]string{"T", "B", "R", "NB", "Smax", "C"}

// String returns the symbol's name.
func (s Sym) String() string {
	if s < count {
		return names[s]
	}
	return fmt.Sprintf("sym(%d)", uint8(s))
}

// Parse returns the symbol of a name.
func Parse(name string) (s Sym, ok bool) {
	for i, n := range names {
		if n == name {
			return Sym(i), true
		}
	}
	return 0, false
}

// Sizes gives every symbol its value, indexed by Sym.
type Sizes [Count]int64
