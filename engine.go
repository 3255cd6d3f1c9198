package smelt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/stops"
)

// Engine runs many sequences at once over one cache, which is cut into blocks: requests
// that begin with the same tokens share what was computed of them, and each step takes all
// sequences further, in one launch of each kernel. Where the cache has no block left, the
// youngest sequence gives up its own and is computed again later, from its tokens. It is
// safe for concurrent use.
type Engine struct {
	loaded  *Loaded
	engine  *engine.Engine
	metrics Metrics
	own     []*device.Executable // where the loaded programs' do not serve
	close   func() error
}

// EngineOptions bound an engine. Zero fields take defaults.
type EngineOptions struct {
	Sequences  int   // most that run at once; further requests wait. 0: what the program was compiled for, 16 if that is one
	StepTokens int   // most tokens of a step, of all sequences together; 0: the most of a prefill step
	BlockSize  int   // tokens of a cache block; 0: the program's, 64 if it has one block for all
	CacheBytes int64 // of the cache; 0: what Sequences whole contexts take, at most half of what is free

	Metrics Metrics // is told what the engine does; nil: nobody
	Cache   Cache   // is told which prefixes the engine knows; nil: nobody

	// Speculate says how tokens are guessed before they are computed, as further rows of the
	// steps that verify them: "ngram" looks up what followed elsewhere, in the same sequence
	// and in what was generated for the same salt; "" and "off" look up none. No text depends
	// on it. Guesses are only taken as far as they make decoding faster, and not for requests
	// with a Sampler of their own.
	Speculate string
	// Draft is a smaller model of the same vocabulary that guesses tokens, which the engine's
	// verifies; nil: none does. It has a cache beside the engine's, for as many tokens, and
	// where its device is of the same kind it runs on the engine's, with its own copy of what
	// that rearranges. Greedy text does not depend on it; sampled text is another one of the
	// same distribution. It guesses wherever Speculate does not, or is more often right.
	Draft *Loaded
}

// Cache is told which blocks of tokens an engine can go on after without computing them, and
// which it has forgotten. It is called where steps are chosen, and must not wait.
type Cache interface {
	// Stored tells of a block. What identifies it is a hash of its tokens, of all before them
	// and of the salt; parent is the block that it follows, nil where it is a sequence's first.
	// The tokens are valid during the call.
	Stored(id [32]byte, parent *[32]byte, tokens []int32)
	Removed(id [32]byte)
	Cleared() // of all blocks
}

// guessing is how engines guess beside what their options say: tests have another way.
var guessing engine.Guessing

// What is wrong with the way in which tokens shall be guessed.
var (
	errNoDrafts   = errors.New("drafts cannot be made so")
	errVocabulary = errors.New("it has another vocabulary")
)

// Request is a prompt that an engine shall continue, as a text or as tokens.
type Request struct {
	Prompt     string  // as [Loaded.Encode] reads it
	Tokens     []int32 // in place of Prompt, as they are
	Generation Generation
	Priority   int // requests of higher ones go first
	// Salt keeps apart what must not be shared: a prefix is taken from the cache only where
	// it was computed for the same salt. Whoever may not learn how quick a prompt of another
	// is has a salt of its own.
	Salt string
}

// NewEngine starts an engine with a cache and an arena of its own. A program that was
// compiled with Options.Sequences and Options.Block runs as it is; of any other the engine
// compiles another Plan, whose rearranged weights take memory beside those of sessions that
// run too. A Plan from a file is taken as it is or refused.
func (l *Loaded) NewEngine(o EngineOptions) (*Engine, error) {
	e, err := l.newEngine(o)
	if err != nil {
		return nil, fmt.Errorf("an engine for %s: %w", l.program.Plan.Model, err)
	}
	return e, nil
}

func (l *Loaded) newEngine(o EngineOptions) (*Engine, error) {
	if o.Sequences < 0 || o.StepTokens < 0 || o.BlockSize < 0 || o.CacheBytes < 0 {
		return nil, fmt.Errorf("%d sequences, steps of %d tokens, blocks of %d, a cache of %d bytes: want 0 or more",
			o.Sequences, o.StepTokens, o.BlockSize, o.CacheBytes)
	}
	if o.Speculate != "" && o.Speculate != engine.SpeculateOff && o.Speculate != engine.SpeculateNgram {
		return nil, fmt.Errorf("%w: %q is neither %s nor %s", errNoDrafts, o.Speculate, engine.SpeculateNgram, engine.SpeculateOff)
	}
	if o.Draft != nil {
		if err := l.understands(o.Draft); err != nil {
			return nil, fmt.Errorf("the draft %s: %w", o.Draft.program.Plan.Model, err)
		}
	}
	if o.Draft != nil || o.Speculate == engine.SpeculateNgram {
		for _, of := range []*Loaded{l, o.Draft} {
			if of != nil && of.program.Plan.Stateful() {
				return nil, fmt.Errorf("%w: %s has recurrent states, which do not go back over guesses that are refused", errNoDrafts, of.program.Plan.Model)
			}
		}
	}
	program, limits, err := l.program.forEngine(o)
	if err != nil {
		return nil, err
	}
	e := &Engine{loaded: l, metrics: o.Metrics}
	executable := l.executable
	if program != l.program {
		if executable, err = l.device.Load(program.Plan, l.program.model.tensor); err != nil {
			return nil, err
		}
		e.own = append(e.own, executable)
	}
	e.close = sync.OnceValue(func() error {
		var err error
		if e.engine != nil {
			err = e.engine.Close()
		}
		for _, own := range e.own {
			err = errors.Join(err, own.Close())
		}
		l.engines.Delete(e)
		if o.Draft != nil {
			o.Draft.engines.Delete(e)
		}
		return err
	})
	if err := e.start(program, executable, limits, &o); err != nil {
		_ = e.close() // it never was
		return nil, err
	}
	if o.Cache != nil {
		e.engine.WatchCache(o.Cache)
	}
	if m := e.metrics; m != nil {
		e.engine.Observe(func(r engine.Ran) {
			m.Stepped(EngineStep{r.Took, r.Guessing, r.Sequences, r.Tokens, r.Drafted, r.Rows, engineStats(r.Stats)})
		})
	}
	l.engines.Store(e, nil)
	if o.Draft != nil {
		o.Draft.engines.Store(e, nil)
	}
	return e, nil
}

// understands returns an error where a draft's tokens are not the model's. Rows of logits may
// be longer than the vocabulary.
func (l *Loaded) understands(draft *Loaded) error {
	own, ownErr := l.Tokenizer()
	other, otherErr := draft.Tokenizer()
	name := l.program.Plan.Model
	if ownErr != nil || otherErr != nil { // a model that is defined in Go has none
		if has, want := draft.program.Plan.Vocab, l.program.Plan.Vocab; has != want {
			return fmt.Errorf("%w: of %d tokens, where %s has %d", errVocabulary, has, name, want)
		}
		return nil
	}
	has, want := other.Spec().Tokens, own.Spec().Tokens
	if len(has) != len(want) {
		return fmt.Errorf("%w: of %d tokens, where %s has %d", errVocabulary, len(has), name, len(want))
	}
	for id := range want {
		if has[id] != want[id] {
			return fmt.Errorf("%w: token %d is %q, where %s has %q", errVocabulary, id, has[id], name, want[id])
		}
	}
	return nil
}

// loadDraft loads a draft for as many sequences, on the engine's device where that can be:
// two devices of a kind would wait for each other's threads.
func (e *Engine) loadDraft(draft *Loaded, sequences int) (*engine.Draft, error) {
	program, limits, err := draft.program.forEngine(EngineOptions{Sequences: sequences})
	if err != nil {
		return nil, err
	}
	device, executable := draft.device, draft.executable
	mapped := draft.program.model.file != nil || e.loaded.program.model.file == nil // as the engine's device takes weights to be
	if mapped && draft.Info().Name == e.loaded.Info().Name {
		device = e.loaded.device
	}
	if program != draft.program || device != draft.device {
		if executable, err = device.Load(program.Plan, draft.program.model.tensor); err != nil {
			return nil, err
		}
		e.own = append(e.own, executable)
	}
	return &engine.Draft{Plan: program.Plan, Executable: executable, Limits: limits}, nil
}

// forEngine returns the program itself where it has steps and blocks as they are asked for,
// or the same model compiled for them.
func (p *Program) forEngine(o EngineOptions) (*Program, engine.Limits, error) {
	limits, block := engine.LimitsOf(p.Plan), p.Plan.Block()
	want := engine.Limits{Sequences: cmp.Or(o.Sequences, limits.Sequences), Tokens: o.StepTokens}
	wantBlock := cmp.Or(o.BlockSize, block)
	if compiled := p.Stages != nil; compiled {
		if o.Sequences == 0 && limits.Sequences == 1 {
			want.Sequences = compiler.DefaultSequences
		}
		if o.BlockSize == 0 && block >= p.Plan.Context {
			wantBlock = min(compiler.DefaultBlock, block)
		}
	}
	if want.Tokens == 0 {
		want.Tokens = max(limits.Tokens, want.Sequences)
	}
	if want.Tokens < want.Sequences {
		return nil, want, fmt.Errorf("steps of %d tokens for %d sequences: want one for each at least", want.Tokens, want.Sequences)
	}
	rows := 1
	if o.Speculate == engine.SpeculateNgram || o.Draft != nil {
		rows = compiler.GuessedRows(want.Sequences)
	}
	fewRows := rows > 1 && engine.GuessesOf(p.Plan, want.Sequences) < compiler.Guesses
	if want.Sequences > limits.Sequences || want.Tokens > limits.Tokens || wantBlock != block || fewRows {
		if p.Stages == nil && fewRows {
			return nil, want, fmt.Errorf("%d sequences with guesses: the plan has rows of logits for %d guesses beside them: want %d",
				want.Sequences, engine.GuessesOf(p.Plan, want.Sequences), compiler.Guesses)
		}
		if p.Stages == nil {
			return nil, want, fmt.Errorf("%d sequences, steps of %d tokens and blocks of %d: the plan is compiled for %d, %d and %d",
				want.Sequences, want.Tokens, wantBlock, limits.Sequences, limits.Tokens, block)
		}
		opts := p.Options().silent()
		opts.Sequences, opts.Block, opts.Rows, opts.Prefill = want.Sequences, wantBlock, rows, max(opts.Prefill, want.Tokens)
		var err error
		if p, err = p.model.Compile(opts); err != nil {
			return nil, want, err
		}
		limits = engine.LimitsOf(p.Plan)
	}
	want.Tokens = min(want.Tokens, limits.Tokens)
	return p, want, nil
}

// start makes the cache. Of its default size only what is used takes memory; where even so
// much may not be, it is halved, down to one context.
func (e *Engine) start(p *Program, executable *device.Executable, limits engine.Limits, o *EngineOptions) error {
	guessing := guessing
	if guessing.Lookup = o.Speculate == engine.SpeculateNgram; guessing.Lookup || o.Draft != nil {
		guessing.Rows = engine.GuessesOf(p.Plan, limits.Sequences)
	}
	var err error
	if o.Draft != nil {
		if guessing.Draft, err = e.loadDraft(o.Draft, limits.Sequences); err != nil {
			return fmt.Errorf("the draft %s: %w", o.Draft.program.Plan.Model, err)
		}
	}
	bytes := o.CacheBytes
	one, err := executable.InstanceMemory(1)
	if err != nil {
		return err
	}
	context := len(batch.Contiguous(p.Plan.Block(), p.Plan.Context))
	blocks, given := context*limits.Sequences, bytes > 0
	each := max(one.Cache, 1)
	if given {
		blocks = math.MaxInt32 / p.Plan.Block() // which is how many slots there are numbers for
	} else {
		bytes = max(device.AvailableMemory()/2, int64(context)*each)
	}
	blocks = int(min(int64(blocks), bytes/each))
	if blocks == 0 {
		return fmt.Errorf("a cache of %d bytes: one block of %d tokens takes %d", bytes, p.Plan.Block(), each)
	}
	for {
		if d := guessing.Draft; d != nil { // as many tokens, and guesses after each
			d.Blocks = limits.Sequences + (blocks*p.Plan.Block()-1)/d.Plan.Block() + 1
		}
		e.engine, err = engine.New(p.Plan, executable, limits, blocks, guessing)
		if given || blocks <= context || !errors.Is(err, device.ErrMemory) {
			return err
		}
		blocks = max(blocks/2, context)
	}
}

// Close ends all requests and releases the engine's memory. Further calls do nothing.
func (e *Engine) Close() error { return e.close() }

// Context returns how many tokens of a sequence the cache holds at most.
func (e *Engine) Context() int { return e.engine.Context() }

// Sequences returns how many run at once at most.
func (e *Engine) Sequences() int { return e.engine.Limits().Sequences }

// BlockSize returns how many tokens a block of the cache has.
func (e *Engine) BlockSize() int { return e.engine.Block() }

// Vocab returns the width of a row of logits.
func (e *Engine) Vocab() int { return e.engine.Vocab() }

// Loaded returns what the engine was made of.
func (e *Engine) Loaded() *Loaded { return e.loaded }

// OnDevice returns the engine as the device has it, with its counters and memory.
func (e *Engine) OnDevice() *device.Instance { return e.engine.Instance() }

// EngineStats tell what an engine does, as of its last step, and what it has done.
type EngineStats struct {
	Waiting, Running int   // requests
	Steps, Tokens    int64 // tokens of all steps, those of prompts included
	Preempted        int64 // how often a sequence had to give up its blocks
	Asked, Cached    int64 // tokens that sequences began with, and of these those that were in the cache
	Blocks, Free     int   // of the cache; what is free may still be shared
	Evicted, Copied  int64 // blocks
	Drafted          int64 // tokens that were guessed before they were computed
	Accepted         int64 // of these, those that were right
}

// Stats returns them.
func (e *Engine) Stats() EngineStats { return engineStats(e.engine.Stats()) }

func engineStats(s engine.Stats) EngineStats {
	return EngineStats{
		Waiting: s.Waiting, Running: s.Running, Steps: s.Steps, Tokens: s.Tokens, Preempted: s.Preempted,
		Asked: s.Pages.Asked, Cached: s.Pages.Cached, Blocks: s.Blocks, Free: s.Free, Evicted: s.Pages.Evicted, Copied: s.Pages.Copied,
		Drafted: s.Drafted, Accepted: s.Accepted,
	}
}

// Generate continues a prompt: one Token for each that is generated, a stop token included,
// the last with a Finish and the Usage. An error is the last value; its Token has the text
// that was held back. It may be called from any goroutine, and the values may be taken at
// any pace: others do not wait for them. Breaking off the range ends the request, and so
// does the end of ctx, with its error.
//
// A Sampler is called by a goroutine of the request, and its logits are a copy. The next step
// waits for it for a quarter of the time that a step takes, half a millisecond at least; then
// the others go on, and the request takes part in steps again once it has chosen. So one that
// is slow slows its own request. It must not close the engine.
func (e *Engine) Generate(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s, err := e.submit(ctx, r)
		switch {
		case err != nil:
			yield(Token{}, err)
		case s != nil:
			defer s.end()
			s.hand(yield)
		}
	}
}

// submit returns nil where nothing shall be generated.
func (e *Engine) submit(ctx context.Context, r Request) (*stream, error) {
	ids, err := r.Tokens, error(nil)
	switch {
	case len(ids) > 0 && r.Prompt != "":
		return nil, errors.New("a request has a prompt or tokens, not both")
	case len(ids) == 0:
		ids, err = e.loaded.Encode(r.Prompt)
	}
	if err != nil {
		return nil, err
	}
	g := &r.Generation
	picker, text, err := e.loaded.begin(g, e.engine.Vocab(), e.engine.Chooses(), ids)
	if err != nil || g.N < 0 {
		return nil, err
	}
	s := &stream{
		text: text, context: e.Context(), left: cmp.Or(g.N, defaultGenerated),
		news: make(chan struct{}, 1), over: make(chan struct{}), metrics: e.metrics, since: time.Now(),
	}
	ctx, s.cancel = context.WithCancel(ctx)
	request := picker.Request(s.give)
	request.Tokens, request.Priority, request.Salt, request.Ended = slices.Clone(ids), r.Priority, r.Salt, s.ended
	if err = e.engine.Submit(ctx, request); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// stream is a request under way: the engine writes tokens, as they come, and who asked for
// them reads.
type stream struct {
	cancel context.CancelFunc

	// Of the engine, until over is closed.
	text    *stops.Text
	context int
	left    int
	last    *Token
	metrics Metrics
	since   time.Time // the last token, or the beginning
	begun   bool

	news   chan struct{} // holds a value where there are tokens
	over   chan struct{}
	mu     sync.Mutex
	tokens []Token
	err    error
	usage  Usage
}

// give hands out a token, which the sequence has that many with, and reports whether another
// shall come.
func (s *stream) give(picked engine.Token, length int) (more bool) {
	s.tell()
	s.left--
	t := tokenOf(picked, s.text, s.left == 0 || length > s.context)
	if t.Finish != "" {
		s.last = &t
		return false
	}
	s.push(t)
	return true
}

// tell says how long a token took.
func (s *stream) tell() {
	if s.metrics == nil {
		return
	}
	now := time.Now()
	if took := now.Sub(s.since); s.begun {
		s.metrics.NextToken(took)
	} else {
		s.metrics.FirstToken(took)
	}
	s.since, s.begun = now, true
}

func (s *stream) push(t Token) {
	s.mu.Lock()
	s.tokens = append(s.tokens, t)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *stream) ended(u engine.Usage, err error) {
	s.usage, s.err = Usage{PromptTokens: u.Prompt, CachedTokens: u.Cached, Drafted: u.Drafted, Accepted: u.Accepted}, err
	if s.last != nil {
		s.last.Usage = &s.usage
		s.push(*s.last)
	}
	if s.metrics != nil {
		s.metrics.Ended(s.usage, err)
	}
	close(s.over)
}

// hand gives out tokens until there are no more.
func (s *stream) hand(yield func(Token, error) bool) {
	var taken []Token
	for over := false; !over; {
		select {
		case <-s.news:
		case <-s.over:
			over = true
		}
		s.mu.Lock()
		taken, s.tokens = s.tokens, taken[:0]
		s.mu.Unlock()
		for _, t := range taken {
			if !yield(t, nil) {
				return
			}
		}
	}
	if s.err != nil {
		yield(Token{Text: s.text.Rest(), Usage: &s.usage}, s.err)
	}
}

// end cancels what is left, and returns when the engine calls nobody any more.
func (s *stream) end() {
	s.cancel()
	<-s.over
}
