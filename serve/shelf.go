package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/openai"
)

// Resident is a loaded model: an engine, or an embedder.
type Resident struct {
	Engine   *smelt.Engine
	Embedder *smelt.Embedder
	Memory   int64        // bytes that it occupies until it is closed
	Close    func() error // frees Memory
}

// ErrMemory is wrapped where a model alone exceeds [Options.Memory].
var ErrMemory = errors.New("the model does not fit into the memory for models")

// AddOnDemand serves a model that is loaded when a request names it and evicted when other models
// need its memory; [Options.Memory] bounds all such models together. load is called at once, to
// check the model and measure it, and then for each load, never concurrently. The server closes
// what load returned.
//
// A request for a model that does not fit evicts the least recently used models once their running
// requests have ended. Later requests for these queue behind the request that evicts them, so that
// no model starves.
func (s *Server) AddOnDemand(name string, load func() (Resident, error)) error {
	p := &entry{name: name, bytes: s.options.Memory, waiters: max(s.options.MaxQueue, 1)}
	p.load = func() (*openai.Model, Resident, error) {
		l, err := load()
		if err != nil {
			return nil, l, err
		}
		m, err := s.model(name, l)
		if err != nil {
			return nil, l, errors.Join(err, l.Close())
		}
		return m, l, nil
	}
	// The size is not known yet: reserve all memory.
	s.shelf.add(p)
	m, release, err := s.shelf.take(context.Background(), p)
	if err == nil {
		err = s.add(&model{info: m.Info(), entry: p, most: s.most(m)})
		release()
	} else if p.failed != nil {
		err = p.failed
	}
	if err != nil {
		s.shelf.remove(p)
		return err
	}
	s.observe(name, m.Engine, func() smelt.EngineStats { return s.shelf.stats(p) })
	s.observeEntry(p)
	return nil
}

// shelf is a cache of loaded models with a bound on memory, and the queue of requests for them.
type shelf struct {
	bound int64
	log   *slog.Logger

	mu      sync.Mutex
	entries []*entry
	used    int64     // bytes of models that are loaded, loading or closing
	queue   []*ticket // in order of arrival
	now     int64     // logical clock, incremented by each use
	shut    bool
	work    sync.WaitGroup // running loads and closes
}

// entry is the state of one model. The shelf's lock guards its mutable fields.
type entry struct {
	name    string
	waiters int // maximum queue length
	load    func() (*openai.Model, Resident, error)

	state     entryState
	bytes     int64
	model     *openai.Model
	loaded    Resident
	users     int   // running requests
	used      int64 // time of the last use, by the shelf's clock
	leaving   bool  // to be evicted: admits no further request
	failed    error // error of the last load
	loads     int64
	evictions int64
	before    smelt.EngineStats // counters of closed engines
}

type entryState int

const (
	away entryState = iota
	loading
	ready
	closing
)

// ticket is a request that waits for a model.
type ticket struct {
	entry *entry
	done  chan struct{} // closed when model or err is set
	model *openai.Model
	err   error
}

func (s *shelf) add(p *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, p)
}

// remove removes a model that has no requests.
func (s *shelf) remove(p *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(other *entry) bool { return other == p })
	if p.state == ready {
		s.putAway(p)
	}
}

// take returns a model, loading it if necessary; the model stays loaded until release is called.
func (s *shelf) take(ctx context.Context, p *entry) (m *openai.Model, release func(), err error) {
	s.mu.Lock()
	if s.shut {
		s.mu.Unlock()
		return nil, nil, openai.Stopping()
	}
	t := &ticket{entry: p, done: make(chan struct{})}
	s.queue = append(s.queue, t)
	s.advance()
	if t.model == nil && t.err == nil && s.waiting(p) > p.waiters {
		s.leave(t)
		s.mu.Unlock()
		return nil, nil, openai.Overloaded(time.Second)
	}
	s.mu.Unlock()
	select {
	case <-t.done:
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.model != nil {
			s.release(p)
		}
		s.leave(t)
		return nil, nil, context.Cause(ctx)
	}
	if t.err != nil {
		return nil, nil, t.err
	}
	return t.model, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.release(p)
	}), nil
}

// waiting returns the number of requests that wait for a model.
func (s *shelf) waiting(p *entry) (n int) {
	for _, t := range s.queue {
		if t.entry == p {
			n++
		}
	}
	return n
}

func (s *shelf) release(p *entry) {
	p.users--
	s.touch(p)
	s.advance()
}

func (s *shelf) touch(p *entry) {
	s.now++
	p.used = s.now
}

// leave removes a ticket from the queue, if it is there.
func (s *shelf) leave(t *ticket) {
	s.queue = slices.DeleteFunc(s.queue, func(other *ticket) bool { return other == t })
	s.advance()
}

// advance serves the queue in order. The first request without room marks the models to evict for
// it; later requests can use neither those nor memory that becomes free.
func (s *shelf) advance() {
	for _, p := range s.entries {
		p.leaving = false
	}
	blocked := false
	s.queue = slices.DeleteFunc(s.queue, func(t *ticket) bool {
		p := t.entry
		switch {
		case p.state == ready && !p.leaving:
			p.users++
			s.touch(p)
			t.model = p.model
			close(t.done)
			return true
		case p.state == away && !blocked && !s.shut:
			if s.makeRoom(p) {
				s.begin(p)
			} else {
				blocked = true
			}
		}
		return false
	})
}

// makeRoom reports whether a model can be loaded now; if not, it marks or evicts models in its way.
func (s *shelf) makeRoom(p *entry) bool {
	need := s.used + p.bytes - s.bound
	if need <= 0 {
		return true
	}
	var loaded []*entry
	for _, other := range s.entries {
		switch other.state {
		case closing:
			need -= other.bytes
		case ready:
			loaded = append(loaded, other)
		}
	}
	slices.SortFunc(loaded, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(min(a.users, 1), min(b.users, 1)), cmp.Compare(a.used, b.used))
	})
	for _, other := range loaded {
		if need <= 0 {
			break
		}
		need -= other.bytes
		other.leaving = true
		if other.users == 0 {
			s.putAway(other)
		}
	}
	return false
}

// begin starts to load a model.
func (s *shelf) begin(p *entry) {
	p.state = loading
	s.used += p.bytes
	s.work.Go(func() {
		began := time.Now()
		m, l, err := p.load()
		s.mu.Lock()
		defer s.mu.Unlock()
		p.failed, p.model, p.loaded = err, m, l
		switch {
		case err != nil:
			s.used -= p.bytes
			p.state = away
			s.say("a model could not be loaded", slog.String("model", p.name), slog.Any("error", err))
			s.refuse(p, openai.Unloaded(p.name))
		case l.Memory > p.bytes: // at first the bound, later the bytes of the previous load
			p.failed = fmt.Errorf("%s takes %d bytes of weights, cache and arena, but may take %d: %w", p.name, l.Memory, p.bytes, ErrMemory)
			s.say("a model could not be loaded", slog.String("model", p.name), slog.Any("error", p.failed))
			s.refuse(p, openai.Unloaded(p.name))
			s.putAway(p)
		default:
			s.used -= p.bytes - l.Memory
			p.bytes = l.Memory
			p.loads++
			p.state = ready
			s.touch(p)
			s.say("model loaded", slog.String("model", p.name), slog.Int64("bytes", p.bytes), slog.Duration("took", time.Since(began)))
			if s.shut {
				s.putAway(p)
			}
		}
		s.advance()
	})
}

// refuse fails all requests that wait for a model.
func (s *shelf) refuse(p *entry, err error) {
	s.queue = slices.DeleteFunc(s.queue, func(t *ticket) bool {
		if t.entry == p {
			t.err = err
			close(t.done)
		}
		return t.entry == p
	})
}

// putAway closes a model without requests.
func (s *shelf) putAway(p *entry) {
	p.state = closing
	p.evictions++
	if e := p.loaded.Engine; e != nil {
		p.before = counted(p.before, e.Stats())
	}
	l := p.loaded
	p.model, p.loaded = nil, Resident{}
	s.work.Go(func() {
		err := l.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.used -= p.bytes
		p.state = away
		s.say("model put away", slog.String("model", p.name), slog.Int64("bytes", p.bytes), slog.Any("error", err))
		s.advance()
	})
}

func (s *shelf) say(what string, attributes ...slog.Attr) {
	if s.log != nil {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, what, attributes...)
	}
}

// counted returns the sum of the counters of two consecutive engines of a model, and b's other
// stats.
func counted(a, b smelt.EngineStats) smelt.EngineStats {
	b.Steps, b.Tokens, b.Preempted = a.Steps+b.Steps, a.Tokens+b.Tokens, a.Preempted+b.Preempted
	b.Asked, b.Cached = a.Asked+b.Asked, a.Cached+b.Cached
	b.Evicted, b.Copied = a.Evicted+b.Evicted, a.Copied+b.Copied
	b.Drafted, b.Accepted = a.Drafted+b.Drafted, a.Accepted+b.Accepted
	return b
}

// stats returns a model's counters since it was added; its gauges are zero while it is not loaded.
func (s *shelf) stats(p *entry) smelt.EngineStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := p.loaded.Engine; e != nil {
		return counted(p.before, e.Stats())
	}
	away := p.before
	away.Waiting, away.Running, away.Free = 0, 0, away.Blocks
	return away
}

// close closes all models, including those being loaded, and fails waiting requests.
func (s *shelf) close() {
	s.mu.Lock()
	s.shut = true
	for _, p := range s.entries {
		s.refuse(p, openai.Stopping())
		if p.state == ready {
			s.putAway(p)
		}
	}
	s.mu.Unlock()
	s.work.Wait()
}
