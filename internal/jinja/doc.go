// Package jinja renders the templates that model files carry for conversations.
//
// It has the part of Jinja that such templates use, with trim_blocks and lstrip_blocks as
// transformers sets them: statements if, for, set, macro, call, filter, with, raw, break,
// continue and generation; the operators; the filters, tests and methods in the tables of
// filters.go, tests.go and methods.go. Nothing in it reaches a file, and the clock is the
// caller's.
//
// # Marks
//
// A [Text] knows which of its bytes come from marked strings. Every operation on strings
// keeps that: what is cut out of a marked string is marked, what is joined keeps the marks of
// its parts, and JSON marks what stands between the quotes. So the result says of each byte
// whether the template wrote it or somebody who is quoted in it, whatever they wrote:
//
//	t, err := jinja.Parse("<|user|>{{ text | trim }}<|end|>")
//	out, err := t.Render(variables, jinja.Options{})
//	out.String(), out.Marks()
//
// Comparing does not look at marks. Numbers and truth values have none.
//
// # Bounds
//
// A template comes out of a file that somebody else made. What it may use is counted: steps,
// bytes of all strings and lists that are made, and depth. The bounds grow with what is put
// into the template, and passing one is an [ErrLimit]. Time follows from steps, since what
// takes longer for longer texts takes more of them.
//
// # Whose semantics
//
// Those of @huggingface/jinja and of Jinja2 as transformers sets it up, where they agree;
// docs/chat.md has the table of where they do not, and which of them is followed.
package jinja
