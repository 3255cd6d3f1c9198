package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Delta is what a piece of text adds to a message.
type Delta struct {
	Reasoning string
	Content   string
	ToolCalls []ToolCall // that are complete with it
}

// Parser reads what a model says as it comes: what it thinks, what it answers, which tools it
// calls. What comes of a text does not depend on the pieces in which it comes.
type Parser struct {
	format  Format
	decoder *tokenizer.Decoder
	vocab   *tokenizer.Tokenizer

	tools tools
	calls int // that have an identity so far, in the conversation

	buf       string
	late      []byte // what came since a reader wanted more than buf
	tried     int    // the length of buf then; 0 where none does
	place     place
	blank     string // white space that is held back: it may stand at an end
	fresh     bool   // nothing but white space was said so far, and no mark came
	started   bool   // something of the part that the place is in was given out
	thought   bool   // the white space after reasoning, or a call, belongs to it
	recipient string // of the call that the place is in

	out     Delta // of this call
	message Message
}

type place uint8

const (
	inContent place = iota
	inReasoning
	inHead // of a channel
	inCall // in a channel
)

// NewParser reads the answer to a prompt. Calls are looked for where the conversation has
// tools that may be called.
func (t *Template) NewParser(c Conversation, prompt Prompt) *Parser {
	p := &Parser{format: t.format, decoder: t.tokenizer.NewDecoder(true), vocab: t.tokenizer, fresh: true, message: Message{Role: "assistant"}}
	p.decoder.Prime(prompt.Tokens())
	if len(c.Tools) > 0 && !c.ToolChoice.None {
		p.tools = toolsOf(c.Tools)
	}
	for _, m := range c.Messages {
		p.calls += len(m.ToolCalls)
	}
	text := prompt.String()
	switch open := p.format.think[0]; {
	case p.format.channels:
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

// Token takes a token that the model chose. Control tokens that mean nothing to the format are
// passed over, and so are those that end a message, after which it goes on in no format.
func (p *Parser) Token(id int32) Delta {
	if p.vocab.Type(id) == tokenizer.Control && !slices.Contains(p.format.controls, string(p.vocab.Piece(id))) {
		return Delta{}
	}
	return p.Add(p.decoder.Next(id))
}

// Add takes a piece of text, with control tokens by their texts.
func (p *Parser) Add(text string) Delta {
	p.late = append(p.late, text...)
	if p.due(len(text)) {
		p.read(false)
	}
	return p.take()
}

// End takes the end of the text, and returns what it adds.
func (p *Parser) End() Delta {
	p.late = append(p.late, p.decoder.Flush()...)
	p.read(true)
	return p.take()
}

// due reports whether it is worth while to look at what came, of which so many bytes are new: a
// call that is not complete is read again from its beginning, which is done where its end may have
// come, and where it has grown by an eighth, since it may turn out to be none.
func (p *Parser) due(fresh int) bool {
	if len(p.late) > p.tried/8 {
		return true
	}
	const longest = 40 // a mark
	from := len(p.late) - fresh - longest
	var news string
	if from < 0 {
		news = p.buf[max(0, len(p.buf)+from):] + string(p.late)
	} else {
		news = string(p.late[from:])
	}
	marks := endMarks
	if !p.format.channels {
		marks = nil
		for _, c := range p.format.calls {
			marks = append(marks, c.close)
		}
	}
	return slices.ContainsFunc(marks, func(m string) bool { return m != "" && strings.Contains(news, m) })
}

func (p *Parser) read(end bool) {
	p.buf += string(p.late)
	p.late = p.late[:0]
	p.run(end)
}

// Message is what was said so far.
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
	if p.format.channels {
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

// say gives out text of the part that the place is in. White space at its end waits for what
// follows; that before reasoning and after it is dropped.
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

// enter goes to another part; white space at the end of the last is dropped.
func (p *Parser) enter(next place) {
	p.thought = p.place == inReasoning && next == inContent
	p.blank, p.started, p.place = "", false, next
}

func (p *Parser) add(calls []ToolCall) {
	p.blank = ""
	for _, c := range calls {
		p.calls++
		if c.ID == "" {
			c.ID = fmt.Sprintf("call%05d", p.calls) // nine letters and digits, as Mistral's templates want
		}
		p.out.ToolCalls = append(p.out.ToolCalls, c)
	}
}

// tagged reads text in which marks stand; it reports whether there may be more to read.
func (p *Parser) tagged(end bool) bool {
	if p.place == inReasoning {
		mark := p.format.think[1]
		i := strings.Index(p.buf, mark)
		if i < 0 {
			p.release(end, mark)
			return false
		}
		p.say(p.buf[:i])
		p.buf = p.buf[i+len(mark):]
		p.enter(inContent)
		return true
	}
	marks := []string{}
	if open := p.format.think[0]; open != "" {
		marks = append(marks, open)
	}
	if p.tools != nil {
		if p.fresh {
			v := p.whole(end)
			if v == more {
				p.tried = len(p.buf)
			}
			if v != never {
				return false
			}
			// What stands there may still begin with a mark.
		}
		for _, c := range p.format.calls {
			if c.open != "" {
				marks = append(marks, c.open)
			}
		}
	}
	at, which := len(p.buf), -1
	for i, m := range marks {
		if j := strings.Index(p.buf, m); j >= 0 && j < at {
			at, which = j, i
		}
	}
	if which < 0 {
		p.release(end, marks...)
		return false
	}
	p.say(p.buf[:at])
	p.buf = p.buf[at:]
	mark := marks[which]
	if mark == p.format.think[0] {
		p.buf = p.buf[len(mark):]
		p.enter(inReasoning)
		return true
	}
	for _, c := range p.format.calls {
		if c.open != mark {
			continue
		}
		calls, n, v := c.read(p.buf[len(mark):], p.tools, end)
		switch {
		case v == found:
			p.add(calls)
			p.buf = p.buf[len(mark)+n:]
			p.fresh, p.thought, p.started = false, true, false
			return true
		case v == more && !end:
			p.tried = len(p.buf)
			return false
		}
	}
	p.fresh = false
	p.say(mark)
	p.buf = p.buf[len(mark):]
	return true
}

// whole looks for calls that a message consists of; never says that it has none.
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
	// A mark may still stand at the beginning, of reasoning above all, after which a message
	// begins anew.
	if text := strings.TrimLeft(p.buf, space); p.format.think[0] == "" || begins(text, p.format.think[0]) == never {
		p.fresh = false
	}
	return never
}

// release gives out what cannot be the beginning of a mark.
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

// Marks of channels: <|start|>assistant<|channel|>NAME to=RECIPIENT<|constrain|>json<|message|>
// TEXT<|end|>, with <|call|> or <|return|> in place of the last <|end|>.
const (
	startMark   = "<|start|>"
	channelMark = "<|channel|>"
	messageMark = "<|message|>"
)

var endMarks = []string{"<|end|>", "<|call|>", "<|return|>", startMark}

// channel reads heads and what follows them.
func (p *Parser) channel(end bool) bool {
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
	from := 0
	if p.place == inCall { // of which a string may have a mark in it
		_, n, v := jsonValue(p.buf, "{")
		if v == more && !end {
			p.tried = len(p.buf)
			return false
		}
		from = n
	}
	at, mark := len(p.buf), ""
	for _, m := range endMarks {
		if i := strings.Index(p.buf[from:], m); i >= 0 && from+i < at {
			at, mark = from+i, m
		}
	}
	if mark == "" && p.place == inCall {
		if end {
			p.call(p.buf)
			p.buf = ""
			p.enter(inHead)
		}
		return false
	}
	if mark == "" {
		p.release(end, endMarks...)
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

// head decides what a channel's text is.
func (p *Parser) head(head string) {
	_, after, _ := strings.Cut(head, channelMark)
	next := inContent
	name, _, _ := strings.Cut(strings.TrimLeft(after, space), " ")
	if i := strings.IndexByte(name, '<'); i >= 0 {
		name = name[:i]
	}
	if name == "analysis" {
		next = inReasoning
	}
	p.recipient = ""
	if _, to, ok := strings.Cut(head, "to="); ok {
		if i := strings.IndexAny(to, space+"<"); i >= 0 {
			to = to[:i]
		}
		if p.tools != nil {
			p.recipient, next = strings.TrimPrefix(to, "functions."), inCall
		}
	}
	p.enter(next)
	p.thought = false
}

func (p *Parser) call(arguments string) {
	p.add([]ToolCall{{Name: p.recipient, Arguments: strings.Trim(arguments, space)}})
}
