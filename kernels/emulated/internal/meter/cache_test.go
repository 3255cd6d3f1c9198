package meter

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	type access struct {
		line  uint64
		read  bool
		write bool
	}
	r := func(l uint64) access { return access{l, true, false} }
	w := func(l uint64) access { return access{l, false, true} }
	for _, c := range []struct {
		name                 string
		lines                int
		do                   []access
		read, written, dirty int64
	}{
		{"each line once", 4, []access{r(1), r(2), r(1), r(2)}, 2, 0, 0},
		{"the oldest goes", 2, []access{r(1), r(2), r(3), r(1)}, 4, 0, 0},
		{"use makes young", 2, []access{r(1), r(2), r(1), r(3), r(1)}, 3, 0, 0},
		{"one line is a cache", 1, []access{r(1), r(1), r(2), r(1)}, 3, 0, 0},
		{"writes are not read", 2, []access{w(1), w(1), r(1)}, 0, 0, 1},
		{"written lines leave once", 1, []access{w(1), w(1), r(2), r(3)}, 2, 1, 0},
		{"read and written", 2, []access{{1, true, true}, {1, true, true}}, 1, 0, 1},
		{"a line comes back clean", 1, []access{w(1), r(2), r(1), r(2)}, 3, 1, 0},
		{"far lines", 2, []access{r(1 << 30), r(1), r(1 << 30)}, 2, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			lru := newCache(c.lines)
			for _, a := range c.do {
				lru.touch(a.line, a.read, a.write)
			}
			require.Equal(t, []int64{c.read, c.written, c.dirty}, []int64{lru.read, lru.written, lru.dirty})
		})
	}
}

// TestCacheAgainstList compares the cache with a list searched from its most recent end.
func TestCacheAgainstList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		lines := 1 + random.IntN(20)
		lru := newCache(lines)
		var list []uint64
		written := map[uint64]bool{}
		var reads, writes int64
		for range 2000 {
			l, write := uint64(random.IntN(1+random.IntN(40))), random.IntN(4) == 0
			lru.touch(l, !write, write)
			if i := slices.Index(list, l); i >= 0 {
				list = slices.Delete(list, i, i+1)
			} else {
				if !write {
					reads++
				}
				if len(list) == lines {
					if written[list[0]] {
						writes++
						delete(written, list[0])
					}
					list = list[1:]
				}
			}
			list = append(list, l)
			if write {
				written[l] = true
			}
		}
		require.Equal(t, []int64{reads, writes, int64(len(written))}, []int64{lru.read, lru.written, lru.dirty})
	}
}

func TestDistinct(t *testing.T) {
	d := &distinct{group: 1}
	d.touch(&line{Number: 7, Read: mask{0xff, 0}})
	d.touch(&line{Number: 7, Read: mask{0x0f, 1 << 63}})
	require.Equal(t, []int64{9, 0, 9}, []int64{d.read, d.written, d.tile})
	d.group = 2
	d.touch(&line{Number: 7, Read: mask{0xff, 0}, Written: mask{0x3, 0}})
	d.touch(&line{Number: 7, Read: mask{0xff, 0}, Written: mask{0x6, 0}})
	require.Equal(t, []int64{9, 3, 9 + 8 + 3}, []int64{d.read, d.written, d.tile})
}

func TestMemory(t *testing.T) {
	m, err := NewMemory(3 * page)
	require.NoError(t, err)
	a, err := m.Alloc(10)
	require.NoError(t, err)
	b, err := m.Alloc(page + 1)
	require.NoError(t, err)
	require.True(t, m.holds(a) && m.holds(b))
	require.False(t, m.holds(make([]byte, 8)))
	_, err = m.Alloc(1)
	require.ErrorIs(t, err, ErrFull)
	_, err = NewMemory(-1)
	require.Error(t, err)
}
