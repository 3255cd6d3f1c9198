//go:build linux

package smelt_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
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
	opts := options(t, "cpu", ir.F32)
	opts.Context, opts.Sequences, opts.Block, opts.Prefill = c.Context, 4, 32, 64
	l := loaded(t, random(t, c, "f16"), opts, smelt.Device{Name: "cpu", Threads: 2})
	block, err := l.OnDevice().InstanceMemory(1)
	require.NoError(t, err)
	before := resident(t)
	e := newEngine(t, l, smelt.EngineOptions{CacheBytes: 16384 * block.Cache})
	m := e.OnDevice().Memory()
	const slack = 6 << 20 // the runtime's, and the device's own
	require.Greater(t, m.Cache, int64(8*slack))
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
	require.LessOrEqual(t, resident(t)-before, int64(slack/3), "200 requests of 8 tokens")
	require.Equal(t, e.Stats().Blocks, e.Stats().Free)
}
