package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/predict"
)

// vecShape is how linear_vec is launched.
type vecShape struct {
	rows       int64 // of the weights, that a simdgroup owns: 2 or 4
	simdgroups int64 // of a threadgroup: 1 to 8
	tokens     int64 // that share a pass over the weights: 1, 2, 4 or 8
}

// tuning is a row of the table of choices: what Plans for a family of Apple GPUs
// are made of. Nothing in it changes what is computed, and for linear_vec and
// linear_mat not a bit of it.
//
// The figures come from what published engines chose by measuring on such chips
// (ggml's ggml-metal-impl.h, MLX's scaled_dot_product_attention, vllm-metal's
// split-KV gate) and from arithmetic on the chips' figures; none was measured here.
type tuning struct {
	family int // as Metal numbers them: 7 for Apple7; 0 for any

	// vecTokens is the largest step whose products run as mat-vec. At 8 tokens a pass
	// over the weights costs 15 lane operations a weight, less than the 16 products
	// of a tile of 32 tokens that is three quarters empty; at 16 it is two passes.
	// ggml changes over at 8 too.
	vecTokens int64
	// groups is how many threadgroups of linear_vec a core should get at least, so
	// that the last ones to finish leave few cores idle. Above that, threadgroups grow:
	// their simdgroups read the same x.
	groups int64
	// tiles is how many threadgroups of linear_mat a core should get at least before a
	// tile has 64 tokens rather than 32: more operations for each byte, but half the
	// threadgroups.
	tiles int64
	// attending is how many threadgroups of attention of single tokens a core should get at
	// least before one takes several query heads: as many of 256 threads with 128 registers as
	// a core has room for (208 KB of them on M1). With fewer, nothing runs while one waits.
	attending int64
	// split is the context beyond which attention of single tokens is cut along the
	// keys, in partitions of `partition` keys.
	split, partition int64
	// Of chips with `many` or more cores: MLX cuts from 1024 keys on on the Max and
	// Ultra, from 4096 on the others; vllm-metal by 8 threadgroups a core.
	many, manySplit, manyPartition int64
}

// tunings has a row for each family, and first the one for no chip in particular.
// Families differ little: what matters more is the number of cores, which the rows
// are applied to.
var tunings = []tuning{
	// Decoding on any chip cuts attention early: wrong on a small chip it costs one
	// dispatch a layer, wrong on a large one half of the cores.
	{family: 0, vecTokens: 8, groups: 8, tiles: 4, attending: 2, split: 1024, partition: 512},
	// M1: 8 KB of first-level cache a core hold one row of 4096 halves, so that more
	// threadgroups of fewer simdgroups would fetch x again and again.
	{family: 7, vecTokens: 8, groups: 8, tiles: 4, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 512},
	{family: 8, vecTokens: 8, groups: 8, tiles: 4, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 512},
	// M3 and M4 give registers and threadgroup memory out as they are used, so that
	// tiles of 64 tokens leave a core busy with fewer threadgroups.
	{family: 9, vecTokens: 8, groups: 8, tiles: 3, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 256},
	// Nothing is known of M5 that would ask for other launches.
	{family: 10, vecTokens: 8, groups: 8, tiles: 3, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 256},
}

// attentionElements bounds the query heads of a threadgroup of attention where nothing was
// measured: of more, queries and sums alone would take every register that a thread has.
const attentionElements = 256

// quicker is the share of a time below which a prediction is taken for a difference.
const quicker = 0.97

var anyChip = func() *predict.Chip {
	c, err := predict.FindChip("m1-pro")
	if err != nil {
		panic(err)
	}
	return c
}()

// machine is a tuning applied to a chip.
type machine struct {
	*tuning
	name  string
	cores int64
	like  *predict.Chip // that predictions are made for
}

// machineOf returns the choices for a chip, or for no chip in particular. A later family
// than is known counts as the last.
func machineOf(chip *predict.Chip) machine {
	if chip == nil {
		return machine{&tunings[0], "an unnamed chip", predict.AnyCores, anyChip}
	}
	t := &tunings[len(tunings)-1]
	for i := range tunings {
		if tunings[i].family == chip.Family {
			t = &tunings[i]
		}
	}
	return machine{t, fmt.Sprintf("apple%d (%s)", chip.Family, chip.Name), int64(chip.Cores), chip}
}

func (m *machine) String() string { return fmt.Sprintf("%d cores of %s", m.cores, m.name) }

// splitContext and partitionKeys answer for attention of single tokens.
func (m *machine) splitContext() int64 {
	if m.many > 0 && m.cores >= m.many {
		return m.manySplit
	}
	return m.split
}

func (m *machine) partitionKeys() int64 {
	if m.many > 0 && m.cores >= m.many {
		return m.manyPartition
	}
	return m.partition
}

// vec chooses the launch of linear_vec for n columns of a stored type and at most so
// many tokens.
func (m *machine) vec(t dtype.Type, n, tokens int64) (vecShape, string) {
	s := vecShape{rows: 2, simdgroups: 2, tokens: 1}
	for s.tokens < tokens && s.tokens < 8 {
		s.tokens *= 2
	}
	passes := (tokens + s.tokens - 1) / s.tokens
	enough := m.groups * m.cores
	groups := func(rows, simdgroups int64) int64 { return (n + rows*simdgroups - 1) / (rows * simdgroups) * passes }
	own := mostRows(t, s.tokens)
	why := fmt.Sprintf("fewer than %d threadgroups a core otherwise, on %s", m.groups, m)
	for _, rows := range []int64{own, 2} {
		for _, simdgroups := range []int64{8, 4, 2} {
			if rows <= own && groups(rows, simdgroups) >= enough {
				s.rows, s.simdgroups = rows, simdgroups
				why = fmt.Sprintf("%d threadgroups for %s, %d a core or more", groups(rows, simdgroups), m, m.groups)
				return s, why
			}
		}
	}
	return s, why
}

// tile chooses the tokens of a tile of linear_mat, of which there are so many side by
// side.
func (m *machine) tile(act dtype.Type, columns, tokens int64) (int64, string) {
	tiles := ceilDiv(tokens, 64) * columns
	switch {
	case act.Bytes(1) != 2:
		return 32, "tiles of 64 tokens of " + act.String() + " exceed threadgroup memory"
	case tokens <= 32:
		return 32, fmt.Sprintf("%d tokens fill no more", tokens)
	case tiles < m.tiles*m.cores:
		return 32, fmt.Sprintf("%d tiles of 64 × 64 are fewer than %d a core on %s", tiles, m.tiles, m)
	}
	return 64, fmt.Sprintf("%d tiles for %s, %d a core or more", tiles, m, m.tiles)
}

// String returns the launch in words.
func (s vecShape) String() string {
	text := fmt.Sprintf("%d rows × %d simdgroups", s.rows, s.simdgroups)
	if s.tokens > 1 {
		text += fmt.Sprintf(", %d tokens a pass", s.tokens)
	}
	return text
}

// mostRows is how many rows a simdgroup of linear_vec may own.
func mostRows(stored dtype.Type, tokens int64) int64 {
	if tokens > 1 {
		return 2
	}
	return stored.Row().VecRows
}
