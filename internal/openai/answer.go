package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
	"github.com/smelt-ml/smelt/internal/stops"
)

// question is a request for generation in any protocol: prompts, the number of answers to each, and
// the parameters of generation.
type question struct {
	model      *Model
	prompts    []prompt
	answers    int              // answers to each prompt
	generation smelt.Generation // N 0: up to the end of the context
	stops      []string
	single     bool // an answer ends after its first tool call
	salt       string
}

// prompt is the tokens that a model continues, and the parser of the answer in a conversation.
type prompt struct {
	tokens []int32
	parser func() *chat.Parser // nil: the text is returned unparsed
}

// Values of finish_reason.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishTools  = "tool_calls"
)

// event is what one token adds to an answer, or how the answer ended.
type event struct {
	index int // index of the answer
	chat.Delta
	tokens []scored

	finish string // reason for the end; "" until then
	stop   string // the stop text that ended it
	usage  usage  // set at the end
	err    error  // the answer failed; no end follows
}

// scored is a token with its log-probability, if the request has logprobs.
type scored struct {
	smelt.Token
	offset int // offset of its text in the answer's
}

// usage is the token counts of an answer.
type usage struct{ prompt, cached, generated, reasoning int }

// ask generates the answers of a question. Events of different answers are interleaved, those of
// one answer in order, with an error as the last; the channel is closed after all answers.
// Cancelling ctx ends them.
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

// answer generates one of the answers to a prompt.
func (q *question) answer(ctx context.Context, p *prompt, index, k int, send func(event) bool) {
	engine := q.model.Engine
	g := q.generation
	room := engine.Context() - len(p.tokens)
	if g.N == 0 || g.N > room {
		g.N = room
	}
	if room < 0 || g.N == 0 {
		send(event{index: index, err: fmt.Errorf("%w: the prompt has %d tokens, and the context has %d for prompt and answer",
			smelt.ErrContext, len(p.tokens), engine.Context())})
		return
	}
	g.Sampling.Seed += uint64(k)
	r := &reader{}
	if p.parser != nil {
		r.parser, r.stops, g.NoText = p.parser(), stops.New(q.stops...), true
		if r.parser.Salt = uint64(k); g.Sampling.Temperature > 0 {
			r.parser.Salt = g.Sampling.Seed
		}
	} else {
		g.Stop = q.stops
	}
	out := event{index: index}
	if g.N < 0 {
		out.finish = finishLength
	}
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
	if out.usage.prompt == 0 { // cancelled before the engine reported it
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

// reader turns an answer's tokens into deltas, up to a stop text. Without a parser, the engine
// finds stop texts itself.
type reader struct {
	parser   *chat.Parser  // nil: text is not parsed
	stops    *stops.Finder // searches the parsed content
	thinking bool          // the last token belongs to reasoning
	called   bool          // the answer calls a tool
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

// heed searches a delta for stop texts; a possible beginning of one is withheld until more text
// follows.
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
		d.ToolCalls = nil // they follow the stop text
	}
	r.called = r.called || len(d.ToolCalls) > 0
	return d, stop
}

// sampling reads the sampling parameters, with the model's Sampling as default.
func (q *question) sampling(p *params) {
	s := &q.generation.Sampling
	*s = q.model.Sampling
	s.Seed = rand.Uint64()
	for _, parameter := range Parameters() {
		p.set(parameter.Member, parameter, &q.generation)
	}
	if s.Temperature > 2 {
		p.fail(invalid("temperature", "temperature is %g: want a number, 0 to 2", s.Temperature))
	}
	p.number("frequency_penalty", &q.generation.FrequencyPenalty, -2, 2)
	p.number("presence_penalty", &q.generation.PresencePenalty, -2, 2)
	q.bias(p)
	q.stops = p.texts("stop", 16)
	for _, stop := range q.stops {
		if stop == "" {
			p.fail(invalid("stop", "stop: want no empty text"))
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
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		by := raw[name]
		var id int32
		if json.Unmarshal([]byte(name), &id) != nil || id < 0 || int(id) >= q.model.Engine.Vocab() {
			p.fail(invalid("logit_bias", "logit_bias: %q is not the id of one of the model's %d tokens", name, q.model.Engine.Vocab()))
			return
		}
		if !(by >= -100 && by <= 100) {
			p.fail(invalid("logit_bias", "logit_bias of token %d is %g: want -100 to 100", id, by))
			return
		}
		q.generation.Bias[id] = float32(by)
	}
}

// most is the maximum of the parameter n.
const most = 16

func (q *question) count(p *params) {
	q.answers = 1
	p.whole("n", &q.answers, 1, most)
}

// shown returns text as valid UTF-8, which JSON requires.
func shown(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
