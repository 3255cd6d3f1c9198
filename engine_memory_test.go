//go:build linux

package smelt_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// resident returns the bytes of memory that the process has touched, files aside.
func resident(t *testing.T) int64 {
	runtime.GC()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`RssAnon:\s+(\d+) kB`).FindSubmatch(bytes.TrimSpace(status))
	require.NotNil(t, found)
	n, err := strconv.ParseInt(string(found[1]), 10, 64)
	require.NoError(t, err)
	return n << 10
}

// TestOnlyUsedPages: of a cache that is far larger than what requests need, only the blocks
// take memory that their tokens lie in, however many requests follow each other; beside it
// an engine takes its arena and what steps give, as it says beforehand.
func TestOnlyUsedPages(t *testing.T) {
	c := tiny.Small()
	c.Layers, c.Context = 4, 4096
	opts := fixture.Options(t, "cpu", dtype.F32)
	opts.Context, opts.Sequences, opts.Block, opts.Prefill = c.Context, 4, 32, 64
	l := fixture.Load(t, fixture.Random(t, c, "f16"), opts, smelt.Device{Name: "cpu", Threads: 2})
	block, err := l.OnDevice().InstanceMemory(1)
	require.NoError(t, err)
	before := resident(t)
	e := fixture.Engine(t, l, smelt.EngineOptions{CacheBytes: 16384 * block.Cache})
	m := e.OnDevice().Memory()
	slack := int64(6 << 20) // the runtime's, and the device's own
	if testfiles.UnderQEMU() {
		slack *= 4 // its translations
	}
	require.Greater(t, m.Cache, 8*slack)
	require.LessOrEqual(t, resident(t)-before, m.Arena+m.Outputs+m.Inputs+slack, "nothing is used yet")

	r := rand.New(rand.NewPCG(5, 5))
	ran := func(prompt []int32, n int) {
		a := collect(e.Generate(t.Context(), smelt.Request{Tokens: prompt, Generation: smelt.Generation{N: n, IgnoreStop: true}}))
		require.NoError(t, a.err)
	}
	const at, length = 4, 200
	tokens := 0
	for range 3 {
		var wait sync.WaitGroup
		for range at {
			prompt := make([]int32, length)
			for i := range prompt {
				prompt[i] = int32(r.IntN(c.Vocab))
			}
			tokens += length + 8
			wait.Go(func() { ran(prompt, 8) })
		}
		wait.Wait()
	}
	blocks := int64(tokens/32 + 3*at*2)
	grown := resident(t) - before
	t.Logf("%d bytes more of at most %d for %d blocks; the whole cache would be %d", grown, m.Arena+m.Outputs+m.Inputs+blocks*block.Cache, blocks, m.Cache)
	require.LessOrEqual(t, grown, m.Arena+m.Outputs+m.Inputs+blocks*block.Cache+slack)

	// What has no full block is forgotten, and its memory used again.
	before = resident(t)
	for range 200 {
		ran([]int32{int32(r.IntN(c.Vocab)), 1, 2, 3}, 4)
	}
	require.LessOrEqual(t, resident(t)-before, slack/3, "200 requests of 8 tokens")
	require.Equal(t, e.Stats().Blocks, e.Stats().Free)
}

// TestEngineForgets: however long an engine runs, what requests leave behind is bounded:
// neither Go's heap nor the memory outside it, neither goroutines nor blocks, grow with the
// number of requests, in whichever way they are decoded and however they end.
func TestEngineForgets(t *testing.T) {
	const model, at = "tiny-llama", 40
	warm, rounds, ways := 8, 15, map[string]way{"draft": byDraft}
	if testfiles.Full("models") {
		warm, rounds, ways = 300, 500, engineWays // what lookups remember is full by then
	}
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			opts := fixture.Options(t, "cpu", dtype.F16)
			opts.Context, opts.Prefill, opts.Sequences, opts.Block = 128, 48, 8, 8
			device := smelt.Device{Name: "cpu", Threads: 2}
			l := fixture.Load(t, testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), opts, device)
			block, err := l.OnDevice().InstanceMemory(1)
			require.NoError(t, err)
			o := smelt.EngineOptions{CacheBytes: 20 * block.Cache}
			switch by {
			case byLookup:
				o.Speculate = engine.SpeculateNgram
			case byDraft:
				o.Draft = fixture.Load(t, testfiles.Model(t, model+"/gguf/"+model+"-Q4_0.gguf"), opts, device)
			}
			r := rand.New(rand.NewPCG(3, 7))
			texts := texts(t, l, 3, 60)
			smelt.GuessEagerly(t)
			e := fixture.Engine(t, l, o)
			round := func() {
				var wait sync.WaitGroup
				for _, q := range requests(r, at, 60, texts) {
					most := math.MaxInt
					if r.IntN(4) == 0 {
						most = 1 + r.IntN(4)
					}
					wait.Go(func() { collectSome(e.Generate(t.Context(), q), most) })
				}
				wait.Wait()
				require.Eventually(t, func() bool { s := e.Stats(); return s.Running+s.Waiting == 0 }, time.Minute, time.Millisecond)
			}
			for range warm { // tables that grow with what is at once in them are as large as they get
				round()
			}
			// What is lost is lost each time; what comes and goes, such as pages that the
			// runtime keeps, is not there every time.
			const mostHeap, mostResident = 64 << 10, 2 << 20 // 25 kB come and go
			lost := func() bool {
				goroutines, outside, heap := runtime.NumGoroutine(), resident(t), inUse()
				for range rounds {
					round()
				}
				gone(t, goroutines)
				heap, outside = inUse()-heap, resident(t)-outside
				t.Logf("%d requests more: %d bytes of heap, %d resident", rounds*at, heap, outside)
				return heap > mostHeap || outside > mostResident
			}
			leaks := true
			for range 3 { // what is lost once only was not lost by requests
				leaks = leaks && lost()
			}
			require.False(t, leaks)
			require.Equal(t, e.Stats().Blocks, e.Stats().Free)
		})
	}
}

// inUse returns the bytes of Go's heap that something refers to.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
