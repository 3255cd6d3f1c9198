// Package vocabs holds what smelt's tokenizers are compared with: texts, small vocabularies,
// and what llama.cpp and Hugging Face's library make of the texts, kept in
// models/tokenizer/testdata and made again by
//
//	make tokens
//
// A file of answers has a text a line, quoted as in Go, and below it the pieces that it
// becomes, after the names of all vocabularies or pre-tokenizers that agree on them. Names
// that agree on all texts stand for each other: a line NAME = NAME … at the top says so.
package vocabs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/models/gguf"
)

// Texts reads a file of texts, one a line, quoted as in Go.
func Texts(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var texts []string
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		text, err := strconv.Unquote(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// Vocabulary makes a GGUF file that holds a vocabulary of a JSON object with its metadata:
// numbers are ids, arrays of numbers int32, but for scores, which are float32, and what is
// precompiled is base64.
func Vocabulary(path string) (*gguf.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var list []gguf.KV
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value, err := metadata(key, fields[key])
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, key, err)
		}
		list = append(list, gguf.KV{Key: key, Value: value})
	}
	var file bytes.Buffer
	if err := gguf.Write(&file, list, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return gguf.Parse(file.Bytes(), path)
}

func metadata(key string, field json.RawMessage) (gguf.Value, error) {
	switch {
	case strings.HasSuffix(key, ".precompiled_charsmap"):
		return read(field, gguf.Uint8Array)
	case strings.HasSuffix(key, ".scores"):
		return read(field, gguf.Float32Array)
	case bytes.HasPrefix(field, []byte(`["`)) || bytes.HasPrefix(field, []byte("[\n\"")):
		return read(field, gguf.StringArray)
	case field[0] == '[':
		return read(field, gguf.Int32Array)
	case field[0] == '"':
		return read(field, gguf.String)
	case field[0] == 't', field[0] == 'f':
		return read(field, gguf.Bool)
	}
	return read(field, gguf.Uint32)
}

func read[T any](field json.RawMessage, value func(T) gguf.Value) (gguf.Value, error) {
	var x T
	err := json.Unmarshal(field, &x)
	return value(x), err
}

// Answer is what several tokenizers make of a text.
type Answer struct {
	Text   string
	Names  []string
	Pieces []string
}

// Answers collects what each tokenizer makes of each text.
type Answers struct{ list []Answer }

// Add notes the pieces that a tokenizer makes of a text.
func (a *Answers) Add(text, name string, pieces []string) {
	for i := range a.list {
		if have := &a.list[i]; have.Text == text && slices.Equal(have.Pieces, pieces) {
			have.Names = append(have.Names, name)
			return
		}
	}
	a.list = append(a.list, Answer{text, []string{name}, pieces})
}

// Write writes the answers in the order of these texts.
func (a *Answers) Write(path string, texts []string) error {
	var out strings.Builder
	same := a.same()
	for _, first := range slices.Sorted(maps.Keys(same)) {
		if rest := same[first][1:]; len(rest) > 0 {
			fmt.Fprintf(&out, "%s = %s\n", first, strings.Join(rest, " "))
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&out, "%s\n", strconv.Quote(text))
		var lines []string
		for _, x := range a.list {
			if x.Text != text {
				continue
			}
			names := slices.DeleteFunc(slices.Sorted(slices.Values(x.Names)), func(name string) bool { return same[name] == nil })
			pieces := lo.Map(x.Pieces, func(p string, _ int) string { return " " + strconv.Quote(p) })
			lines = append(lines, fmt.Sprintf("\t%s:%s\n", strings.Join(names, " "), strings.Join(pieces, "")))
		}
		out.WriteString(strings.Join(slices.Sorted(slices.Values(lines)), ""))
	}
	return os.WriteFile(path, []byte(out.String()), 0o644)
}

// same groups the names that agree on all texts, by the first of each group.
func (a *Answers) same() map[string][]string {
	given := map[string]string{} // the answers of each name
	for i, x := range a.list {
		for _, name := range x.Names {
			given[name] += fmt.Sprintf(" %d", i)
		}
	}
	first, groups := map[string]string{}, map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		to, ok := first[given[name]]
		if !ok {
			to = name
			first[given[name]] = name
		}
		groups[to] = append(groups[to], name)
	}
	return groups
}

// Read reads a file of answers.
func Read(path string) ([]Answer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []Answer
	same := map[string][]string{}
	text := ""
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		rest, indented := strings.CutPrefix(line, "\t")
		if first, others, ok := strings.Cut(line, " = "); ok && !strings.HasPrefix(line, `"`) && !indented {
			same[first] = strings.Fields(others)
			continue
		}
		if !indented {
			if text, err = strconv.Unquote(line); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
			continue
		}
		names, rest, ok := strings.Cut(rest, ":")
		if !ok {
			return nil, fmt.Errorf("%s:%d: no names before the pieces", path, i+1)
		}
		a := Answer{Text: text, Names: strings.Fields(names)}
		for _, name := range a.Names {
			a.Names = append(a.Names, same[name]...)
		}
		for rest = strings.TrimPrefix(rest, " "); rest != ""; rest = strings.TrimPrefix(rest, " ") {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
			piece, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
			a.Pieces = append(a.Pieces, piece)
			rest = rest[len(quoted):]
		}
		list = append(list, a)
	}
	return list, nil
}

// Pipeline is a small tokenizer.json.
type Pipeline struct {
	Name string
	File []byte

	tokens map[int32]string
}

// Token is the text of an id in the file.
func (p *Pipeline) Token(id int32) string {
	if p.tokens == nil {
		p.tokens = fileTokens(p.File)
	}
	return p.tokens[id]
}

func fileTokens(file []byte) map[int32]string {
	var f struct {
		AddedTokens []struct {
			ID      int32
			Content string
		} `json:"added_tokens"`
		Model struct{ Vocab json.RawMessage }
	}
	tokens := map[int32]string{}
	if json.Unmarshal(file, &f) != nil {
		return tokens
	}
	var byText map[string]int32
	var byID [][]any
	if json.Unmarshal(f.Model.Vocab, &byText) == nil {
		for text, id := range byText {
			tokens[id] = text
		}
	} else if json.Unmarshal(f.Model.Vocab, &byID) == nil {
		for id, pair := range byID {
			tokens[int32(id)] = fmt.Sprint(pair[0])
		}
	}
	for _, t := range f.AddedTokens {
		tokens[t.ID] = t.Content
	}
	return tokens
}

// Pipelines makes the files that a folder's pipelines.json describes, by their names: the
// components of each, what it has otherwise in its model, and the file MODEL.model.json with
// the vocabulary and the added tokens that it shares with others.
func Pipelines(dir string) ([]Pipeline, error) {
	type object = map[string]json.RawMessage
	var all map[string]object
	if err := readJSON(filepath.Join(dir, "pipelines.json"), &all); err != nil {
		return nil, err
	}
	var list []Pipeline
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		var from string
		if err := json.Unmarshal(p["model"], &from); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var shared struct {
			AddedTokens json.RawMessage `json:"added_tokens"`
			Model       object
		}
		if err := readJSON(filepath.Join(dir, from+".model.json"), &shared); err != nil {
			return nil, err
		}
		if p["override"] != nil {
			if err := json.Unmarshal(p["override"], &shared.Model); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		model, err := json.Marshal(shared.Model)
		if err != nil {
			return nil, err
		}
		file := object{"version": json.RawMessage(`"1.0"`), "added_tokens": shared.AddedTokens, "model": model}
		for _, part := range []string{"truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"} {
			file[part] = json.RawMessage("null")
			if p[part] != nil {
				file[part] = p[part]
			}
		}
		data, err := json.Marshal(file)
		if err != nil {
			return nil, err
		}
		list = append(list, Pipeline{Name: name, File: data})
	}
	return list, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
