package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/vocabs"
	"github.com/smelt-ml/smelt/models/gguf"
)

// write puts entries into a GGUF file and opens it.
func write(t *testing.T, entries []Entry) *gguf.File {
	t.Helper()
	var list []gguf.KV
	for _, e := range entries {
		var v gguf.Value
		switch x := e.Value.(type) {
		case string:
			v = gguf.String(x)
		case bool:
			v = gguf.Bool(x)
		case uint32:
			v = gguf.Uint32(x)
		case int32:
			v = gguf.Int32(x)
		case []string:
			v = gguf.StringArray(x)
		case []float32:
			v = gguf.Float32Array(x)
		case []int32:
			v = gguf.Int32Array(x)
		case []byte:
			v = gguf.Uint8Array(x)
		default:
			require.Fail(t, "kind of entry", "%s: %T", e.Key, x)
		}
		list = append(list, gguf.KV{Key: e.Key, Value: v})
	}
	var out bytes.Buffer
	require.NoError(t, gguf.Write(&out, list, nil))
	f, err := gguf.Parse(out.Bytes(), "test.gguf")
	require.NoError(t, err)
	return f
}

func TestMetadataRoundTrip(t *testing.T) {
	placeholder, err := Placeholder(1000)
	require.NoError(t, err)
	for name, spec := range map[string]Spec{"placeholder": placeholder, "spm": pieceSpec(), "qwen2": byteLevelSpec("qwen2"), "words": wordSpec(), "unigrams": unigramSpec()} {
		spec.Stop = []int32{3, 5}
		entries, err := spec.Metadata()
		require.NoError(t, err, name)
		back, err := SpecFromGGUF(write(t, entries))
		require.NoError(t, err, name)
		require.Equal(t, spec, back, name)
	}
	chars := charSpec()
	_, err = chars.Metadata()
	require.ErrorContains(t, err, "bpe")
}

// TestDefaults has what a file leaves unsaid.
func TestDefaults(t *testing.T) {
	tokens := []string{"<unk>", "<s>", "</s>", "a"}
	for _, c := range []struct {
		entries []Entry
		check   func(*require.Assertions, Spec)
	}{
		{[]Entry{{keyModel, "llama"}, {keyTokens, tokens}, {keyScores, make([]float32, 4)}}, func(r *require.Assertions, s Spec) {
			r.Equal([]int32{0, 1, 2, None}, []int32{s.UNK, s.BOS, s.EOS, s.PAD})
			r.True(s.AddBOS)
			r.Equal(PrefixAlways, s.Prefix)
		}},
		{[]Entry{{keyModel, "llama"}, {keyTokens, tokens}, {keyScores, make([]float32, 4)}, {keyAddPrefix, false}, {keyAddBOS, false}, {keyPAD, uint32(1<<32 - 1)}}, func(r *require.Assertions, s Spec) {
			r.False(s.AddBOS)
			r.Equal(NoPrefix, s.Prefix)
			r.Equal(None, s.PAD)
		}},
		{[]Entry{{keyModel, "gpt2"}, {keyPre, "llama-bpe"}, {keyTokens, tokens}, {keyBOS, uint32(3)}}, func(r *require.Assertions, s Spec) {
			r.True(s.AddBOS)
			r.True(s.IgnoreMerges)
			r.Equal(None, s.EOS)
		}},
		{[]Entry{{keyModel, "gpt2"}, {keyTokens, tokens}}, func(r *require.Assertions, s Spec) {
			r.Equal("default", s.Pre)
			r.False(s.AddBOS)
		}},
		{[]Entry{{"general.name", "My Phi-3"}, {keyModel, "llama"}, {keyTokens, tokens}, {keyScores, make([]float32, 4)}, {keyTypes, []int32{2, 3, 3, 4}}}, func(r *require.Assertions, s Spec) {
			r.Equal([]int32{2, 3}, s.StripRight)
		}},
		{[]Entry{{keyModel, "gpt2"}, {keyPre, "jina-v2-de"}, {keyTokens, []string{"a", "<mask>"}}, {keyTypes, []int32{1, 3}}}, func(r *require.Assertions, s Spec) {
			r.Equal([]int32{1}, s.StripLeft)
		}},
		{[]Entry{{keyModel, "gemma4"}, {keyTokens, tokens}, {keyBOS, uint32(1)}, {keyAddBOS, false}}, func(r *require.Assertions, s Spec) {
			r.Equal(BPE, s.Algorithm)
			r.Equal("gemma4", s.Pre)
			r.True(s.AddBOS)
		}},
	} {
		s, err := SpecFromGGUF(write(t, c.entries))
		require.NoError(t, err)
		c.check(require.New(t), s)
	}
}

func TestBadGGUF(t *testing.T) {
	tokens := Entry{keyTokens, []string{"a", "b"}}
	llama, gpt2 := Entry{keyModel, "llama"}, Entry{keyModel, "gpt2"}
	for want, entries := range map[string][]Entry{
		keyModel + " is missing":                 {tokens},
		`tokenizer.ggml.model is "rwkv"`:         {{keyModel, "rwkv"}, tokens},
		"no tokens":                              {gpt2},
		`unknown pre-tokenizer "mystery"`:        {gpt2, tokens, {keyPre, "mystery"}},
		"0 scores for 2 tokens":                  {llama, tokens},
		"3 scores for 2 tokens":                  {llama, tokens, {keyScores, make([]float32, 3)}},
		"1 token types for 2 tokens":             {gpt2, tokens, {keyTypes, []int32{1}}},
		`merge 1 is "ab"`:                        {gpt2, tokens, {keyMerges, []string{"a b", "ab"}}},
		"EOS token 2 of 2":                       {gpt2, tokens, {keyEOS, uint32(2)}},
		keyBOS + " is -2":                        {gpt2, tokens, {keyBOS, int32(-2)}},
		"start token is to be added":             {gpt2, tokens, {keyAddBOS, true}},
		keyTokens:                                {gpt2, {keyTokens, "a"}},
		keyAddBOS:                                {gpt2, tokens, {keyAddBOS, "yes"}},
		"tokenizer.ggml.eot_token_id":            {gpt2, tokens, {"tokenizer.ggml.eot_token_id", "a"}},
		"end token is to be added, but none":     {gpt2, tokens, {keyAddEOS, true}},
		"precompiled charsmap of 3 bytes":        {{keyModel, "t5"}, tokens, {keyScores, make([]float32, 2)}, {keyCharsmap, []byte{1, 2, 3}}},
		"a table of 3":                           {{keyModel, "t5"}, tokens, {keyScores, make([]float32, 2)}, {keyCharsmap, []byte{3, 0, 0, 0, 0, 0, 0, 0, 0, 0}}},
		"its last text has no end":               {{keyModel, "t5"}, tokens, {keyScores, make([]float32, 2)}, {keyCharsmap, []byte{4, 0, 0, 0, 0, 0, 0, 0, 1}}},
		"a text of 300 bytes":                    {{keyModel, "t5"}, tokens, {keyScores, make([]float32, 2)}, {keyCharsmap, append(append([]byte{4, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 1)...), append(bytes.Repeat([]byte{'a'}, 300), 0)...)}},
		"300 is no byte":                         {{keyModel, "t5"}, tokens, {keyScores, make([]float32, 2)}, {keyCharsmap, []int32{300}}},
		"score of token 1 is NaN: want a number": {llama, tokens, {keyScores, []float32{0, nan()}}},
	} {
		_, err := FromGGUF(write(t, entries))
		require.ErrorContains(t, err, want)
	}
}

func nan() float32 {
	zero := float32(0)
	return zero / zero
}

func TestStops(t *testing.T) {
	for name, want := range map[string][]int32{
		"llama-spm": {2}, "gpt-2": {50256},
		"llama-bpe": {128001, 128008, 128009},
		"qwen2":     {151643, 151645, 151662, 151663, 151664},
		"phi-3":     {2, 32000, 32007},
	} {
		require.Equal(t, want, ggmlVocabulary(t, name).StopIDs(), name)
	}
	tok := ggmlVocabulary(t, "llama-bpe")
	require.True(t, tok.IsStop(128009))
	require.False(t, tok.IsStop(128000))
	bos, ok := tok.BOS()
	require.True(t, ok)
	require.Equal(t, int32(128000), bos)
	_, ok = ggmlVocabulary(t, "qwen2").BOS()
	require.False(t, ok)
}

// TestNotStops has texts that end a generation in most vocabularies, and not in these.
func TestNotStops(t *testing.T) {
	for _, c := range []struct {
		tokens string
		want   []int32
	}{
		{"<|end|> <|return|> <|call|>", []int32{1, 2}},
		{"<|end|> <|return|>", []int32{0, 1}},
		{"<|end|> <|calls|> <|flush|>", []int32{1, 2}},
		{"</s> <|tool_response>", []int32{1}},
		{"</s> <eos>", []int32{0, 1}},
	} {
		tok, err := New(Spec{Algorithm: GPT2, Tokens: strings.Fields(c.tokens), BOS: None, EOS: None, UNK: None, PAD: None})
		require.NoError(t, err)
		require.Equal(t, c.want, tok.StopIDs(), c.tokens)
	}
}

func TestPlaceholder(t *testing.T) {
	_, err := Placeholder(257)
	require.ErrorIs(t, err, ErrSpec)
	for _, n := range []int{258, 32000} {
		spec, err := Placeholder(n)
		require.NoError(t, err)
		tok, err := New(spec)
		require.NoError(t, err)
		require.Equal(t, n, tok.Len())
		require.Equal(t, []int32{257}, tok.StopIDs())
		text := "any  text, é\xff"
		require.Equal(t, text, string(tok.Decode(tok.Encode(text, true), true)))
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(spec.Tokens))), n)
	}
}

// TestHash changes every field of a spec in turn.
func TestHash(t *testing.T) {
	sum := func(s Spec) [32]byte {
		tok := &Tokenizer{spec: s}
		return tok.spec.sum()
	}
	base := pieceSpec()
	require.Equal(t, sum(base), sum(pieceSpec()))
	seen := map[[32]byte]string{sum(base): "base"}
	for i := range reflect.TypeFor[Spec]().NumField() {
		s := pieceSpec()
		field, name := reflect.ValueOf(&s).Elem().Field(i), reflect.TypeFor[Spec]().Field(i).Name
		switch field.Kind() {
		case reflect.String:
			field.SetString(field.String() + "x")
		case reflect.Bool:
			field.SetBool(!field.Bool())
		case reflect.Int32, reflect.Int:
			field.SetInt(field.Int() + 1)
		case reflect.Uint8:
			field.SetUint(field.Uint() + 1)
		case reflect.Slice:
			field.Set(reflect.Append(field, reflect.New(field.Type().Elem()).Elem()))
		default:
			require.Fail(t, "kind of field", name)
		}
		require.Empty(t, seen[sum(s)], "%s does not change the hash", name)
		seen[sum(s)] = name
	}
	// Borders between texts count.
	ab, a := base, base
	ab.Tokens, a.Tokens = []string{"ab", "c"}, []string{"a", "bc"}
	require.NotEqual(t, sum(ab), sum(a))
}

// hfJSON is a tokenizer.json of a GGUF vocabulary, merges written either way.
func hfJSON(t testing.TB, s Spec, pattern string, pairs bool) []byte {
	type object = map[string]any
	vocab, added := object{}, []object{}
	for id, text := range s.Tokens {
		switch k := s.typeOf(id); k {
		case Control, UserDefined:
			added = append(added, object{"id": id, "content": text, "special": k == Control})
		default:
			vocab[text] = id
		}
	}
	var merges any = s.Merges
	if pairs {
		list := make([][2]string, len(s.Merges))
		for i, m := range s.Merges {
			list[i][0], list[i][1] = splitMerge(m)
		}
		merges = list
	}
	data, err := json.Marshal(object{
		"added_tokens": added,
		"normalizer":   object{"type": "NFC"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []object{
			{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false},
			{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		}},
		"decoder": object{"type": "ByteLevel"},
		"model":   object{"type": "BPE", "ignore_merges": s.IgnoreMerges, "vocab": vocab, "merges": merges},
	})
	require.NoError(t, err)
	return data
}

// TestSameVocabulary reads large vocabularies in their Hugging Face form.
func TestSameVocabulary(t *testing.T) {
	for name, p := range map[string]*pattern{"llama-bpe": llama3Words, "qwen2": qwen2Words} {
		from := ggmlVocabulary(t, name).Spec()
		spec, err := ParseHF(hfJSON(t, from, p.hf[0], name == "qwen2"), nil)
		require.NoError(t, err)
		require.Equal(t, name, spec.Pre)
		require.Equal(t, from.Tokens, spec.Tokens)
		require.Equal(t, from.Types, spec.Types)
		require.Equal(t, from.Merges, spec.Merges)
		tok, err := New(spec)
		require.NoError(t, err)
		for _, v := range ggmlVectors(t, name) {
			require.Equal(t, v.IDs, tok.Encode(v.Text, false), "%q", v.Text)
		}
		require.Equal(t, tok.Encode("é", false), tok.Encode("e\u0301", false)) // NFC
	}
}

const smallHF = `{
  "added_tokens": [{"id": 3, "content": "<s>", "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "post_processor": {"type": "Sequence", "processors": [
    {"type": "ByteLevel"},
    {"type": "TemplateProcessing",
     "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
     "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}}]},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "dropout": null, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
}`

func TestSmallHF(t *testing.T) {
	spec, err := ParseHF([]byte(smallHF), nil)
	require.NoError(t, err)
	tok, err := New(spec)
	require.NoError(t, err)
	bos, ok := tok.BOS()
	require.True(t, ok)
	require.Equal(t, int32(3), bos)
	require.Equal(t, []int32{2, 3, 0}, tok.Encode("ab<s>a", true))

	// The configuration has the last word on start tokens; names may be objects.
	spec, err = ParseHF([]byte(smallHF), []byte(`{"add_bos_token": false, "eos_token": {"content": "b"}, "pad_token": null}`))
	require.NoError(t, err)
	require.False(t, spec.AddBOS)
	require.Equal(t, int32(1), spec.EOS)

	require.NoError(t, spec.addGenerationConfig([]byte(`{"eos_token_id": [1, 2, 2]}`)))
	require.Equal(t, []int32{2}, spec.Stop)
	require.NoError(t, spec.addGenerationConfig([]byte(`{"eos_token_id": null}`)))
	require.NoError(t, spec.addGenerationConfig([]byte(`{"eos_token_id": 0}`)))
	require.Equal(t, []int32{2, 0}, spec.Stop)
	require.ErrorContains(t, spec.addGenerationConfig([]byte(`{"eos_token_id": 9}`)), "eos_token_id 9")

	byteLevel, metaspace := `"ByteLevel", "add_prefix_space": false, "use_regex": true`, `"Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false`
	chars := strings.NewReplacer(byteLevel, metaspace, `{"type": "ByteLevel"},`, ``, `"decoder": {"type": "ByteLevel"}`, `"decoder": null`, `"dropout": null`, `"byte_fallback": true`).Replace(smallHF)
	spec, err = ParseHF([]byte(strings.ReplaceAll(chars, `"decoder": {"type": "ByteLevel"},`, "")), nil)
	require.NoError(t, err)
	require.Equal(t, BPE, spec.Algorithm)
	require.Equal(t, PrefixMissingFirst, spec.Prefix)
}

// TestUnknownHF changes one thing at a time into what is not supported.
func TestUnknownHF(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"BPE"`, `"WordLevel"`, `model.type is "WordLevel"`},
		{`"BPE"`, `"Unigram"`, "not a list of [text, score]"},
		{`"BPE"`, `"WordPiece"`, "ByteLevel with a model of type WordPiece"},
		{`{"type": "BPE", "dropout": null, "vocab": {"a": 0, "b": 1, "ab": 2}`, `{"type": "Unigram", "vocab": [["a", 0], ["b"]]`, "model.vocab[1]"},
		{`{"type": "BPE", "dropout": null, "vocab": {"a": 0, "b": 1, "ab": 2}`, `{"type": "Unigram", "vocab": [["a", 0], ["a", 0]]`, "twice"},
		{`{"type": "BPE", "dropout": null,`, `{"type": "WordPiece", "continuing_subword_prefix": "",`, "continuing_subword_prefix is empty"},
		{`{"type": "BPE", "dropout": null,`, `{"type": "WordPiece", "max_input_chars_per_word": 0,`, "max_input_chars_per_word is 0"},
		{`"dropout": null`, `"dropout": 0.1`, "model.dropout"},
		{`"dropout": null`, `"continuing_subword_prefix": "##"`, "continuing_subword_prefix"},
		{`"dropout": null`, `"end_of_word_suffix": "</w>"`, "end_of_word_suffix"},
		{`"normalizer": null`, `"normalizer": {"type": "ByteLevel"}`, "normalizer ByteLevel"},
		{`"normalizer": null`, `"normalizer": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "y"}`, `unknown pattern "x*"`},
		{`"normalizer": null`, `"normalizer": {"type": "Replace", "content": "y"}`, "Replace has no pattern"},
		{`"normalizer": null`, `"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAA="}`, "charsmap of 2 bytes"},
		{`{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`, `{"type": "UnicodeScripts"}`, "pre_tokenizer UnicodeScripts"},
		{`{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated"}, {"type": "ByteLevel"}]}`, `"x+"`},
		{`{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"String": "x"}, "behavior": "Sideways"}, {"type": "ByteLevel"}]}`, `behavior "Sideways"`},
		{`{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated"}, {"type": "ByteLevel"}]}`, "Split has no pattern"},
		{`{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Metaspace", "replacement": "▁"}]}`, "Metaspace after ByteLevel"},
		{`{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`, `null`, "no ByteLevel"},
		{`"decoder": {"type": "ByteLevel"}`, `"decoder": {"type": "WordPiece"}`, "decoder WordPiece"},
		{`{"type": "ByteLevel"},
    {`, `{"type": "BertProcessing"}, {`, "is not token 0"},
		{`{"type": "ByteLevel"},
    {`, `{"type": "MysteryProcessing"}, {`, "post_processor MysteryProcessing"},
		{`"ids": [3]`, `"ids": [4]`, "TemplateProcessing"},
		{`"ids": [3]`, `"ids": []`, "TemplateProcessing"},
		{`{"Sequence": {"id": "A", "type_id": 0}}`, `{"SpecialToken": {"id": "<s>", "type_id": 0}}`, "TemplateProcessing"},
		{`"id": 3`, `"id": 2`, "taken"},
		{`"id": 3`, `"id": -1`, "negative"},
		{`"ab": 2`, `"ab": 1`, "taken"},
		{`"ab": 2`, `"ab": 1000000000`, "ids up to 1000000000"},
		{`"ab": 2`, `"ab": "2"`, "tokenizer.json"},
		{`["a b"]`, `["ab"]`, `merge 0 is "ab"`},
		{`["a b"]`, `[["a", "b "]]`, "merges[0] has a space"},
		{`["a b"]`, `[["a", 7]]`, "tokenizer.json"},
		{smallHF, `{`, "tokenizer.json"},
		{smallHF, `{"model": {"type": "BPE"}}`, "byte_fallback"},
		{smallHF, `{"model": {"type": "BPE", "byte_fallback": true}}`, "no tokens"},
		{smallHF, `{"model": {"type": "BPE", "byte_fallback": true}, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "last"}}`, "prepend_scheme"},
		{smallHF, `{"decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel"}, "model": {"type": "BPE"}}`, "no tokens"},
	} {
		require.Contains(t, smallHF, c.old)
		_, err := ParseHF([]byte(strings.Replace(smallHF, c.old, c.new, 1)), nil)
		require.ErrorContains(t, err, c.want)
		require.ErrorIs(t, err, ErrSpec)
	}
	_, err := ParseHF([]byte(smallHF), []byte(`{"eos_token": "<e>"}`))
	require.ErrorContains(t, err, `eos_token "<e>"`)
	_, err = FromHF(t.TempDir())
	require.ErrorContains(t, err, "tokenizer.json")
}

// FuzzParseHF: a file is read or refused, and what is read works.
func FuzzParseHF(f *testing.F) {
	f.Add([]byte(smallHF), []byte(`{"bos_token": {"content": "<s>"}, "add_bos_token": true}`))
	f.Add([]byte(`{"model": {"type": "BPE", "byte_fallback": true, "vocab": {"▁": 0, "<0x41>": 1}, "merges": [["▁", "▁"]]}, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}}`), []byte(nil))
	pipelines, err := vocabs.Pipelines("testdata/huggingface")
	require.NoError(f, err)
	for _, p := range pipelines {
		if p.Name == "albert" || p.Name == "bert" || p.Name == "falcon" {
			f.Add(p.File, []byte(nil))
		}
	}
	f.Fuzz(func(t *testing.T, file, config []byte) {
		spec, err := ParseHF(file, config)
		if err != nil {
			return
		}
		tok, err := New(spec)
		require.NoError(t, err)
		tok.Decode(tok.Encode("a  b<s>é\xff", true), true)
		tok.Hash()
	})
}

func BenchmarkParseHF(b *testing.B) {
	data := hfJSON(b, ggmlVocabulary(b, "qwen2").Spec(), qwen2Words.hf[0], false)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_, err := ParseHF(data, nil)
		require.NoError(b, err)
	}
}

func Example() {
	spec, _ := Placeholder(1000)
	t, err := New(spec)
	if err != nil {
		panic(err)
	}
	ids := t.Encode("Go   on<|endoftext|>", true)
	fmt.Println(ids, t.IsStop(ids[len(ids)-1]))
	fmt.Printf("%s\n", t.Decode(ids, false))
	// Output:
	// [71 111 256 32 111 110 257] true
	// Go   on
}

func TestFolders(t *testing.T) {
	for _, name := range []string{"tiny-llama", "tiny-qwen3"} {
		hf, err := FromHF(testfiles.Model(t, name+"/hf"))
		require.NoError(t, err)
		file := fromGGUF(t, testfiles.Model(t, name+"/gguf/"+name+"-F16.gguf"))
		require.NotEqual(t, hf.Hash(), file.Hash())
		text := string(read(t, testfiles.Model(t, "valid.txt")))
		require.Equal(t, file.Encode(text, true), hf.Encode(text, true), "the two forms of %s", name)
	}
}
