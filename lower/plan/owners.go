package plan

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/sym"
)

// Owners says what an Input holds that nobody gives: the device writes it before a step, from
// cu_seqlens. It has the sequence of each token, or, where Tile is more than 1, of each tile of
// so many tokens of a sequence, counted as kernels/paged.h does. Tiles that no sequence fills
// have −1, and so have all of a sequence that brings fewer tokens than Least or more than Most:
// a kernel leaves those to another one.
type Owners struct{ Tile, Least, Most int64 }

// Fill writes them.
func (o *Owners) Fill(to, cuSeqlens []int32) {
	for i := range to {
		to[i] = -1
	}
	for seq := range len(cuSeqlens) - 1 {
		first, n := int64(cuSeqlens[seq]), int64(cuSeqlens[seq+1]-cuSeqlens[seq])
		if n < o.Least || n > o.Most {
			continue
		}
		if o.Tile > 1 {
			first, n = first/o.Tile+int64(seq), (n+o.Tile-1)/o.Tile
		}
		for i := range n {
			to[first+i] = int32(seq)
		}
	}
}

// Name is that of the Input.
func (o *Owners) Name() string {
	switch {
	case o.Most < MaxTokens:
		return fmt.Sprintf("owners.%d.upto%d", o.Tile, o.Most)
	case o.Least > 1:
		return fmt.Sprintf("owners.%d.from%d", o.Tile, o.Least)
	}
	return fmt.Sprintf("owners.%d", o.Tile)
}

// MaxTokens stands for no bound on the tokens of a sequence.
const MaxTokens = math.MaxInt32

// Count returns how many there are: what a grid has of them, and for tiles a few more.
func (o *Owners) Count() Expr {
	if o.Tile == 1 {
		return Size(sym.T)
	}
	return Size(sym.T).Over(o.Tile).Plus(Size(sym.B))
}

// Bytes returns the memory of them all, which rounds up where a quarter of it would.
func (o *Owners) Bytes() Expr {
	tokens := Size(sym.T).Times(4)
	if o.Tile == 1 {
		return tokens
	}
	return tokens.Over(o.Tile).Plus(Number(4)).Plus(Size(sym.B).Times(4))
}
