package kernels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Tiles of the kernels whose grid depends on more than parameters. The sources say the
// same numbers above the kernels' signatures.
const (
	MatColumns    = 64  // of a tile of linear_mat, both halves of a pair together
	MatTokens     = 32  // of a tile of linear_mat where fc_tile does not say 64
	AttentionTile = 32  // tokens of a tile of attention_tile
	VecRows       = 4   // that a simdgroup of linear_vec owns where fc_rows does not say 2
	VecRowsShared = 2   // the same where tokens share a pass
	MaxVecRows    = 8   // tokens of a sequence, times query heads, that attention_vec takes at most at once
	MaxHeads      = 4   // query heads of a KV head that attention of single tokens takes at most at once
	MaxQueries    = 512 // elements of them in attention_write
	RepeatThreads = 256 // of a threadgroup of repeat_kv
	MaxTaps       = 8   // of a short convolution
)

// RopeWriteRows is how many heads of Q, K and V a threadgroup of the fused writes takes,
// given their elements.
func RopeWriteRows(head int) int {
	if head > 128 {
		return 4
	}
	return 8
}

// HeadGroups is how many threadgroups attention of single tokens has for a token, where each
// takes up to `most` of the query heads that read a KV head.
func HeadGroups(heads, kvHeads, most int64) int64 {
	if kvHeads <= 0 || most <= 0 {
		return 0
	}
	return kvHeads * ((heads/kvHeads + most - 1) / most)
}

// Axis is an axis of a grid that covers a product of parameters in tiles:
// ⌈Π Params[Words] / Tile⌉ threadgroups.
type Axis struct {
	Words []int // words of the parameter struct; none is 1
	Tile  int
}

// axes reads the grid of a family: "kv_heads·head/64, tokens" is two axes, the first in
// tiles of 64 elements. Axes that are left out are 1.
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

// covered refuses any other grid than that of the kernel's row, and any threadgroup but
// the largest.
func (c *checker) covered() { c.coveredBy(uint32(c.kernel.MaxThreads), uint32(c.kernel.MaxThreads)) }

// coveredBy is covered with threadgroups of several sizes.
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
