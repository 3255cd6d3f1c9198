// Package serve is an HTTP server for smelt's engines, with the APIs of OpenAI and Anthropic's
// messages. [Endpoints] is the table of its endpoints.
//
// A [Server] is an http.Handler that any program can mount:
//
//	s := serve.New(serve.Options{})
//	engine, err := loaded.NewEngine(smelt.EngineOptions{Metrics: s.Metrics("tiny")})
//	err = s.Add("tiny", engine)
//	http.ListenAndServe("127.0.0.1:8080", s)
//
// # Laws
//
// An answer depends only on its request, not on concurrent or earlier requests. A parameter that
// would change the answer and is not supported is an error with its name. The engine computes no
// further step for a client that has disconnected. Requests beyond the queue's limit get 429 with
// Retry-After at once. Prompts and answers are never logged.
package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/openai"
)

// Options configure a server. Zero fields take defaults.
type Options struct {
	// Keys are the accepted API keys, sent as Authorization: Bearer KEY or x-api-key: KEY. An empty
	// list accepts every request.
	Keys     []string
	MaxQueue int           // sequences of each model that wait beside the running ones; 0: DefaultMaxQueue, below 0: none
	MaxBody  int64         // size limit of a request in bytes; 0: 32 MiB
	Timeout  time.Duration // limit on a request's time, including its wait in the queue; 0: none
	Ping     time.Duration // interval without a token after which a stream gets a comment; 0: 10 s
	Patience time.Duration // timeout of reads from and writes to a client; 0: 30 s
	// SaltByUser shares cached prefixes only among requests with the same "user". Otherwise the
	// latency of a request reveals which prefixes other users have sent.
	SaltByUser bool
	// ToolsInPrompt writes tools that a model's template has no place for into the system text.
	ToolsInPrompt bool
	// Sampling is the default of requests, except for its Seed. nil: temperature 1, as in OpenAI's
	// API.
	Sampling *smelt.Sampling
	Log      *slog.Logger // logs one line per request; nil: none
	Memory   int64        // bound in bytes on models loaded on demand; see [Server.AddOnDemand]
	// Page serves a chat page at /, which also shows the models' graphs and schedules.
	Page bool
}

// DefaultMaxQueue is the default of Options.MaxQueue.
const DefaultMaxQueue = 256

// ErrName is wrapped where a model's name is empty or taken.
var ErrName = errors.New("a model needs a unique name")

// Server is an http.Handler. It is safe for concurrent use; models can be added while it serves.
type Server struct {
	options Options
	mux     *http.ServeMux
	keys    [][sha256.Size]byte
	keyless map[string]bool // patterns of mux that need no key
	metrics *metrics.Set
	gate    gate
	graphs  graphs

	ending   context.Context // cancelled when the time of Drain is over
	breakOff context.CancelFunc

	shelf shelf

	mu      sync.RWMutex
	models  []*model // in the order of Add
	named   map[string]*model
	refresh []func() // updates of counters that engines hold
}

// model is one model of the server.
type model struct {
	info   openai.Info
	always *openai.Model // nil for a model loaded on demand
	entry  *entry        // nil unless the model is loaded on demand
	most   int64         // maximum of running and waiting sequences
	begun  atomic.Int64  // running and waiting sequences
}

// New returns a server without models.
func New(o Options) *Server {
	s := &Server{options: o, mux: http.NewServeMux(), keyless: map[string]bool{}, metrics: metrics.NewSet(), shelf: shelf{bound: o.Memory, log: o.Log}, named: map[string]*model{}}
	s.ending, s.breakOff = context.WithCancel(context.Background())
	if s.options.MaxQueue == 0 {
		s.options.MaxQueue = DefaultMaxQueue
	}
	for _, key := range o.Keys {
		s.keys = append(s.keys, sha256.Sum256([]byte(key)))
	}
	api := &openai.API{Find: s.find, List: s.list, Describe: s.describe, Admit: s.admit, MaxBody: o.MaxBody, Ping: o.Ping, Patience: o.Patience, Timeout: o.Timeout}
	api.Register(s.mux)
	s.register()
	return s
}

func notServed(w http.ResponseWriter, r *http.Request) {
	openai.Fail(w, r, &openai.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "not_found",
		Message: fmt.Sprintf("%s %s is nothing that is served here", r.Method, r.URL.Path)})
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have disconnected
}

// Add serves an engine under a name. The caller keeps the engine and closes it after Drain.
func (s *Server) Add(name string, e *smelt.Engine) error {
	if err := s.addAlways(name, Resident{Engine: e}); err != nil {
		return err
	}
	s.observe(name, e, e.Stats)
	return nil
}

// AddEmbedder serves an embedding model under a name.
func (s *Server) AddEmbedder(name string, e *smelt.Embedder) error {
	return s.addAlways(name, Resident{Embedder: e})
}

func (s *Server) addAlways(name string, l Resident) error {
	m, err := s.model(name, l)
	if err != nil {
		return err
	}
	return s.add(&model{info: m.Info(), always: m, most: s.most(m)})
}

// model returns the API's model of a loaded model.
func (s *Server) model(name string, l Resident) (*openai.Model, error) {
	if l.Embedder != nil {
		return openai.NewEmbeddings(name, l.Embedder), nil
	}
	m, err := openai.NewModel(name, l.Engine)
	if err != nil {
		return nil, err
	}
	m.SaltByUser, m.ToolsInPrompt = s.options.SaltByUser, s.options.ToolsInPrompt
	if s.options.Sampling != nil {
		m.Sampling = *s.options.Sampling
		err = m.Sampling.Validate()
	}
	return m, err
}

// most returns the maximum number of sequences of a model that run or wait.
func (s *Server) most(m *openai.Model) int64 {
	running := 1
	if m.Engine != nil {
		running = m.Engine.Sequences()
	}
	return int64(running + max(s.options.MaxQueue, 0))
}

func (s *Server) add(m *model) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.info.ID == "" || s.named[m.info.ID] != nil {
		return fmt.Errorf("%q: %w", m.info.ID, ErrName)
	}
	s.models = append(s.models, m)
	s.named[m.info.ID] = m
	return nil
}

func (s *Server) list() (list []openai.Info) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.models {
		list = append(list, m.info)
	}
	return list
}

// describe returns the entry of one model in the list of models.
func (s *Server) describe(name string) (openai.Info, error) {
	m, err := s.lookUp(name)
	if err != nil {
		return openai.Info{}, err
	}
	return m.info, nil
}

// lookUp returns the model of a name or of a file with that base name. If the server has only one
// model, the name can be empty.
func (s *Server) lookUp(name string) (*model, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if name == "" && len(s.models) == 1 {
		return s.models[0], nil
	}
	if m := s.named[name]; m != nil {
		return m, nil
	}
	if m := s.named[strings.TrimSuffix(name, ".gguf")]; m != nil {
		return m, nil
	}
	return nil, openai.NotFound(name)
}

// find returns the model of a name and keeps it loaded until the request of ctx ends.
func (s *Server) find(ctx context.Context, name string) (*openai.Model, error) {
	m, err := s.lookUp(name)
	if err != nil {
		return nil, err
	}
	if m.entry == nil {
		return m.always, nil
	}
	found, release, err := s.shelf.take(ctx, m.entry)
	if err != nil {
		return nil, err
	}
	if h, ok := ctx.Value(holdKey{}).(*hold); ok {
		h.release = append(h.release, release)
		return found, nil
	}
	release()
	return nil, fmt.Errorf("%s: there is no request that holds it", name)
}

// hold is the models that a request keeps loaded.
type hold struct{ release []func() }

type holdKey struct{}

// holding returns a context in which find keeps models loaded until release is called.
func holding(ctx context.Context) (_ context.Context, release func()) {
	h := &hold{}
	return context.WithValue(ctx, holdKey{}, h), func() {
		for _, release := range h.release {
			release()
		}
	}
}

// admit reserves places for sequences of a model, or returns 429 if its queue is full.
func (s *Server) admit(of *openai.Model, sequences int) (release func(), err error) {
	s.mu.RLock()
	m := s.named[of.ID]
	s.mu.RUnlock()
	n := int64(sequences)
	if begun := m.begun.Add(n); begun > m.most && begun > n { // a request of many sequences is admitted if it is alone
		m.begun.Add(-n)
		return nil, openai.Overloaded(time.Second)
	}
	return func() { m.begun.Add(-n) }, nil
}

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	noted := &noting{ResponseWriter: w, status: http.StatusOK, last: &s.gate.shut}
	one, crowded := true, false
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	c, connected := r.Context().Value(connKey{}).(*conn)
	defer context.AfterFunc(r.Context(), func() {
		if connected {
			c.gone(ctx, r)
		}
		cancel(context.Cause(r.Context()))
	})()
	if connected {
		one = c.begin(r)
		defer c.end()
		crowded = !s.vital(r) && c.of.crowded(c)
	}
	if !one || crowded {
		w.Header().Set("Connection", "close")
	}
	r = r.WithContext(ctx)
	switch {
	case !one:
		openai.Fail(noted, r, openai.TwoLengths())
	case crowded:
		openai.Fail(noted, r, openai.Crowded())
	case s.needsKey(r) && !s.knows(r):
		openai.Fail(noted, r, openai.Unauthorized())
	case r.Method != http.MethodPost:
		s.mux.ServeHTTP(noted, r)
	case !s.gate.enter():
		openai.Fail(noted, r, openai.Stopping())
	default:
		s.serve(noted, r)
	}
	s.metrics.GetOrCreateCounter(fmt.Sprintf(`smelt_http_requests_total{code="%d"}`, noted.status)).Inc()
	if s.options.Log != nil {
		s.options.Log.LogAttrs(r.Context(), slog.LevelInfo, "request",
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", noted.status),
			slog.Int64("bytes", noted.bytes), slog.Duration("took", time.Since(began)), slog.String("from", r.RemoteAddr))
	}
}

// serve serves a request that has entered the gate.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	defer s.gate.leave()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.ending, func() { cancel(openai.Stopping()) })()
	ctx, release := holding(ctx)
	defer release()
	s.mux.ServeHTTP(w, r.WithContext(ctx))
}

// knows reports whether a request has a valid key. It compares with all keys in constant time, so
// that its latency reveals nothing about them.
func (s *Server) knows(r *http.Request) bool {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		key = r.Header.Get("X-Api-Key")
	}
	hash, known := sha256.Sum256([]byte(key)), 0
	for i := range s.keys {
		known |= subtle.ConstantTimeCompare(hash[:], s.keys[i][:])
	}
	return known == 1
}

// Drain refuses new requests and returns when the running ones have ended. When ctx ends, the rest
// are cancelled and Drain returns ctx's error. A request whose answer has not begun then gets the
// same refusal as a new one, so that its client retries.
func (s *Server) Drain(ctx context.Context) error {
	empty := s.gate.close()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	s.breakOff()
	select {
	case <-empty: // after the current step
	case <-time.After(lastStep):
	}
	return ctx.Err()
}

// Close closes the models that were loaded on demand and loads no more. Engines of [Server.Add]
// stay open.
func (s *Server) Close() error {
	s.shelf.close()
	return nil
}

// lastStep is the time that cancelled requests have to write their error.
const lastStep = 2 * time.Second

// gate counts running requests and admits none once it is closed.
type gate struct {
	mu    sync.Mutex
	shut  atomic.Bool // written under mu
	open  int
	empty chan struct{} // closed when the gate is closed and all requests have left; nil while open
}

// enter reports whether a request may begin; if so, it must leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut.Load() {
		return false
	}
	g.open++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open--; g.open == 0 && g.shut.Load() {
		close(g.empty)
	}
}

// close closes the gate and returns a channel that is closed when all requests have left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut.Swap(true) {
		if g.empty = make(chan struct{}); g.open == 0 {
			close(g.empty)
		}
	}
	return g.empty
}

// noting records the status of a response.
type noting struct {
	http.ResponseWriter
	status int
	bytes  int64
	last   *atomic.Bool // makes the response close its connection
}

func (n *noting) WriteHeader(status int) {
	n.status = status
	if n.last.Load() {
		n.Header().Set("Connection", "close")
	}
	n.ResponseWriter.WriteHeader(status)
}

func (n *noting) Write(p []byte) (int, error) {
	k, err := n.ResponseWriter.Write(p)
	n.bytes += int64(k)
	return k, err
}

// Unwrap lets http.ResponseController flush and set deadlines.
func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }
