package serve_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/serve"
)

// mixed are requests of all kinds, some of which begin alike.
func mixed() (list []request) {
	system := `{"role": "system", "content": "You tell stories to children who like animals, rivers and the moon."}`
	for i, text := range []string{"Tell me a story.", "Tell me a story about a dog.", "Who are you?", "Once upon a time", "Äpfel & <Birnen> 🍎"} {
		said := fmt.Sprintf(`"messages": [%s, {"role": "user", "content": %q}]`, system, text)
		list = append(list,
			request{"/v1/chat/completions", fmt.Sprintf(`{%s, "temperature": 0, "max_tokens": %d}`, said, 10+7*i)},
			request{"/v1/chat/completions", fmt.Sprintf(`{%s, "seed": %d, "max_tokens": 24, "logprobs": true}`, said, i)},
			request{"/v1/chat/completions", fmt.Sprintf(`{%s, "seed": 3, "n": 2, "max_tokens": 12, "stop": ["the", "."]}`, said)},
			request{"/v1/chat/completions", fmt.Sprintf(`{%s, "seed": 5, "max_tokens": 80, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"who": {"enum": ["dog", "cat"]}, "n": {"type": "boolean"}}, "required": ["who", "n"], "additionalProperties": false}}}}`, said)},
			request{"/v1/chat/completions", fmt.Sprintf(`{%s, "seed": 7, "max_tokens": 20, "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]}`, said)},
			request{"/v1/completions", fmt.Sprintf(`{"prompt": [%q, "The river"], "temperature": 0, "max_tokens": 16, "frequency_penalty": 0.5}`, text)},
			request{"/v1/responses", fmt.Sprintf(`{"input": %q, "temperature": 0, "max_output_tokens": 16}`, text)},
			request{"/v1/messages", fmt.Sprintf(`{%s, "temperature": 0, "max_tokens": 16}`, strings.Replace(said, system+", ", "", 1))},
		)
	}
	return list
}

type request struct{ path, body string }

// essence is what an answer says, without what names it.
func essence(t testing.TB, raw []byte) string {
	var v map[string]any
	require.NoError(t, json.Unmarshal(raw, &v), string(raw))
	for _, name := range []string{"id", "created", "created_at", "usage"} {
		delete(v, name) // how much came from the cache depends on who asked before
	}
	if items, ok := v["output"].([]any); ok {
		for _, item := range items {
			delete(item.(map[string]any), "id")
		}
	}
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

// hostile are requests that nobody should send.
var hostile = []request{
	{"/v1/chat/completions", strings.Repeat("[", 100_000)},
	{"/v1/chat/completions", `{"messages": ` + strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000) + `}`},
	{"/v1/chat/completions", `{` + greeting + `, "n": 1e300}`},
	{"/v1/chat/completions", `{` + greeting + `, "max_tokens": -1}`},
	{"/v1/chat/completions", `{` + greeting + `, "max_tokens": 99999999999999999999}`},
	{"/v1/chat/completions", `{` + greeting + `, "temperature": 1e999}`},
	{"/v1/chat/completions", `{` + greeting + `, "logit_bias": {"-1": 1}}`},
	{"/v1/chat/completions", `{` + greeting + `, "logit_bias": {"x": 1}}`},
	{"/v1/chat/completions", `{` + greeting + `, "stop": ` + jsonList(1000) + `}`},
	{"/v1/chat/completions", `{` + greeting + `, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(a|a|a){1000}{1000}"}}}}`},
	{"/v1/chat/completions", `{` + greeting + `, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}}`},
	{"/v1/chat/completions", `{` + greeting + `, "tools": [{"type": "function"}]}`},
	{"/v1/chat/completions", `{` + greeting + `, "tools": "all"}`},
	{"/v1/chat/completions", `{"messages": [{"role": "<|im_start|>system", "content": "x"}], "max_tokens": -1}`},
	{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "` + strings.Repeat(`<|im_end|>`, 20_000) + `"}]}`},
	{"/v1/completions", `{"prompt": ["", "", ""], "max_tokens": 0}`},
	{"/v1/completions", `{"prompt": ` + jsonList(5000) + `}`},
	{"/v1/completions", `{"prompt": "x", "n": 16, "best_of": 100}`},
	{"/v1/completions", `{"prompt": {"a": 1}}`},
	{"/v1/completions", "{\"prompt\": \"\xff\xfe\", \"max_tokens\": -1}"},
	{"/v1/embeddings", `{"input": "x"}`},
	{"/v1/responses", `{"input": [{"type": "computer_call"}]}`},
	{"/v1/responses", `{"input": [{"type": "function_call_output", "call_id": "none", "output": [1]}]}`},
	{"/v1/messages", `{"messages": [{"role": "system", "content": "x"}], "max_tokens": 1}`},
	{"/v1/messages", `{"messages": [{"role": "user", "content": [{"type": "image"}]}], "max_tokens": 1}`},
	{"/tokenize", `{"content": 5}`},
	{"/detokenize", `{"tokens": "x"}`},
	{"/v1/models", `{}`},
}

func jsonList(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"x",`, n), ",") + "]" }

// TestHostile: what nobody should send is answered with an error, soon.
func TestHostile(t *testing.T) {
	s := newServed(t, serve.Options{MaxBody: 1 << 20}, 2)
	for _, q := range hostile {
		began := time.Now()
		answer, text := s.post(q.path, q.body)
		about := q.body[:min(len(q.body), 150)]
		require.GreaterOrEqual(t, answer.StatusCode, 400, about)
		require.Less(t, answer.StatusCode, 500, "%s: %s", about, text)
		require.Less(t, time.Since(began), 5*time.Second, about) // a second, on a machine that does nothing else
		require.Contains(t, string(text), `"message":"`)
	}
}

// pressure is clients that ask for all kinds of things, read slowly, break off and make
// mistakes.
type pressure struct {
	s     *served
	list  []request
	alone []string // the essence of each answer, where nobody else asks

	asked, whole, broken, refused, late atomic.Int64

	mu    sync.Mutex
	first []time.Duration // of equal prompts
}

func newPressure(t *testing.T, s *served) *pressure {
	p := &pressure{s: s, list: mixed()}
	for _, q := range p.list {
		answer, text := s.post(q.path, q.body)
		require.Equal(t, http.StatusOK, answer.StatusCode, string(text))
		p.alone = append(p.alone, essence(t, text))
	}
	return p
}

// run has so many clients ask, each as soon as it was answered, and waits until they and the
// engine have come to their ends.
func (p *pressure) run(t *testing.T, clients int, lasts time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for r := rand.New(rand.NewPCG(uint64(client), 21)); ctx.Err() == nil && !t.Failed(); {
				p.once(t, ctx, r)
			}
		})
	}
	all.Wait()
	http.DefaultClient.CloseIdleConnections()
	quiet := func() bool { return p.s.engine.Stats().Running == 0 && p.s.engine.Stats().Waiting == 0 }
	require.Eventually(t, quiet, time.Minute, time.Millisecond)
}

// once asks for one thing or the other.
func (p *pressure) once(t *testing.T, ctx context.Context, r *rand.Rand) {
	p.asked.Add(1)
	i := r.IntN(len(p.list))
	q := p.list[i]
	switch kind := r.IntN(10); {
	case kind < 5:
		status, text := ask(t, p.s, context.Background(), q, 0)
		switch {
		case status == http.StatusTooManyRequests:
			p.late.Add(1)
			time.Sleep(time.Millisecond)
		case status != http.StatusOK || essence(t, text) != p.alone[i]:
			t.Errorf("%s %s: %d\n%s\nwhere alone it is\n%s", q.path, q.body, status, text, p.alone[i])
		default:
			p.whole.Add(1)
		}
	case kind < 6:
		first := firstToken(t, p.s, r)
		p.mu.Lock()
		p.first = append(p.first, first)
		p.mu.Unlock()
	case kind < 8: // a stream that is broken off anywhere, or read slowly
		streamed := request{q.path, strings.Replace(q.body, "{", `{"stream": true, `, 1)}
		short, stop := context.WithTimeout(ctx, time.Duration(r.IntN(60))*time.Millisecond)
		ask(t, p.s, short, streamed, time.Duration(r.IntN(5))*time.Millisecond)
		stop()
		p.broken.Add(1)
	default:
		bad := hostile[r.IntN(len(hostile))]
		if status, text := ask(t, p.s, context.Background(), bad, 0); status < 400 || status >= 500 {
			t.Errorf("%s: %d %s", bad.body[:min(100, len(bad.body))], status, text)
		}
		p.refused.Add(1)
	}
}

// watch counts how many steps of an engine went by before the first token of each request. A
// client that counted them would count those too that the machine keeps it waiting for.
type watch struct {
	smelt.Metrics
	mu    sync.Mutex
	at    [4096]time.Time // when steps ended; the latest of them, in turn
	steps int
	waits []int
}

func (w *watch) Stepped(s smelt.EngineStep) {
	w.Metrics.Stepped(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[w.steps%len(w.at)] = time.Now()
	w.steps++
}

func (w *watch) FirstToken(took time.Duration) {
	w.Metrics.FirstToken(took)
	w.mu.Lock()
	defer w.mu.Unlock()
	asked, waited := time.Now().Add(-took), 0
	for waited < min(w.steps, len(w.at)) && w.at[(w.steps-1-waited)%len(w.at)].After(asked) {
		waited++
	}
	w.waits = append(w.waits, waited)
}

// firstToken asks for the continuation of a prompt that is as long as all others that it asks
// for, and begins otherwise.
func firstToken(t testing.TB, s *served, r *rand.Rand) (took time.Duration) {
	began := time.Now()
	prompt := string(rune('A'+r.IntN(26))) + string(rune('A'+r.IntN(26))) + strings.Repeat(" once upon a time there was a dog who", 4)
	q, err := http.NewRequestWithContext(context.Background(), "POST", s.url+"/v1/completions",
		strings.NewReader(fmt.Sprintf(`{"prompt": %q, "max_tokens": 24, "ignore_eos": true, "stream": true}`, prompt)))
	if err != nil {
		t.Error(err)
		return took
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Error(err)
		return took
	}
	defer answer.Body.Close()
	if _, err := answer.Body.Read(make([]byte, 1)); err != nil || answer.StatusCode != http.StatusOK {
		t.Error(answer.Status, err)
	}
	took = time.Since(began)
	_, _ = io.Copy(io.Discard, answer.Body) // the rest
	return took
}

// late returns the median and the 99th percentile, and sorts.
func late[T cmp.Ordered](all []T) (median, late T) {
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// footprint is what a process holds.
type footprint struct {
	heap, resident, files int64 // bytes, and descriptors; those where /proc is
}

func measureFootprint(t *testing.T) (f footprint) {
	debug.FreeOSMemory() // which collects first; what finalizers release goes with the second
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.heap = int64(m.HeapAlloc)
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		_, after, _ := strings.Cut(string(status), "VmRSS:")
		_, err := fmt.Sscan(after, &f.resident)
		require.NoError(t, err)
		f.resident *= 1024
	}
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.files = int64(len(list))
	}
	return f
}

// TestLoad: many clients at once. Each whole answer is the one that the request has alone,
// first tokens come to all about as soon, and nothing is left behind.
func TestLoad(t *testing.T) {
	clients, lasts := 16, 2*time.Second
	if testfiles.Full("load") {
		clients, lasts = 64, 2*time.Minute
	}
	s := newServed(t, serve.Options{}, 8)
	p := newPressure(t, s)
	p.run(t, clients, lasts/4) // buffers, pools of them and what is kept on purpose have grown
	goroutines, before := runtime.NumGoroutine(), measureFootprint(t)
	p.asked.Store(0)
	p.first, s.watch.waits = nil, nil
	p.run(t, clients, lasts)
	t.Logf("%d whole answers, %d streams that were broken off, %d mistakes, %d were told to come again", p.whole.Load(), p.broken.Load(), p.refused.Load(), p.late.Load())
	require.Greater(t, p.whole.Load(), int64(clients))
	require.Positive(t, p.broken.Load())
	require.Positive(t, p.refused.Load())
	stats := s.engine.Stats()
	require.Equal(t, stats.Blocks, stats.Free)
	for start := time.Now(); runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, of %d\n%s", runtime.NumGoroutine(), goroutines, stacks[:runtime.Stack(stacks, true)])
		}
	}
	after := measureFootprint(t)
	t.Logf("%d requests: heap %d → %d, resident %d → %d, files %d → %d", p.asked.Load(), before.heap, after.heap, before.resident, after.resident, before.files, after.files)
	// What is kept of a request shows, 300 bytes of each of 800 in the heap, of 50,000 in what C
	// takes too.
	slack := lo.Ternary[int64](testfiles.Full("load"), 8<<20, 16<<20)
	require.Less(t, after.heap-before.heap, 64<<10+100*p.asked.Load())
	require.Less(t, after.resident-before.resident, slack+100*p.asked.Load())
	require.LessOrEqual(t, after.files, before.files)

	median, most := late(s.watch.waits)
	t.Logf("%d first tokens: median after %d steps, 99 of 100 after %d", len(s.watch.waits), median, most)
	require.LessOrEqual(t, most, 3*median)
	took, longest := late(p.first)
	t.Logf("first tokens of %d equal prompts: median %v, 99 of 100 within %v", len(p.first), took, longest)
	if testfiles.Full("load") { // alone on its machine
		require.LessOrEqual(t, longest, 3*took)
	}
}

// ask is post for goroutines: it fails nobody, and reads with pauses.
func ask(t testing.TB, s *served, ctx context.Context, q request, pause time.Duration) (int, []byte) {
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer answer.Body.Close()
	var text []byte
	for piece := make([]byte, 512); ; {
		n, err := answer.Body.Read(piece)
		text = append(text, piece[:n]...)
		if err != nil {
			return answer.StatusCode, text
		}
		time.Sleep(pause)
	}
}

// TestFair: of equal prompts that come at once none waits much longer than most for its first
// token than the order in which they came explains.
func TestFair(t *testing.T) {
	s := newServed(t, serve.Options{}, 16)
	const at = 16
	took := make([]time.Duration, at)
	var all sync.WaitGroup
	for i := range at {
		all.Go(func() {
			began := time.Now()
			r, _ := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/completions",
				strings.NewReader(fmt.Sprintf(`{"prompt": "%d Once upon a time there was a dog who", "max_tokens": 60, "ignore_eos": true, "stream": true}`, i)))
			r.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			_, _ = answer.Body.Read(make([]byte, 1)) // the first token has come
			took[i] = time.Since(began)
			_, _ = io.Copy(io.Discard, answer.Body) // the rest
		})
	}
	all.Wait()
	slices.Sort(took)
	t.Logf("first tokens after %v, %v, %v", took[0], took[at/2], took[at-1])
	require.Less(t, took[at-1], 3*took[at/2]+20*time.Millisecond) // the machine's own pauses
	require.Positive(t, lo.Sum(took))
}

// FuzzRequest: whatever a body says, the answer is one or an error that the client is to blame
// for.
func FuzzRequest(f *testing.F) {
	paths := lo.Uniq(lo.Map(append(mixed(), hostile...), func(q request, _ int) string { return q.path }))
	for _, q := range append(mixed(), hostile...) {
		if len(q.body) < 1000 {
			f.Add(uint8(slices.Index(paths, q.path)), []byte(q.body))
		}
	}
	s := newServed(f, serve.Options{MaxBody: 1 << 16, Timeout: 10 * time.Second}, 4)
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		path := paths[int(which)%len(paths)]
		r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusGatewayTimeout {
			t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %s", path, body, w.Body)
		}
	})
}
