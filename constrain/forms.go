package constrain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Form is one part of a text; parts are combined and compiled by [Vocabulary.Form]. The zero Form
// is the empty text.
type Form struct{ rule *rule }

// Form returns the constraint that the whole text has form f. It fails if f has a token that the
// vocabulary lacks, that has text, or that ends a generation, and with ctx's cause when ctx ends.
func (v *Vocabulary) Form(ctx context.Context, f Form) (*Constraint, error) {
	if err := v.has(f.of()); err != nil {
		return nil, err
	}
	return v.compile(ctx, func(g *grammar) (place, []string, error) {
		at, err := g.rules(map[string]*rule{"form": f.of()}, "form")
		return at, g.notes, err
	})
}

// has returns an error if r has a token that the vocabulary lacks, that has text, or that ends a
// generation.
func (v *Vocabulary) has(r *rule) error {
	if r.op == ruleBytes && !utf8.ValidString(r.text) {
		var id int32
		if n, _ := fmt.Sscanf(r.text[1:], "[%d]", &id); n == 0 {
			return fmt.Errorf("%q is not valid UTF-8", r.text)
		}
		if id < 0 || int(id) >= len(v.tokens) || string(v.tokens[id]) != r.text {
			return fmt.Errorf("token %d cannot be part of a form: it has text, ends a generation or is unknown", id)
		}
	}
	for _, k := range r.kids {
		if err := v.has(k); err != nil {
			return err
		}
	}
	return nil
}

func (f Form) of() *rule {
	if f.rule == nil {
		return &rule{op: ruleSeq}
	}
	return f.rule
}

func rulesOf(forms []Form) []*rule {
	rules := make([]*rule, len(forms))
	for i, f := range forms {
		rules[i] = f.of()
	}
	return rules
}

// Literal returns the form of one fixed text.
func Literal(text string) Form { return Form{&rule{op: ruleBytes, text: text}} }

// Token returns the form of one token that has no text, such as a control token. It must not end a
// generation.
func Token(id int32) Form { return Form{&rule{op: ruleBytes, text: controlBytes(id)}} }

// Sequence returns the form of one form after the other.
func Sequence(forms ...Form) Form { return Form{&rule{op: ruleSeq, kids: rulesOf(forms)}} }

// OneOf returns the form of any one of several forms.
func OneOf(forms ...Form) Form { return Form{&rule{op: ruleAlt, kids: rulesOf(forms)}} }

// Optional returns the form of f or the empty text.
func Optional(f Form) Form { return Form{&rule{op: ruleRepeat, kids: rulesOf([]Form{f}), hi: 1}} }

// Many returns the form of at least least repetitions of f.
func Many(f Form, least int) Form {
	return Form{&rule{op: ruleRepeat, kids: rulesOf([]Form{f}), lo: least, hi: unlimited}}
}

// Schema returns the form of a JSON text that matches the schema at a JSON pointer in a document,
// "" for the whole document. Errors name the schema by of.
func Schema(of string, document []byte, pointer string, o Options) Form {
	return Form{&rule{op: ruleSchema, name: of, schema: &schemaPart{document, pointer, o}}}
}

// Free describes any text except for some exclusions.
type Free struct {
	Without []string // substrings that do not occur
	Begins  []string // prefixes that the text does not have
	// Tokens allows tokens that have no text, except for WithoutTokens.
	Tokens        bool
	WithoutTokens []int32
}

// Form returns the form of such a text.
func (f Free) Form() Form { return Form{&rule{op: ruleFree, free: &f}} }

// A token without text is represented by bytes that begin with controlMark, which UTF-8 never uses.
const controlMark = 0xFF

func controlBytes(id int32) string { return string([]byte{controlMark}) + fmt.Sprintf("[%d]", id) }

type schemaPart struct {
	document []byte
	pointer  string
	options  Options
}

// build returns the rule of a JSON text that matches the schema.
func (s *schemaPart) build(g *grammar) (at place, err error) {
	defer bounded(&err)
	root, err := g.parseValue(string(s.document))
	if err != nil {
		return 0, err
	}
	c := newSchemas(g, root, s.options)
	if s.pointer != "" {
		if c.root, err = c.refs.resolve(root, "#"+s.pointer); err != nil {
			return 0, err
		}
	}
	at = c.compile()
	g.notes = append(g.notes, c.notes...)
	return at, nil
}

func (f *Free) expr(p *pool) (re, error) {
	if slices.Contains(f.Without, "") || slices.Contains(f.Begins, "") {
		return reNone, errors.New("Free.Without or Begins contains the empty text, which excludes every text")
	}
	all := p.text
	without := slices.Clone(f.Without)
	if f.Tokens {
		digit := byteSet{}
		digit.addRange('0', '9')
		control := p.cat(p.byte(controlMark), p.byte('['), p.repeat(p.set(digit), 1, unlimited), p.byte(']'))
		all = p.repeat(p.or(p.char, control), 0, unlimited)
		for _, id := range f.WithoutTokens {
			without = append(without, controlBytes(id))
		}
	}
	parts := []re{all}
	for _, text := range without {
		parts = append(parts, p.not(p.cat(all, p.literal(text), all)))
	}
	for _, text := range f.Begins {
		parts = append(parts, p.not(p.cat(p.literal(text), all)))
	}
	return p.and(parts...), nil
}
