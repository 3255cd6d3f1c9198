package tokenizer

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// Keys of a vocabulary in GGUF metadata (gguf.md, "Tokenizer").
const (
	keyModel     = "tokenizer.ggml.model"
	keyPre       = "tokenizer.ggml.pre"
	keyTokens    = "tokenizer.ggml.tokens"
	keyScores    = "tokenizer.ggml.scores"
	keyTypes     = "tokenizer.ggml.token_type"
	keyMerges    = "tokenizer.ggml.merges"
	keyBOS       = "tokenizer.ggml.bos_token_id"
	keyEOS       = "tokenizer.ggml.eos_token_id"
	keyUNK       = "tokenizer.ggml.unknown_token_id"
	keyPAD       = "tokenizer.ggml.padding_token_id"
	keyAddBOS    = "tokenizer.ggml.add_bos_token"
	keyAddEOS    = "tokenizer.ggml.add_eos_token"
	keyAddPrefix = "tokenizer.ggml.add_space_prefix"
	keySEP       = "tokenizer.ggml.seperator_token_id" // the usual misspelling
	keyLower     = "tokenizer.ggml.normalizer.lowercase"
	keyAccents   = "tokenizer.ggml.normalizer.strip_accents"
	keyCharsmap  = "tokenizer.ggml.precompiled_charsmap"
	keyMerge     = "tokenizer.ggml.remove_extra_whitespaces"
	keyName      = "general.name"
)

// ggufModels are the values of tokenizer.ggml.model.
var ggufModels = map[string]Algorithm{"llama": Llama, "gpt2": GPT2, modelGemma4: GPT2, "bert": WordPiece, "t5": Unigram, "plamo2": PLaMo2}

// modelGemma4 is a value of tokenizer.ggml.model whose pre-tokenizer has the same name.
const modelGemma4 = "gemma4"

// keyStops are the keys of further tokens that end a generation.
var keyStops = []string{
	"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
	"tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
}

// Metadata is the part of a GGUF file that SpecFromGGUF reads; *gguf.File implements it. Errors of
// its methods name the key, and the kind if it is not the requested one.
type Metadata interface {
	Has(key string) bool
	Bool(key string) (bool, error)
	Int(key string) (int64, error)
	String(key string) (string, error)
	Ints(key string) ([]int64, error)
	Floats(key string) ([]float32, error)
	Strings(key string) ([]string, error)
}

// SpecFromGGUF reads a vocabulary from the metadata of a GGUF file. Defaults are llama.cpp's.
// Errors are those of the metadata, or wrap [ErrSpec].
func SpecFromGGUF(file Metadata) (Spec, error) {
	r := reader{file: file}
	model := get(&r, file.String, keyModel, "")
	algorithm, known := ggufModels[model]
	switch {
	case model == "" && r.err == nil:
		r.fail("%s is missing", keyModel)
	case !known:
		r.fail("%s is %q; known are %q", keyModel, model, slices.Sorted(maps.Keys(ggufModels)))
	}
	s := Spec{
		Algorithm: algorithm,
		Tokens:    get(&r, file.Strings, keyTokens, nil),
		Types:     r.types(keyTypes),
	}
	absent := ggufEnds(algorithm, len(s.Tokens))
	s.UNK, s.PAD = r.spareID(keyUNK, absent.UNK, len(s.Tokens)), r.spareID(keyPAD, absent.PAD, len(s.Tokens))
	s.BOS, s.EOS = r.id(keyBOS, absent.BOS), r.id(keyEOS, absent.EOS)
	for _, key := range keyStops {
		if id := r.spareID(key, None, len(s.Tokens)); id != None {
			s.Stop = append(s.Stop, id)
		}
	}
	switch s.Algorithm {
	case Llama:
		s.Scores = get(&r, file.Floats, keyScores, nil)
		s.AddBOS = true
		if get(&r, file.Bool, keyAddPrefix, true) {
			s.Prefix = PrefixAlways
		}
	case Unigram:
		s.Scores = get(&r, file.Floats, keyScores, nil)
		s.Normalize = []Normalizer{ggmlUnigramNormalizer(string(r.bytes(keyCharsmap)), get(&r, file.Bool, keyAddPrefix, false), get(&r, file.Bool, keyMerge, false))}
	case PLaMo2:
		s.Scores = get(&r, file.Floats, keyScores, nil)
	case WordPiece:
		s.Pre = preSpaces
		lower := get(&r, file.Bool, keyLower, true)
		s.Normalize = []Normalizer{ggmlBERTNormalizer(lower, get(&r, file.Bool, keyAccents, lower))}
	case GPT2:
		s.Merges = get(&r, file.Strings, keyMerges, nil)
		s.Pre = get(&r, file.String, keyPre, "")
		if model == modelGemma4 {
			s.Pre = modelGemma4
		}
		if s.Pre == "" {
			s.Pre = "default"
		}
		pre := pretokenizers[s.Pre]
		s.AddBOS, s.IgnoreMerges = pre.addBOS, pre.ignoreMerges
		if pre.characters {
			s.Algorithm, s.ByteFallback = BPE, true
		}
	}
	s.AddBOS, s.AddEOS = get(&r, file.Bool, keyAddBOS, s.AddBOS), get(&r, file.Bool, keyAddEOS, s.Algorithm == Unigram)
	switch {
	case s.Pre == modelGemma4:
		s.AddBOS = true // some of its files have a wrong value
	case s.Algorithm == WordPiece: // always [CLS] text [SEP]
		s.EOS = r.id(keySEP, absent.EOS)
		s.AddBOS, s.AddEOS = s.BOS != None, s.EOS != None
	}
	name := get(&r, file.String, keyName, "")
	if r.err == nil {
		r.err = s.validate()
	}
	if r.err == nil {
		s.stripByName(strings.ToLower(name))
	}
	return s, r.err
}

// ggufEnds returns the default special tokens of SentencePiece, BERT, T5 and PLaMo. Those beyond the
// vocabulary are absent.
func ggufEnds(a Algorithm, tokens int) Spec {
	s := Spec{UNK: None, BOS: None, EOS: None, PAD: None}
	switch a {
	case Llama:
		s.UNK, s.BOS, s.EOS = 0, 1, 2
	case WordPiece:
		s.PAD, s.UNK, s.BOS, s.EOS = 0, 100, 101, 102
	case Unigram:
		s.PAD, s.EOS, s.UNK = 0, 1, 2
	case PLaMo2:
		s.UNK, s.BOS, s.EOS, s.PAD = 0, 1, 2, 3
	}
	for _, id := range []*int32{&s.UNK, &s.BOS, &s.EOS, &s.PAD} {
		if int(*id) >= tokens {
			*id = None
		}
	}
	return s
}

// stripByName sets what llama.cpp derives from the names of models and pre-tokenizers: Phi-3's
// special tokens, except three, absorb the white space behind them, and mask tokens that before
// them.
func (s *Spec) stripByName(model string) {
	mask := ""
	switch s.Pre {
	case "jina-v2-de", "jina-v2-es", "jina-v2-code":
		mask = "<mask>"
	}
	phi3 := strings.Contains(model, "phi-3") || strings.Contains(model, "phi3")
	if mask == "" && !phi3 && strings.Contains(model, "modern-bert") {
		mask = "[MASK]"
	}
	for id, text := range s.Tokens {
		switch k := s.typeOf(id); {
		case k != Control && k != Unknown && k != UserDefined:
		case mask != "":
			if text == mask {
				s.StripLeft = append(s.StripLeft, int32(id))
			}
		case phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>":
			s.StripRight = append(s.StripRight, int32(id))
		}
	}
}

// reader keeps the first error.
type reader struct {
	file Metadata
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = specError(format, args...)
	}
}

// get returns the value of a key, or absent.
func get[T any](r *reader, method func(key string) (T, error), key string, absent T) T {
	if !r.file.Has(key) {
		return absent
	}
	v, err := method(key)
	if err != nil && r.err == nil {
		r.err = err
	}
	return v
}

// id reads a token id. Writers of GGUF store 2³²-1 for "no such token".
func (r *reader) id(key string, absent int32) int32 {
	n := get(r, r.file.Int, key, int64(absent))
	switch {
	case n == -1, n == math.MaxUint32:
		return None
	case n < 0, n > math.MaxInt32:
		r.fail("%s is %d, no token", key, n)
	}
	return int32(n)
}

// spareID reads the id of a token that a text may lack. As in llama.cpp, an id beyond the vocabulary
// does not count.
func (r *reader) spareID(key string, absent int32, tokens int) int32 {
	if id := r.id(key, absent); int(id) < tokens {
		return id
	}
	return absent
}

// bytes reads an array of integers as bytes.
func (r *reader) bytes(key string) []byte {
	list := get(r, r.file.Ints, key, nil)
	bytes := make([]byte, len(list))
	for i, n := range list {
		if n < math.MinInt8 || n > math.MaxUint8 {
			r.fail("%s: %d is no byte", key, n)
		}
		bytes[i] = byte(n) // some writers store signed ones
	}
	return bytes
}

func (r *reader) types(key string) []Type {
	list := get(r, r.file.Ints, key, nil)
	if list == nil {
		return nil
	}
	types := make([]Type, len(list))
	for i, n := range list {
		if n < int64(Undefined) || n > int64(Byte) {
			r.fail("%s: %d is no type", key, n)
		}
		types[i] = Type(n)
	}
	return types
}

// Entry is one entry of GGUF metadata: a string, bool, uint32, or list of strings, float32, int32
// or bytes.
type Entry struct {
	Key   string
	Value any
}

// Metadata returns the vocabulary as GGUF metadata: the inverse of [SpecFromGGUF]. A spec of kind
// [BPE], or with settings that GGUF cannot express, is an error.
func (s *Spec) Metadata() ([]Entry, error) {
	for _, bad := range []struct {
		is   bool
		what string
	}{
		{s.Algorithm == BPE && !pretokenizers[s.Pre].characters, "a vocabulary of kind bpe"},
		{len(s.Normalize) > 0 && s.Algorithm != WordPiece && s.Algorithm != Unigram, "a normalizer"},
		{s.Algorithm == Unigram && (len(s.Normalize) != 1 || s.Normalize[0].Kind != kindGGMLUnigram || s.Pre != "" || s.ByteFallback), "these words of unigrams"},
		{s.Algorithm == WordPiece && (s.ggmlBERT() == nil || s.Pre != preSpaces), "these words of BERT"},
		{s.MaxWord > 0, "a longest word"},
		{len(s.Steps) > 0 || s.Continuing != "", "these words"},
		{len(s.SingleWord)+len(s.Normalized) > 0, "special tokens that are single words or normalized"},
		{s.FuseUNK || s.Algorithm == BPE && !s.ByteFallback, "unknown characters"},
		{s.Prefix > PrefixAlways, "a conditional space prefix"},
		{s.Algorithm != Llama && s.Prefix != NoPrefix, "a space prefix in a vocabulary of merges"},
		{s.IgnoreMerges != (s.Algorithm == GPT2 && pretokenizers[s.Pre].ignoreMerges), "this use of merges"},
		{len(s.StripLeft)+len(s.StripRight) > 0, "special tokens that swallow space"},
		{len(s.Stop) > len(keyStops), "so many stop tokens"},
	} {
		if bad.is {
			return nil, specError("GGUF cannot express %s", bad.what)
		}
	}
	model := string(s.Algorithm)
	if s.Algorithm == BPE {
		model = string(GPT2)
	}
	list := []Entry{{keyModel, model}}
	switch s.Algorithm {
	case Llama, PLaMo2:
		list = append(list, Entry{keyPre, "default"}, Entry{keyTokens, s.Tokens}, Entry{keyScores, s.Scores})
	case Unigram:
		n := s.Normalize[0]
		list = append(list, Entry{keyPre, "default"}, Entry{keyTokens, s.Tokens}, Entry{keyScores, s.Scores},
			Entry{keyAddPrefix, strings.Contains(n.New, optionPrefix)}, Entry{keyMerge, strings.Contains(n.New, optionMerge)})
		if n.Old != "" {
			list = append(list, Entry{keyCharsmap, []byte(n.Old)})
		}
	case WordPiece:
		n := s.ggmlBERT()
		list = append(list, Entry{keyPre, "default"}, Entry{keyTokens, s.Tokens}, Entry{keyLower, n.lower}, Entry{keyAccents, n.noAccents})
	default:
		list = append(list, Entry{keyPre, s.Pre}, Entry{keyTokens, s.Tokens}, Entry{keyMerges, s.Merges})
	}
	if s.Types != nil {
		types := make([]int32, len(s.Types))
		for i, k := range s.Types {
			types[i] = int32(k)
		}
		list = append(list, Entry{keyTypes, types})
	}
	for _, e := range []struct {
		key string
		id  int32
	}{{keyBOS, s.BOS}, {keyEOS, s.EOS}, {keyUNK, s.UNK}, {keyPAD, s.PAD}} {
		if e.key == keyEOS && s.Algorithm == WordPiece {
			e.key = keySEP
		}
		if e.id != None || s.Algorithm != GPT2 && s.Algorithm != BPE { // models with defaults need an explicit absence
			list = append(list, Entry{e.key, uint32(e.id)})
		}
	}
	for i, id := range s.Stop {
		list = append(list, Entry{keyStops[i], uint32(id)})
	}
	list = append(list, Entry{keyAddBOS, s.AddBOS}, Entry{keyAddEOS, s.AddEOS})
	if s.Algorithm == Llama {
		list = append(list, Entry{keyAddPrefix, s.Prefix == PrefixAlways})
	}
	return list, nil
}
