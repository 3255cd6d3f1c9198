package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/stops"
)

// question is what every form of generation comes to: prompts, how many answers to each, and
// how they are made.
type question struct {
	model      *Model
	prompts    []prompt
	answers    int // to each prompt
	generation smelt.Generation
	stops      []string
	tokens     int  // most of an answer; 0: as many as the context has room for
	seeded     bool // the generation has a seed that the client chose
	single     bool // an answer ends with its first tool call
	salt       string
}

// prompt is what a model continues: tokens, and of a conversation what reads its answer.
type prompt struct {
	tokens []int32
	parser func() *chat.Parser // nil: the text is given out as it is
}

// Finish says why an answer ends.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishTools  = "tool_calls"
)

// event is something that came of an answer: what a token adds to it, and at last how it
// ended.
type event struct {
	index int // of the answer
	chat.Delta
	tokens []scored

	finish string // the end, where it is not ""
	stop   string // the stop text that ended it
	usage  usage  // with the end
	err    error  // in place of an end
}

// scored is a token with its likelihood, where these were asked for.
type scored struct {
	smelt.Token
	offset int // of its text in the answer's
}

// usage is what an answer took.
type usage struct{ prompt, cached, generated, reasoning int }

// ask answers a question. Events of answers come mixed, each answer's in order; the channel
// is closed after the last, and an error is the last of its answer. Answers end with ctx.
func (q *question) ask(ctx context.Context) <-chan event {
	events := make(chan event)
	var all sync.WaitGroup
	for i, p := range q.prompts {
		for k := range q.answers {
			all.Go(func() {
				q.answer(ctx, &p, i*q.answers+k, k, func(e event) bool {
					select {
					case events <- e:
						return true
					case <-ctx.Done():
						return false
					}
				})
			})
		}
	}
	go func() { all.Wait(); close(events) }()
	return events
}

// answer makes one of the answers to a prompt.
func (q *question) answer(ctx context.Context, p *prompt, index, k int, send func(event) bool) {
	engine := q.model.Engine
	g := q.generation
	if g.N = engine.Context() - len(p.tokens); q.tokens > 0 && q.tokens < g.N {
		g.N = q.tokens
	}
	if g.N <= 0 {
		send(event{index: index, err: fmt.Errorf("%w: the prompt has %d tokens, and there is room for %d with an answer",
			smelt.ErrContext, len(p.tokens), engine.Context())})
		return
	}
	if q.seeded {
		g.Sampling.Seed += uint64(k)
	} else {
		g.Sampling.Seed = rand.Uint64()
	}
	r := &reader{}
	if p.parser != nil {
		r.parser, r.stops, g.NoText = p.parser(), stops.New(q.stops...), true
	} else {
		g.Stop = q.stops
	}
	out := event{index: index}
	request := smelt.Request{Tokens: p.tokens, Generation: g, Salt: q.salt}
	ended := false
	for token, err := range engine.Generate(ctx, request) {
		if token.Usage != nil {
			out.usage.prompt, out.usage.cached = token.Usage.PromptTokens, token.Usage.CachedTokens
		}
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			send(event{index: index, err: err})
			return
		}
		out.usage.generated++
		d, stop := r.token(&token)
		if r.thinking {
			out.usage.reasoning++
		}
		out.add(d, token, g.Logprobs > 0 && token.Finish != smelt.FinishStop && !r.stopped, r.length)
		switch {
		case r.stopped:
			out.finish, out.stop, ended = finishStop, stop, true
		case q.single && r.called:
			out.finish, ended = finishTools, true
		case token.Finish != "":
			out.finish, ended = token.Finish, true
		}
		if ended {
			break
		}
		if !out.empty() {
			if !send(out) {
				return
			}
			out = event{index: index, usage: out.usage}
		}
	}
	if out.usage.prompt == 0 { // broken off before the engine said
		out.usage.prompt = len(p.tokens)
	}
	if !r.stopped {
		d, stop := r.end()
		out.join(d)
		if r.stopped {
			out.finish, out.stop = finishStop, stop
		}
	}
	if r.called && out.finish == finishStop {
		out.finish = finishTools
	}
	send(out)
}

func (e *event) empty() bool {
	return e.Reasoning == "" && e.Content == "" && len(e.ToolCalls) == 0 && len(e.tokens) == 0
}

func (e *event) join(d chat.Delta) {
	e.Reasoning += d.Reasoning
	e.Content += d.Content
	e.ToolCalls = append(e.ToolCalls, d.ToolCalls...)
}

func (e *event) add(d chat.Delta, t smelt.Token, score bool, offset int) {
	e.join(d)
	if score {
		e.tokens = append(e.tokens, scored{t, offset})
	}
}

// reader makes of tokens what an answer says, up to a text that stops it. Of an answer without
// a parser the engine does.
type reader struct {
	parser   *chat.Parser  // nil: none
	stops    *stops.Finder // in the content that the parser finds
	thinking bool          // the last token was part of reasoning
	called   bool          // a tool
	stopped  bool
	length   int // bytes of content before the last token
	content  int
}

func (r *reader) token(t *smelt.Token) (chat.Delta, string) {
	if r.parser == nil {
		return r.count(chat.Delta{Content: t.Text}, t.Stop)
	}
	d := r.parser.Token(t.ID)
	r.thinking = d.Reasoning != ""
	return r.heed(d, false)
}

func (r *reader) end() (chat.Delta, string) {
	if r.parser == nil {
		return chat.Delta{}, ""
	}
	return r.heed(r.parser.End(), true)
}

// heed looks for stops in what the parser has found: what may be the beginning of one waits for
// what follows.
func (r *reader) heed(d chat.Delta, last bool) (chat.Delta, string) {
	text, stop := r.stops.Next(d.Content, last)
	d.Content = text
	return r.count(d, stop)
}

func (r *reader) count(d chat.Delta, stop string) (chat.Delta, string) {
	r.length = r.content
	r.content += len(d.Content)
	if stop != "" {
		r.stopped = true
		d.ToolCalls = nil // they come after the text
	}
	r.called = r.called || len(d.ToolCalls) > 0
	return d, stop
}

// sampling reads how tokens are chosen, as the model's Sampling says unless the client does.
func (q *question) sampling(p *params) {
	s := &q.generation.Sampling
	*s = q.model.Sampling
	p.number("temperature", &s.Temperature, 0, 2)
	p.number("top_p", &s.TopP, 0, 1)
	p.number("min_p", &s.MinP, 0, 1)
	p.whole("top_k", &s.TopK, 0, 1<<20)
	p.number("frequency_penalty", &q.generation.FrequencyPenalty, -2, 2)
	p.number("presence_penalty", &q.generation.PresencePenalty, -2, 2)
	var seed int64
	if q.seeded = p.read("seed", &seed); q.seeded {
		s.Seed = uint64(seed)
	}
	q.bias(p)
	q.stops = p.texts("stop", 16)
	for _, stop := range q.stops {
		if stop == "" {
			p.fail(invalid("stop", "stop: an empty text stops nothing"))
		}
	}
	var user string
	p.read("user", &user)
	if q.model.SaltByUser {
		q.salt = user
	}
	p.ignore("metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
	p.only("service_tier", "there is one tier", `"auto"`, `"default"`)
	p.only("repetition_penalty", "frequency_penalty and presence_penalty are honoured", `1`)
}

func (q *question) bias(p *params) {
	raw := map[string]float64{}
	if !p.read("logit_bias", &raw) {
		return
	}
	q.generation.Bias = make(map[int32]float32, len(raw))
	for name, by := range raw {
		var id int32
		if json.Unmarshal([]byte(name), &id) != nil || id < 0 || int(id) >= q.model.Engine.Vocab() {
			p.fail(invalid("logit_bias", "logit_bias: %q is none of the model's %d tokens", name, q.model.Engine.Vocab()))
			return
		}
		if !(by >= -100 && by <= 100) {
			p.fail(invalid("logit_bias", "logit_bias of token %d is %g: want -100 to 100", id, by))
			return
		}
		q.generation.Bias[id] = float32(by)
	}
}

// most is how many answers one request may ask for.
const most = 16

func (q *question) count(p *params) {
	q.answers = 1
	p.whole("n", &q.answers, 1, most)
}

// shown is a text that JSON can have.
func shown(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
