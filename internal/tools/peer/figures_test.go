//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

func TestParseCell(t *testing.T) {
	for text, want := range map[string]cell{
		"pp512": {Test: prompting, Tokens: 512}, "tg64": {Test: generating, Tokens: 64},
		"tg64@4096": {Test: generating, Tokens: 64, Depth: 4096}, "pp1@1": {Test: prompting, Tokens: 1, Depth: 1},
		"tg128x16@64": {Test: generating, Tokens: 128, Depth: 64, Parallel: 16},
	} {
		c, err := parseCell(text)
		require.NoError(t, err)
		require.Equal(t, want, c)
		require.Equal(t, text, c.String())
	}
	for _, text := range []string{"", "pp", "pp0", "tg-1", "tg64@", "tg64@@1", "xx64", "pp512 ", "pp1000000", "pp512x4@1", "tg64x4", "tg64x0@1", "tg64x@1"} {
		_, err := parseCell(text)
		require.Error(t, err, text)
	}
}

// The figures were counted by hand when the limits of llama.cpp were studied: MB and
// 10⁹ operations a token.
func TestWorkload(t *testing.T) {
	for _, test := range []struct {
		shape, format        string
		weights, cached, ops float64
		quantized            bool
	}{
		{"qwen3-0.6b", "f16", 1192, 473, 0.917, false},
		{"qwen3-0.6b", "q8_0", 634, 473, 0.917, true},
		{"qwen3-0.6b", "q4_0", 376, 473, 0.917, true},
		{"qwen3-0.6b", "q4_k_m", 391, 473, 0.917, true},
		{"llama3.2-1b", "f16", 2472, 135, 1.872, false},
		{"llama3.2-1b", "q4_0", 763, 135, 1.872, true},
	} {
		m, err := checkpoint.Arch(test.shape, test.format)
		require.NoError(t, err)
		w := workloadOf(m)
		require.InDelta(t, test.weights, float64(w.Weights)/1e6, 1, test)
		shallow, deep := w.bytesPerToken(cell{Test: generating, Tokens: 64}), w.bytesPerToken(cell{Test: generating, Tokens: 64, Depth: 4096})
		require.InDelta(t, test.cached, (deep-float64(w.Weights))/1e6, 1, test)
		require.InDelta(t, float64(w.Cached)*4096, deep-shallow, 1, test)
		require.InDelta(t, test.ops, w.opsPerToken(cell{Test: prompting, Tokens: 512})/1e9, 0.002, test)
		require.Equal(t, test.quantized, w.Quantized)
		many := cell{Test: generating, Tokens: 64, Depth: 4096, Parallel: 16}
		require.InDelta(t, float64(w.Weights)*15/16, deep-w.bytesPerToken(many), 1, "a token's share of the weights")
		require.InDelta(t, float64(w.Last+w.Head), w.opsPerToken(many)-float64(w.Products)-float64(w.Attention)*many.keys()/64, 1, "each has a head, and the last layer's products")
	}
}

// An embedding that is not the head as well is read row by row.
func TestWorkloadUntied(t *testing.T) {
	m, err := checkpoint.Arch("llama3.1-8b", "f16")
	require.NoError(t, err)
	require.False(t, m.Config.Tied)
	embedding, ok := m.Tensor("token_embd.weight")
	require.True(t, ok)
	var all int64
	for _, tensor := range m.Tensors() {
		all += tensor.Bytes()
	}
	require.Equal(t, all-embedding.Bytes(), workloadOf(m).Weights)
}

// A token reads the experts that it chose, many sequences together nearly all; a state is read and
// written whole; a window bounds what a layer reads of its cache. In MB, counted by hand, routers
// in F32.
func TestWorkloadByLayer(t *testing.T) {
	for _, test := range []struct {
		shape                       string
		weights, many, state, cache float64 // of a token: alone, among 16, its states, its keys and values behind 4,096
	}{
		{"olmoe-1b-7b", 751.8 + 1610.6, (751.8 + 0.88194*12884.9) / 16, 0, 0.131072 * 4128.5},
		{"qwen3.5-0.8b", 1504.9, 1504.9 / 16, 37.75, 0.012288 * 4128.5},
		{"gemma3-1b", 1999.9, 1999.9 / 16, 0, 0.001024 * (4*4128.5 + 22*512)},
	} {
		m, err := checkpoint.Arch(test.shape, "f16")
		require.NoError(t, err)
		w := workloadOf(m)
		require.InDelta(t, test.state, float64(w.State)/1e6, 0.01, test.shape)
		alone := w.bytesPerToken(cell{Test: generating, Tokens: 64, Depth: 4096})
		require.InDelta(t, test.weights+test.state+test.cache, alone/1e6, 1, test.shape)
		among := w.bytesPerToken(cell{Test: generating, Tokens: 64, Depth: 4096, Parallel: 16})
		require.InDelta(t, test.many+test.state+test.cache, among/1e6, 1, test.shape)
	}
	require.InDelta(t, 3+4+5+5+5, cell{Tokens: 5, Depth: 2}.keysWithin(5), 0, "a window that fills within the cell")
	require.InDelta(t, 6*5, cell{Tokens: 6, Depth: 9}.keysWithin(5), 0, "one that is full")
}

func TestFigures(t *testing.T) {
	work, limit := &workload{Weights: 1e9, Products: 2e9}, ceiling{read: 40, ops: 1000}
	s := samples{Cell: cell{Test: generating, Tokens: 1}, Pairs: []pair{
		{Smelt: 20, Peer: 10, Read: 30},                // 2, and two thirds of the bandwidth beside it
		{Smelt: 99, Peer: 1, Read: 99, Others: 0.5},    // others had half of the machine
		{Smelt: 30, Peer: 10, Read: 40, Others: 0.02},  // 3
		{Smelt: 10, Peer: 10, Read: 40, Others: 0.025}, // 1
		{Smelt: 40, Peer: 10, Read: 40, Others: 0.03},  // 4, slightly disturbed
	}}
	f := s.figures(work, limit, 3)
	require.Equal(t, figures{Pairs: 3, Clean: 3, Smelt: 20, Peer: 10, Ratio: 2, Read: 40, SmeltShare: 2.0 / 3, PeerShare: 0.25}, f)
	f = s.figures(work, limit, 4)
	require.Equal(t, 3, f.Clean, "the least disturbed fills up")
	require.InDelta(t, 2.5, f.Ratio, 1e-9)
	require.InDelta(t, 25, f.Smelt, 1e-9)

	for i := range s.Pairs { // the machine has become twice as fast, and both engines with it
		s.Pairs[i].Smelt, s.Pairs[i].Peer, s.Pairs[i].Read = 2*s.Pairs[i].Smelt, 2*s.Pairs[i].Peer, 2*s.Pairs[i].Read
	}
	f = s.figures(work, limit, 3)
	require.Equal(t, figures{Pairs: 3, Clean: 3, Smelt: 40, Peer: 20, Ratio: 2, Read: 80, SmeltShare: 2.0 / 3, PeerShare: 0.25}, f)
	for i := range s.Pairs {
		s.Pairs[i].Smelt, s.Pairs[i].Read = s.Pairs[i].Smelt/2, 0
	}
	require.InDelta(t, 0.5, s.figures(work, limit, 3).SmeltShare, 1e-9, "of the limit, where nothing was read beside a pair")

	s.Cell = cell{Test: prompting, Tokens: 1}
	f = s.figures(work, limit, 3)
	require.InDelta(t, 0.04, f.SmeltShare, 1e-9, "20 × 2·10⁹ of 1000·10⁹")
}

// Shares are of the highest peak of the arithmetic that weights allow, whichever model it was
// probed beside.
func TestPeaks(t *testing.T) {
	r := &report{Models: []bench{
		{Float: 100, Int8: 900, Read: 30, Cells: []samples{{Pairs: []pair{{Read: 31}, {Read: 29}}}}}, {Float: 90, Int8: 1000, Read: 28},
	}}
	require.Equal(t, ceiling{31, 100}, r.ceiling(ofFloats))
	require.Equal(t, ceiling{31, 1000}, r.ceiling(ofBytes))
	r.Models[1].Read = 32
	require.Equal(t, ceiling{32, 1000}, r.ceiling(ofBytes))
}

// The median of ratios is not the ratio of medians: noise that both engines see at once
// cancels in a pair.
func TestRatioOfPairs(t *testing.T) {
	s := samples{Cell: cell{Test: generating, Tokens: 1}, Pairs: []pair{{Smelt: 12, Peer: 10, Read: 1}, {Smelt: 60, Peer: 50, Read: 1}, {Smelt: 25, Peer: 20, Read: 1}}}
	require.InDelta(t, 1.2, s.figures(&workload{}, ceiling{}, 3).Ratio, 1e-9)
}

// madeUp is a comparison with wins, losses and one that passes only because the memory
// is at its limit.
func madeUp() *report {
	pairs := func(smelt, peer, read float64) []pair {
		return []pair{
			{Smelt: smelt * 0.99, Peer: peer * 0.98, Read: read}, {Smelt: smelt, Peer: peer, Read: read}, {Smelt: smelt * 1.01, Peer: peer * 1.02, Read: read, Others: 0.04},
		}
	}
	cells := func(pp, tg, deep [2]float64, read float64) []samples {
		return []samples{
			{Cell: cell{Test: prompting, Tokens: 512}, Flash: &attention{On: 220, Off: 219}, Pairs: pairs(pp[0], pp[1], read)},
			{Cell: cell{Test: generating, Tokens: 64}, Pairs: pairs(tg[0], tg[1], read)},
			{Cell: cell{Test: generating, Tokens: 64, Depth: 4096}, Flash: &attention{On: 5, Off: 6.3}, Pairs: pairs(deep[0], deep[1], read)},
		}
	}
	work := func(weights int64, quantized bool) workload {
		return workload{Quantized: quantized, Weights: weights, Cached: 114688, Products: 880803840, Head: 311164928, Attention: 229376}
	}
	return &report{
		Date: time.Date(2026, 11, 20, 21, 40, 0, 0, time.UTC), Machine: "2 CPUs of a test", Threads: 2, Pairs: 3,
		Smelt:   hello{Name: "smelt", Version: "abc1234", Detail: "avx512"},
		Peer:    &hello{Name: "llama.cpp", Version: "0.5.0", Detail: "icelake"},
		Startup: []startup{{"qwen3-0.6b q4_0", 0.25}, {"qwen3-0.6b q4_0", 0.9}, {"qwen3-0.6b q4_0", 0.28}},
		Models: []bench{
			{Model: "qwen3-0.6b", Format: "f16", Work: work(1192e6, false), Float: 372, Int8: 1550, SmeltPeak: 1700e6, PeerMapped: 1732e6, PeerRead: 1740e6,
				Cells: cells([2]float64{220, 163}, [2]float64{25, 25.7}, [2]float64{15, 8}, 34)},
			{Model: "qwen3-0.6b", Format: "q4_0", Work: work(376e6, true), Float: 370, Int8: 1500, SmeltPeak: 1200e6, PeerMapped: 1600e6, PeerRead: 1187e6,
				Cells: cells([2]float64{680, 220}, [2]float64{37, 38}, [2]float64{27, 6.3}, 34)},
		},
	}
}

func TestTables(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, madeUp().write(&out))
	golden.Check(t, "testdata/report.md", out.String())

	out.Reset()
	require.NoError(t, withFork(madeUp()).write(&out))
	golden.Check(t, "testdata/forked.md", out.String())

	require.NotContains(t, out.String(), "again and again")
	out.Reset()
	deep := madeUp()
	deep.Models[1].Cells[2].Cell.Depth = 16384
	require.NoError(t, deep.write(&out))
	require.Contains(t, out.String(), "Beyond a depth of 4096 a cache that the others' driver fills is one prompt again and again")
	require.Contains(t, string(driverSource), fmt.Sprintf("constexpr int PIECE = %d;", filled))

	alone := madeUp()
	alone.Peer = nil
	for i := range alone.Models {
		b := &alone.Models[i]
		b.PeerMapped, b.PeerRead = 0, 0
		for j := range b.Cells {
			b.Cells[j].Flash = nil
		}
		for j := range b.Cells {
			for k := range b.Cells[j].Pairs {
				b.Cells[j].Pairs[k].Peer = 0
			}
		}
	}
	out.Reset()
	require.NoError(t, alone.write(&out))
	golden.Check(t, "testdata/alone.md", out.String())
}

func TestCriteria(t *testing.T) {
	all := madeUp().criteria()
	require.Len(t, all, 7)
	require.Equal(t, []string{"qwen3-0.6b q4_0 tg64 0.97"}, all[0].Missed, "f16 tg64 is at the limit of the memory, where 0.97 will do")
	require.Contains(t, all[0].Met, "qwen3-0.6b f16 tg64 0.97")
	require.Len(t, all[1].Met, 1)
	require.Equal(t, []string{"qwen3-0.6b f16 pp512 56 %", "qwen3-0.6b q4_0 pp512 41 %"}, all[2].Missed, "of the peak beside F16, which has no part in it")
	require.Equal(t, []string{"qwen3-0.6b f16 tg64 88 %"}, all[3].Met)
	require.Equal(t, 2, all[4].Of)
	require.Equal(t, []string{"qwen3-0.6b q4_0 1200 against 1187 MB"}, all[5].Missed)

	require.Equal(t, []string{"qwen3-0.6b q4_0 280 ms (median of 3)"}, all[6].Met)

	short := madeUp()
	short.Models[0].Half = 775
	require.Contains(t, short.criteria()[2].Wanted, "F16 70 % of the peak of 16-bit integers")
	require.Equal(t, []string{"qwen3-0.6b f16 pp512 27 %", "qwen3-0.6b q4_0 pp512 41 %"}, short.criteria()[2].Missed)

	fast := madeUp()
	fast.Models[1].Read = 60
	require.InDelta(t, 60, fast.read(), 1e-9)
	require.InDelta(t, 34, fast.reads(), 1e-9)
	require.InDelta(t, math.Cbrt(math.Sqrt(1.35*0.973*1.875*3.09*0.974*4.286)), fast.mean(toPeer), 0.01)
}

// Without instructions that multiply bytes other shares are wanted, and to be ahead of all will do.
func TestCriteriaWithoutVNNI(t *testing.T) {
	r := withFork(madeUp())
	r.Smelt.Detail = "avx2"
	all := r.criteria()
	require.Contains(t, all[2].verdict(), "q4_0 pp512 41 %")
	require.Contains(t, all[3].Missed, "qwen3-0.6b q4_0 tg64 41 %", "no float format, and behind")
	for i := range r.Models[1].Cells[1].Pairs {
		r.Models[1].Cells[1].Pairs[i].Peer /= 1.3
	}
	require.Contains(t, r.criteria()[3].Missed, "qwen3-0.6b q4_0 tg64 41 %", "ahead of one rival only")
	for i := range r.Models[1].Cells[1].Fork.Pairs {
		r.Models[1].Cells[1].Fork.Pairs[i].Peer /= 1.3
	}
	require.Contains(t, r.criteria()[3].Met, "qwen3-0.6b q4_0 tg64 1.27 ×")
}

// withFork adds a rival that is level in all cells but the first, where it is ahead of both.
func withFork(r *report) *report {
	r.Fork = &hello{Name: "ik_llama.cpp", Version: "8337e4c", Detail: "native"}
	for i := range r.Models {
		for j := range r.Models[i].Cells {
			s := &r.Models[i].Cells[j]
			s.Fork = &versus{Ways: []float64{100, 90}}
			if i+j == 0 {
				s.Fork.Ways[1] = 110
			}
			for _, p := range s.Pairs {
				p.Peer = p.Smelt
				if i+j == 0 {
					p.Peer *= 1.1
				}
				s.Fork.Pairs = append(s.Fork.Pairs, p)
			}
		}
	}
	return r
}

// What is judged is the ratio to the better of two rivals.
func TestBest(t *testing.T) {
	r := withFork(madeUp())
	all := r.criteria()
	require.Equal(t, []string{"qwen3-0.6b f16 pp512 0.91", "qwen3-0.6b q4_0 tg64 0.97"}, all[0].Missed)
	require.Equal(t, []string{"1.78 × llama.cpp"}, all[1].Met)
	require.Equal(t, []string{"0.98 × the best"}, all[1].Missed)
	require.InDelta(t, 1.2, (&figures{Ratio: 1.2}).best(), 0, "no fork")
	require.InDelta(t, 0.7, (&figures{ForkRatio: 0.7}).best(), 0, "the fork alone")
	for k := range r.Models[0].Cells[1].Fork.Pairs {
		r.Models[0].Cells[1].Fork.Pairs[k].Peer = 40
	}
	require.Equal(t, []fault{{true, "ik_llama.cpp" + ", qwen3-0.6b f16 tg64: 141 %"}}, r.faults())
}

// A probe that reads too slowly is noticed: what depends on it cannot be judged, and the
// report says which speed gave it away.
func TestProbeFaults(t *testing.T) {
	require.Empty(t, madeUp().faults())
	slow := madeUp() // of the bandwidth, as an AVX2 loop of too many streams had it
	for i := range slow.Models {
		for j := range slow.Models[i].Cells {
			for k := range slow.Models[i].Cells[j].Pairs {
				slow.Models[i].Cells[j].Pairs[k].Read = 6.8
			}
		}
	}
	faults := slow.faults()
	require.Len(t, faults, 7, "each engine, at each depth, of each model, but for one at 77 %")
	require.Equal(t, fault{true, "smelt, qwen3-0.6b f16 tg64: 440 %"}, faults[0])
	all := slow.criteria()
	require.Contains(t, all[0].Open, "qwen3-0.6b q4_0 tg64 0.97: whether it is at the limit the probe does not tell")
	for _, c := range []int{0, 3, 4} {
		require.Contains(t, all[c].verdict(), "cannot be judged", all[c].Wanted)
	}
	require.Zero(t, all[3].Of, "nothing is met")
	require.Zero(t, all[4].Of)
	require.NotContains(t, all[2].verdict(), "cannot be judged", "the peaks are as good as before")

	weak := madeUp()
	weak.Models[0].Int8, weak.Models[1].Int8 = 500, 500
	require.Equal(t, []fault{{false, "smelt, qwen3-0.6b q4_0 pp512: 128 %"}}, weak.faults())
	require.Contains(t, weak.criteria()[2].verdict(), "cannot be judged")

	// A processor that does more nibbles has another limit, and the criteria of bytes.
	weak.Smelt.Detail = "avx2"
	weak.Models[1].Nibbles = 900
	require.Empty(t, weak.faults())
	require.Contains(t, weak.criteria()[2].Met, "qwen3-0.6b q4_0 pp512 128 %")
	require.Contains(t, weak.peaks(), "those of nibbles 900 GOP/s")

	// Between the whole and 105 % lies noise.
	noisy := madeUp()
	noisy.Models, noisy.Models[0].Cells = noisy.Models[:1], noisy.Models[0].Cells[1:2]
	for k, read := range []float64{29.5, 29.5, 29.5} {
		noisy.Models[0].Cells[0].Pairs[k].Read = read
	}
	require.Empty(t, noisy.faults())
	require.Empty(t, noisy.criteria()[3].Open)
}

// What was not measured is not met.
func TestNothingToJudge(t *testing.T) {
	for _, c := range (&report{}).criteria() {
		require.Equal(t, "**cannot be judged**: nothing was measured for it", c.verdict(), c.Wanted)
	}
	unknown := madeUp() // of an instruction set whose peaks nobody has written
	unknown.Models[0].Int8, unknown.Models[1].Int8 = 0, 0
	require.Contains(t, unknown.criteria()[2].verdict(), "**cannot be judged**: qwen3-0.6b q4_0 pp512: the limit was not probed")
	mixed := criterion{Of: 2, Met: []string{"a", "b"}, Open: []string{"c"}}
	require.Equal(t, "**cannot be judged**: c; 2 others are met", mixed.verdict())
	mixed.Of, mixed.Missed = 3, []string{"d"}
	require.Equal(t, "**2 of 3**; not d; **cannot be judged**: c", mixed.verdict())
}

// Samples in the repository give the table again, and lie there a cell a line.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	r := madeUp()
	require.NoError(t, r.publish(dir))
	path := filepath.Join(dir, "2026-11-20-2140-abc1234.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1+2*(1+3)+3, strings.Count(string(text), "\n"))
	again, err := readReport(path)
	require.NoError(t, err)
	require.Equal(t, r, again)
}

// The table in docs/performance.md is what the newest samples give.
func TestDocument(t *testing.T) {
	kept, err := filepath.Glob("../../" + samplesFolder + "/*.json")
	require.NoError(t, err)
	if len(kept) == 0 {
		t.Skip("no whole comparison has left samples in " + samplesFolder + " yet: make bench-peer")
	}
	r, err := readReport(kept[len(kept)-1])
	require.NoError(t, err)
	document, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	want, err := replace(document, r)
	require.NoError(t, err)
	require.Equal(t, string(want), string(document))
}

func TestReplace(t *testing.T) {
	document := []byte("# Speed\n\n" + opening + "\nstale\n" + closing + "\nrest\n")
	out, err := replace(document, madeUp())
	require.NoError(t, err)
	require.Contains(t, string(out), "# Speed\n\n"+opening+"\n\nsmelt (abc1234, avx512) beside llama.cpp")
	require.Contains(t, string(out), "\n\n"+closing+"\nrest\n")
	require.NotContains(t, string(out), "stale")
	again, err := replace(out, madeUp())
	require.NoError(t, err)
	require.Equal(t, string(out), string(again))
	for _, broken := range []string{"", opening, closing, closing + "\n" + opening} {
		_, err := replace([]byte(broken), madeUp())
		require.ErrorContains(t, err, "no lines", "%q", broken)
	}
}

func TestWhole(t *testing.T) {
	r := madeUp()
	require.False(t, r.whole())
	r.Pairs, r.Models = wholePairs, nil
	pairs := make([]pair, wholePairs)
	for range len(shapes) * len(formats) {
		r.Models = append(r.Models, bench{Cells: []samples{
			{Cell: cell{Test: prompting, Tokens: 512}, Pairs: pairs}, {Cell: cell{Test: generating, Tokens: 64}, Pairs: pairs},
			{Cell: cell{Test: generating, Tokens: 64, Depth: 4096}, Pairs: pairs},
		}})
	}
	require.True(t, r.whole())
	r.Models[3].Cells[2].Pairs = pairs[1:]
	require.False(t, r.whole())
}

func TestEnter(t *testing.T) {
	r := &report{}
	for _, b := range []bench{
		{Model: "llama3.2-1b", Format: "f16"}, {Model: "qwen3-0.6b", Format: "q4_0"}, {Model: "qwen3-0.6b", Format: "f16"}, {Model: "qwen3-0.6b", Format: "q4_0", Int8: 7},
	} {
		r.enter(&b)
	}
	require.Equal(t, []bench{
		{Model: "qwen3-0.6b", Format: "f16"}, {Model: "qwen3-0.6b", Format: "q4_0", Int8: 7}, {Model: "llama3.2-1b", Format: "f16"},
	}, r.Models)
	require.NoError(t, r.meet(hello{Name: "smelt"}, &r.Smelt))
	require.ErrorContains(t, r.meet(hello{Name: "smelt", Version: "2"}, &r.Smelt), "smelt is 2")
}
