package tokenizer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/vocabs"
)

// TestPipelines holds tokenizer.json files of all kinds to the ids of Hugging Face's own
// library, which `make tokens` asks anew.
func TestPipelines(t *testing.T) {
	pipelines, err := vocabs.Pipelines("testdata/huggingface")
	require.NoError(t, err)
	answers, err := vocabs.Read("testdata/huggingface/answers.txt")
	require.NoError(t, err)
	byName := map[string]*vocabs.Pipeline{}
	tokenizers := map[string]*Tokenizer{}
	for i, p := range pipelines {
		spec, err := ParseHF(p.File, nil)
		require.NoError(t, err, p.Name)
		tokenizers[p.Name], err = New(spec)
		require.NoError(t, err, p.Name)
		byName[p.Name] = &pipelines[i]
	}
	compared := map[string]int{}
	for _, a := range answers {
		for _, name := range a.Names {
			var pieces []string
			for _, id := range tokenizers[name].EncodeWhole(a.Text, true) {
				pieces = append(pieces, byName[name].Token(id))
			}
			require.Equal(t, a.Pieces, pieces, "%s: %q", name, a.Text)
			compared[name]++
		}
	}
	for _, p := range pipelines {
		require.Equal(t, 206, compared[p.Name], p.Name)
	}
}

// TestPipelinesToGGUF writes tokenizer.json files as GGUF metadata, and reads these back: the
// ids of plain texts are the same. The others are refused.
func TestPipelinesToGGUF(t *testing.T) {
	pipelines, err := vocabs.Pipelines("testdata/huggingface")
	require.NoError(t, err)
	written := map[string]string{}
	for _, p := range pipelines {
		spec, err := ParseHF(p.File, nil)
		require.NoError(t, err)
		spec.StripLeft, spec.StripRight, spec.SingleWord = nil, nil, nil // which GGUF cannot say
		tok, err := New(spec)
		require.NoError(t, err)
		entries, err := tok.Metadata()
		if err != nil {
			require.ErrorContains(t, err, "GGUF cannot", p.Name)
			continue
		}
		back, err := FromGGUF(write(t, entries))
		require.NoError(t, err, p.Name)
		written[p.Name] = back.spec.Pre
		for _, text := range []string{"", "Hello world", " the quick (brown) fox,  and 7 more.", "don't stop\n\nnow!", "été àé x"} {
			require.Equal(t, tok.EncodeWhole(text, true), back.EncodeWhole(text, true), "%s: %q", p.Name, text)
		}
	}
	require.Equal(t, map[string]string{
		"bert": preSpaces, "bert-cased": preSpaces, "bloom": "bloom", "deepseek-coder": "deepseek-coder", "deepseek-llm": "deepseek-llm",
		"deepseek-v3": "deepseek-v3", "falcon": "falcon", "gpt2": "gpt-2", "gpt4-removed": "dbrx", "llama3": "llama-bpe", "o200k": "gpt-4o",
		"qwen2": "qwen2", "qwen35": "qwen35", "starcoder": "smollm", "t5": "", "tekken": "tekken", "xlm-roberta": "",
	}, written)
}
