package kernels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Tile sizes of the kernels whose grid depends on more than parameters. The comments above
// the kernels' signatures repeat them.
const (
	MatColumns    = 64  // columns of a tile of linear_mat; a gated product's two weights share them
	MatTokens     = 32  // tokens of a tile of linear_mat unless fc_tile is 64
	AttentionTile = 32  // tokens of a tile of attention_tile
	VecRows       = 4   // weight rows per simdgroup of linear_vec unless fc_rows is 2
	VecRowsShared = 2   // the same if several tokens share a pass over the weights
	MaxVecRows    = 8   // maximum tokens of a sequence × query heads per threadgroup of attention_vec
	MaxHeads      = 4   // maximum query heads of a KV head per threadgroup of attention_vec and attention_write
	MaxQueries    = 512 // maximum elements of these heads in attention_write
	RepeatThreads = 256 // threads per threadgroup of repeat_kv
	MaxTaps       = 8   // maximum taps of a short convolution
)

// RopeWriteRows returns the number of heads of Q, K and V per threadgroup of the fused writes,
// for heads of `head` elements.
func RopeWriteRows(head int) int {
	switch {
	case head > 256:
		return 2
	case head > 128:
		return 4
	}
	return 8
}

// AttentionParts returns the number of threadgroups of attention_tile per tile and query head, each of
// which sums a part of the head's columns.
func AttentionParts(head int64) uint64 { return tiles(uint32(head), attentionPart) }

// HeadGroups returns the number of threadgroups per token of attention_vec and attention_write,
// if each computes up to `most` of the query heads of a KV head.
func HeadGroups(heads, kvHeads, most int64) int64 {
	if kvHeads <= 0 || most <= 0 {
		return 0
	}
	return kvHeads * ((heads/kvHeads + most - 1) / most)
}

// Axis is an axis of a grid that covers a product of parameters in tiles:
// ⌈Π Params[Words] / Tile⌉ threadgroups.
type Axis struct {
	Words []int // words of the parameter struct; their product is 1 if there are none
	Tile  int
}

// axes parses the grid of a family: "kv_heads·head/64, tokens" has two axes, the first in
// tiles of 64 elements. Omitted axes are 1.
func axes(grid string, params []string) []Axis {
	if grid == "" {
		return nil
	}
	out := []Axis{{Tile: 1}, {Tile: 1}, {Tile: 1}}
	for i, text := range strings.Split(grid, ", ") {
		product, tile, tiled := strings.Cut(text, "/")
		if tiled {
			n, err := strconv.Atoi(tile)
			if err != nil {
				panic(fmt.Sprintf("kernel table: grid %q: %v", grid, err))
			}
			out[i].Tile = n
		}
		for name := range strings.SplitSeq(product, "·") {
			word := slices.Index(params, name)
			if word < 0 {
				panic(fmt.Sprintf("kernel table: grid %q: no parameter is called %s", grid, name))
			}
			out[i].Words = append(out[i].Words, word)
		}
	}
	return out
}

// covered refuses any grid but that of the kernel's row, and any threadgroup but the
// largest.
func (c *checker) covered() { c.coveredBy(uint32(c.kernel.MaxThreads), uint32(c.kernel.MaxThreads)) }

// coveredBy is covered for threadgroups of low to high threads.
func (c *checker) coveredBy(low, high uint32) {
	var want [3]uint64
	for i, axis := range c.kernel.Grid {
		n := uint64(1)
		for _, word := range axis.Words {
			n = product(n, uint64(c.Params[word]))
		}
		tile := uint64(axis.Tile)
		want[i] = n / tile
		if n%tile != 0 {
			want[i]++
		}
	}
	c.grid(want[0], want[1], want[2])
	c.threadsBetween(low, high)
}
