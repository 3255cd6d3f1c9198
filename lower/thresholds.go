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

// thresholds holds the sizes by which lower chooses launches for a family of Apple GPUs. They do
// not change what is computed: all launches of linear_vec give the same bits, and so do all of
// linear_mat. Splitting attention changes the order of its sums.
//
// The figures come from published engines that measured on such chips (ggml's ggml-metal-impl.h,
// MLX's scaled_dot_product_attention, vllm-metal's split-KV gate) and from arithmetic on the
// chips' figures; none was measured here.
type thresholds struct {
	family int // as Metal numbers them: 7 for Apple7; 0 for any

	// vecTokens is the maximum number of tokens of a step whose products run as mat-vec. At 8
	// tokens a pass over the weights costs 15 lane operations per weight, fewer than the 16
	// products of a tile of 32 tokens that is three quarters empty; 16 tokens take two passes.
	// ggml's threshold is 8 too.
	vecTokens int64
	// groups is the desired minimum number of threadgroups of linear_vec per core, so that the last
	// ones to finish leave few cores idle. With more work, threadgroups have more simdgroups, which
	// share x.
	groups int64
	// tiles is the minimum number of threadgroups of linear_mat per core at which a tile has 64
	// tokens rather than 32. Larger tiles do more operations per byte, with half the threadgroups.
	tiles int64
	// attending is the minimum number of threadgroups per core at which a threadgroup of attention
	// of single tokens processes several query heads: the number of threadgroups of 256 threads
	// with 128 registers that fit a core (208 KB of registers on M1). With fewer, a core idles
	// while one waits.
	attending int64
	// split is the context length in keys beyond which attention of single tokens is split along
	// the keys (split-K), in partitions of `partition` keys.
	split, partition int64
	// manySplit and manyPartition replace split and partition on chips with at least `many` cores.
	// MLX splits from 1024 keys on the Max and Ultra, from 4096 on the others; vllm-metal by 8
	// threadgroups per core.
	many, manySplit, manyPartition int64
}

// perFamily has a row for each family, after one for no particular chip. Families differ little; the
// number of cores matters more, and most thresholds are per core.
var perFamily = []thresholds{
	// An unknown chip splits attention early: on a small chip a needless split costs one dispatch
	// per layer, on a large one a missing split leaves half of the cores idle.
	{family: 0, vecTokens: 8, groups: 8, tiles: 4, attending: 2, split: 1024, partition: 512},
	// M1: 8 KB of first-level cache per core hold one row of 4096 halves, so that more
	// threadgroups of fewer simdgroups would fetch x again and again.
	{family: 7, vecTokens: 8, groups: 8, tiles: 4, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 512},
	{family: 8, vecTokens: 8, groups: 8, tiles: 4, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 512},
	// M3 and M4 allocate registers and threadgroup memory dynamically, so that tiles of 64 tokens
	// keep a core busy with fewer threadgroups.
	{family: 9, vecTokens: 8, groups: 8, tiles: 3, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 256},
	// No published figure of M5 suggests other launches.
	{family: 10, vecTokens: 8, groups: 8, tiles: 3, attending: 2, split: 4096, partition: 512, many: 24, manySplit: 1024, manyPartition: 256},
}

// attentionElements is the maximum number of elements of the query heads of a threadgroup of
// attention, without a measurement. With more, queries and sums would take all registers of a
// thread.
const attentionElements = 256

// quicker is the ratio of two predicted times below which the first counts as faster.
const quicker = 0.97

var anyChip = func() *predict.Chip {
	c, err := predict.FindChip("m1-pro")
	if err != nil {
		panic(err)
	}
	return c
}()

// machine is a chip with the thresholds of its family.
type machine struct {
	*thresholds
	name  string
	cores int64
	like  *predict.Chip // for predictions
}

// machineOf returns the machine of a chip; nil: no particular chip. An unknown family counts as
// the last one of the table.
func machineOf(chip *predict.Chip) machine {
	if chip == nil {
		return machine{&perFamily[0], "an unnamed chip", predict.AnyCores, anyChip}
	}
	t := &perFamily[len(perFamily)-1]
	for i := range perFamily {
		if perFamily[i].family == chip.Family {
			t = &perFamily[i]
		}
	}
	return machine{t, fmt.Sprintf("apple%d (%s)", chip.Family, chip.Name), int64(chip.Cores), chip}
}

func (m *machine) String() string { return fmt.Sprintf("%d cores of %s", m.cores, m.name) }

// splitContext returns the context length in keys beyond which attention of single tokens is split.
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

// vec returns the launch of linear_vec for n columns of stored type t and at most tokens tokens,
// and the reason.
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

// tile returns the number of tokens of a tile of linear_mat whose grid is columns tiles wide, and
// the reason.
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
