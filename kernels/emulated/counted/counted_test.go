package counted

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated/internal/meter"
	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
)

// counters returns kernels whose counts are known.
func counters(t *testing.T) *meter.Library {
	library, err := compiled()
	require.NoError(t, err)
	return library
}

var compiled = sync.OnceValues(func() (*meter.Library, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return nil, err
	}
	unit, err := mslgen.Parse("kernels/emulated/counted/testdata/counters.metal", mslgen.ReadFile(root))
	if err != nil {
		return nil, err
	}
	return load(context.Background(), "counters", unit.CPlusPlus("counters.gen.cc", shim), func() {
		fmt.Fprintln(os.Stderr, "compiling counters.metal")
	})
})

// small is a GPU with two cores and a cache of 64 lines.
var small = meter.Machine{CacheBytes: 64 * meter.Line, Cores: 2}

// count runs a kernel on zeroed buffers of the given sizes, followed by its parameters.
func count(t *testing.T, kernel string, stride uint32, groups, threads uint32, on meter.Machine, buffers []int, params ...uint32) *meter.Counts {
	var total int64
	for _, n := range buffers {
		total += meter.Size(int64(n))
	}
	m, err := meter.NewMemory(total)
	require.NoError(t, err)
	l := meter.Launch{Kernel: kernel, Constants: map[uint32]uint32{0: stride}, Grid: [3]uint32{groups}, Group: [3]uint32{threads}}
	for _, n := range buffers {
		b, err := m.Alloc(int64(n))
		require.NoError(t, err)
		l.Buffers = append(l.Buffers, b)
	}
	for _, p := range params {
		l.Buffers = append(l.Buffers, binary.NativeEndian.AppendUint32(nil, p))
	}
	c, err := counters(t).Count(m, l, on)
	require.NoError(t, err)
	return c
}

func TestCoalescing(t *testing.T) {
	const n = 1024
	c := count(t, "copy", 0, n/64, 64, small, []int{4 * n, 4 * n})
	require.Equal(t, int64(2*n), c.Accesses)
	require.Equal(t, []int64{8 * n, 8 * n}, []int64{c.Used, c.Touched})
	require.Equal(t, []int64{4 * n, 4 * n}, []int64{c.Read, c.Written})
	require.Equal(t, []int64{4 * n, 4 * n, 8 * n}, []int64{c.DistinctRead, c.DistinctWritten, c.Tile})
	require.Equal(t, []int64{n / 64, n / 64}, []int64{c.Groups, c.Ran})

	for _, stride := range []uint32{2, 4, 32} {
		t.Run(fmt.Sprint("stride ", stride), func(t *testing.T) {
			c := count(t, "copy_apart", stride, n/64, 64, small, []int{4 * n * int(stride), 4 * n})
			require.Equal(t, int64(8*n), c.Used)
			require.Equal(t, int64(4*n)*int64(stride)+4*n, c.Touched)
			require.Equal(t, int64(4*n)*int64(stride), c.Read)
		})
	}
}

// In one kernel the 32 lanes read one line per iteration; in the other each lane reads its own.
func TestTurns(t *testing.T) {
	const width = 1024
	c := count(t, "turns", 0, 1, 32, small, []int{4 * width, 128}, width)
	require.Equal(t, int64(4*width+128), c.Touched)
	require.InDelta(t, 1, c.Coalescing(), 0)

	// 32 iterations read four bytes of each line: the cache holds the 32 lines that they share.
	c = count(t, "row_by_lane", 0, 1, 32, small, []int{4 * 32 * 32, 128}, 32)
	require.Equal(t, int64(4*32*32+128), c.Used)
	require.Equal(t, int64(128*32*32+128), c.Touched)
	require.Equal(t, int64(4*32*32), c.Read)

	// A cache of 16 lines evicts each line before its next read.
	c = count(t, "row_by_lane", 0, 1, 32, meter.Machine{CacheBytes: 16 * meter.Line, Cores: 1}, []int{4 * 32 * 32, 128}, 32)
	require.Equal(t, int64(128*32*32), c.Read)
}

func TestTraffic(t *testing.T) {
	const width, groups = 64 * 32, 6 // 64 lines
	read := func(lines, cores int) int64 {
		on := meter.Machine{CacheBytes: int64(lines) * meter.Line, Cores: cores}
		c := count(t, "again", 0, groups, 32, on, []int{4 * width, 128 * groups}, width)
		require.Equal(t, []int64{4 * width, 128 * groups}, []int64{c.DistinctRead, c.DistinctWritten})
		require.Equal(t, int64((4*width+128)*groups), c.Tile)
		require.Equal(t, int64(128*groups), c.Written)
		return c.Read
	}
	require.Equal(t, int64(4*width), read(100, 2), "all fits")
	require.Equal(t, int64(4*width*2*groups), read(32, 1), "nothing is there when it is wanted")
	require.Equal(t, int64(4*width*2*groups/3), read(32, 3), "threadgroups of a wave share what they read")
}

func TestBankConflicts(t *testing.T) {
	for _, c := range []struct {
		kernel        string
		stride        uint32
		cycles, least int64
	}{
		{"apart", 1, 2, 2},
		{"apart", 2, 4, 2},
		{"apart", 3, 2, 2},
		{"apart", 4, 8, 2},
		{"apart", 8, 16, 2},
		{"apart", 16, 32, 2},
		{"apart", 32, 64, 2},
		{"wide", 0, 8, 8},
		{"scalars", 0, 4*4 + 1, 4 + 1},
		{"same", 5, 2, 2},
		{"tile", 8, 4, 4},
		{"tile", 32, 16, 4},
		{"tile", 36, 4, 4},
	} {
		t.Run(fmt.Sprint(c.kernel, " ", c.stride), func(t *testing.T) {
			buffers := []int{4 * 32 * 4}
			if c.kernel == "tile" {
				buffers = []int{256, 256}
			}
			got := count(t, c.kernel, c.stride, 1, 32, small, buffers)
			require.Equal(t, []int64{c.cycles, c.least}, []int64{got.GroupCycles, got.GroupLeast})
		})
	}
}

func TestTilesAreOfAllLanes(t *testing.T) {
	c := count(t, "tile", 8, 1, 32, small, []int{256, 256})
	require.Equal(t, []int64{512, 512}, []int64{c.Used, c.Touched})
	require.Equal(t, int64(2), c.GroupAccesses)
	require.Equal(t, int64(1), c.Meetings)
}

func TestBranches(t *testing.T) {
	const groups, threads = 3, 64
	for _, c := range []struct {
		lanes     uint32
		divergent int64
	}{{0, 0}, {32, 0}, {1, 6}, {16, 6}, {31, 6}} {
		got := count(t, "fork", c.lanes, groups, threads, small, []int{4 * groups * threads})
		require.Equal(t, []int64{groups * threads / 32, c.divergent}, []int64{got.Branches, got.Divergent}, c.lanes)
		if c.divergent > 0 {
			require.Equal(t, []meter.Site{{Where: "kernels/emulated/counted/testdata/counters.metal:73", Branches: 6, Divergent: 6}}, got.Sites)
		}
	}
	// Lane i leaves at iteration i: all but the last of 32 conditions diverge.
	c := count(t, "ragged", 0, 1, 32, small, []int{128})
	require.Equal(t, []int64{32, 31}, []int64{c.Branches, c.Divergent})
	require.Equal(t, []int64{128, 128}, []int64{c.Used, c.Touched}, "lanes that left a loop at different turns are together again")
}

// Shifts, rotations and conversions take 4 cycles of the shift pipe each; masks, additions and
// float multiplications take none.
func TestShifts(t *testing.T) {
	const groups, threads = 3, 64
	for stride, cycles := range map[uint32]int64{0: 4 + 4 + 4 + 16 + 16 + 8, 7: 4 + 4 + 4 + 4 + 16 + 16 + 8} {
		c := count(t, "bits", stride, groups, threads, small, []int{4 * groups * threads, 4 * groups * threads})
		require.Equal(t, groups*threads*cycles, c.ShiftCycles, stride)
	}
	require.Zero(t, count(t, "copy", 0, groups, threads, small, []int{4 * groups * threads, 4 * groups * threads}).ShiftCycles)
}

func TestBarriers(t *testing.T) {
	const times, groups = 5, 3
	for _, threads := range []uint32{32, 64} {
		c := count(t, "barriers", 0, groups, threads, small, []int{256}, times)
		require.Equal(t, int64(2*times*groups), c.Barriers)
		require.Equal(t, int64(groups*threads/32), c.Meetings)
		require.Equal(t, []int64{0, c.GroupLeast}, []int64{c.Divergent, c.GroupCycles})
		require.Equal(t, int64(2*times*groups*threads/32), c.GroupAccesses)
	}
}

func TestBudget(t *testing.T) {
	const n = 32 * 100
	whole := count(t, "copy", 0, 100, 32, small, []int{4 * n, 4 * n})
	on := small
	on.Budget = 1000
	cut := count(t, "copy", 0, 100, 32, on, []int{4 * n, 4 * n})
	require.Equal(t, []int64{100, 16}, []int64{cut.Groups, cut.Ran})
	require.Less(t, cut.DistinctRead, whole.DistinctRead)
	cut.Ran, cut.DistinctRead, cut.DistinctWritten = whole.Ran, whole.DistinctRead, whole.DistinctWritten
	require.Equal(t, whole, cut)
}

func TestRefusals(t *testing.T) {
	m, err := meter.NewMemory(1 << 16)
	require.NoError(t, err)
	try := func(l meter.Launch, on meter.Machine) error {
		_, err := counters(t).Count(m, l, on)
		return err
	}
	require.ErrorIs(t, try(meter.Launch{Kernel: "none"}, small), meter.ErrUnknownKernel)
	require.ErrorContains(t, try(meter.Launch{Kernel: "copy"}, meter.Machine{Cores: 1}), "0 bytes of cache")
	require.ErrorContains(t, try(meter.Launch{Kernel: "copy"}, meter.Machine{CacheBytes: 1024}), "0 cores")
	require.ErrorContains(t, try(meter.Launch{Kernel: "fork"}, small), "function constant 0 is not set")
	require.ErrorContains(t, try(meter.Launch{Kernel: "copy", Grid: [3]uint32{1 << 31, 1 << 31, 1 << 31}}, small), "threadgroups")
	require.ErrorContains(t, try(meter.Launch{Kernel: "copy", Constants: map[uint32]uint32{40: 1}}, small), "function constant index 40")
}

func TestNamesAreLookedUp(t *testing.T) {
	m, err := NewMemory(0)
	require.NoError(t, err)
	_, err = Run(m, Launch{Kernel: "none"}, small)
	require.ErrorIs(t, err, ErrUnknownKernel)
	require.EqualError(t, Compile(t.Context(), []string{"none.metal"}, nil), "no source of kernels is called none.metal")
}

func TestWithoutCompiler(t *testing.T) {
	t.Setenv("CXX", "no-such-compiler -O9")
	err := Compile(t.Context(), []string{"replicate.metal"}, nil)
	require.ErrorIs(t, err, ErrNoCompiler)
	require.EqualError(t, err, "no C++ compiler: no-such-compiler is not to be found (CXX names another)")
}

// A threadgroup may overwrite memory that it has read itself; access to memory that another
// writes is an error.
func TestApart(t *testing.T) {
	const n = 128 // elements, 32 a threadgroup
	m, err := meter.NewMemory(meter.Size(8 * n))
	require.NoError(t, err)
	b, err := m.Alloc(8 * n)
	require.NoError(t, err)
	for from, meets := range map[int]bool{0: false, n: false, 1: true, 31: true, 32: true, n - 1: true} {
		for _, way := range [][2]int{{0, from}, {from, 0}} {
			l := meter.Launch{Kernel: "copy", Grid: [3]uint32{n / 32}, Group: [3]uint32{32},
				Buffers: [][]byte{b[4*way[0]:][:4*n], b[4*way[1]:][:4*n]}}
			_, err := counters(t).Count(m, l, small)
			require.NoError(t, err)
			on := small
			on.Apart = true
			_, err = counters(t).Count(m, l, on)
			if !meets {
				require.NoError(t, err, way)
				continue
			}
			require.ErrorIs(t, err, ErrMeet, way)
			require.ErrorContains(t, err, "of buffer 0, byte ")
		}
	}
}

// Kernels that write a token's slot and attend read no slot that their own launch writes, whatever the
// sequences; a mutant that reads its own key from the cache does, and so does one whose heads all write.
func TestAttentionWriteApart(t *testing.T) {
	const heads, kvHeads, head, block, blocks, rotated = 4, 2, 32, 16, 6, 16
	common := map[string]int{"k_cache": blocks * kvHeads * block * head * 2, "v_cache": blocks * kvHeads * block * head * 2,
		"out": 3 * heads * head * 2, "part": 4 * 3 * heads * 2 * head, "statistics": 8 * 3 * heads * 2}
	for _, c := range []struct {
		family string
		sizes  map[string]int
		given  map[string]uint32
		params any
		faults [][2]string
	}{
		{"attention_write", map[string]int{"qkv": 3 * (heads + 2*kvHeads) * head * 2, "q_norm": 4 * head, "k_norm": 4 * head},
			map[string]uint32{"fc_interleaved": 0, "fc_norms": 1},
			kernels.AttentionWriteParams{Tokens: 3, Seqs: 3, Heads: heads, KvHeads: kvHeads, Head: head, Block: block, TableStride: 2,
				BlockStride: kvHeads * block * head, HeadStride: block * head, RowStride: head, Scale: 0.2, Rotated: head, FreqScale: 1, Magnitude: 1, Eps: 1e-6},
			[][2]string{
				{"is_cached ? 0xffffffff : uint(position);", "0xffffffffu;"},
				{"heads.first == heads.kv * (p.heads / p.kv_heads) && slot >= 0", "slot >= 0"},
			}},
		{"latent_attention", map[string]int{"absorbed": 3 * heads * (head - rotated) * 2, "q": 3 * heads * head * 2, "all": 3 * head * 2, "gain": 4 * (head - rotated)},
			map[string]uint32{"fc_interleaved": 0},
			kernels.LatentAttentionParams{Tokens: 3, Seqs: 3, Heads: heads, KvHeads: 1, Head: head, Block: block, TableStride: 2,
				BlockStride: kvHeads * block * head, HeadStride: block * head, RowStride: head, Scale: 0.2, QHead: head, AllStride: head, Rotated: rotated, FreqScale: 1, Magnitude: 1, Eps: 1e-6},
			[][2]string{
				{"pages.own = uint(position);", "pages.own = 0xffffffffu;"},
				{"heads.first == 0 && slot >= 0", "slot >= 0"},
			}},
	} {
		t.Run(c.family, func(t *testing.T) {
			sizes := maps.Clone(common)
			maps.Copy(sizes, c.sizes)
			checkApart(t, c.family, sizes, c.given, c.params, heads, c.faults)
		})
	}
}

// checkApart launches a kernel for three sequences: two end in the middle of a block, one at its end.
func checkApart(t *testing.T, family string, sizes map[string]int, constants map[string]uint32, params any, heads uint32, faults [][2]string) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	library := func(fault [2]string) *meter.Library {
		unit, err := mslgen.Parse("kernels/"+family+".metal", func(path string) ([]byte, error) {
			text, err := mslgen.ReadFile(root)(path)
			if err != nil || !strings.HasSuffix(path, ".metal") && !strings.HasSuffix(path, ".h") {
				return text, err
			}
			all := strings.Replace(string(text), fault[0], fault[1], 1)
			if at := strings.Index(all, "template [[host_name("); at >= 0 { // one instance compiles faster
				all = all[:at] + fmt.Sprintf("template [[host_name(\"%[1]s_f16_f16\")]]\nkernel decltype(%[1]s<half, half>) %[1]s<half, half>;\n", family)
			}
			return []byte(all), nil
		})
		require.NoError(t, err)
		l, err := load(context.Background(), family, unit.CPlusPlus(home+"/"+family+".gen.cc", shim), func() {})
		require.NoError(t, err)
		return l
	}
	const block = 16
	ints := map[string][]int32{"positions": {19, 0, 31}, "context_lens": {20, 1, 32}, "cu_seqlens": {0, 1, 2, 3}, "block_table": {3, 0, 5, 5, 1, 4},
		"slots": {0*block + 3, 5*block + 0, 4*block + 15}}
	total := int64(0)
	for _, n := range sizes {
		total += meter.Size(int64(n))
	}
	m, err := meter.NewMemory(total + int64(len(ints))*meter.Size(1))
	require.NoError(t, err)
	args := map[string][]byte{}
	for name, n := range sizes {
		args[name], err = m.Alloc(int64(n))
		require.NoError(t, err)
	}
	for name, values := range ints {
		args[name], err = m.Alloc(int64(4 * len(values)))
		require.NoError(t, err)
		for i, v := range values {
			binary.NativeEndian.PutUint32(args[name][4*i:], uint32(v))
		}
	}
	args["k_slots"] = args["k_cache"]
	if family == "attention_write" {
		args["v_slots"] = args["v_cache"]
	} else {
		args["v_cache"] = args["k_cache"]
	}
	on := meter.Machine{CacheBytes: 1 << 20, Cores: 2, Apart: true}
	try := func(l *meter.Library, parts, shared uint32) error {
		given := maps.Clone(constants)
		given["fc_heads"] = shared
		if parts > 1 {
			given["fc_split"] = 16
		}
		buffers, constants, err := kernels.Bind(family+"_f16_f16", args, params, given)
		require.NoError(t, err)
		_, err = l.Count(m, meter.Launch{Kernel: family + "_f16_f16", Buffers: buffers, Constants: constants,
			Grid: [3]uint32{heads / shared, 3, parts}, Group: [3]uint32{256}}, on)
		return err
	}
	sound := library([2]string{})
	for _, parts := range []uint32{1, 2} {
		for _, shared := range []uint32{1, 2} {
			require.NoError(t, try(sound, parts, shared))
		}
	}
	for _, fault := range faults {
		require.ErrorIs(t, try(library(fault), 1, 1), ErrMeet, fault)
	}
}

// The counted kernels have the C++ of package emulated, whose units share headers.
func TestTranslate(t *testing.T) {
	shared := regexp.MustCompile(`(?m)^#include "(\w+\.gen\.h)"\n`)
	place := regexp.MustCompile(`(?m)^#line \d+ "kernels/emulated/.*\n`) // of the generated file itself
	for _, file := range kernels.Files() {
		want, err := os.ReadFile(filepath.Join("..", strings.TrimSuffix(filepath.Base(file), ".metal")+".gen.cc"))
		require.NoError(t, err)
		got, err := translate(file)
		require.NoError(t, err)
		if at := shared.FindSubmatchIndex(want); at != nil {
			header, err := os.ReadFile(filepath.Join("..", string(want[at[2]:at[3]])))
			require.NoError(t, err)
			text := bytes.SplitN(header, []byte("\n"), 3)[2] // without its two comments
			want = slices.Concat(want[:at[0]], text, want[at[1]:])
		}
		want, got = place.ReplaceAll(want, nil), place.ReplaceAll(got, nil)
		require.True(t, bytes.Equal(want, got), "%s: the C++ that is counted is not that of the package: run go generate ./kernels/...", file)
	}
}
