package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"unicode"

	"github.com/peterh/liner"
	"github.com/spf13/cobra"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/chat"
)

// conversation is a running conversation, on a terminal or a pipe.
type conversation struct {
	*talker
	chat.Conversation
	forget  bool
	out     io.Writer
	notes   io.Writer
	look    look
	stopped <-chan os.Signal // Ctrl-C on a terminal; nil elsewhere, where it exits the process
	leaving bool             // nothing was typed since Ctrl-C; a second Ctrl-C exits
	answers uint64           // number of answers requested
}

// look is the style of printed answers; a terminal also shows thinking, dimmed.
type look struct {
	terminal  bool
	dim, full string // escape sequences, "" without colours
}

// lookOf returns the look for a file.
func lookOf(w io.Writer) look {
	l := look{terminal: showsBars(w)}
	if l.terminal && os.Getenv("NO_COLOR") == "" {
		l.dim, l.full = "\x1b[2m", "\x1b[0m"
	}
	return l
}

// converse answers turns until the input ends.
func converse(cmd *cobra.Command, t *talker, system string, forget bool) error {
	c := &conversation{talker: t, forget: forget, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), look: lookOf(cmd.OutOrStdout())}
	c.setSystem(system)
	var in turns = &pipe{bufio.NewReader(cmd.InOrStdin())}
	if isTerminal(cmd.InOrStdin()) {
		// Here Ctrl-C stops an answer and not the process.
		stopped := make(chan os.Signal, 1)
		signal.Reset(os.Interrupt)
		signal.Notify(stopped, os.Interrupt)
		defer signal.Stop(stopped)
		c.stopped = stopped
		if c.look.terminal {
			line := liner.NewLiner()
			defer line.Close()
			line.SetCtrlCAborts(true)
			line.SetMultiLineMode(true)
			line.SetCompleter(completeCommand)
			in = &editor{line}
			fmt.Fprintln(c.notes, "smelt: /help lists the commands, Ctrl-D exits")
		} else {
			in = newKeyboard(cmd.InOrStdin(), c.notes, stopped)
		}
	}
	for {
		text, err := c.turn(in)
		switch {
		case errors.Is(err, io.EOF):
			if c.stopped != nil {
				fmt.Fprintln(c.notes)
			}
			return nil
		case errors.Is(err, liner.ErrPromptAborted) && c.leaving:
			return errStopped
		case errors.Is(err, liner.ErrPromptAborted):
			c.leaving = true
			c.note("Ctrl-C again exits")
			continue
		case err != nil:
			return err
		}
		c.leaving = false
		if err := c.take(cmd.Context(), text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// turn reads a turn, unless Ctrl-C was pressed since the last one.
func (c *conversation) turn(in turns) (string, error) {
	select {
	case <-c.stopped:
		return "", liner.ErrPromptAborted
	default:
		return readTurn(in)
	}
}

// turns is a source of lines.
type turns interface {
	line(prompt string) (string, error)
}

// editor reads lines from a terminal, with line editing and a history.
type editor struct{ *liner.State }

func (e *editor) line(prompt string) (string, error) {
	line, err := e.Prompt(prompt)
	if err == nil && strings.TrimSpace(line) != "" {
		e.AppendHistory(line)
	}
	return line, err
}

// pipe reads lines from a file or a pipe.
type pipe struct{ from *bufio.Reader }

func (p *pipe) line(string) (string, error) {
	line, err := p.from.ReadString('\n')
	if line == "" && err != nil {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// keyboard reads lines from a terminal without line editing, for output that goes elsewhere.
type keyboard struct {
	lines   chan typed
	prompts io.Writer
	stopped <-chan os.Signal
}

type typed struct {
	line string
	err  error
}

func newKeyboard(from io.Reader, prompts io.Writer, stopped <-chan os.Signal) *keyboard {
	k := &keyboard{make(chan typed), prompts, stopped}
	go func() {
		in := &pipe{bufio.NewReader(from)}
		for {
			line, err := in.line("")
			k.lines <- typed{line, err}
		}
	}()
	return k
}

func (k *keyboard) line(prompt string) (string, error) {
	fmt.Fprint(k.prompts, prompt)
	select {
	case t := <-k.lines:
		return t.line, t.err
	case <-k.stopped:
		fmt.Fprintln(k.prompts)
		return "", liner.ErrPromptAborted
	}
}

const fence = `"""`

// readTurn reads a turn: a line, lines of which all but the last end with \, or the text between
// two fences. The end of the input also ends a turn.
func readTurn(in turns) (string, error) {
	line, err := in.line("> ")
	if err != nil {
		return "", err
	}
	if rest, fenced := strings.CutPrefix(strings.TrimLeft(line, " \t"), fence); fenced {
		text := []string{rest}
		for {
			last := len(text) - 1
			if body, closed := strings.CutSuffix(strings.TrimRight(text[last], " \t"), fence); closed {
				text[last] = body
				return strings.Trim(strings.Join(text, "\n"), "\n"), nil
			}
			more, err := in.line(". ")
			if errors.Is(err, io.EOF) {
				return strings.Trim(strings.Join(text, "\n"), "\n"), nil
			} else if err != nil {
				return "", err
			}
			text = append(text, more)
		}
	}
	text := line
	for strings.HasSuffix(text, `\`) {
		more, err := in.line(". ")
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", err
		}
		text = strings.TrimSuffix(text, `\`) + "\n" + more
	}
	return text, nil
}

// command is the action of a line that begins with /; its errors do not end the conversation.
type command struct {
	argument string // placeholder in the help; "": no argument
	does     string
	run      func(c *conversation, ctx context.Context, argument string) error
}

var (
	chatCommands map[string]command
	commandNames = []string{"/reset", "/system", "/retry", "/save", "/load", "/exit", "/help"}
)

// completeCommand returns the commands that begin with line.
func completeCommand(line string) (list []string) {
	for _, name := range commandNames {
		if strings.HasPrefix(line, "/") && strings.HasPrefix(name, line) {
			list = append(list, name+" ")
		}
	}
	return list
}

// note prints a note on a terminal, and nothing elsewhere.
func (c *conversation) note(format string, args ...any) {
	if c.stopped != nil {
		fmt.Fprintf(c.notes, "%ssmelt: %s%s\n", c.look.dim, fmt.Sprintf(format, args...), c.look.full)
	}
}

func init() {
	chatCommands = map[string]command{
		"/reset": {"", "starts over, with the same system text", func(c *conversation, _ context.Context, _ string) error {
			c.Messages = c.Messages[:c.systemTexts()]
			c.note("the conversation is empty")
			return nil
		}},
		"/system": {"[TEXT]", "sets or removes the system text", func(c *conversation, _ context.Context, text string) error {
			c.setSystem(text)
			if text == "" {
				c.note("there is no system text")
			} else {
				c.note("the system text is set")
			}
			return nil
		}},
		"/retry": {"", "generates the last answer again", func(c *conversation, ctx context.Context, _ string) error {
			last := len(c.Messages)
			for last > 0 && c.Messages[last-1].Role != "user" {
				last--
			}
			if last == 0 {
				return errors.New("there is no question yet")
			}
			c.Messages = c.Messages[:last]
			return c.reply(ctx)
		}},
		"/save": {"FILE", "writes the conversation as JSON", func(c *conversation, _ context.Context, file string) error {
			if len(c.Messages) == 0 {
				return errors.New("there is nothing to save yet")
			}
			err := saved(file, c.Messages)
			if err == nil {
				c.note("%d messages are in %s", len(c.Messages), file)
			}
			return err
		}},
		"/load": {"FILE", "loads a saved conversation", func(c *conversation, _ context.Context, file string) error {
			from, err := loaded(file)
			if err == nil {
				c.Conversation = from
				c.note("%d messages loaded", len(from.Messages))
			}
			return err
		}},
		"/exit": {"", "leaves, as Ctrl-D does", func(*conversation, context.Context, string) error {
			return &fatalError{io.EOF}
		}},
		"/help": {"", "lists these", func(c *conversation, _ context.Context, _ string) error {
			for _, name := range commandNames {
				fmt.Fprintf(c.notes, "  %-16s%s\n", strings.TrimSpace(name+" "+chatCommands[name].argument), chatCommands[name].does)
			}
			return nil
		}},
	}
}

// take runs a turn's command, or answers the turn. An error ends the conversation.
func (c *conversation) take(ctx context.Context, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	name, argument, _ := strings.Cut(strings.TrimSpace(text), " ")
	argument = strings.TrimSpace(argument)
	var err error
	if cmd, ok := chatCommands[name]; ok {
		switch {
		case cmd.argument == "" && argument != "":
			err = fmt.Errorf("%s takes no argument", name)
		case cmd.argument == "FILE" && argument == "":
			err = fmt.Errorf("%s requires a FILE", name)
		default:
			err = cmd.run(c, ctx, argument)
		}
	} else if strings.HasPrefix(name, "/") && !strings.Contains(name[1:], "/") && !strings.Contains(text, "\n") {
		err = fmt.Errorf("there is no command %s; /help lists them", name)
	} else {
		c.Messages = append(c.Messages, chat.Message{Role: "user", Content: text})
		if err = c.reply(ctx); errors.Is(err, smelt.ErrContext) {
			c.Messages = c.Messages[:len(c.Messages)-1]
			err = fmt.Errorf("%w; /reset starts over, and --forget drops the oldest turns", err)
		}
	}
	var fatal *fatalError
	if errors.As(err, &fatal) {
		return fatal.err
	}
	if err != nil {
		fmt.Fprintf(c.notes, "smelt: %v\n", err)
	}
	return nil
}

// fatalError ends a conversation: its cause is not the turn.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }

// systemTexts returns the number of leading system messages.
func (c *conversation) systemTexts() int {
	n := 0
	for n < len(c.Messages) && c.Messages[n].Role == "system" {
		n++
	}
	return n
}

func (c *conversation) setSystem(text string) {
	rest := c.Messages[c.systemTexts():]
	c.Messages = nil
	if text != "" {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: text})
	}
	c.Messages = append(c.Messages, rest...)
}

// reply answers the last message. It keeps a partial answer in the conversation.
func (c *conversation) reply(ctx context.Context) error {
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	broken := false
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-c.stopped:
			broken = true
			cancel()
		case <-done:
		}
	}()
	seed := c.generation.Sampling.Seed
	c.generation.Sampling.Seed += c.answers // so that /retry samples another answer
	c.answers++
	show := &shown{look: c.look, out: c.out}
	a, err := c.answer(own, question{Conversation: c.Conversation}, c.forget, show.add)
	c.generation.Sampling.Seed = seed
	close(done)
	<-watched
	if err == nil || len(a.tokens) > 0 {
		if writeErr := show.end(); err == nil && writeErr != nil {
			return &fatalError{writeErr}
		}
	}
	switch {
	case broken && errors.Is(err, context.Canceled):
		c.leaving = true
		c.note("stopped; Ctrl-C again exits")
	case err != nil && len(a.tokens) == 0 && ctx.Err() == nil && !errors.Is(err, smelt.ErrNaN):
		return err // before the first token: the conversation is too long, or the template rejects it
	case err != nil:
		return &fatalError{err}
	}
	c.Messages = append(c.Messages, a.message)
	if a.prompt+len(a.tokens) >= c.engine.Context() && a.finish == smelt.FinishLength {
		fmt.Fprintln(c.notes, "smelt: the answer ends here: the context is full")
	}
	if c.stopped != nil && err == nil {
		c.note("%s", c.pace(&a))
	} else if a.forgotten > 0 {
		fmt.Fprintf(c.notes, "smelt: the oldest %d messages were dropped\n", a.forgotten)
	}
	return nil
}

// shown streams an answer to a writer.
type shown struct {
	look
	out     io.Writer
	dimmed  bool
	newline bool // the last character ended a line
}

func (s *shown) add(d chat.Delta) error {
	var b strings.Builder
	if d.Reasoning != "" && s.terminal {
		if !s.dimmed {
			b.WriteString(s.dim)
			s.dimmed = true
		}
		b.WriteString(s.printable(d.Reasoning))
	}
	if d.Content != "" || len(d.ToolCalls) > 0 {
		if s.dimmed {
			b.WriteString(s.full + "\n\n")
			s.dimmed = false
		}
		b.WriteString(s.printable(d.Content))
	}
	for _, call := range d.ToolCalls {
		fmt.Fprintf(&b, "%s(%s)\n", s.printable(call.Name), s.printable(call.Arguments))
	}
	text := b.String()
	if text == "" {
		return nil
	}
	s.newline = strings.HasSuffix(text, "\n")
	_, err := io.WriteString(s.out, text)
	return err
}

// printable removes control characters, since a model can generate escape sequences that change
// the terminal's state.
func (s *shown) printable(text string) string {
	if !s.terminal {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// end terminates the answer's last line.
func (s *shown) end() error {
	text := ""
	if s.dimmed {
		text = s.full
	}
	if !s.newline {
		text += "\n"
	}
	_, err := io.WriteString(s.out, text)
	return err
}
