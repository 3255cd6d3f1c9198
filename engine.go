package smelt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/internal/stops"
)

// Engine runs many sequences with continuous batching over one paged KV cache. Requests with a
// common prefix share its blocks, and each step advances all running sequences. When the
// cache has no free block, the engine preempts the youngest sequence and recomputes it later
// from its tokens. An Engine is safe for concurrent use.
type Engine struct {
	loaded  *Loaded
	engine  *engine.Engine
	metrics Metrics
	own     []*device.Executable // loaded for this engine, where the Loaded's do not fit
	close   func() error
}

// EngineOptions configure an engine. Zero fields take defaults.
type EngineOptions struct {
	Sequences  int   // maximum batch size; further requests queue. 0: the program's, 16 if that is one
	StepTokens int   // maximum tokens of a step over all sequences; 0: the program's Prefill
	BlockSize  int   // tokens per block of the KV cache; 0: the program's, 64 if its cache is contiguous
	CacheBytes int64 // size of the KV cache; 0: Sequences full contexts, at most half of the free memory

	Metrics Metrics // receives the engine's events; may be nil
	Cache   Cache   // receives changes of the prefix cache; may be nil

	// Speculate selects speculative decoding without a draft model: "ngram" drafts the tokens
	// that followed the same n-gram earlier in the sequence, or in texts generated with the same
	// salt; "" and "off" disable it. It changes no text. The engine drafts only as many tokens
	// as make decoding faster, and none for requests with a Sampler.
	Speculate string
	// Draft is a draft model of the same vocabulary for speculative decoding; nil: none. It gets
	// a KV cache of as many tokens and, if its device has the same name, runs on the engine's
	// device. Greedy text does not change; sampled text differs, from the same distribution.
	// With Speculate too, the source with the higher acceptance rate drafts.
	Draft *Loaded
}

// Cache receives the changes of an engine's prefix cache, block by block. The scheduler calls its
// methods, so they must not block.
type Cache interface {
	// Stored reports a new block. Its id is a hash of its tokens, of all tokens before them and
	// of the salt; parent is the id of the preceding block, nil for the first of a sequence.
	// The tokens are valid during the call.
	Stored(id [32]byte, parent *[32]byte, tokens []int32)
	Removed(id [32]byte) // reports the eviction of a block
	Cleared()            // reports the removal of all blocks
}

// guessing holds defaults of drafting that tests replace.
var guessing engine.Guessing

// Errors about speculative decoding.
var (
	errNoDrafts   = errors.New("drafts cannot be made so")
	errVocabulary = errors.New("it has another vocabulary")
)

// Request is a prompt for an engine to continue, as a text or as tokens.
type Request struct {
	Prompt     string  // text, tokenized by [Loaded.Encode]
	Tokens     []int32 // token ids in place of Prompt, used unchanged
	Generation Generation
	Priority   int // higher priorities run first
	// Salt isolates tenants in the prefix cache: requests share prefixes only with requests of
	// the same salt. It prevents tenants from probing each other's prompts by latency.
	Salt string
}

// NewEngine starts an engine with a KV cache and an arena of its own. It uses the program if
// Options.Sequences and Options.Block fit, and otherwise compiles another Plan, whose
// rearranged weights take memory beside those of sessions. A Plan read from a file that does
// not fit is an error.
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
		if executable, err = l.program.model.load(l.device, program.Plan); err != nil {
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
		_ = e.close() // err is the cause
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

// understands returns an error if the vocabularies of a draft and the model differ. The lengths
// of their rows of logits may differ.
func (l *Loaded) understands(draft *Loaded) error {
	own, ownErr := l.Tokenizer()
	other, otherErr := draft.Tokenizer()
	name := l.program.Plan.Model
	if ownErr != nil || otherErr != nil { // models defined in Go have no tokenizer
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

// loadDraft loads a draft for the given number of sequences, if possible on the engine's device,
// since two devices of one kind compete for threads.
func (e *Engine) loadDraft(draft *Loaded, sequences int) (*engine.Draft, error) {
	program, limits, err := draft.program.forEngine(EngineOptions{Sequences: sequences})
	if err != nil {
		return nil, err
	}
	device, executable := draft.device, draft.executable
	mapped := draft.program.model.file != nil || e.loaded.program.model.file == nil // the engine's device assumes mapped weights if its model has a file
	if mapped && draft.Info().Name == e.loaded.Info().Name {
		device = e.loaded.device
	}
	if program != draft.program || device != draft.device {
		if executable, err = draft.program.model.load(device, program.Plan); err != nil {
			return nil, err
		}
		e.own = append(e.own, executable)
	}
	return &engine.Draft{Plan: program.Plan, Executable: executable, Limits: limits}, nil
}

// forEngine returns the program itself if its steps and blocks fit the options, or else the same
// model compiled for them.
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

// start allocates the cache and starts the engine. A cache of the default size takes memory only
// as it is used; if its allocation fails, start halves it, down to one context.
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
	memory := func(blocks int) (int64, error) {
		m, err := executable.InstanceMemory(blocks, engine.WindowBlocks(p.Plan, limits, blocks)...)
		return m.Cache, err
	}
	context := len(batch.Contiguous(p.Plan.Block(), p.Plan.Context))
	blocks, given := context*limits.Sequences, bytes > 0
	least, err := memory(context)
	if err != nil {
		return err
	}
	if given {
		// Slot numbers are int32. More blocks than the sequences fill serve models whose caches grow by block.
		most := math.MaxInt32 / p.Plan.Block()
		if n, err := memory(most); err != nil || n > least {
			blocks = most
		}
	} else {
		bytes = max(device.AvailableMemory()/2, least)
	}
	blocks = sort.Search(blocks, func(i int) bool {
		n, err := memory(i + 1)
		return err != nil || n > bytes
	})
	if blocks == 0 {
		one, _ := memory(1) // as above
		return fmt.Errorf("a cache of %d bytes: one block of %d tokens takes %d", bytes, p.Plan.Block(), one)
	}
	for {
		if d := guessing.Draft; d != nil { // as many tokens, and draft tokens after each sequence
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

// Context returns the maximum number of tokens of a sequence.
func (e *Engine) Context() int { return e.engine.Context() }

// Sequences returns the maximum batch size.
func (e *Engine) Sequences() int { return e.engine.Limits().Sequences }

// BlockSize returns the number of tokens per block of the KV cache.
func (e *Engine) BlockSize() int { return e.engine.Block() }

// Vocab returns the length of a row of logits.
func (e *Engine) Vocab() int { return e.engine.Vocab() }

// Loaded returns the loaded program that the engine was made from.
func (e *Engine) Loaded() *Loaded { return e.loaded }

// OnDevice returns the engine's instance on the device, with its counters and memory.
func (e *Engine) OnDevice() *device.Instance { return e.engine.Instance() }

// EngineStats holds an engine's gauges as of its last step, and its counters since the start.
type EngineStats struct {
	Waiting, Running int   // queued and running requests
	Steps, Tokens    int64 // steps, and computed tokens, those of prompts included
	Preempted        int64 // preemptions of sequences
	Asked, Cached    int64 // tokens at the start of sequences, and those of them found in the prefix cache
	Blocks, Free     int   // blocks of the cache; free ones may still hold shared prefixes
	Evicted, Copied  int64 // blocks evicted from the prefix cache, and copied on write
	Drafted          int64 // draft tokens of speculative decoding
	Accepted         int64 // draft tokens that verification accepted
}

// Stats returns the engine's statistics.
func (e *Engine) Stats() EngineStats { return engineStats(e.engine.Stats()) }

func engineStats(s engine.Stats) EngineStats {
	return EngineStats{
		Waiting: s.Waiting, Running: s.Running, Steps: s.Steps, Tokens: s.Tokens, Preempted: s.Preempted,
		Asked: s.Pages.Asked, Cached: s.Pages.Cached, Blocks: s.Blocks, Free: s.Free, Evicted: s.Pages.Evicted, Copied: s.Pages.Copied,
		Drafted: s.Drafted, Accepted: s.Accepted,
	}
}

// Generate continues a prompt and yields each generated token, a stop token included; the last
// has a Finish and the Usage. An error is the last value, and its Token holds the text that
// was held back. A slow consumer delays no other request. A break out of the range cancels the
// request, and so does ctx, with its error.
//
// A goroutine of the request calls its Sampler with a copy of the logits. The next step waits
// for the Sampler for a quarter of a step's time, at least half a millisecond; then it runs
// without the request, which joins a later step once its token is sampled. A slow Sampler thus
// slows its own request only. It must not close the engine.
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

// Fits returns ErrContext for a text whose length shows that its tokens exceed the context.
// Encoding such a text takes many times its size in memory.
func (e *Engine) Fits(text string) error { return e.loaded.fits(text, e.Context()) }

// Encode tokenizes a prompt that [Engine.Fits] by [Loaded.Encode].
func (e *Engine) Encode(prompt string) ([]int32, error) {
	if err := e.Fits(prompt); err != nil {
		return nil, err
	}
	return e.loaded.Encode(prompt)
}

// submit submits a request. It returns nil if Generation.N is negative.
func (e *Engine) submit(ctx context.Context, r Request) (*stream, error) {
	ids, err := r.Tokens, error(nil)
	switch {
	case len(ids) > 0 && r.Prompt != "":
		return nil, errors.New("a request has a prompt or tokens, not both")
	case len(ids) == 0:
		ids, err = e.Encode(r.Prompt)
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

// stream is a running request: the engine's goroutine writes tokens, and the consumer's reads
// them.
type stream struct {
	cancel context.CancelFunc

	// Owned by the engine's goroutine until over is closed.
	text    *stops.Text
	context int
	left    int
	last    *Token
	metrics Metrics
	since   time.Time // time of the last token, or of the submission
	begun   bool

	news   chan struct{} // holds a value while tokens is not empty
	over   chan struct{}
	mu     sync.Mutex
	tokens []Token
	err    error
	usage  Usage
}

// give queues a token and reports whether generation continues; length is the sequence's length
// with the token.
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

// tell reports a token's latency to the metrics.
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

// hand yields tokens until the request ends.
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

// end cancels the request, and returns once the engine makes no further calls for it.
func (s *stream) end() {
	s.cancel()
	<-s.over
}
