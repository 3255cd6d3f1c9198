//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

// TestBatchMemory runs requests that fill a cache, and one: the process takes the blocks of its
// cache that have tokens, beside them its weights and its arena, as explain says beforehand, and
// no more where as many requests follow twice, with guesses and without.
func TestBatchMemory(t *testing.T) {
	model := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	const context, parallel, length = 512, 16, 448 // of 512, so that nobody gives up blocks
	run := process(t)
	explained := func(flags ...string) (e struct {
		Weights int64 `json:"weight_bytes"`
		Cache   int64 `json:"cache_bytes"`
		Arena   int64 `json:"arena_bytes"`
	}) {
		out, _, _ := run("", append([]string{"explain", model, "--target", "cpu", "--ctx", strconv.Itoa(context), "--kv", "f32", "--json"}, flags...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &e))
		return e
	}
	cache, step := explained("--sequences", strconv.Itoa(parallel)).Cache, explained("--phase", "prefill", "--tokens", strconv.Itoa(context))
	_, _, base := run("a", "tokenize", model)
	measured := func(requests int, flags ...string) (resident int64) {
		r := rand.New(rand.NewPCG(1, 1))
		var in strings.Builder
		lines := json.NewEncoder(&in)
		for range requests {
			prompt := make([]int, length)
			for i := range prompt {
				prompt[i] = r.IntN(1024)
			}
			require.NoError(t, lines.Encode(map[string]any{"tokens": prompt, "n": 32, "ignore_stop": true}))
		}
		args := []string{"batch", model, "--ctx", strconv.Itoa(context), "--parallel", strconv.Itoa(parallel), "--kv", "f32", "--device", "cpu"}
		out, problems, resident := run(in.String(), append(args, flags...)...)
		require.Equal(t, requests, strings.Count(out, `"finish":"length"`), out)
		require.Contains(t, problems, fmt.Sprintf("weights %d bytes, cache %d bytes, arena %d bytes", step.Weights, cache, step.Arena))
		return resident
	}
	const slack = 6 << 20
	for name, flags := range map[string][]string{"plain": nil, "guesses": {"--speculate", "ngram"}} {
		t.Run(name, func(t *testing.T) {
			one, full, thrice := measured(1, flags...), measured(parallel, flags...), measured(3*parallel, flags...)
			t.Logf("%d bytes to open the model, %d for one request, %d for %d, %d for three times as many", base, one, full, parallel, thrice)
			require.Greater(t, cache, int64(4*slack), "or the bounds could not fail")
			require.LessOrEqual(t, one-base, step.Weights+cache/parallel+step.Arena+2*slack)
			require.Greater(t, full-one, cache/2)
			require.LessOrEqual(t, full-one, cache+slack)
			require.LessOrEqual(t, thrice-full, int64(slack))
		})
	}
}
