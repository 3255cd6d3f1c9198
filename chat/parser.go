package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Delta is what one piece of text adds to a message.
type Delta struct {
	Reasoning string
	Content   string
	ToolCalls []ToolCall // calls completed by this piece
}

// Parser splits a model's streamed output into reasoning, content and tool calls. The concatenated
// deltas do not depend on how the text is split into pieces.
type Parser struct {
	format  Format
	decoder *tokenizer.Decoder
	vocab   *tokenizer.Tokenizer

	// Salt is part of what the IDs of calls are made from; it differs between answers to one prompt.
	Salt uint64

	tools  tools
	prompt Prompt
	ids    map[string]bool // IDs of calls in the conversation and the answer

	buf       string
	late      []byte // text that arrived after a reader returned more for buf
	tried     int    // len(buf) at that time; 0 if no reader waits
	place     place
	blank     string // withheld white space, which is dropped at some ends
	fresh     bool   // only white space and no mark so far
	started   bool   // text of the current part was emitted
	thought   bool   // drop leading white space: it follows reasoning or a call
	recipient string // the tool that the current call names

	out     Delta // the delta of the current call of Add
	message Message
}

type place uint8

const (
	inContent place = iota
	inReasoning
	inHead // in a channel's head
	inCall // in a channel whose text is a call's arguments
)

// NewParser returns a parser of the answer to a prompt. It looks for tool calls if the conversation
// has tools and its ToolChoice is not None.
func (t *Template) NewParser(c Conversation, prompt Prompt) *Parser {
	p := &Parser{format: t.format, decoder: t.tokenizer.NewDecoder(true), vocab: t.tokenizer, fresh: true, message: Message{Role: "assistant"}, prompt: prompt, ids: map[string]bool{"": true}}
	p.decoder.Prime(prompt.Tokens())
	if len(c.Tools) > 0 && !c.ToolChoice.None {
		p.tools = toolsOf(c.Tools)
	}
	for _, m := range c.Messages {
		for _, call := range m.ToolCalls {
			p.ids[call.ID] = true
		}
	}
	text := prompt.String()
	switch open := p.format.think[0]; {
	case p.format.channels != nil:
		p.place = inHead
		if i := strings.LastIndex(text, startMark); i >= 0 {
			p.buf = text[i+len(startMark):]
		}
		p.run(false)
	case open != "" && strings.HasSuffix(strings.TrimRight(text, space), open):
		p.place = inReasoning
	}
	return p
}

// Token adds a generated token and returns what it adds to the message. Control tokens that are no
// marks of the format, such as the stop token, are skipped.
func (p *Parser) Token(id int32) Delta {
	if p.vocab.Type(id) == tokenizer.Control && !slices.Contains(p.format.controls, string(p.vocab.Piece(id))) {
		return Delta{}
	}
	return p.Add(p.decoder.Next(id))
}

// Add adds a piece of text, in which control tokens stand as their texts.
func (p *Parser) Add(text string) Delta {
	p.late = append(p.late, text...)
	if p.due(len(text)) {
		p.read(false)
	}
	return p.take()
}

// End marks the end of the text and returns the rest of the message.
func (p *Parser) End() Delta {
	p.late = append(p.late, p.decoder.Flush()...)
	p.read(true)
	return p.take()
}

// due reports whether to parse again, given fresh new bytes. An incomplete call is parsed from its
// beginning each time, so it is parsed only when its end mark may have arrived, or when the text
// has grown by an eighth, in case it is no call after all. This keeps the total cost linear in the
// text.
func (p *Parser) due(fresh int) bool {
	if len(p.late) > p.tried/8 {
		return true
	}
	const longest = 40 // the longest mark, in bytes
	from := len(p.late) - fresh - longest
	var news string
	if from < 0 {
		news = p.buf[max(0, len(p.buf)+from):] + string(p.late)
	} else {
		news = string(p.late[from:])
	}
	var marks []string
	if p.format.channels != nil {
		marks = slices.Clone(p.format.channels.ends)
	}
	for _, c := range p.format.calls {
		marks = append(marks, c.close)
	}
	return slices.ContainsFunc(marks, func(m string) bool { return m != "" && strings.Contains(news, m) })
}

func (p *Parser) read(end bool) {
	p.buf += string(p.late)
	p.late = p.late[:0]
	p.run(end)
}

// Message returns the message so far.
func (p *Parser) Message() Message { return p.message }

func (p *Parser) take() Delta {
	d := p.out
	p.out = Delta{}
	p.message.Reasoning += d.Reasoning
	p.message.Content += d.Content
	p.message.ToolCalls = append(p.message.ToolCalls, d.ToolCalls...)
	return d
}

func (p *Parser) run(end bool) {
	p.tried = 0
	step := p.tagged
	if p.format.channels != nil {
		step = p.channel
	}
	for step(end) {
	}
	if end && p.place != inReasoning {
		p.out.Content += p.blank
	}
	if end {
		p.blank = ""
	}
}

// say emits text of the current part. White space at its end is withheld until more text follows;
// white space before and after reasoning is dropped.
func (p *Parser) say(text string) {
	if text == "" {
		return
	}
	text = p.blank + text
	kept := strings.TrimRight(text, space)
	p.blank = text[len(kept):]
	if kept == "" {
		if p.place == inReasoning && !p.started || p.thought {
			p.blank = ""
		}
		return
	}
	if !p.started && (p.place == inReasoning || p.thought) {
		kept = strings.TrimLeft(kept, space)
	}
	p.started, p.thought = true, false
	if p.place == inReasoning {
		p.out.Reasoning += kept
	} else {
		p.out.Content += kept
	}
}

// enter switches to another part and drops withheld white space.
func (p *Parser) enter(next place) {
	p.thought = p.place == inReasoning && next == inContent
	p.blank, p.started, p.place = "", false, next
}

func (p *Parser) add(calls []ToolCall) {
	p.blank = ""
	for _, c := range calls {
		for n := 0; p.ids[c.ID]; n++ {
			c.ID = p.id(&c, n)
		}
		p.ids[c.ID] = true
		p.out.ToolCalls = append(p.out.ToolCalls, c)
	}
}

// id returns the n-th ID of a call: a hash of the prompt, the salt and the call, so that equal
// requests have equal IDs and others do not. It is 9 letters and digits, as Mistral's templates
// require.
func (p *Parser) id(c *ToolCall, n int) string {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, p.prompt.Tokens()) // a hash accepts all that is written
	fmt.Fprintf(h, "%d %d %q %q", p.Salt, n, c.Name, c.Arguments)
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	id, x := make([]byte, 9), binary.LittleEndian.Uint64(h.Sum(nil))
	for i := range id {
		id[i], x = letters[x%uint64(len(letters))], x/uint64(len(letters))
	}
	return string(id)
}

// tagged parses text with marks in it, and reports whether there may be more to parse.
func (p *Parser) tagged(end bool) bool {
	thinking := p.place == inReasoning
	think := p.format.think[0]
	if thinking {
		think = p.format.think[1]
	}
	marks := []string{}
	if think != "" {
		marks = append(marks, think)
	}
	calls := p.tools != nil && (!thinking || p.format.within)
	if calls && p.fresh && !thinking {
		v := p.whole(end)
		if v == more {
			p.tried = len(p.buf)
		}
		if v != never {
			return false
		}
		// The text may still begin with a mark.
	}
	if calls {
		marks = append(marks, p.format.opens()...)
	}
	if !thinking || p.format.within {
		marks = append(marks, p.format.skip...)
	}
	at, mark := len(p.buf), ""
	for _, m := range marks {
		if j := strings.Index(p.buf, m); j >= 0 && j < at {
			at, mark = j, m
		}
	}
	if mark == "" {
		p.release(end, marks...)
		return false
	}
	p.say(p.buf[:at])
	p.buf = p.buf[at:]
	switch {
	case mark == think && thinking:
		p.buf = p.buf[len(mark):]
		p.enter(inContent)
		return true
	case mark == think:
		p.buf = p.buf[len(mark):]
		p.enter(inReasoning)
		return true
	case slices.Contains(p.format.skip, mark):
		p.buf = p.buf[len(mark):]
		p.behind(thinking)
		return true
	}
	for _, c := range p.format.calls {
		if c.open != mark {
			continue
		}
		calls, n, v := c.read(p.buf[len(mark):], p.tools, end)
		switch {
		case v == found:
			p.behind(thinking)
			p.add(calls)
			p.buf = p.buf[len(mark)+n:]
			p.fresh, p.thought, p.started = false, true, false
			return true
		case v == more && !end:
			p.tried = len(p.buf)
			return false
		}
	}
	p.fresh = p.fresh && thinking
	p.say(mark)
	p.buf = p.buf[len(mark):]
	return true
}

// behind ends reasoning at a mark that cannot stand in it.
func (p *Parser) behind(thinking bool) {
	if thinking {
		p.enter(inContent)
	}
}

// whole parses a message that consists of calls only; never means that it does not.
func (p *Parser) whole(end bool) verdict {
	if strings.Trim(p.buf, space) == "" && !end {
		return more
	}
	waiting := false
	for _, c := range p.format.calls {
		if c.open != "" {
			continue
		}
		calls, n, v := c.read(p.buf, p.tools, end)
		if v == found {
			p.add(calls)
			p.buf = p.buf[n:]
			p.fresh = false
			return found
		}
		waiting = waiting || v == more && !end
	}
	if waiting {
		return more
	}
	// Reasoning may come first; the message proper then begins behind it.
	if text := strings.TrimLeft(p.buf, space); p.format.think[0] == "" || begins(text, p.format.think[0]) == never {
		p.fresh = false
	}
	return never
}

// release emits the text up to a possible beginning of a mark.
func (p *Parser) release(end bool, marks ...string) {
	n := len(p.buf)
	if !end {
		for _, m := range marks {
			for k := min(len(m)-1, len(p.buf)); k > 0; k-- {
				if strings.HasSuffix(p.buf, m[:k]) {
					n = min(n, len(p.buf)-k)
					break
				}
			}
		}
	}
	p.say(p.buf[:n])
	p.buf = p.buf[n:]
}

// Marks of heads. gpt-oss's are <|start|>assistant<|channel|>NAME
// to=RECIPIENT<|constrain|>json<|message|>TEXT<|end|>, and the last message ends with <|call|> or
// <|return|> instead of <|end|>. Muse Glimmer's are
// <|start|>assistant to=RECIPIENT<|message|>TEXT<|eom|>, and the last message ends with <|eot|>.
const (
	startMark   = "<|start|>"
	channelMark = "<|channel|>"
	messageMark = "<|message|>"
)

// channel parses heads of channels and the text behind them.
func (p *Parser) channel(end bool) bool {
	ends := p.format.channels.ends
	if p.place == inHead {
		head, rest, ok := strings.Cut(p.buf, messageMark)
		if !ok {
			if end {
				p.buf = ""
			}
			return false
		}
		p.head(head)
		p.buf = rest
		return true
	}
	if p.place == inCall && p.format.calls != nil { // else the text is the arguments in JSON
		form := p.format.calls[0]
		calls, n, v := preceded(form.open, form.read)(p.buf, p.tools, end)
		if v == more && !end {
			p.tried = len(p.buf)
			return false
		}
		p.enter(inContent)
		if v == found {
			p.add(calls)
			p.buf, p.thought = p.buf[n:], true
		}
		return true
	}
	from := 0
	if p.place == inCall { // a string in the arguments may contain a mark
		_, n, v := jsonValue(p.buf, "{")
		if v == more && !end {
			p.tried = len(p.buf)
			return false
		}
		from = n
	}
	at, mark := len(p.buf), ""
	for _, m := range ends {
		if i := strings.Index(p.buf[from:], m); i >= 0 && from+i < at {
			at, mark = from+i, m
		}
	}
	if mark == "" && p.place == inCall {
		if end { // a call that is cut off does not count
			if _, n, v := jsonValue(p.buf, "{"); v == found && n+spaces(p.buf[n:]) == len(p.buf) {
				p.call(p.buf)
			} else {
				p.enter(inContent)
				p.say(p.buf)
			}
			p.buf = ""
			p.enter(inHead)
		}
		return false
	}
	if mark == "" {
		p.release(end, ends...)
		return false
	}
	if p.place == inCall {
		p.call(p.buf[:at])
	} else {
		p.say(p.buf[:at])
	}
	p.buf = p.buf[at+len(mark):]
	p.enter(inHead)
	return true
}

// head selects the place of a channel's text from its head.
func (p *Parser) head(head string) {
	first := func(text string) string { // its first word
		text = strings.TrimLeft(text, space)
		if i := strings.IndexAny(text, space+"<"); i >= 0 {
			text = text[:i]
		}
		return text
	}
	_, to, _ := strings.Cut(head, "to=")
	to = first(to)
	name := to
	if i := strings.LastIndex(head, channelMark); i >= 0 {
		name = first(head[i+len(channelMark):])
	}
	next := inContent
	if name == p.format.channels.thought {
		next = inReasoning
	}
	if p.tools != nil && to != "" && !slices.Contains(p.format.channels.people, to) {
		p.recipient, next = strings.TrimPrefix(to, "functions."), inCall
	}
	p.enter(next)
	p.thought = false
}

func (p *Parser) call(arguments string) {
	p.add([]ToolCall{{Name: p.recipient, Arguments: argumentsOf(strings.Trim(arguments, space))}})
}
