package serve_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/serve"
)

// loader opens a model for a server, and counts what it has open.
func loader(t *testing.T, s *serve.Server, name, path string, open *atomic.Int64) func() (serve.Resident, error) {
	return func() (r serve.Resident, err error) {
		m, err := smelt.Open(path, "")
		if err != nil {
			return r, err
		}
		p, err := m.Compile(options(256))
		if err != nil {
			return r, err
		}
		l, err := p.Load(smelt.Device{Name: "cpu", Threads: 2})
		if err != nil {
			return r, err
		}
		if r.Engine, err = l.NewEngine(smelt.EngineOptions{Sequences: 4, BlockSize: 8, CacheBytes: 4 << 20, Metrics: s.Metrics(name)}); err != nil {
			return r, err
		}
		mem := r.Engine.OnDevice().Memory()
		r.Memory = l.Memory().Weights + mem.Cache + mem.Arena + mem.Inputs + mem.Outputs
		open.Add(1)
		r.Close = func() error {
			open.Add(-1)
			return errors.Join(r.Engine.Close(), l.Close(), p.Close(), m.Close())
		}
		return r, nil
	}
}

// TestOnDemand: of two models that do not fit together each answers as it does alone, whoever
// asks for the other one; one at most is there, and in the end nothing is left.
func TestOnDemand(t *testing.T) {
	paths := map[string]string{
		"qwen":  testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"),
		"llama": testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"),
	}
	var open atomic.Int64
	largest, sum := int64(0), int64(0)
	for name, path := range paths {
		r, err := loader(t, serve.New(serve.Options{}), name, path, &open)()
		require.NoError(t, err)
		largest, sum = max(largest, r.Memory), sum+r.Memory
		require.NoError(t, r.Close())
	}
	body := func(model string, i int) string {
		return fmt.Sprintf(`{"model": %q, "prompt": "Once upon a time there were %d", "max_tokens": 12, "temperature": 0.8, "seed": %d}`, model, i%4, i%4)
	}
	start := func(memory int64) *served {
		s := serve.New(serve.Options{Memory: memory})
		for _, name := range []string{"qwen", "llama"} {
			require.NoError(t, s.AddOnDemand(name, loader(t, s, name, paths[name], &open)))
		}
		h := httptest.NewServer(s)
		t.Cleanup(h.Close)
		return &served{t: t, server: s, url: h.URL}
	}
	metric := func(s *served, name, model string) (value float64) {
		_, text := s.do("GET", "/metrics", "")
		_, after, found := strings.Cut(string(text), fmt.Sprintf("%s{model_name=%q} ", name, model))
		require.True(t, found, name)
		_, err := fmt.Sscan(after, &value)
		require.NoError(t, err)
		return value
	}
	text := func(raw []byte) string {
		_, after, _ := strings.Cut(string(raw), `"choices":`)
		choices, _, _ := strings.Cut(after, `,"usage":`) // which says what was in the cache
		return choices
	}

	// Where both fit both stay.
	alone := map[string]string{}
	s := start(sum)
	for model := range paths {
		for i := range 4 {
			answer, raw := s.post("/v1/completions", body(model, i))
			require.Equal(t, http.StatusOK, answer.StatusCode, string(raw))
			alone[body(model, i)] = text(raw)
		}
	}
	require.Equal(t, int64(2), open.Load())
	require.NoError(t, s.server.Close())
	require.Zero(t, open.Load())
	http.DefaultClient.CloseIdleConnections()
	goroutines, before := runtime.NumGoroutine(), measureFootprint(t)

	s = start(largest)
	require.Equal(t, int64(1), open.Load())
	loads := metric(s, "smelt_model_loads_total", "qwen") + metric(s, "smelt_model_loads_total", "llama")
	answer, raw := s.do("GET", "/v1/models", "")
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Regexp(t, `"id":"qwen".*"context_length":256.*"id":"llama".*"context_length":256`, string(raw))
	answer, _ = s.do("GET", "/v1/models/qwen", "")
	require.Equal(t, http.StatusOK, answer.StatusCode)
	answer, _ = s.do("GET", "/ready", "")
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, loads, metric(s, "smelt_model_loads_total", "qwen")+metric(s, "smelt_model_loads_total", "llama"), "a list loads nothing")

	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for i := range 6 {
				model := []string{"qwen", "llama"}[(client+i)%2]
				r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/completions", strings.NewReader(body(model, client+i)))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				raw, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK || text(raw) != alone[body(model, client+i)] {
					t.Errorf("%s: %v, %d, %s, where alone it is %s", body(model, client+i), err, answer.StatusCode, raw, alone[body(model, client+i)])
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(time.Millisecond):
			if n := open.Load(); n > 1 {
				t.Errorf("%d models are there", n)
			}
		}
	}
	for model := range paths {
		require.GreaterOrEqual(t, metric(s, "smelt_model_loads_total", model), 2.0)
		require.GreaterOrEqual(t, metric(s, "smelt_model_evictions_total", model), 1.0)
		require.Equal(t, 24.0, metric(s, "vllm:request_success_total", model))
		require.Positive(t, metric(s, "vllm:prefix_cache_queries_total", model), "what was counted before it was put away counts")
	}
	require.LessOrEqual(t, metric(s, "smelt_model_memory_bytes", "qwen")+metric(s, "smelt_model_memory_bytes", "llama"), float64(largest))

	// A model that can never fit is refused when it is added, and a broken one too.
	err := s.server.AddOnDemand("third", func() (serve.Resident, error) {
		return serve.Resident{}, errors.New("the file is gone")
	})
	require.EqualError(t, err, "the file is gone")
	small := serve.New(serve.Options{Memory: largest - 1})
	err = errors.Join(small.AddOnDemand("qwen", loader(t, small, "qwen", paths["qwen"], &open)), small.AddOnDemand("llama", loader(t, small, "llama", paths["llama"], &open)))
	require.ErrorIs(t, err, serve.ErrMemory)
	require.ErrorContains(t, err, fmt.Sprintf("takes %d bytes of weights, cache and arena, but may take %d", largest, largest-1))
	require.NoError(t, small.Close())

	require.NoError(t, s.server.Drain(t.Context()))
	require.NoError(t, s.server.Close())
	require.Zero(t, open.Load())
	http.DefaultClient.CloseIdleConnections()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 }, 10*time.Second, 10*time.Millisecond) // the new listener's
	after := measureFootprint(t)
	t.Logf("heap %d → %d, resident %d → %d, files %d → %d", before.heap, after.heap, before.resident, after.resident, before.files, after.files)
	require.Less(t, after.heap-before.heap, int64(2<<20))
	require.Less(t, after.resident-before.resident, int64(16<<20))
	require.LessOrEqual(t, after.files, before.files+1)
}
