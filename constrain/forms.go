package constrain

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Form is a part of a text, for texts that are made of several: [Vocabulary.Form]. The zero
// Form is the empty text.
type Form struct{ rule *rule }

// Form keeps a text to a form, from its start to its end.
func (v *Vocabulary) Form(f Form) (*Constraint, error) {
	if err := v.has(f.of()); err != nil {
		return nil, err
	}
	return v.compile(func(g *grammar) (place, []string, error) {
		at, err := g.rules(map[string]*rule{"form": f.of()}, "form")
		return at, g.notes, err
	})
}

// has reports a token of a form that is not there, or is text, or ends a generation.
func (v *Vocabulary) has(r *rule) error {
	if r.op == ruleBytes && !utf8.ValidString(r.text) {
		var id int32
		if n, _ := fmt.Sscanf(r.text[1:], "[%d]", &id); n == 0 {
			return fmt.Errorf("%q is no UTF-8", r.text)
		}
		if id < 0 || int(id) >= len(v.tokens) || string(v.tokens[id]) != r.text {
			return fmt.Errorf("token %d is none that may stand within a text by itself", id)
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

// Literal is a text as it is.
func Literal(text string) Form { return Form{&rule{op: ruleBytes, text: text}} }

// Token is one token that is no text, such as a control token: none that ends a generation.
func Token(id int32) Form { return Form{&rule{op: ruleBytes, text: controlBytes(id)}} }

// Sequence is one form after the other.
func Sequence(forms ...Form) Form { return Form{&rule{op: ruleSeq, kids: rulesOf(forms)}} }

// OneOf is any of several forms.
func OneOf(forms ...Form) Form { return Form{&rule{op: ruleAlt, kids: rulesOf(forms)}} }

// Optional is a form, or nothing.
func Optional(f Form) Form { return Form{&rule{op: ruleRepeat, kids: rulesOf([]Form{f}), hi: 1}} }

// Many is a form so many times or more.
func Many(f Form, least int) Form {
	return Form{&rule{op: ruleRepeat, kids: rulesOf([]Form{f}), lo: least, hi: unlimited}}
}

// Schema is a JSON text that matches a schema: the one at a JSON pointer within a document,
// "" for all of it. An error names what the schema is of.
func Schema(of string, document []byte, pointer string, o Options) Form {
	return Form{&rule{op: ruleSchema, name: of, schema: &schemaPart{document, pointer, o}}}
}

// Free is any text but for what it must not have.
type Free struct {
	Without []string // these stand nowhere in it
	Begins  []string // it does not begin with these
	// Tokens that are no text may be in it, but for those in WithoutTokens.
	Tokens        bool
	WithoutTokens []int32
}

// Form is the text as a form.
func (f Free) Form() Form { return Form{&rule{op: ruleFree, free: &f}} }

// The bytes that stand for a token that is no text begin with one that UTF-8 does not have.
const controlMark = 0xFF

func controlBytes(id int32) string { return string([]byte{controlMark}) + fmt.Sprintf("[%d]", id) }

type schemaPart struct {
	document []byte
	pointer  string
	options  Options
}

// build is a JSON text of the schema as a rule.
func (s *schemaPart) build(g *grammar) (at place, err error) {
	defer bounded(&err)
	root, err := parseValue(string(s.document))
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
		return reNone, errors.New("a free text without the empty one")
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
