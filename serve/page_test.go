package serve_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/serve"
)

// pageNames are the files of the page, by their paths on a server.
func pageNames(t *testing.T) []string {
	files, err := filepath.Glob("page/*")
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	names := []string{"/"}
	for _, file := range files {
		if file != "page/index.html" {
			names = append(names, "/"+filepath.ToSlash(file))
		}
	}
	return names
}

var (
	// reference is what a page loads: attributes, imports and what CSS names.
	reference = regexp.MustCompile(`(?:\b(?:src|href|action)=|\bfrom |\bimport |\bimport\()\s*["']([^"']*)|url\(\s*["']?([^"')]*)`)
	// sink is what makes markup or a program of a text, and what the security policy forbids in markup.
	sink = regexp.MustCompile(`(?i)innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|createContextualFragment|srcdoc|<[a-z][^>]*\s(?:on[a-z]+|style)=|<script>|<style`)
)

// TestPageFiles: the page is served as what it is, needs nothing from elsewhere, and says so.
func TestPageFiles(t *testing.T) {
	s := newServed(t, serve.Options{Page: true, Keys: []string{"secret"}}, 1)
	var all bytes.Buffer
	names := pageNames(t)
	for _, name := range names {
		answer, text := s.do("GET", name, "")
		require.Equal(t, http.StatusOK, answer.StatusCode, name)
		h := answer.Header
		require.Regexp(t, map[string]string{"": "^text/html", ".css": "^text/css", ".js": "^text/javascript", ".svg": "^image/svg"}[filepath.Ext(name)], h.Get("Content-Type"))
		policy := h.Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "form-action 'none'",
			"base-uri 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			require.Contains(t, policy, rule, name)
		}
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		for _, m := range reference.FindAllSubmatch(text, -1) {
			at := string(m[1]) + string(m[2])
			if at == "" || strings.HasPrefix(at, "#") || strings.HasPrefix(at, "$") {
				continue
			}
			file := "/" + strings.TrimPrefix(at, "./")
			if filepath.Ext(name) != "" { // of a file in the folder
				file = "/page" + file
			}
			require.Contains(t, names, file, "%s loads %s", name, at)
		}
		require.Empty(t, sink.FindAllString(string(text), -1), name)
		all.Write(text)

		again, err := http.NewRequest("GET", s.url+name, nil)
		require.NoError(t, err)
		again.Header.Set("If-None-Match", h.Get("ETag"))
		same, err := http.DefaultClient.Do(again)
		require.NoError(t, err)
		same.Body.Close()
		require.Equal(t, http.StatusNotModified, same.StatusCode, name)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := all.WriteTo(w)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Less(t, packed.Len(), 30<<10, "the page grows")

	for _, path := range []string{"/page/", "/page/none.js", "/page/../serve.go", "/page/%2e%2e/serve.go"} {
		answer, _ := s.do("GET", path, "")
		require.NotEqual(t, http.StatusOK, answer.StatusCode, path)
	}
	for _, path := range []string{"/graph", "/v1/models"} { // what the page asks for needs the key
		answer, _ := s.do("GET", path, "")
		require.Equal(t, http.StatusUnauthorized, answer.StatusCode, path)
	}
	answer, _ := newServed(t, serve.Options{}, 1).do("GET", "/", "")
	require.Equal(t, http.StatusNotFound, answer.StatusCode, "nobody asked for a page")
}

// TestSinks: the checks above see what they are there for.
func TestSinks(t *testing.T) {
	for _, text := range []string{`x.innerHTML = y`, `<p onclick="x">`, `<p style="x">`, `<script>x</script>`, `new Function(x)`} {
		require.Regexp(t, sink, text)
	}
	for _, text := range []string{`<img src="https://x/y.png">`, `import x from 'https://x/y.js'`, `@import url("https://x/y.css")`} {
		require.Contains(t, strings.Join(reference.FindStringSubmatch(text)[1:], ""), "https://x/y")
	}
}

// TestGraph: the graph of what is served, and errors for what is not there.
func TestGraph(t *testing.T) {
	s := newServed(t, serve.Options{Page: true}, 2)
	var g struct {
		Model, Phase, Target string
		Prediction           struct{ Chip string }
		Pictures             []struct {
			Name  string
			Boxes []struct{ Lines []string }
		}
		Dispatches []struct {
			Kernel  string
			Grid    []int
			Buffers []struct{ Name, Buffer string }
			Rules   []string
		}
		Rules map[string]string
	}
	get := func(query string) {
		answer, text := s.do("GET", "/graph"+query, "")
		require.Equal(t, http.StatusOK, answer.StatusCode, string(text))
		require.NoError(t, json.Unmarshal(text, &g))
	}
	get("")
	require.Equal(t, []string{name, "decode", "cpu", "m4-max"}, []string{g.Model, g.Phase, g.Target, g.Prediction.Chip})
	ph, _, err := s.engine.Loaded().Program().Phase("decode")
	require.NoError(t, err)
	require.Len(t, g.Dispatches, len(ph.Dispatches))
	for i, d := range ph.Dispatches {
		require.Equal(t, d.Kernel, g.Dispatches[i].Kernel, "what is shown is what runs")
		require.Len(t, g.Dispatches[i].Buffers, len(d.Bindings))
	}
	require.Len(t, g.Pictures, 3)
	get("?model=" + name + "&phase=prefill&target=metal&chip=m1")
	require.Equal(t, []string{name, "prefill", "metal", "m1"}, []string{g.Model, g.Phase, g.Target, g.Prediction.Chip})
	require.True(t, slices.ContainsFunc(g.Dispatches, func(d struct {
		Kernel  string
		Grid    []int
		Buffers []struct{ Name, Buffer string }
		Rules   []string
	}) bool {
		return slices.Contains(d.Rules, "kv_replication_elimination")
	}))
	for query, status := range map[string]int{"?model=none": 404, "?phase=x": 400, "?target=x": 400, "?chip=x": 400} {
		answer, text := s.do("GET", "/graph"+query, "")
		require.Equal(t, status, answer.StatusCode, string(text))
	}
}

// TestGraphOfPlan: a plan from a file holds no graphs, which is said.
func TestGraphOfPlan(t *testing.T) {
	path := testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf")
	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	defer m.Close()
	p, err := m.Compile(options(64))
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "tiny.plan"))
	require.NoError(t, err)
	require.NoError(t, p.Save(file))
	require.NoError(t, file.Close())
	p, err = m.ReadPlan(file.Name())
	require.NoError(t, err)
	l, err := p.Load(smelt.Device{Name: "cpu", Threads: 1})
	require.NoError(t, err)
	defer l.Close()
	e, err := l.NewEngine(smelt.EngineOptions{})
	require.NoError(t, err)
	server := serve.New(serve.Options{Page: true})
	require.NoError(t, server.Add(name, e))
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, httptest.NewRequest("GET", "/graph", nil))
	require.Equal(t, http.StatusBadRequest, answer.Code)
	require.Contains(t, answer.Body.String(), "compiled ahead of time")
}

// played answers some requests of a browser as no model would; a text that begins with ! names
// the play. Others are the server's.
type played struct {
	*serve.Server
	mu   sync.Mutex
	last []byte // the body of the last conversation
}

func (p *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/test/last":
		p.mu.Lock()
		defer p.mu.Unlock()
		_, _ = w.Write(p.last)
	case r.URL.Path == "/test/stolen": // what a hostile text tries to load
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last = []byte("stolen")
	case r.URL.Path == "/v1/models":
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"context_length":512,"template_variables":["enable_thinking","reasoning_effort"]},{"id":"llama","context_length":512}]}`, name)
	case r.URL.Path == "/v1/chat/completions":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.last = body
		p.mu.Unlock()
		var q struct {
			Messages []struct{ Content string }
		}
		_ = json.Unmarshal(body, &q)
		if play := plays[q.Messages[len(q.Messages)-1].Content]; play != nil {
			w.Header().Set("Content-Type", "text/event-stream")
			play(w)
			return
		}
		// What the tool's template does not know is not asked of it.
		clean := regexp.MustCompile(`"(chat_template_kwargs":\{[^}]*\}|reasoning_effort":"[^"]*"),?`).ReplaceAll(body, nil)
		r.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(clean, []byte(",}"), []byte("}"))))
		r.ContentLength = -1
		p.Server.ServeHTTP(w, r)
	default:
		p.Server.ServeHTTP(w, r)
	}
}

// say streams pieces, each as a token with an alternative, as content or as another member.
func say(w http.ResponseWriter, member string, pieces ...string) {
	for _, piece := range pieces {
		text, _ := json.Marshal(piece)
		raw, _ := json.Marshal(strings.Fields(strings.Trim(fmt.Sprint([]byte(piece)), "[]")))
		numbers := strings.ReplaceAll(string(raw), `"`, "")
		fmt.Fprintf(w, `data: {"choices":[{"index":0,"delta":{%q:%s},"logprobs":{"content":[{"token":%s,"logprob":-0.7,"bytes":%s,"top_logprobs":[{"token":%s,"logprob":-0.7,"bytes":%s},{"token":"<b>other</b>","logprob":-0.9,"bytes":[60]}]}]}}]}`+"\n\n",
			member, text, text, numbers, text, numbers)
	}
	_ = http.NewResponseController(w).Flush()
}

func done(w http.ResponseWriter) {
	fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
}

// markup are texts that run, load or leave, where they become markup.
var markup = []string{
	`<script>window.ran = 1; fetch('/test/stolen')</script>`, `<img src=x onerror="window.ran = 2">`, `<svg onload="window.ran = 3"><script>window.ran = 4</script></svg>`,
	`<iframe srcdoc="<script>parent.ran = 5</script>"></iframe>`, `[click](javascript:window.ran=6)`, `![x](/test/stolen)`, `[x](data:text/html,<script>window.ran=7</script>)`,
	"```html\n<script>window.ran = 8</script>\n```", "`<img src=/test/stolen>`", `| <b onclick="window.ran=9">a</b> | b |` + "\n|---|---|\n" + `| <img src=/test/stolen> | c |`,
	`<a href="javascript:window.ran=10" autofocus onfocus="window.ran=11">x</a>`, `<style>body { display: none }</style>`, `<meta http-equiv="refresh" content="0;url=/test/stolen">`,
	`<form action="/test/stolen"><button>x</button></form>`, "</article></main><h1>out</h1>", `<http://x" onmouseover="window.ran=12">`, "https://x/\"><img src=/test/stolen>",
	"- <img src=/test/stolen>\n  - **<script>window.ran=13</script>", "> <object data=/test/stolen></object>", "\u202Eevil\u202C",
}

var plays = map[string]func(http.ResponseWriter){
	"!hostile": func(w http.ResponseWriter) {
		say(w, "reasoning_content", markup...)
		for _, text := range markup {
			say(w, "content", strings.SplitAfter(text, "<")...)
			say(w, "content", "\n\n")
		}
		done(w)
	},
	"!away": func(w http.ResponseWriter) {
		say(w, "content", "It", " was", " once")
		time.Sleep(200 * time.Millisecond) // a reset that comes at once takes what was sent along
		panic(http.ErrAbortHandler)
	},
	"!cut": func(w http.ResponseWriter) { say(w, "content", "It", " was", " cut") },
	"!error": func(w http.ResponseWriter) {
		say(w, "content", "It")
		fmt.Fprint(w, `data: {"error":{"message":"the device is gone","type":"server_error","param":null,"code":null}}`+"\n\n")
	},
	"!think": func(w http.ResponseWriter) {
		say(w, "reasoning_content", "Let", " me", " think")
		say(w, "content", "Four", ".")
		done(w)
	},
	"!rtl": func(w http.ResponseWriter) {
		say(w, "content", "في", " قرية", " صغيرة", " عاش", " ثعلب", " اسمه", " Fox", ".", "\n\n", "שלום", " עולם", "\n\n", "And", " English", ".")
		done(w)
	},
	"!markdown": func(w http.ResponseWriter) {
		text := "## Title\n\nSome **bold**, *thin* and `code` with [a link](https://example.com/x).\nA second line\n\n" +
			"1. one\n2. two\n   - inner\n   - more\n3. three\n\n> said by\n> another\n\n```go\nfunc main() {\n\tfmt.Println(\"<b>\")\n}\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n---\n\nunclosed **bold and `code"
		for len(text) > 0 {
			n := min(3, len(text))
			say(w, "content", text[:n])
			text = text[n:]
		}
		done(w)
	},
	"!long": func(w http.ResponseWriter) { // 400 kB: a paragraph that does not end, then many
		for range 20000 {
			say(w, "content", "word ")
		}
		for range 10000 {
			say(w, "content", "several words and a line\n\n")
		}
		say(w, "content", strings.Repeat("**a [b `c ", 5000))
		done(w)
	},
	"!slow": func(w http.ResponseWriter) {
		for range 200 {
			say(w, "content", "tick ")
			time.Sleep(20 * time.Millisecond)
		}
		done(w)
	},
}

// TestPage: the page in a browser, with a person's hands. It runs where make test-page asks for it.
// SMELT_SHOTS is a folder for pictures of it.
func TestPage(t *testing.T) {
	if !testfiles.Full("browser") {
		t.Skip("make test-page runs it")
	}
	dir := filepath.Join(testfiles.Root(t), "build", "browser")
	l := loaded(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), options(512))
	other := loaded(t, testfiles.Model(t, "tiny-llama/gguf/tiny-llama-Q4_0.gguf"), options(512))
	start := func(keys ...string) *httptest.Server {
		s := serve.New(serve.Options{Page: true, Keys: keys})
		for id, l := range map[string]*smelt.Loaded{name: l, "llama": other} {
			e, err := l.NewEngine(smelt.EngineOptions{Sequences: 4, BlockSize: 8})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, e.Close()) })
			require.NoError(t, s.Add(id, e))
		}
		if len(keys) > 0 {
			return httptest.NewServer(s)
		}
		return httptest.NewServer(&played{Server: s})
	}
	open, locked := start(), start("secret")
	defer open.Close()
	defer locked.Close()
	source, err := os.ReadFile("testdata/page/page.mjs")
	require.NoError(t, err)
	script := filepath.Join(dir, "page.mjs") // where its package is found
	require.NoError(t, os.WriteFile(script, source, 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", script, open.URL, locked.URL, os.Getenv("SMELT_SHOTS"))
	out, err := cmd.CombinedOutput()
	t.Log(string(out))
	require.NoError(t, err)
	require.Contains(t, string(out), "all passed")
}
