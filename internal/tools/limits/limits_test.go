package limits

import (
	"os/exec"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels/native"
)

func TestProbe(t *testing.T) {
	c := Probe(native.ISA(), 2)
	t.Logf("%s, 2 threads: %+v", native.ISA(), c)
	require.Positive(t, c.ReadGBs)
	require.Less(t, c.ReadGBs, 1e4, "the sums were left out")
	if peaksOf(native.ISA()).f32 != nil {
		// 1000 GFLOP/s per thread would be twenty multiply-adds of 512 bits per nanosecond: the
		// compiler has emptied the loop.
		require.Positive(t, c.F32GOPs)
		require.Less(t, c.F32GOPs, 2*1000.0)
		require.Positive(t, c.Int8GOPs)
		require.Less(t, c.Int8GOPs, 2*4000.0)
		require.GreaterOrEqual(t, c.NibbleGOPs, c.Int8GOPs)
		require.Less(t, c.NibbleGOPs, 2*4000.0)
	}
}

// Only AVX2 sums products of nibbles before widening them.
func TestNibbles(t *testing.T) {
	for _, l := range native.Libraries() {
		require.Equal(t, l.ISA() == "avx2", peaksOf(l.ISA()).nibbles != nil, l.ISA())
	}
}

// g++ keeps an array of sums in memory if any loop indexes it. Each multiply-add then stores its
// sum, at one store per cycle instead of two multiply-adds. Nibbles have more numbers than
// registers, and many products per store.
func TestSumsInRegisters(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("reads the assembly of g++ for x86-64, as CI has it")
	}
	code, err := exec.Command("g++", "-std=c++17", "-O3", "-S", "-o", "-", "peaks.cc").Output()
	require.NoError(t, err)
	functions := regexp.MustCompile(`(?ms)^_ZN\S*?_GLOBAL__N_1\d+(\w+?)El:$(.*?)^\s+\.cfi_endproc`).FindAllSubmatch(code, -1)
	store := regexp.MustCompile(`\tv?mov\w+\t%[xyz]mm\d+, \S*\(`)
	stores := map[string]int{}
	for _, f := range functions {
		stores[string(f[1])] = len(store.FindAll(f[2], -1))
	}
	delete(stores, "avx2_nibbles")
	require.Equal(t, map[string]int{"avx512_f32": 0, "avx512_int8": 0, "avxvnni_int8": 0, "avx2_f32": 0, "avx2_int8": 0}, stores)
}

func TestProbeWithoutCode(t *testing.T) {
	require.Zero(t, peak(peaksOf("portable").f32, 1))
}

func TestReader(t *testing.T) {
	r := NewReader(1000, 3) // 15 whole lines
	defer r.Close()
	for _, b := range r.buffers {
		total := 0
		for i := range 3 {
			total += len(r.share(b.bytes, i))
		}
		require.Equal(t, 15*lineBytes, total)
	}
	require.Positive(t, r.GBs(1))
	require.Positive(t, r.sums[0], "what was written is what is read")
	ways := r.Try(1)
	for i, w := range ways {
		require.Positive(t, w.GBs, w)
		require.True(t, i == 0 || w.GBs <= ways[i-1].GBs, "the fastest first")
	}
}

// The probe finds at least the bandwidth of a plain loop: one stream, eight bytes at a time, no
// prefetch, default pages. The highest rate of alternate rounds counts, and rounds go on while a
// disturbance could explain the difference.
func TestProbeBesideAPlainLoop(t *testing.T) {
	const threads, bytes = 2, 128 << 20
	r := NewReader(bytes, threads)
	defer r.Close()
	words := make([]uint64, bytes/8)
	for i := range words {
		words[i] = 1
	}
	var sums [threads]uint64
	plain, probed := 0.0, 0.0
	for turn := range 90 {
		if turn >= 9 && probed >= 0.9*plain {
			break
		}
		elapsed := together(threads, func(i int) {
			sum := uint64(0)
			for _, w := range words[i*len(words)/threads : (i+1)*len(words)/threads] {
				sum += w
			}
			sums[i] = sum
		})
		plain = max(plain, float64(bytes)/float64(elapsed.Nanoseconds()))
		probed = max(probed, r.GBs(1))
	}
	require.EqualValues(t, len(words), sums[0]+sums[1])
	t.Logf("probed %.1f GB/s, the plain loop %.1f", probed, plain)
	require.GreaterOrEqual(t, probed, 0.9*plain)
}

// Every word counts once in every way, whatever remainder the streams leave.
func TestSum(t *testing.T) {
	ways := loads()
	require.NotEmpty(t, ways)
	for lines := range 70 {
		b, want := make([]byte, lines*lineBytes), uint64(0)
		for i := 0; i < len(b); i += 8 {
			b[i], b[i+1] = byte(i/8+1), 1
			want += uint64(byte(i/8+1)) + 1<<8
		}
		for _, w := range ways {
			require.Equal(t, want, w.sum(b), "%d lines, %v", lines, w)
		}
	}
}
