package serve

import (
	"net/http"
	"strings"

	"github.com/smelt-ml/smelt/internal/openai"
)

// Endpoint is one row of the table of a [Server]'s endpoints.
type Endpoint struct {
	Method string
	Path   string // a pattern of [http.ServeMux]
	Doc    string // what it does or returns, in one line of Markdown
}

// ownEndpoint is an endpoint outside of the model API.
type ownEndpoint struct {
	Endpoint
	keyless bool // needs no key: for monitors, and for the page that asks for the key
	page    bool // exists only with Options.Page
	serve   func(*Server, http.ResponseWriter, *http.Request)
}

func ownEndpoints() []ownEndpoint {
	return []ownEndpoint{
		{Endpoint{"GET", "/health", "200 while the server runs"}, true, false, (*Server).health},
		{Endpoint{"GET", "/ready", "200 while the server accepts requests, else 503"}, true, false, (*Server).ready},
		{Endpoint{"GET", "/metrics", "metrics in Prometheus' format"}, false, false, (*Server).writeMetrics},
		{Endpoint{"GET", "/{$}", "the chat page (below); `--page=false` disables it"}, true, true, (*Server).index},
		{Endpoint{"GET", "/page/{file}", "a file of that page"}, true, true, (*Server).pageFile},
		{Endpoint{"GET", "/graph", "`?model=ID&phase=decode|prefill&target=cpu|metal&chip=m4-max`: the graphs that the page draws, with their layout, and each dispatch with its kernel, grid, buffers, predicted cost and the rules that made it"},
			false, true, (*Server).graph},
	}
}

// Endpoints returns the table of a server's endpoints, including those of the page.
func Endpoints() []Endpoint {
	var all []Endpoint
	for _, e := range openai.Endpoints() {
		all = append(all, Endpoint{e.Method, e.Path, e.Doc})
	}
	for _, e := range ownEndpoints() {
		all = append(all, e.Endpoint)
	}
	return all
}

// Shown returns the path as documentation writes it: "/v1/models/{model}".
func (e *Endpoint) Shown() string {
	return strings.NewReplacer("...}", "}", "{$}", "").Replace(e.Path)
}

// register adds the server's own endpoints, and the response to unknown paths.
func (s *Server) register() {
	for _, e := range ownEndpoints() {
		if e.page && !s.options.Page {
			continue
		}
		pattern := e.Method + " " + e.Path
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { e.serve(s, w, r) })
		if e.keyless {
			s.keyless[pattern] = true
		}
	}
	s.mux.HandleFunc("/", notServed)
}

// needsKey reports whether a request must have a key.
func (s *Server) needsKey(r *http.Request) bool {
	if len(s.keys) == 0 {
		return false
	}
	_, pattern := s.mux.Handler(r)
	return !s.keyless[pattern]
}

// vital reports whether a request is one of a monitor, which is answered whatever the load is.
func (s *Server) vital(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	return pattern == "GET /health" || pattern == "GET /ready"
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") }

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.gate.shut.Load() || len(s.list()) == 0 {
		say(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	say(w, http.StatusOK, "ready")
}
