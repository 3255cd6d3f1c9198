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

// Resident is a model in memory: an engine that answers, or what makes embeddings.
type Resident struct {
	Engine   *smelt.Engine
	Embedder *smelt.Embedder
	Memory   int64        // bytes that it takes until it is closed
	Close    func() error // gives them back
}

// ErrMemory is wrapped where a model does not fit into [Options.Memory], whatever else is loaded.
var ErrMemory = errors.New("the memory for models does not suffice")

// AddOnDemand serves a model that is in memory while it is asked for, and as long as no other one
// needs the room: [Options.Memory] bounds all that are added so. load is called now, to see
// that it can be and what it takes, and whenever it is asked for and not there; never twice at
// once. The server closes what load returned.
//
// A model is put away when another one is asked for that has no room beside it, the one first
// that was not used for the longest, and once no request that uses it is under way. Whoever asks
// for it from then on waits behind who asked for the other one, so that everybody's turn comes.
func (s *Server) AddOnDemand(name string, load func() (Resident, error)) error {
	p := &place{name: name, bytes: s.options.Memory, waiters: max(s.options.MaxQueue, 1)}
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
	// What it takes is not known yet: all there is is kept free for it.
	s.shelf.add(p)
	m, release, err := s.shelf.take(context.Background(), p)
	if err == nil {
		err = s.add(&model{info: m.Info(), place: p, most: s.most(m)})
		release()
	} else if p.failed != nil {
		err = p.failed
	}
	if err != nil {
		s.shelf.remove(p)
		return err
	}
	s.observe(name, m.Engine, func() smelt.EngineStats { return s.shelf.stats(p) })
	s.observePlace(p)
	return nil
}

// shelf keeps models within a bound on memory, and says whose turn it is.
type shelf struct {
	bound int64
	log   *slog.Logger

	mu     sync.Mutex
	places []*place
	used   int64     // by models that are loaded, being loaded or being closed
	queue  []*ticket // who waits, in the order in which they came
	now    int64     // a clock that each use moves
	shut   bool
	work   sync.WaitGroup // loads and closes under way
}

// place is a model's on the shelf. Its fields are guarded by the shelf's lock, but for those that
// do not change.
type place struct {
	name    string
	waiters int // at most
	load    func() (*openai.Model, Resident, error)

	state     placeState
	bytes     int64
	model     *openai.Model
	loaded    Resident
	users     int   // requests under way
	used      int64 // when, by the shelf's clock
	leaving   bool  // others wait for its room: no further request gets it
	failed    error // of the last load
	loads     int64
	evictions int64
	before    smelt.EngineStats // what was counted by engines that were closed
}

type placeState int

const (
	away placeState = iota
	loading
	ready
	closing
)

// ticket is a request that waits for a model.
type ticket struct {
	place *place
	done  chan struct{} // closed when model or err is set
	model *openai.Model
	err   error
}

func (s *shelf) add(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = append(s.places, p)
}

// remove takes a model from the shelf that nobody asks for any more.
func (s *shelf) remove(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = slices.DeleteFunc(s.places, func(other *place) bool { return other == p })
	if p.state == ready {
		s.putAway(p)
	}
}

// take returns a model that stays loaded until release is called, after loading it if need be.
func (s *shelf) take(ctx context.Context, p *place) (m *openai.Model, release func(), err error) {
	s.mu.Lock()
	if s.shut {
		s.mu.Unlock()
		return nil, nil, openai.Stopping()
	}
	t := &ticket{place: p, done: make(chan struct{})}
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

// waiting counts those who wait for a model.
func (s *shelf) waiting(p *place) (n int) {
	for _, t := range s.queue {
		if t.place == p {
			n++
		}
	}
	return n
}

func (s *shelf) release(p *place) {
	p.users--
	s.touch(p)
	s.advance()
}

func (s *shelf) touch(p *place) {
	s.now++
	p.used = s.now
}

// leave takes a ticket out of the queue, if it is there.
func (s *shelf) leave(t *ticket) {
	s.queue = slices.DeleteFunc(s.queue, func(other *ticket) bool { return other == t })
	s.advance()
}

// advance does what can be done for those who wait, in their order. The first one for whom there
// is no room has the models marked whose room it will get; who comes later gets none of these,
// and no room of others.
func (s *shelf) advance() {
	for _, p := range s.places {
		p.leaving = false
	}
	blocked := false
	s.queue = slices.DeleteFunc(s.queue, func(t *ticket) bool {
		p := t.place
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

// makeRoom reports whether a model can be loaded now, and sees to it that it can later.
func (s *shelf) makeRoom(p *place) bool {
	need := s.used + p.bytes - s.bound
	if need <= 0 {
		return true
	}
	var loaded []*place
	for _, other := range s.places {
		switch other.state {
		case closing:
			need -= other.bytes
		case ready:
			loaded = append(loaded, other)
		}
	}
	slices.SortFunc(loaded, func(a, b *place) int {
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

// begin loads a model.
func (s *shelf) begin(p *place) {
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
		case l.Memory > p.bytes: // all there is, the first time; and what it took then, later
			p.failed = fmt.Errorf("%s takes %d bytes of weights, cache and arena, and has %d: %w", p.name, l.Memory, p.bytes, ErrMemory)
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

// refuse gives an error to all who wait for a model.
func (s *shelf) refuse(p *place, err error) {
	s.queue = slices.DeleteFunc(s.queue, func(t *ticket) bool {
		if t.place == p {
			t.err = err
			close(t.done)
		}
		return t.place == p
	})
}

// putAway closes a model that nobody uses.
func (s *shelf) putAway(p *place) {
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

// counted adds the counters of two engines that served one model after the other.
func counted(a, b smelt.EngineStats) smelt.EngineStats {
	b.Steps, b.Tokens, b.Preempted = a.Steps+b.Steps, a.Tokens+b.Tokens, a.Preempted+b.Preempted
	b.Asked, b.Cached = a.Asked+b.Asked, a.Cached+b.Cached
	b.Evicted, b.Copied = a.Evicted+b.Evicted, a.Copied+b.Copied
	b.Drafted, b.Accepted = a.Drafted+b.Drafted, a.Accepted+b.Accepted
	return b
}

// stats are those of a model since it was added; what is in use is nothing while it is away.
func (s *shelf) stats(p *place) smelt.EngineStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := p.loaded.Engine; e != nil {
		return counted(p.before, e.Stats())
	}
	away := p.before
	away.Waiting, away.Running, away.Free = 0, 0, away.Blocks
	return away
}

// close puts all models away, those that are being loaded too, and refuses who waits. Requests
// that are under way are broken off.
func (s *shelf) close() {
	s.mu.Lock()
	s.shut = true
	for _, p := range s.places {
		s.refuse(p, openai.Stopping())
		if p.state == ready {
			s.putAway(p)
		}
	}
	s.mu.Unlock()
	s.work.Wait()
}
