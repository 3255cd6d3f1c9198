package smelt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/metal"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Sampling says how the next token is chosen; the zero value takes the most likely.
type Sampling = engine.Sampling

// Profiled is a step whose dispatches were timed: see Session.Profile.
type Profiled = engine.Profiled

// ErrContext is wrapped where a sequence would outgrow its cache.
var ErrContext = engine.ErrContext

// ErrNaN is wrapped where logits are not numbers, which nothing can be chosen from: a
// weight or a kernel is broken. Verify with Bisect says where they come from.
var ErrNaN = engine.ErrNaN

// Session is one sequence of tokens on a device. It is used by one goroutine at a
// time and closed before its model.
type Session struct {
	*engine.Session
	device    *metal.Device
	program   *metal.Program
	tokenizer *tokenizer.Tokenizer // nil until a text is asked for
	model     *Model
	loaded    time.Duration
}

// NewSession opens a device, loads the program on it and starts an empty sequence.
// A device of another target than the program's refuses it with a [*TargetError].
func (p *Program) NewSession(d Device) (*Session, error) {
	start := time.Now()
	switch {
	case p.model == nil:
		return nil, fmt.Errorf("the plan of %s without its model: %w", p.Plan.Model, ErrNoWeights)
	case !p.model.HasWeights():
		return nil, fmt.Errorf("%s: %w", archPrefix+p.model.name, ErrNoWeights)
	}
	d, err := Resolve(d)
	if err == nil {
		err = d.accept(p.Plan.Target)
	}
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", p.Plan.Model, err)
	}
	d.Mapped = p.model.file != nil
	device, err := metal.Open(d.Name, d.Options)
	if err != nil {
		return nil, err
	}
	s := &Session{device: device, model: p.model}
	if s.program, err = device.Load(p.Plan, p.model.tensor); err != nil {
		device.Close()
		return nil, err
	}
	if s.Session, err = engine.NewSession(p.Plan, s.program); err != nil {
		device.Close()
		return nil, err
	}
	s.loaded = time.Since(start)
	return s, nil
}

// tensor gives a device the bytes of a weight.
func (m *Model) tensor(name string) ([]byte, ir.DType, error) {
	t, data, ok := m.weights.Data(name)
	if !ok {
		return nil, ir.Invalid, fmt.Errorf("%s has no such tensor", m.name)
	}
	return data, t, nil
}

// Close releases the session, its program and its device.
func (s *Session) Close() error { return s.device.Close() }

// Info describes the device.
func (s *Session) Info() metal.Info { return s.device.Info() }

// Program returns the program on the device.
func (s *Session) Program() *metal.Program { return s.program }

// LoadTime is how long opening the device and binding the weights took.
func (s *Session) LoadTime() time.Duration { return s.loaded }

// Memory is what a session takes, in bytes.
type Memory struct{ Weights, Cache, Arena int64 }

// Memory returns what the session takes.
func (s *Session) Memory(p *Program) Memory {
	var m Memory
	for i := range p.Plan.Tensors {
		t := &p.Plan.Tensors[i]
		m.Weights += t.DType.Bytes(t.Elements())
	}
	bounds := p.Plan.Phases[0].Bounds
	m.Cache = cacheBytes(p.Plan, &bounds)
	for i := range p.Plan.Buffers {
		if b := &p.Plan.Buffers[i]; b.Kind == lower.Arena {
			m.Arena = b.Bytes.Eval(&bounds)
		}
	}
	return m
}

// Tokenizer returns the model's tokenizer.
func (s *Session) Tokenizer() (*tokenizer.Tokenizer, error) {
	if s.tokenizer != nil {
		return s.tokenizer, nil
	}
	var err error
	s.tokenizer, err = s.model.Tokenizer()
	return s.tokenizer, err
}

// Encode turns a prompt into tokens: special tokens are recognised, and the start
// token comes first where the model has one.
func (s *Session) Encode(prompt string) ([]int32, error) {
	t, err := s.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids := t.Encode(prompt, true)
	if bos, ok := t.BOS(); ok && (len(ids) == 0 || ids[0] != bos) {
		ids = slices.Insert(ids, 0, bos)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the prompt has no tokens, and %s starts with none", s.model.name)
	}
	return ids, nil
}

// encodeAfter encodes what goes on after the sequence.
func (s *Session) encodeAfter(prompt string) ([]int32, error) {
	if s.Length() == 0 {
		return s.Encode(prompt)
	}
	t, err := s.Tokenizer()
	if err != nil {
		return nil, err
	}
	return t.EncodeAfter(s.Tokens(), prompt, true), nil
}

// Generation says how much to generate and how.
type Generation struct {
	N        int // most tokens to generate
	Sampling Sampling
	// IgnoreStop goes on after tokens that end a text.
	IgnoreStop bool
}

// Generated is what Generate made. Where it was stopped it holds what was made
// until then.
type Generated struct {
	Prompt  int     // tokens of the prompt
	Tokens  []int32 // generated, a stop token included
	Text    string
	Prefill time.Duration // from the prompt to the first token
	Decode  time.Duration // of all tokens after the first
}

// Generate appends a prompt to the sequence and continues it. Each piece of text
// goes to yield as soon as its characters are whole; yield returns false to stop.
// A context that fills up ends the text without an error.
//
// An empty sequence begins with the start token where the model has one. Later prompts
// go on from what the sequence has, generated tokens included, as if all of it were one
// text; an empty one goes on where it stands.
func (s *Session) Generate(ctx context.Context, prompt string, g Generation, yield func(piece string) bool) (*Generated, error) {
	if err := g.Sampling.Validate(); err != nil {
		return nil, err
	}
	ids, err := s.encodeAfter(prompt)
	if err != nil {
		return nil, err
	}
	if room := max(0, s.Context()-s.Length()); len(ids) > room {
		return nil, fmt.Errorf("%w: the prompt has %d tokens, and there is room for %d of %d", ErrContext, len(ids), room, s.Context())
	}
	out := &Generated{Prompt: len(ids)}
	if g.N <= 0 {
		s.Append(ids...)
		return out, nil
	}
	decoder := s.tokenizer.NewDecoder(false)
	decoder.Prime(s.Tokens())
	decoder.Prime(ids)
	next := s.chooser(g.Sampling)
	start := time.Now()
	id, err := next(ctx, ids)
	out.Prefill = time.Since(start)
	if err != nil {
		return out, err
	}
	emit := func(piece string) bool {
		out.Text += piece
		return piece == "" || yield(piece)
	}
	start = time.Now()
	defer func() { out.Decode = time.Since(start) }()
	for {
		out.Tokens = append(out.Tokens, id)
		s.Append(id)
		if !emit(decoder.Next(id)) || s.tokenizer.IsStop(id) && !g.IgnoreStop {
			break
		}
		if len(out.Tokens) == g.N || s.Length() > s.Context() {
			break
		}
		if id, err = next(ctx, nil); err != nil {
			emit(decoder.Flush())
			return out, err
		}
	}
	emit(decoder.Flush())
	return out, nil
}

// chooser returns what appends tokens and chooses the next: the device itself where
// it is the most likely one, else a sampler among the logits.
func (s *Session) chooser(sampling Sampling) func(context.Context, []int32) (int32, error) {
	if sampling.Temperature == 0 && s.Chooses() {
		return s.Next
	}
	sampler := engine.NewSampler(sampling)
	return func(ctx context.Context, ids []int32) (int32, error) {
		logits, err := s.Feed(ctx, ids)
		if err != nil {
			return 0, err
		}
		next, err := sampler.Next(logits)
		if err != nil {
			return 0, fmt.Errorf("after %d tokens: %w", s.Length(), err)
		}
		return next, nil
	}
}

// Greedy returns the token of the largest logit.
func Greedy(logits []float32) (int32, error) { return engine.Greedy(logits) }
