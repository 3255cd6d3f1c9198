package tokenizer

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/vocabs"
)

// everyVocabulary calls test with each vocabulary at hand, as a subtest.
func everyVocabulary(t *testing.T, test func(t *testing.T, tok *Tokenizer)) {
	run := func(name string, open func(t *testing.T) *Tokenizer) {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	for _, name := range append([]string{"bert-bge"}, ggmlVocabularies...) {
		run("ggml/"+name, func(t *testing.T) *Tokenizer { return ggmlVocabulary(t, name) })
	}
	run("stories260K", func(t *testing.T) *Tokenizer {
		return fromGGUF(t, testfiles.Data(t, "models/stories260K/stories260K.gguf"))
	})
	run("gpt2", func(t *testing.T) *Tokenizer {
		spec, err := ParseHF(read(t, testfiles.Data(t, "tokenizers/gpt2/tokenizer.json")), read(t, testfiles.Data(t, "tokenizers/gpt2/tokenizer_config.json")))
		return made(t, spec, err)
	})
	for _, name := range []string{"tiny-llama", "tiny-qwen3"} {
		run(name+"/gguf", func(t *testing.T) *Tokenizer {
			return fromGGUF(t, testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf"))
		})
		run(name+"/hf", func(t *testing.T) *Tokenizer {
			tok, err := FromHF(testfiles.Model(t, name+"/hf"))
			require.NoError(t, err)
			return tok
		})
	}
	files, err := filepath.Glob("testdata/llamacpp/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		run(filepath.Base(file), func(t *testing.T) *Tokenizer {
			f, err := vocabs.Vocabulary(file)
			require.NoError(t, err)
			spec, err := SpecFromGGUF(f)
			return made(t, spec, err)
		})
	}
	pipelines, err := vocabs.Pipelines("testdata/huggingface")
	require.NoError(t, err)
	for _, p := range pipelines {
		run("pipelines/"+p.Name, func(t *testing.T) *Tokenizer {
			spec, err := ParseHF(p.File, nil)
			return made(t, spec, err)
		})
	}
	for name, tok := range synthetic(t) {
		run("synthetic/"+name, func(*testing.T) *Tokenizer { return tok })
	}
}

func made(t *testing.T, spec Spec, err error) *Tokenizer {
	t.Helper()
	require.NoError(t, err)
	tok, err := New(spec)
	require.NoError(t, err)
	return tok
}

// TestQuotedControl: no text gives a control token where it is quoted, but for the one that stands
// for unknown text alone. It has texts of control tokens, whole and in parts and as the vocabulary
// or a normalizer spells them, all bytes, and tokens at random; and it takes bytes out of the
// vocabulary whose place a control token then would have.
func TestQuotedControl(t *testing.T) {
	everyVocabulary(t, func(t *testing.T, tok *Tokenizer) {
		holdQuoted(t, tok)
		for _, control := range []int32{tok.EOS(), tok.spec.BOS, slices.Max(append(tok.StopIDs(), None))} {
			lacking := tok.Spec()
			if lacking.UNK = control; control == None {
				continue
			}
			lacking.Tokens, lacking.Types = slices.Clone(lacking.Tokens), slices.Clone(tok.types)
			lacking.Types[control] = Control
			for id, text := range lacking.Tokens {
				if _, ok := byteToken(text); ok || len([]rune(text)) == 1 && text != "▁" {
					lacking.Types[id], lacking.Tokens[id] = Unused, ""
				}
			}
			holdQuoted(t, made(t, lacking, nil))
		}
	})
}

func holdQuoted(t *testing.T, tok *Tokenizer) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	var texts, controls []string
	for id, text := range tok.spec.Tokens {
		if k := tok.Type(int32(id)); k == Control || k == Unknown || tok.IsStop(int32(id)) {
			controls = append(controls, text)
		}
	}
	if len(controls) > 300 {
		r.Shuffle(len(controls), func(i, j int) { controls[i], controls[j] = controls[j], controls[i] })
		controls = controls[:300]
	}
	for _, text := range controls {
		wide := strings.Map(func(r rune) rune { // NFKC makes it the text again
			if r > ' ' && r < 0x7f {
				return r - '!' + '！'
			}
			return r
		}, text)
		texts = append(texts, text, " "+text+" ", text+text, string(appendAlphabet(nil, text)), string(appendBytes(nil, text)), wide,
			strings.ToUpper(text), strings.ToLower(text), strings.ReplaceAll(text, Space, " "), strings.ReplaceAll(text, " ", Space))
	}
	all := make([]byte, 256)
	for b := range all {
		all[b] = byte(b)
		texts = append(texts, string(all[b:b+1]), "a"+string(all[b:b+1])+" ")
	}
	texts = append(texts, string(all), "<0x0A><0x00>", "𐍈\U0010FFFF\u0378")
	for range 300 {
		text := ""
		for range r.IntN(8) {
			switch n := r.IntN(4); {
			case n == 0 && len(controls) > 0:
				text += controls[r.IntN(len(controls))]
			case n == 1:
				text += string(all[r.IntN(256)])
			default:
				text += string(tok.Piece(int32(r.IntN(tok.Len()))))
			}
		}
		texts = append(texts, text)
	}
	for _, text := range texts {
		ids := tok.EncodeQuoted(text, []Range{{0, len(text)}})
		require.Equal(t, tok.Encode(text, false), ids, "%q", text)
		for _, id := range ids {
			normal := tok.Type(id) != Control && (!tok.IsStop(id) || tok.Type(id) == Normal)
			require.True(t, normal || id == tok.unk, "%q gives token %d, %q", text, id, tok.spec.Tokens[id])
		}
	}
	if unk := tok.unk; unk != None && tok.Type(unk) == Control {
		require.False(t, tok.IsStop(unk) || unk == tok.spec.BOS || tok.spec.Algorithm == GPT2, "%q stands for unknown text", tok.spec.Tokens[unk])
	}
}

// TestLackingBytes: llama.cpp and Hugging Face's library drop bytes of which a byte-level
// vocabulary has no token, where its unknown token is <|endoftext|>.
func TestLackingBytes(t *testing.T) {
	s := byteLevelSpec("")
	s.UNK = s.EOS
	s.Tokens = slices.Clone(s.Tokens)
	s.Tokens[0xff], s.Tokens[0xc0] = "nothing", "nothing more"
	tok := made(t, s, nil)
	a, aa := s.find("a"), s.find("aa")
	require.Equal(t, []int32{a, a}, tok.Encode("a\xffa\xc0", false))
	hf := s
	hf.LeftmostSpecial = true
	require.Equal(t, []int32{aa}, made(t, hf, nil).Encode("a\xffa\xc0", false)) // dropped before merges
	require.Equal(t, []int32{s.EOS}, tok.Encode("<|end|>\xff", true))
	require.Equal(t, tok.Encode("", false), tok.EncodeQuoted("\xff\xc0", nil))
}

// TestStopsAreControl: a token that ends a generation is none that any text has.
func TestStopsAreControl(t *testing.T) {
	s := byteLevelSpec("gpt-2")
	s.Stop = []int32{s.find("<think>")}
	tok := made(t, s, nil)
	require.Equal(t, Control, tok.Type(s.Stop[0]))
	require.NotContains(t, tok.Encode("a<think>", false), s.Stop[0])
	require.Contains(t, tok.Encode("a<think>", true), s.Stop[0])
}
