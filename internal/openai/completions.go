package openai

import (
	"net/http"
	"time"

	"github.com/smelt-ml/smelt"
)

// completions serves POST /v1/completions:
// https://platform.openai.com/docs/api-reference/completions.
func (a *API) completions(w http.ResponseWriter, r *http.Request) error {
	p, m, err := a.begin(r, true)
	if err != nil {
		return err
	}
	q := &question{model: m, generation: smelt.Generation{N: 16}}
	f := &textForm{model: m, id: newID("cmpl-"), created: time.Now().Unix()}
	raw, _ := p.take("prompt")
	q.sampling(p)
	q.count(p)
	p.set("max_tokens", Length, &q.generation)
	if f.logprobs = p.whole("logprobs", &f.top, 0, 20); f.logprobs {
		q.generation.Logprobs = max(f.top, 1)
	}
	var streamed bool
	p.read("stream", &streamed)
	f.usage = p.streamOptions(streamed)
	p.read("ignore_eos", &q.generation.IgnoreStop)
	p.only("echo", "prompts are not repeated", `false`)
	p.only("suffix", "texts are continued, not filled in", `""`)
	p.only("best_of", "n answers are all that are made", `1`)
	p.only("store", "nothing is kept here", `false`)
	if err := p.done(); err != nil {
		return err
	}
	prompts, err := texts("prompt", raw, mostAnswers, m.Engine.Vocab(), m.Engine.Encode)
	if err != nil {
		return err
	}
	if len(prompts)*q.answers > mostAnswers {
		return invalid("n", "n: %d answers to %d prompts: want at most %d answers in total", q.answers, len(prompts), mostAnswers)
	}
	for _, ids := range prompts {
		q.prompts = append(q.prompts, prompt{tokens: ids})
	}
	f.prompts = q.answers
	return a.answer(w, r, q, streamed, f)
}

// mostAnswers is the maximum number of answers of one request.
const mostAnswers = 128

// textForm encodes answers as text completions.
type textForm struct {
	model    *Model
	id       string
	created  int64
	logprobs bool
	top      int
	usage    bool
	prompts  int // answers to each prompt
	spent    map[int]usage
}

type textChoice struct {
	Index    int           `json:"index"`
	Text     string        `json:"text"`
	Logprobs *textLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type textLogprobs struct {
	Tokens  []string             `json:"tokens"`
	Scores  []float32            `json:"token_logprobs"`
	Top     []map[string]float32 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"`
}

type textCompletion struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Fingerprint string       `json:"system_fingerprint"`
	Choices     []textChoice `json:"choices"`
	Usage       *chatUsage   `json:"usage,omitempty"`
}

func (f *textForm) completion(choices ...textChoice) textCompletion {
	return textCompletion{ID: f.id, Object: "text_completion", Created: f.created, Model: f.model.ID, Fingerprint: f.model.fingerprint, Choices: choices}
}

func (f *textForm) scores(tokens []scored) *textLogprobs {
	if !f.logprobs {
		return nil
	}
	l := &textLogprobs{Tokens: []string{}, Scores: []float32{}, Top: []map[string]float32{}, Offsets: []int{}}
	for _, t := range tokens {
		top := map[string]float32{}
		for _, a := range t.Top[:min(f.top, len(t.Top))] {
			top[shown(f.model.bytesOf(a.ID))] = a.Logprob
		}
		l.Tokens = append(l.Tokens, shown(f.model.bytesOf(t.ID)))
		l.Scores = append(l.Scores, t.Logprob)
		l.Top = append(l.Top, top)
		l.Offsets = append(l.Offsets, t.offset)
	}
	return l
}

// spentOn sums the usage of all answers, and counts each prompt once.
func (f *textForm) spentOn(spent map[int]usage) *chatUsage {
	all := &chatUsage{}
	for i := 0; i < len(spent); i += f.prompts {
		var of []usage
		for k := i; k < min(i+f.prompts, len(spent)); k++ {
			of = append(of, spent[k])
		}
		u := usageOf(of)
		all.Prompt += u.Prompt
		all.Answer += u.Answer
		all.Total += u.Total
		all.Prompts.Cached += u.Prompts.Cached
	}
	return all
}

func (f *textForm) whole(answers []event) any {
	c := f.completion()
	spent := map[int]usage{}
	for i := range answers {
		e := &answers[i]
		c.Choices = append(c.Choices, textChoice{Index: e.index, Text: e.Content, Logprobs: f.scores(e.tokens), Finish: &e.finish})
		spent[i] = e.usage
	}
	c.Usage = f.spentOn(spent)
	return c
}

func (f *textForm) begin(*stream) { f.spent = map[int]usage{} }

func (f *textForm) add(s *stream, e *event) {
	choice := textChoice{Index: e.index, Text: e.Content, Logprobs: f.scores(e.tokens)}
	if e.finish != "" {
		choice.Finish = &e.finish
		f.spent[e.index] = e.usage
	}
	s.send("", f.completion(choice))
}

func (f *textForm) ping(s *stream) { s.write(comment) }

func (f *textForm) finish(s *stream) {
	if f.usage {
		last := f.completion()
		last.Choices = []textChoice{}
		last.Usage = f.spentOn(f.spent)
		s.send("", last)
	}
	s.write(doneMark)
}

func (f *textForm) fail(s *stream, e *Error) { sendError(s, e) }
