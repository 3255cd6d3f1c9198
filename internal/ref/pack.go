package ref

import "github.com/smelt-ml/smelt/ir"

// Sequence is what a step adds to one sequence.
type Sequence struct {
	Tokens []int32
	Start  int     // tokens of the sequence that earlier steps have written
	Blocks []int32 // its cache blocks, in order
}

// Pack returns the inputs of a step for sequences whose cache blocks have block
// slots. Logits are computed for every token if all is true, else for the last of
// each sequence.
func Pack(block int, all bool, sequences ...Sequence) map[string][]int32 {
	in := map[string][]int32{ir.CuSeqlens: {0}}
	put := func(name string, n ...int32) { in[name] = append(in[name], n...) }
	perTable := 0
	for _, s := range sequences {
		perTable = max(perTable, len(s.Blocks))
	}
	for _, s := range sequences {
		for i, token := range s.Tokens {
			position := s.Start + i
			if all || i == len(s.Tokens)-1 {
				put(ir.LogitRows, int32(len(in[ir.Tokens])))
			}
			put(ir.Tokens, token)
			put(ir.Positions, int32(position))
			put(ir.Slots, s.Blocks[position/block]*int32(block)+int32(position%block))
		}
		put(ir.CuSeqlens, int32(len(in[ir.Tokens])))
		put(ir.ContextLens, int32(s.Start+len(s.Tokens)))
		put(ir.BlockTable, s.Blocks...)
		for range perTable - len(s.Blocks) {
			put(ir.BlockTable, -1)
		}
	}
	return in
}
