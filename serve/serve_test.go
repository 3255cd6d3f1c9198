package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tools/parity"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/serve"
)

const name = "tiny"

func options(context int) smelt.Options {
	return smelt.Options{Target: "cpu", Level: 1, KV: dtype.F16, Context: context}
}

func loaded(t testing.TB, path string, o smelt.Options) *smelt.Loaded {
	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	p, err := m.Compile(o)
	require.NoError(t, err)
	l, err := p.Load(smelt.Device{Name: "cpu", Threads: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// served is a server with a small trained model, and what asks it.
type served struct {
	t      testing.TB
	server *serve.Server
	engine *smelt.Engine
	watch  *watch
	url    string
	key    string
}

func newServed(t testing.TB, o serve.Options, sequences int) *served {
	return newServedWith(t, o, sequences, 512)
}

func newServedWith(t testing.TB, o serve.Options, sequences, context int) *served {
	l := loaded(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), options(context))
	o.ToolsInPrompt = true // the model's template has no place for tools
	s := serve.New(o)
	w := &watch{Metrics: s.Metrics(name)}
	e, err := l.NewEngine(smelt.EngineOptions{Sequences: sequences, BlockSize: 8, Metrics: w})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, s.Add(name, e))
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &served{t: t, server: s, engine: e, watch: w, url: h.URL}
}

// post asks, and returns the answer with its body read.
func (s *served) post(path, body string) (*http.Response, []byte) {
	return s.do("POST", path, body)
}

func (s *served) do(method, path, body string) (*http.Response, []byte) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	if s.key != "" {
		r.Header.Set("Authorization", "Bearer "+s.key)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	return answer, text
}

// ask posts and reads an answer that is no error.
func (s *served) ask(path, body string, to any) {
	answer, text := s.post(path, body)
	require.Equal(s.t, http.StatusOK, answer.StatusCode, string(text))
	require.NoError(s.t, json.Unmarshal(text, to), string(text))
}

// events are those of a stream, without the mark at its end, which has to be there.
func events(t testing.TB, body io.Reader) (list []json.RawMessage) {
	lines := bufio.NewScanner(body)
	done := false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
			require.True(t, lines.Text() == "" || strings.HasPrefix(lines.Text(), ":"), lines.Text())
		case data == "[DONE]":
			done = true
		default:
			require.False(t, done, "after the end")
			list = append(list, json.RawMessage(data))
		}
	}
	require.NoError(t, lines.Err())
	require.True(t, done)
	return list
}

type completion struct {
	ID      string
	Object  string
	Choices []struct {
		Index    int
		Text     string
		Message  map[string]any
		Delta    map[string]any
		Logprobs struct {
			Content []struct {
				Token   string
				Logprob float64
				Bytes   []byte
				Top     []struct{ Token string } `json:"top_logprobs"`
			}
			Tokens  []string
			Offsets []int `json:"text_offset"`
		}
		Finish *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Answer  int `json:"completion_tokens"`
		Total   int `json:"total_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

const greeting = `"messages": [{"role": "user", "content": "Tell me a story."}]`

// said is what the model says to a greeting, by a session of its own.
func said(t testing.TB, n int) string {
	l := loaded(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), options(512))
	template, err := l.Program().Model().ChatTemplate(false)
	require.NoError(t, err)
	c := chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "Tell me a story."}}, Answer: true}
	prompt, err := template.Render(c)
	require.NoError(t, err)
	s, err := l.NewSession()
	require.NoError(t, err)
	parser := template.NewParser(c, prompt)
	for token, err := range s.GenerateTokens(t.Context(), prompt.Tokens(), smelt.Generation{N: n}) {
		require.NoError(t, err)
		parser.Token(token.ID)
	}
	parser.End()
	return parser.Message().Content
}

// A whole answer is what a session says, and a stream's pieces are the whole answer.
func TestChat(t *testing.T) {
	s := newServed(t, serve.Options{}, 4)
	var whole completion
	s.ask("/v1/chat/completions", `{"model": "tiny", `+greeting+`, "temperature": 0, "max_tokens": 24, "logprobs": true, "top_logprobs": 2}`, &whole)
	require.Equal(t, "chat.completion", whole.Object)
	require.True(t, strings.HasPrefix(whole.ID, "chatcmpl-"))
	require.Len(t, whole.Choices, 1)
	message := whole.Choices[0].Message
	require.Equal(t, said(t, 24), message["content"])
	require.Equal(t, "assistant", message["role"])
	require.Contains(t, message, "refusal")
	require.Equal(t, whole.Usage.Total, whole.Usage.Prompt+whole.Usage.Answer)
	var joined []byte
	for _, token := range whole.Choices[0].Logprobs.Content {
		require.Len(t, token.Top, 2)
		require.LessOrEqual(t, token.Logprob, 0.0)
		require.Equal(t, token.Token, token.Top[0].Token, "the most likely one")
		joined = append(joined, token.Bytes...)
	}
	require.Equal(t, message["content"], strings.TrimSpace(string(joined)))

	answer, err := http.Post(s.url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model": "tiny", `+greeting+`, "temperature": 0, "max_completion_tokens": 24, "stream": true, "stream_options": {"include_usage": true}}`))
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream; charset=utf-8", answer.Header.Get("Content-Type"))
	text, finish := "", ""
	list := events(t, answer.Body)
	for i, raw := range list {
		var c completion
		require.NoError(t, json.Unmarshal(raw, &c))
		require.Equal(t, "chat.completion.chunk", c.Object)
		if i == len(list)-1 {
			require.Contains(t, string(raw), `"choices":[]`)
			require.Equal(t, whole.Usage.Answer, c.Usage.Answer)
			require.Positive(t, c.Usage.Details.Cached, "the same prompt was there before")
			continue
		}
		require.Nil(t, c.Usage)
		require.Len(t, c.Choices, 1)
		delta := c.Choices[0].Delta
		_, role := delta["role"]
		require.Equal(t, i == 0, role, "the role comes first and once: %s", raw)
		if c.Choices[0].Finish != nil {
			require.Empty(t, delta, "the end adds nothing")
			require.Equal(t, len(list)-2, i)
			finish = *c.Choices[0].Finish
		} else if content, ok := delta["content"].(string); ok {
			text += content
		}
	}
	require.Equal(t, message["content"], text)
	require.Equal(t, *whole.Choices[0].Finish, finish)
}

// Texts that stop an answer are found across the borders of tokens and are not given out, in
// streams as in whole answers.
func TestStop(t *testing.T) {
	s := newServed(t, serve.Options{}, 4)
	ask := func(more string) (c completion) {
		s.ask("/v1/completions", `{"model": "tiny", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 40`+more+`}`, &c)
		return c
	}
	plain := ask("").Choices[0].Text
	at := len(plain) / 2
	stop := plain[at : at+7]
	at = strings.Index(plain, stop)
	quoted, err := json.Marshal(stop)
	require.NoError(t, err)
	stopped := ask(`, "stop": ["never", ` + string(quoted) + `]`)
	require.Equal(t, plain[:at], stopped.Choices[0].Text)
	require.Equal(t, "stop", *stopped.Choices[0].Finish)

	_, text := s.post("/v1/completions", `{"model": "tiny", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 40, "stream": true, "stop": `+string(quoted)+`}`)
	streamed := ""
	for _, raw := range events(t, bytes.NewReader(text)) {
		var c completion
		require.NoError(t, json.Unmarshal(raw, &c))
		streamed += c.Choices[0].Text
	}
	require.Equal(t, plain[:at], streamed)
}

// Several answers to several prompts, with seeds that say which they are.
func TestCompletions(t *testing.T) {
	s := newServed(t, serve.Options{}, 4)
	ask := func(body string) (c completion) {
		s.ask("/v1/completions", `{"model": "tiny", "max_tokens": 12, `+body+`}`, &c)
		return c
	}
	two := ask(`"prompt": ["Once upon", "The dog"], "n": 2, "seed": 7, "logprobs": 0`)
	require.Len(t, two.Choices, 4)
	for i, c := range two.Choices {
		require.Equal(t, i, c.Index)
		for k, offset := range c.Logprobs.Offsets {
			require.True(t, strings.HasPrefix(c.Text[offset:], c.Logprobs.Tokens[k]), "token %d of %q", k, c.Text)
		}
	}
	require.NotEqual(t, two.Choices[0].Text, two.Choices[1].Text)
	again := ask(`"prompt": "Once upon", "seed": 8, "temperature": 1`)
	require.Equal(t, two.Choices[1].Text, again.Choices[0].Text, "the second answer has the next seed")

	var tokens struct{ Tokens []int32 }
	s.ask("/tokenize", `{"content": "The dog", "add_special": true}`, &tokens)
	raw, err := json.Marshal(tokens.Tokens)
	require.NoError(t, err)
	require.Equal(t, two.Choices[2].Text, ask(`"prompt": [` + string(raw) + `], "seed": 7`).Choices[0].Text)
	var text struct{ Content string }
	s.ask("/detokenize", `{"tokens": `+string(raw)+`}`, &text)
	require.Contains(t, text.Content, "The dog")

	banned := ask(`"prompt": "Once upon", "temperature": 0, "logit_bias": {"` + jsonOf(t, again.Usage.Prompt) + `": 100}`)
	require.Equal(t, "length", *banned.Choices[0].Finish)
	require.Len(t, tokensOf(s, banned.Choices[0].Text), 12)
}

func jsonOf(t testing.TB, v any) string {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

func tokensOf(s *served, text string) []int32 {
	var tokens struct{ Tokens []int32 }
	s.ask("/tokenize", `{"content": `+jsonOf(s.t, text)+`}`, &tokens)
	return tokens.Tokens
}

// A form that is asked for is kept.
func TestResponseFormat(t *testing.T) {
	s := newServed(t, serve.Options{}, 2)
	for _, format := range []string{
		`{"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"], "additionalProperties": false}}}`,
		`{"type": "json_object"}`,
	} {
		var c completion
		s.ask("/v1/chat/completions", `{"model": "tiny", `+greeting+`, "max_tokens": 300, "seed": 3, "temperature": 0.5, "response_format": `+format+`, "chat_template_kwargs": {"enable_thinking": false}}`, &c)
		if *c.Choices[0].Finish == "stop" {
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(c.Choices[0].Message["content"].(string)), &object), "%v", c.Choices[0].Message)
		}
	}
}

// What cannot be honoured is refused by name, with the status and the code that clients know.
func TestRefused(t *testing.T) {
	s := newServed(t, serve.Options{MaxBody: 100_000}, 2)
	long := strings.Repeat("word ", 600)
	for _, test := range []struct {
		path, body        string
		status            int
		param, code, says string
	}{
		{"chat/completions", `{"model": "other", ` + greeting + `}`, 404, "model", "model_not_found", `"other"`},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "frobnicate": 1}`, 400, "frobnicate", "unsupported_parameter", "frobnicate"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "frobnicate": null}`, 200, "", "", ""},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "store": true}`, 400, "store", "unsupported_parameter", "kept"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "store": false, "service_tier": "auto", "metadata": {"a": "b"}, "user": "u", "n": 1, "max_tokens": 1}`, 200, "", "", ""},
		{"chat/completions", `{"model": "tiny"}`, 400, "messages", "", "messages"},
		{"chat/completions", `{"model": "tiny", "messages": []}`, 400, "messages", "", "empty"},
		{"chat/completions", `{"model": "tiny", "messages": "hello"}`, 400, "messages", "", "want"},
		{"chat/completions", `{"model": "tiny", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}`, 400, "messages", "", "image_url"},
		{"chat/completions", `{"model": "tiny", "messages": [{"role": "user", "content": "` + long + `"}]}`, 400, "messages", "context_length_exceeded", "512"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "temperature": 3}`, 400, "temperature", "", "0 to 2"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "temperature": "hot"}`, 400, "temperature", "", "a number"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "n": 1.5}`, 400, "n", "", "whole"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "n": 1000}`, 400, "n", "", "16"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "top_logprobs": 2}`, 400, "top_logprobs", "", "logprobs"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "stream_options": {}}`, 400, "stream_options", "", "stream"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "stop": ""}`, 400, "stop", "", "empty"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "logit_bias": {"99999999": 1}}`, 400, "logit_bias", "", "99999999"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "response_format": {"type": "xml"}}`, 400, "response_format", "", "xml"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strange"}}}}`, 400, "response_format", "", "strange"},
		{"chat/completions", `{"model": "tiny", ` + greeting + `, "reasoning_effort": "much"}`, 400, "reasoning_effort", "", "much"},
		{"chat/completions", `[1]`, 400, "", "", "object"},
		{"chat/completions", `{"model": `, 400, "", "", "JSON"},
		{"chat/completions", `{"a": "` + strings.Repeat("x", 200_000) + `"}`, 413, "", "request_too_large", "100000"},
		{"completions", `{"model": "tiny"}`, 400, "prompt", "", "missing"},
		{"completions", `{"model": "tiny", "prompt": [1, 99999999]}`, 400, "prompt", "", "99999999"},
		{"completions", `{"model": "tiny", "prompt": [[["x"]]]}`, 400, "prompt", "", "list"},
		{"completions", `{"model": "tiny", "prompt": "x", "echo": true}`, 400, "echo", "unsupported_parameter", "echo"},
		{"embeddings", `{"model": "tiny", "input": "x"}`, 400, "model", "", "embedding model"},
		{"nothing", `{}`, 404, "", "not_found", "nothing"},
	} {
		answer, text := s.post("/v1/"+test.path, test.body)
		require.Equal(t, test.status, answer.StatusCode, "%s: %s", test.body[:min(len(test.body), 200)], text)
		if test.status == http.StatusOK {
			continue
		}
		var failed struct {
			Error struct {
				Message, Type string
				Param, Code   *string
			}
		}
		require.NoError(t, json.Unmarshal(text, &failed), string(text))
		require.Contains(t, failed.Error.Message, test.says)
		require.NotEmpty(t, failed.Error.Type)
		for want, got := range map[string]*string{test.param: failed.Error.Param, test.code: failed.Error.Code} {
			if want == "" {
				continue
			}
			require.NotNil(t, got, string(text))
			require.Equal(t, want, *got)
		}
	}
	answer, err := http.Post(s.url+"/v1/chat/completions", "text/plain", strings.NewReader("{}"))
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusUnsupportedMediaType, answer.StatusCode)
}

// Who asks while too many wait is told at once when to come again, and those that run are not
// disturbed; a client that is gone costs no further step.
func TestOverload(t *testing.T) {
	s := newServed(t, serve.Options{MaxQueue: 1}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := `{"model": "tiny", "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true}`
	var all sync.WaitGroup
	for range 2 {
		r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		all.Go(func() {
			if answer, err := http.DefaultClient.Do(r); err == nil {
				_, _ = io.Copy(io.Discard, answer.Body) // until it is broken off
				answer.Body.Close()
			}
		})
	}
	require.Eventually(t, func() bool { s := s.engine.Stats(); return s.Running == 1 && s.Waiting == 1 }, time.Minute, time.Millisecond)
	answer, text := s.post("/v1/completions", body)
	require.Equal(t, http.StatusTooManyRequests, answer.StatusCode, string(text))
	require.Equal(t, "1", answer.Header.Get("Retry-After"))
	cancel()
	all.Wait()
	require.Eventually(t, func() bool { s := s.engine.Stats(); return s.Running == 0 && s.Waiting == 0 }, time.Minute, time.Millisecond)
	steps := s.engine.Stats().Steps
	require.Less(t, steps, int64(400), "nobody read all of it")
	var c completion
	require.Eventually(t, func() bool {
		answer, _ := s.post("/v1/completions", `{"model": "tiny", "prompt": "Once", "max_tokens": 1}`)
		return answer.StatusCode == http.StatusOK
	}, time.Minute, time.Millisecond)
	s.ask("/v1/completions", `{"model": "tiny", "prompt": "Once", "max_tokens": 1}`, &c)
}

// A long silence is filled with comments, and deadlines end an answer.
func TestTime(t *testing.T) {
	s := newServed(t, serve.Options{Ping: time.Microsecond}, 1)
	_, text := s.post("/v1/completions", `{"model": "tiny", "prompt": "Once", "max_tokens": 4, "stream": true}`)
	require.Contains(t, string(text), ": ping\n\n")
	require.NotEmpty(t, events(t, bytes.NewReader(text)))

	s = newServed(t, serve.Options{Timeout: time.Millisecond}, 1)
	answer, text := s.post("/v1/completions", `{"model": "tiny", "prompt": "Once", "max_tokens": 400, "ignore_eos": true}`)
	require.Equal(t, http.StatusGatewayTimeout, answer.StatusCode, string(text))
}

// A client that does not send what it announced is not waited for.
func TestSlowBody(t *testing.T) {
	s := newServed(t, serve.Options{Patience: 50 * time.Millisecond}, 1)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusRequestTimeout, answer.StatusCode)
}

// Keys are asked for everywhere but where a server is watched.
func TestKeys(t *testing.T) {
	s := newServed(t, serve.Options{Keys: []string{"one", "two"}}, 1)
	for key, want := range map[string]int{"": 401, "three": 401, "one": 200, "two": 200} {
		s.key = key
		answer, _ := s.do("GET", "/v1/models", "")
		require.Equal(t, want, answer.StatusCode, key)
	}
	s.key = ""
	for path, want := range map[string]int{"/health": 200, "/ready": 200, "/metrics": 401} {
		answer, _ := s.do("GET", path, "")
		require.Equal(t, want, answer.StatusCode, path)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/v1/models", nil)
	require.NoError(t, err)
	r.Header.Set("X-Api-Key", "two")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// A server that drains refuses what is new and finishes what has begun.
func TestDrain(t *testing.T) {
	s := newServed(t, serve.Options{}, 2)
	answered := make(chan int, 1)
	go func() {
		answer, _ := s.post("/v1/completions", `{"model": "tiny", "prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": true}`)
		answered <- answer.StatusCode
	}()
	require.Eventually(t, func() bool { return s.engine.Stats().Running == 1 }, time.Minute, time.Millisecond)
	drained := make(chan error, 1)
	go func() { drained <- s.server.Drain(t.Context()) }()
	require.Eventually(t, func() bool {
		answer, _ := s.do("GET", "/ready", "")
		return answer.StatusCode == http.StatusServiceUnavailable
	}, time.Minute, time.Millisecond)
	answer, _ := s.post("/v1/completions", `{"model": "tiny", "prompt": "x"}`)
	require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	require.NoError(t, <-drained)
	require.Equal(t, http.StatusOK, <-answered)

	again := newServed(t, serve.Options{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		answer, err := http.Post(again.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": true}`))
		if err == nil {
			answer.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { return again.engine.Stats().Running == 1 }, time.Minute, time.Millisecond)
	require.ErrorIs(t, again.server.Drain(ctx), context.Canceled)
}

// Metrics have the names that routers look for, and count what was done.
func TestMetrics(t *testing.T) {
	s := newServed(t, serve.Options{}, 2)
	var c completion
	s.ask("/v1/completions", `{"model": "tiny", "prompt": "Once upon a time", "max_tokens": 5, "ignore_eos": true}`, &c)
	_, text := s.do("GET", "/metrics", "")
	for _, want := range []string{
		`vllm:num_requests_waiting{model_name="tiny"} 0`, `vllm:num_requests_running{model_name="tiny"} 0`,
		"# TYPE vllm:num_requests_waiting gauge", "# TYPE vllm:prefix_cache_queries_total counter", // without which some read nothing
		`vllm:prefix_cache_queries_total{model_name="tiny"} 4`,
		`vllm:kv_cache_usage_perc{model_name="tiny"} 0`, `vllm:generation_tokens_total{model_name="tiny"} 5`,
		`vllm:request_success_total{model_name="tiny"} 1`, `vllm:time_to_first_token_seconds_count{model_name="tiny"} 1`,
		`vllm:cache_config_info{block_size="8",model_name="tiny",num_gpu_blocks="128"} 1`, `smelt_http_requests_total{code="200"} 1`,
	} {
		require.Contains(t, string(text), want+"\n")
	}
}

func TestModels(t *testing.T) {
	s := newServed(t, serve.Options{}, 1)
	require.ErrorIs(t, s.server.Add(name, s.engine), serve.ErrName)
	require.ErrorIs(t, s.server.Add("", s.engine), serve.ErrName)
	var list struct {
		Object string
		Data   []struct {
			ID      string
			Context int `json:"context_length"`
		}
	}
	_, text := s.do("GET", "/v1/models", "")
	require.NoError(t, json.Unmarshal(text, &list))
	require.Equal(t, "list", list.Object)
	require.Len(t, list.Data, 1)
	require.Equal(t, name, list.Data[0].ID)
	require.Equal(t, 512, list.Data[0].Context)
	answer, _ := s.do("GET", "/v1/models/tiny", "")
	require.Equal(t, http.StatusOK, answer.StatusCode)
	answer, _ = s.do("GET", "/v1/models/other", "")
	require.Equal(t, http.StatusNotFound, answer.StatusCode)
	var c completion
	s.ask("/v1/completions", `{"prompt": "Once", "max_tokens": 1}`, &c) // the only model there is
}

// Embeddings are those of an embedder, of length one, as numbers and as bytes.
func TestEmbeddings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, parity.Cases("bert")[0].Write(f, "f32"))
	require.NoError(t, f.Close())
	o := smelt.Options{Target: "cpu", Level: 1, Embeddings: true}
	l := loaded(t, path, o)
	e, err := l.NewEmbedder("")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	server := serve.New(serve.Options{})
	require.NoError(t, server.AddEmbedder("vectors", e))
	o.Context = 64
	words, err := loaded(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), o).NewEmbedder("")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, words.Close()) })
	require.NoError(t, server.AddEmbedder("words", words))
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	s := &served{t: t, server: server, url: h.URL}

	want, err := e.Embed(t.Context(), [][]int32{{3, 1, 4}, {1, 5, 9, 2}})
	require.NoError(t, err)
	var got struct {
		Data []struct {
			Index     int
			Embedding []float32
		}
		Usage map[string]int
	}
	s.ask("/v1/embeddings", `{"model": "vectors", "input": [[3, 1, 4], [1, 5, 9, 2]]}`, &got)
	require.Equal(t, 7, got.Usage["prompt_tokens"])
	for i := range want {
		engine.Normalize(want[i])
		require.Equal(t, i, got.Data[i].Index)
		require.Equal(t, want[i], got.Data[i].Embedding)
	}
	var packed struct{ Data []struct{ Embedding string } }
	s.ask("/v1/embeddings", `{"model": "vectors", "input": [3, 1, 4], "encoding_format": "base64"}`, &packed)
	raw, err := base64.StdEncoding.DecodeString(packed.Data[0].Embedding)
	require.NoError(t, err)
	require.Len(t, raw, 4*len(want[0]))
	require.Equal(t, want[0][1], math.Float32frombits(binary.LittleEndian.Uint32(raw[4:])))
	for body, says := range map[string]string{
		`{"model": "vectors", "input": [3, 99999999]}`:                               "99999999",
		`{"model": "vectors", "input": []}`:                                          "no tokens",
		`{"model": "vectors", "input": [1], "dimensions": 3}`:                        "dimensions",
		`{"model": "vectors", "input": [1], "encoding_format": "x"}`:                 "encoding_format",
		`{"model": "vectors", "input": [` + strings.Repeat("1,", 5000) + `1]}`:       "5001 tokens",
		`{"model": "words", "input": ["x", "` + strings.Repeat("x", 100_000) + `"]}`: "text 1 of input: the context is full: the text has at least",
	} {
		answer, text := s.post("/v1/embeddings", body)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode, string(text))
		require.Contains(t, string(text), says)
	}
	answer, _ := s.post("/v1/completions", `{"model": "vectors", "prompt": "x"}`)
	require.Equal(t, http.StatusBadRequest, answer.StatusCode)
}

// A call that is asked for is made, with arguments that match the tool's schema, in each
// protocol's form; whole and streamed it is the same.
func TestTools(t *testing.T) {
	s := newServed(t, serve.Options{}, 2)
	const parameters = `{"type": "object", "properties": {"place": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["place", "days"], "additionalProperties": false}`
	checked := func(name, arguments any) {
		var a struct {
			Place string
			Days  int
		}
		require.Equal(t, "weather", name)
		raw, ok := arguments.(string)
		if !ok {
			raw = jsonOf(t, arguments)
		}
		require.NoError(t, json.Unmarshal([]byte(raw), &a), raw)
		require.Contains(t, []string{"Oslo", "Rome"}, a.Place)
		require.NotZero(t, a.Days)
	}
	common := `"messages": [{"role": "user", "content": "How is the weather?"}], "seed": 4, "max_tokens": 200, `
	for _, choice := range []string{`"required"`, `{"type": "function", "function": {"name": "weather"}}`} {
		body := `{` + common + `"parallel_tool_calls": false, "tools": [{"type": "function", "function": {"name": "weather", "parameters": ` + parameters + `}}], "tool_choice": ` + choice + `}`
		var c completion
		s.ask("/v1/chat/completions", body, &c)
		require.Equal(t, "tool_calls", *c.Choices[0].Finish)
		calls := c.Choices[0].Message["tool_calls"].([]any)
		require.Len(t, calls, 1)
		require.Nil(t, c.Choices[0].Message["content"])
		call := calls[0].(map[string]any)
		require.Equal(t, "function", call["type"])
		require.NotEmpty(t, call["id"])
		function := call["function"].(map[string]any)
		checked(function["name"], function["arguments"])

		_, text := s.post("/v1/chat/completions", strings.Replace(body, "{", `{"stream": true, `, 1))
		var streamed []any
		for _, raw := range events(t, bytes.NewReader(text)) {
			var c completion
			require.NoError(t, json.Unmarshal(raw, &c))
			if list, ok := c.Choices[0].Delta["tool_calls"].([]any); ok {
				streamed = append(streamed, list...)
			}
		}
		require.Len(t, streamed, 1)
		one := streamed[0].(map[string]any)
		require.Zero(t, one["index"])
		require.Equal(t, "function", one["type"])
		require.Equal(t, function, one["function"])
	}

	var response struct {
		Status string
		Output []struct{ Type, Name, Arguments string }
	}
	s.ask("/v1/responses", `{"input": "How is the weather?", "max_output_tokens": 200, "tools": [{"type": "function", "name": "weather", "parameters": `+parameters+`}], "tool_choice": {"type": "function", "name": "weather"}}`, &response)
	require.Equal(t, "completed", response.Status)
	last := response.Output[len(response.Output)-1]
	require.Equal(t, "function_call", last.Type)
	checked(last.Name, last.Arguments)

	var message struct {
		Reason  string `json:"stop_reason"`
		Content []struct {
			Type, Name string
			Input      map[string]any
		}
	}
	s.ask("/v1/messages", `{"messages": [{"role": "user", "content": "How is the weather?"}], "max_tokens": 200, "tools": [{"name": "weather", "input_schema": `+parameters+`}], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}}`, &message)
	require.Equal(t, "tool_use", message.Reason)
	block := message.Content[len(message.Content)-1]
	require.Equal(t, "tool_use", block.Type)
	checked(block.Name, block.Input)

	for _, body := range []string{
		`{` + common + `"tool_choice": "required"}`,
		`{` + common + `"tool_choice": "maybe"}`,
		`{` + common + `"tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": {"type": "function", "function": {"name": "b"}}}`,
	} {
		answer, text := s.post("/v1/chat/completions", body)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode, string(text))
		require.Contains(t, string(text), "tool")
	}
}

// A zero that is sent counts, in every API: it is not an absent member.
func TestZeros(t *testing.T) {
	s := newServed(t, serve.Options{Sampling: &smelt.Sampling{Temperature: 1.5, TopK: 1, MinP: 1}}, 4)
	for path, of := range map[string]struct{ question, most string }{
		"/v1/chat/completions": {greeting, "max_tokens"},
		"/v1/completions":      {`"prompt": "Once upon a time"`, "max_tokens"},
		"/v1/responses":        {`"input": "Tell me a story."`, "max_output_tokens"},
		"/v1/messages":         {greeting, "max_tokens"},
	} {
		ask := func(tokens int, more string) (said, finish string, generated int) {
			var a struct {
				Choices []struct {
					Text    string
					Message struct{ Content string }
					Finish  string `json:"finish_reason"`
				}
				Content []struct{ Text string }
				Stop    string `json:"stop_reason"`
				Output  []struct {
					Content []struct{ Text string }
					Status  string
				}
				TopP  *float64 `json:"top_p"`
				Usage struct {
					Answer int `json:"completion_tokens"`
					Output int `json:"output_tokens"`
				}
			}
			s.ask(path, `{`+of.question+`, "`+of.most+`": `+jsonOf(t, tokens)+more+`}`, &a)
			for _, c := range a.Choices {
				said, finish = said+c.Text+c.Message.Content, c.Finish
			}
			for _, c := range a.Content {
				said += c.Text
			}
			for _, o := range a.Output {
				said, finish = said+o.Content[0].Text, o.Status
			}
			if a.TopP != nil && strings.Contains(more, `"top_p": 0`) {
				require.Zero(t, *a.TopP)
			}
			return said, finish + a.Stop, a.Usage.Answer + a.Usage.Output
		}
		most, finish, n := ask(0, "")
		require.Empty(t, most, path)
		require.Zero(t, n, path)
		require.Contains(t, []string{"length", "incomplete", "max_tokens"}, finish, path)
		greedy, _, n := ask(12, `, "temperature": 0`)
		require.Equal(t, 12, n)
		const off = `, "top_k": 0, "min_p": 0`
		texts := map[string]bool{}
		for _, seed := range []string{"0", "1", "2"} {
			one, _, _ := ask(12, off+`, "top_p": 0, "seed": `+seed)
			require.Equal(t, greedy, one, "%s: top_p 0 keeps the most likely token", path)
			free, _, _ := ask(12, off+`, "seed": `+seed)
			again, _, _ := ask(12, off+`, "seed": `+seed)
			require.Equal(t, free, again, "%s: seed %s", path, seed)
			texts[free] = true
			for _, filter := range []string{`, "top_k": 0`, `, "min_p": 0`} { // the server's default of the other is left
				kept, _, _ := ask(12, filter+`, "seed": `+seed)
				require.Equal(t, greedy, kept, "%s: %s", path, filter)
			}
		}
		require.Len(t, texts, 3, "%s: no filter is on, and three seeds differ", path)
	}
}

// IDs of calls differ between conversations, turns and choices, and are equal for equal requests.
func TestCallIDs(t *testing.T) {
	s := newServed(t, serve.Options{}, 4)
	const tools = `, "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}}}], "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 60`
	ask := func(messages, more string) (ids []string) {
		var a struct {
			Choices []struct {
				Message struct {
					Calls []chat.ToolCall `json:"tool_calls"`
				}
			}
		}
		s.ask("/v1/chat/completions", `{"messages": [`+messages+`]`+tools+more+`}`, &a)
		for _, c := range a.Choices {
			require.Len(t, c.Message.Calls, 1)
			require.Regexp(t, "^[0-9A-Za-z]{9}$", c.Message.Calls[0].ID)
			ids = append(ids, c.Message.Calls[0].ID)
		}
		return ids
	}
	said := func(text string) string { return `{"role": "user", "content": "` + text + `"}` }
	called := func(id string) string {
		return `, {"role": "assistant", "content": null, "tool_calls": [{"id": "` + id + `", "type": "function", "function": {"name": "look", "arguments": "{\"a\": true}"}}]}, {"role": "tool", "tool_call_id": "` + id + `", "content": "x"}`
	}
	const greedy, drawn = `, "temperature": 0`, `, "temperature": 1, "seed": 3`
	seen := map[string]bool{}
	for _, sampling := range []string{greedy, drawn} {
		first := ask(said("one"), sampling)
		require.Equal(t, first, ask(said("one"), sampling), "equal requests")
		two := ask(said("one"), sampling+`, "n": 2`)
		require.Equal(t, first[0], two[0])
		for _, id := range append(append(two, ask(said("another"), sampling)...), ask(said("one")+called(first[0]), sampling)...) {
			require.False(t, seen[id], id)
			seen[id] = true
		}
		second := ask(said("one")+called(first[0]), sampling)
		third := ask(said("and now")+called(second[0]), sampling) // the first turns are left out
		require.NotEqual(t, second, third)
	}
	require.NotEqual(t, ask(said("one"), `, "temperature": 1`), ask(said("one"), `, "temperature": 1`), "drawn apart")
}
