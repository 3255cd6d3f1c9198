package plan

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/sym"
)

// Owners describes an Input that the device derives from cu_seqlens before a step: the index of the
// sequence of each token, or, if Tile is more than 1, of each tile of Tile tokens of a sequence,
// counted as kernels/paged.h does. Entries without a sequence are −1, and so are those of sequences
// with fewer than Least or more than Most tokens, which the kernel skips.
type Owners struct{ Tile, Least, Most int64 }

// Fill writes the map for cuSeqlens to a slice of at least Count entries.
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

// Name returns the name of the Input.
func (o *Owners) Name() string {
	switch {
	case o.Most < MaxTokens:
		return fmt.Sprintf("owners.%d.upto%d", o.Tile, o.Most)
	case o.Least > 1:
		return fmt.Sprintf("owners.%d.from%d", o.Tile, o.Least)
	}
	return fmt.Sprintf("owners.%d", o.Tile)
}

// MaxTokens is the value of Most for sequences of any length.
const MaxTokens = math.MaxInt32

// Count returns the number of entries: T, or for tiles the bound ⌈T / Tile⌉ + B.
func (o *Owners) Count() Expr {
	if o.Tile == 1 {
		return Size(sym.T)
	}
	return Size(sym.T).Over(o.Tile).Plus(Size(sym.B))
}

// Bytes returns the bytes of the map: at least 4 per entry of Count.
func (o *Owners) Bytes() Expr {
	tokens := Size(sym.T).Times(4)
	if o.Tile == 1 {
		return tokens
	}
	return tokens.Over(o.Tile).Plus(Number(4)).Plus(Size(sym.B).Times(4))
}
