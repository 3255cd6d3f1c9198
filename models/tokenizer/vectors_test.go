package tokenizer

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/models/gguf"
)

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

var ggmlVocabularies = []string{"llama-spm", "llama-bpe", "qwen2", "gpt-2", "phi-3", "deepseek-llm", "falcon", "refact"}

func ggmlVocabulary(t testing.TB, name string) *Tokenizer {
	t.Helper()
	return fromGGUF(t, testfiles.Data(t, "tokenizers/ggml-vocab/ggml-vocab-"+name+".gguf"))
}

func fromGGUF(t testing.TB, path string) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	tok, err := FromGGUF(f)
	require.NoError(t, err)
	return tok
}

type vector struct {
	Text string
	IDs  []int32
}

// ggmlVectors are llama.cpp's own: made without BOS and without recognising
// control tokens (tests/test-tokenizer-0.cpp).
func ggmlVectors(t testing.TB, name string) (list []vector) {
	t.Helper()
	base := "tokenizers/ggml-vocab/ggml-vocab-" + name + ".gguf"
	texts := strings.Split(string(read(t, testfiles.Data(t, base+".inp"))), "\n__ggml_vocab_test__\n")
	lines := strings.Split(strings.TrimSuffix(string(read(t, testfiles.Data(t, base+".out"))), "\n"), "\n")
	if len(texts) == len(lines)+1 && texts[len(texts)-1] == "" {
		texts = texts[:len(lines)]
	}
	require.Len(t, lines, len(texts))
	for i, line := range lines {
		v := vector{Text: texts[i], IDs: []int32{}}
		for _, f := range strings.Fields(line) {
			id, err := strconv.Atoi(f)
			require.NoError(t, err)
			v.IDs = append(v.IDs, int32(id))
		}
		list = append(list, v)
	}
	require.Greater(t, len(list), 40)
	return list
}

func TestGGMLVectors(t *testing.T) {
	for _, name := range ggmlVocabularies {
		t.Run(name, func(t *testing.T) {
			tok := ggmlVocabulary(t, name)
			for _, v := range ggmlVectors(t, name) {
				require.Equal(t, v.IDs, tok.Encode(v.Text, false), "%q", v.Text)
				require.Equal(t, v.Text, string(tok.Decode(v.IDs, true)))
			}
		})
	}
}

// TestBERTVectors: its vocabulary has no case, no accents and no spaces to give back.
func TestBERTVectors(t *testing.T) {
	tok := ggmlVocabulary(t, "bert-bge")
	for _, v := range ggmlVectors(t, "bert-bge") {
		require.Equal(t, v.IDs, tok.Encode(v.Text, false), "%q", v.Text)
		require.Equal(t, append(append([]int32{101}, v.IDs...), 102), tok.EncodeWhole(v.Text, false), "%q", v.Text)
		require.Equal(t, v.IDs, tok.Encode(string(tok.Decode(v.IDs, true)), true), "%q", v.Text)
	}
	for text, want := range map[string]string{
		"Hello, WORLD! Ok? e.g.": "hello, world! ok? e. g.", "Ünaffable": "unaffable", "[CLS] a [SEP] b": "[CLS] a[SEP] b",
	} {
		require.Equal(t, want, string(tok.Decode(tok.Encode(text, true), true)))
	}
}

// TestTinyModels holds both forms of both trained models to the same vectors.
func TestTinyModels(t *testing.T) {
	for _, name := range []string{"tiny-llama", "tiny-qwen3"} {
		var file struct {
			ParseSpecial bool `json:"parse_special"`
			Vectors      []vector
		}
		require.NoError(t, json.Unmarshal(read(t, testfiles.Model(t, name+"/reference/tokenizer_vectors.json")), &file))
		require.Len(t, file.Vectors, 60)
		var reference struct {
			BOS     *int32
			StopIDs []int32 `json:"stop_ids"`
		}
		require.NoError(t, json.Unmarshal(read(t, testfiles.Model(t, name+"/reference/reference.json")), &reference))

		check := func(t *testing.T, tok *Tokenizer) {
			for _, v := range file.Vectors {
				require.Equal(t, v.IDs, tok.Encode(v.Text, file.ParseSpecial), "%q", v.Text)
				require.Equal(t, v.Text, string(tok.Decode(v.IDs, true)))
			}
			require.Equal(t, reference.StopIDs, tok.StopIDs())
			bos, ok := tok.BOS()
			require.Equal(t, reference.BOS != nil, ok)
			if ok {
				require.Equal(t, *reference.BOS, bos)
			}
		}
		t.Run(name+"/gguf", func(t *testing.T) {
			check(t, fromGGUF(t, testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf")))
		})
		t.Run(name+"/hf", func(t *testing.T) {
			tok, err := FromHF(testfiles.Model(t, name+"/hf"))
			require.NoError(t, err)
			check(t, tok)
		})
	}
}

// TestGPT2File reads the tokenizer.json that came with GPT-2's weights.
func TestGPT2File(t *testing.T) {
	spec, err := ParseHF(read(t, testfiles.Data(t, "tokenizers/gpt2/tokenizer.json")), read(t, testfiles.Data(t, "tokenizers/gpt2/tokenizer_config.json")))
	require.NoError(t, err)
	require.Equal(t, "gpt-2", spec.Pre)
	tok, err := New(spec)
	require.NoError(t, err)
	for _, v := range ggmlVectors(t, "gpt-2") {
		require.Equal(t, v.IDs, tok.Encode(v.Text, false), "%q", v.Text)
	}
	require.Equal(t, []int32{50256}, tok.StopIDs())
	require.Equal(t, []int32{64, 50256, 65}, tok.Encode("a<|endoftext|>b", true))
}

// TestOtherTexts holds decoding to texts that transformers and llama2.c made.
func TestOtherTexts(t *testing.T) {
	for folder, name := range map[string]string{"gpt2-124m": "gpt-2", "qwen2-0.5b": "qwen2"} {
		tok := ggmlVocabulary(t, name)
		for _, prompt := range []string{"arithmetic", "code", "completion", "greeting"} {
			var v struct {
				Tokens []int32
				Text   string
			}
			require.NoError(t, json.Unmarshal(read(t, testfiles.Data(t, "expected/paiml-oracle/"+folder+"/"+prompt+".json")), &v))
			require.Equal(t, v.Text, string(tok.Decode(v.Tokens, false)), "%s %s", folder, prompt)
		}
	}
	tok := fromGGUF(t, testfiles.Data(t, "models/stories260K/stories260K.gguf"))
	var ids []int32
	for _, f := range strings.Fields(string(read(t, testfiles.Data(t, "expected/stories260K.greedy200.ids")))) {
		id, err := strconv.Atoi(f)
		require.NoError(t, err)
		ids = append(ids, int32(id))
	}
	text := strings.TrimSpace(string(read(t, testfiles.Data(t, "expected/stories260K.llama2c_t0_n200.txt"))))
	require.True(t, strings.HasPrefix(text, string(tok.Decode(ids, false))) || strings.HasPrefix(string(tok.Decode(ids, false)), text))
}
