//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/internal/vocabs"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// writeTokens writes the words that each of llama.cpp's pre-tokenizers splits the texts of
// package vocabs into.
func writeTokens(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("peer tokens", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "build/peer", "folder of llama.cpp, which is fetched if missing")
	out := flags.String("out", "models/tokenizer/testdata/llamacpp", "folder of the texts and the results")
	only := flags.String("pre", "*", "pattern of pre-tokenizers; results of others are dropped")
	if err := flags.Parse(args); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	in, err := install(ctx, *dir, "", say)
	if err != nil {
		return err
	}
	t := tokenOracle{installed: in}
	if t.program, err = in.build(ctx, "tokens", tokensSource, say); err != nil {
		return err
	}
	if t.scratch, err = os.MkdirTemp("", "smelt-tokens-"); err != nil {
		return err
	}
	defer os.RemoveAll(t.scratch)
	texts, err := vocabs.Texts(filepath.Join(*out, "texts.txt"))
	if err != nil {
		return err
	}
	var words vocabs.Answers
	// llama.cpp cannot read a token whose text contains NUL.
	withoutNUL := lo.Reject(texts, func(text string, _ int) bool { return strings.Contains(text, "\x00") })
	byBytes, byCharacters := newWordVocabulary(texts, false), newWordVocabulary(withoutNUL, true)
	for _, pre := range tokenizer.Pretokenizers() {
		if match, err := filepath.Match(*only, pre); err != nil || !match {
			if err != nil {
				return err
			}
			continue
		}
		say("%s", pre)
		v, texts := byBytes, texts
		if characterPre[pre] {
			v, texts = byCharacters, withoutNUL
		}
		ids, err := t.ids(ctx, v.metadata(pre), texts, false)
		if err != nil {
			return fmt.Errorf("%s: %w", pre, err)
		}
		for i, text := range texts {
			pieces := make([]string, len(ids[i]))
			for j, id := range ids[i] {
				pieces[j] = v.texts[id]
			}
			words.Add(text, pre, pieces)
		}
	}
	if err := words.Write(filepath.Join(*out, "words.txt"), texts); err != nil {
		return err
	}
	return t.vocabularies(ctx, *out, texts)
}

// vocabularies writes the tokens of the texts by each small vocabulary of a folder, including
// those added to a prompt.
func (t *tokenOracle) vocabularies(ctx context.Context, dir string, texts []string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	var answers vocabs.Answers
	for _, file := range files {
		f, err := vocabs.Vocabulary(file)
		if err != nil {
			return err
		}
		ids, err := t.ids(ctx, f.Metadata, texts, true)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		vocabulary, err := tokenizer.FromGGUF(f)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for i, text := range texts {
			pieces := lo.Map(ids[i], func(id int32, _ int) string { return vocabulary.Spec().Tokens[id] })
			answers.Add(text, strings.TrimSuffix(filepath.Base(file), ".json"), pieces)
		}
	}
	return answers.Write(filepath.Join(dir, "vocabularies.txt"), texts)
}

// characterPre are the pre-tokenizers of vocabularies whose tokens are text, not bytes in
// GPT-2's alphabet.
var characterPre = map[string]bool{"gemma4": true, "granite-embed-multi-311m": true, "sarvam-moe": true}

// tokenOracle is llama.cpp in the program that tokenizes texts.
type tokenOracle struct {
	*installed
	program, scratch string
}

// ids returns the ids of each text by a vocabulary.
func (t *tokenOracle) ids(ctx context.Context, metadata []gguf.KV, texts []string, ends bool) ([][]int32, error) {
	model := filepath.Join(t.scratch, "vocabulary.gguf")
	var file bytes.Buffer
	if err := gguf.Write(&file, metadata, nil); err != nil {
		return nil, err
	}
	if err := os.WriteFile(model, file.Bytes(), 0o644); err != nil {
		return nil, err
	}
	var in, out bytes.Buffer
	for _, text := range texts {
		in.WriteString(hex.EncodeToString([]byte(text)) + "\n")
	}
	how := "plain"
	if ends {
		how = "ends"
	}
	said := &lastWords{}
	cmd := exec.CommandContext(ctx, t.program, model, how)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(texts) {
		return nil, fmt.Errorf("llama.cpp tokenized %d of %d texts", len(lines), len(texts))
	}
	all := make([][]int32, len(lines))
	for i, line := range lines {
		for _, word := range strings.Fields(line) {
			id, err := strconv.ParseInt(word, 10, 32)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], int32(id))
		}
	}
	return all, nil
}

// wordVocabulary has every substring of some texts as a token, and a merge for each of its
// splits into two others. Each word of a pre-tokenizer then becomes one token, so ids identify
// words.
type wordVocabulary struct {
	tokens []string        // in the file's form
	texts  []string        // of each token, as text
	ids    map[string]bool // by the file's form
	merges []string
	bytes  []string // GPT-2's alphabet; nil where tokens are text
}

func newWordVocabulary(texts []string, characters bool) *wordVocabulary {
	v := &wordVocabulary{ids: map[string]bool{}}
	if !characters {
		bytes, err := tokenizer.Placeholder(258)
		if err != nil {
			panic(err)
		}
		v.bytes = bytes.Tokens[:256]
		for b := range 256 {
			v.add(string([]byte{byte(b)}))
		}
	}
	runs := map[rune]int{}
	var units [][]string // characters of each text
	for _, text := range texts {
		var chars []string
		for _, r := range text { // llama.cpp replaces invalid UTF-8 by U+FFFD
			chars = append(chars, string(r))
		}
		for _, c := range chars {
			v.character(c)
		}
		if n := len(chars); n > 24 && strings.Repeat(chars[0], n) == strings.Join(chars, "") {
			r, _ := utf8.DecodeRuneInString(chars[0])
			runs[r] = max(runs[r], n)
			continue
		}
		units = append(units, chars)
	}
	// A long run of one character grows from its left end, so the last merge joins the longest
	// two.
	for r, n := range runs {
		for ; n > 1; n-- {
			v.merge(strings.Repeat(string(r), n-1), string(r))
		}
	}
	for length := 2; length <= 24; length++ {
		for _, chars := range units {
			for i := 0; i+length <= len(chars); i++ {
				whole := chars[i : i+length]
				if text := strings.Join(whole, ""); v.ids[v.form(text)] && !(length == 2 && runs[[]rune(text)[0]] > 0) {
					continue
				}
				for cut := 1; cut < length; cut++ {
					v.merge(strings.Join(whole[:cut], ""), strings.Join(whole[cut:], ""))
				}
			}
		}
	}
	return v
}

func (v *wordVocabulary) add(text string) {
	if form := v.form(text); !v.ids[form] {
		v.ids[form] = true
		v.tokens, v.texts = append(v.tokens, form), append(v.texts, text)
	}
}

// character adds a token for a character, and merges that join its bytes from the left.
func (v *wordVocabulary) character(c string) {
	if v.bytes == nil {
		v.add(c)
		return
	}
	for n := 2; n <= len(c); n++ {
		if !v.ids[v.form(c[:n])] {
			v.merge(c[:n-1], c[n-1:n])
		}
	}
}

// form returns a text in the file's form.
func (v *wordVocabulary) form(text string) string {
	if v.bytes == nil {
		return strings.ReplaceAll(text, " ", tokenizer.Space)
	}
	var out strings.Builder
	for i := range len(text) {
		out.WriteString(v.bytes[text[i]])
	}
	return out.String()
}

func (v *wordVocabulary) merge(left, right string) {
	v.add(left + right)
	v.merges = append(v.merges, v.form(left)+" "+v.form(right))
}

func (v *wordVocabulary) metadata(pre string) []gguf.KV {
	return []gguf.KV{
		{Key: "general.architecture", Value: gguf.String("llama")},
		{Key: "tokenizer.ggml.model", Value: gguf.String("gpt2")},
		{Key: "tokenizer.ggml.pre", Value: gguf.String(pre)},
		{Key: "tokenizer.ggml.tokens", Value: gguf.StringArray(v.tokens)},
		{Key: "tokenizer.ggml.merges", Value: gguf.StringArray(v.merges)},
		{Key: "tokenizer.ggml.bos_token_id", Value: gguf.Uint32(0)},
		{Key: "tokenizer.ggml.eos_token_id", Value: gguf.Uint32(0)},
	}
}
