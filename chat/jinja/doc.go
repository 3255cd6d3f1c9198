// Package jinja renders the chat templates of model files.
//
// It implements the part of Jinja that such templates use, with trim_blocks and lstrip_blocks as
// transformers sets them: statements if, for, set, macro, call, filter, with, raw, break, continue
// and generation; the operators; the filters, tests and methods in the tables of filters.go,
// tests.go and methods.go. It has no access to files, and the caller provides the clock.
//
// # Marks
//
// A [Text] records which of its bytes come from marked strings. Every operation on strings
// preserves that: a slice of a marked string is marked, a concatenation keeps the marks of its
// parts, and JSON marks the contents of strings. The output thus records for each byte whether the
// template wrote it or inserted foreign text, whatever the bytes are:
//
//	t, err := jinja.Parse("<|user|>{{ text | trim }}<|end|>")
//	out, err := t.Render(variables, jinja.Options{})
//	out.String(), out.Marks()
//
// Comparison ignores marks. Numbers and booleans have none.
//
// # Bounds
//
// A template comes from an untrusted file. Its resources are bounded: steps, bytes of strings and
// lists, and depth. The bounds grow with the size of the variables, and exceeding one is an
// [ErrLimit]. Steps bound time too, since an operation on a text counts steps in proportion to its
// length.
//
// # Whose semantics
//
// Where @huggingface/jinja and Jinja2 as configured by transformers agree, this package does as
// they do; docs/chat.md has a table of their differences and the choice between them.
package jinja
