// Package serve answers HTTP requests with smelt's engines, in the form of OpenAI's API and of
// Anthropic's messages. [Endpoints] is the table of what it answers.
//
// A [Server] is an http.Handler, which any program can mount:
//
//	s := serve.New(serve.Options{})
//	engine, err := loaded.NewEngine(smelt.EngineOptions{Metrics: s.Metrics("tiny")})
//	err = s.Add("tiny", engine)
//	http.ListenAndServe("127.0.0.1:8080", s)
//
// # Laws
//
// An answer depends on the request alone: not on who else is asking, nor on what was asked
// before. A parameter that would change the answer and is not honoured is refused by name. A
// client that is gone costs no further step. Whoever asks while too many wait is told so at
// once, with a time after which to come again. What is said is never logged.
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

// Options bound a server. Zero fields take defaults.
type Options struct {
	// Keys are what clients have to know one of: as Authorization: Bearer KEY or x-api-key: KEY.
	// None: everybody is served.
	Keys     []string
	MaxQueue int           // sequences that wait beside those that run, of each model; 0: DefaultMaxQueue, below 0: none
	MaxBody  int64         // bytes of a request; 0: 32 MiB
	Timeout  time.Duration // of a request, its time in the queue included; 0: none
	Ping     time.Duration // after so long without a token a stream gets a sign of life; 0: 10 s
	Patience time.Duration // with a client that does not read what it asked for, or does not send it; 0: 30 s
	// SaltByUser shares prefixes only among requests that have the same "user": nobody learns by
	// the time that an answer takes what others ask.
	SaltByUser bool
	// Sampling is how tokens are chosen of requests that do not say; its Seed does not count. nil:
	// with the temperature 1, as in OpenAI's API.
	Sampling *smelt.Sampling
	Log      *slog.Logger // of requests, a line each; nil: none
	Memory   int64        // bytes of the models that are loaded when they are asked for; see [Server.AddOnDemand]
	// Page serves a page to talk with the models at /, which shows their graphs and schedules.
	Page bool
}

// DefaultMaxQueue is how many sequences wait for each model at most.
const DefaultMaxQueue = 256

// ErrName is wrapped where two models shall have the same name, or one none.
var ErrName = errors.New("a model needs a name of its own")

// Server is an http.Handler. It may be used by several goroutines, and models may be added
// while it serves.
type Server struct {
	options Options
	mux     *http.ServeMux
	keys    [][sha256.Size]byte
	keyless map[string]bool // patterns of mux that need no key
	metrics *metrics.Set
	gate    gate
	graphs  graphs

	ending   context.Context // of what is still under way when a drain's time is over
	breakOff context.CancelFunc

	shelf shelf

	mu      sync.RWMutex
	models  []*model // in the order in which they were added
	named   map[string]*model
	refresh []func() // of counters that engines keep
}

// model is one that is served.
type model struct {
	info   openai.Info
	always *openai.Model // nil for one that is loaded when it is asked for
	place  *place        // of that
	most   int64         // sequences that run or wait
	begun  atomic.Int64  // sequences under way
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
	_, _ = w.Write([]byte(text + "\n")) // who asked may be gone
}

// Add serves a model under a name. The engine stays the caller's, who closes it after the
// server has come to its end.
func (s *Server) Add(name string, e *smelt.Engine) error {
	if err := s.addAlways(name, Resident{Engine: e}); err != nil {
		return err
	}
	s.observe(name, e, e.Stats)
	return nil
}

// AddEmbedder serves a model that makes embeddings.
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

// model makes what requests are answered with.
func (s *Server) model(name string, l Resident) (*openai.Model, error) {
	if l.Embedder != nil {
		return openai.NewEmbeddings(name, l.Embedder), nil
	}
	m, err := openai.NewModel(name, l.Engine)
	if err != nil {
		return nil, err
	}
	m.SaltByUser = s.options.SaltByUser
	if s.options.Sampling != nil {
		m.Sampling = *s.options.Sampling
		err = m.Sampling.Validate()
	}
	return m, err
}

// most is how many sequences of a model may run or wait.
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

// describe says what the list does of one model.
func (s *Server) describe(name string) (openai.Info, error) {
	m, err := s.lookUp(name)
	if err != nil {
		return openai.Info{}, err
	}
	return m.info, nil
}

// lookUp returns the model of a name, or of a file of that name; where there is only one, a
// request need not name it.
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

// find returns the model of a name for as long as the request lasts that asks for it.
func (s *Server) find(ctx context.Context, name string) (*openai.Model, error) {
	m, err := s.lookUp(name)
	if err != nil {
		return nil, err
	}
	if m.place == nil {
		return m.always, nil
	}
	found, release, err := s.shelf.take(ctx, m.place)
	if err != nil {
		return nil, err
	}
	if h, ok := ctx.Value(holdKey{}).(*hold); ok {
		h.release = append(h.release, release)
		return found, nil
	}
	release()
	return nil, fmt.Errorf("%s: asked for by no request", name)
}

// hold is what a request keeps loaded.
type hold struct{ release []func() }

type holdKey struct{}

// holding has a context's request keep loaded what it finds, until release is called.
func holding(ctx context.Context) (_ context.Context, release func()) {
	h := &hold{}
	return context.WithValue(ctx, holdKey{}, h), func() {
		for _, release := range h.release {
			release()
		}
	}
}

// admit lets sequences in while not too many wait.
func (s *Server) admit(of *openai.Model, sequences int) (release func(), err error) {
	s.mu.RLock()
	m := s.named[of.ID]
	s.mu.RUnlock()
	n := int64(sequences)
	if begun := m.begun.Add(n); begun > m.most && begun > n { // one that asks for many is alone with them at worst
		m.begun.Add(-n)
		return nil, openai.Overloaded(time.Second)
	}
	return func() { m.begun.Add(-n) }, nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	noted := &noting{ResponseWriter: w, status: http.StatusOK, last: &s.gate.shut}
	switch {
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

// serve answers a request that has entered.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	defer s.gate.leave()
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.ending, func() { cancel(openai.Stopping()) })()
	ctx, release := holding(ctx)
	defer release()
	s.mux.ServeHTTP(w, r.WithContext(ctx))
}

// knows reports whether a request has one of the keys. All are compared, whole, so that time
// tells nothing of them.
func (s *Server) knows(r *http.Request) bool {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		key = r.Header.Get("X-Api-Key")
	}
	hash, known := sha256.Sum256([]byte(key)), 0
	for i := range s.keys {
		known |= subtle.ConstantTimeCompare(hash[:], s.keys[i][:])
	}
	return known == 1
}

// Drain has the server refuse what comes from now on, and returns when what is under way has
// ended. What is still under way when ctx ends is broken off, and Drain returns its error: a
// request whose answer has not begun is refused like those that came later, so that its client
// asks again.
func (s *Server) Drain(ctx context.Context) error {
	empty := s.gate.close()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	s.breakOff()
	select {
	case <-empty: // after the step under way
	case <-time.After(lastStep):
	}
	return ctx.Err()
}

// Close closes the models that were loaded because they were asked for, and loads none from now
// on. Those of [Server.Add] stay their owner's.
func (s *Server) Close() error {
	s.shelf.close()
	return nil
}

// lastStep is how long what is broken off has to say so.
const lastStep = 2 * time.Second

// gate counts requests under way, and lets none in once it is shut.
type gate struct {
	mu    sync.Mutex
	shut  atomic.Bool // written under mu
	open  int
	empty chan struct{} // closed when it is shut and all have left; nil: open
}

// enter reports whether a request may begin, which then has to leave.
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

// close shuts the gate; the channel is closed when all have left.
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

// noting remembers what was answered.
type noting struct {
	http.ResponseWriter
	status int
	bytes  int64
	last   *atomic.Bool // the connection's client shall not ask here again
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
