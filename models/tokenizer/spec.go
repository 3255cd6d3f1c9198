package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"strings"
)

// Algorithm is how a vocabulary is applied; all except [BPE] are values of GGUF's
// tokenizer.ggml.model.
type Algorithm string

const (
	Llama     Algorithm = "llama"  // SentencePiece BPE, driven by scores
	GPT2      Algorithm = "gpt2"   // byte-level BPE, driven by merges
	BPE       Algorithm = "bpe"    // BPE over characters with byte fallback, driven by merges
	Unigram   Algorithm = "t5"     // SentencePiece unigrams: the pieces with the best sum of scores
	PLaMo2    Algorithm = "plamo2" // pieces with the best sum of scores, from the end of the text
	WordPiece Algorithm = "bert"   // longest match from the left; Space precedes pieces that begin words
)

// Type is the role of a token, numbered as in tokenizer.ggml.token_type.
type Type int32

const (
	Undefined   Type = iota
	Normal           // produced from text by merging
	Unknown          // stands for text that the vocabulary cannot encode
	Control          // has no text; recognised in text on request only
	UserDefined      // always recognised in text, before merging
	Unused
	Byte // <0xNN>
)

// None is the id of an absent token.
const None int32 = -1

// Space stands for a space in SentencePiece vocabularies.
const Space = "\u2581"

// SpacePrefix is where a space is put before text, so that a word at the start of a text gets the
// same token as one after a space. Decoding drops one leading space in the same places.
type SpacePrefix uint8

const (
	NoPrefix           SpacePrefix = iota
	PrefixAlways                   // before the text, and before what follows each special token
	PrefixMissing                  // the same, except before text that starts with a space
	PrefixMissingFirst             // at the very start only, unless there is a space
)

// Spec is a vocabulary with all settings that affect ids. All ids index Tokens; an absent one is
// [None].
type Spec struct {
	Algorithm Algorithm
	Pre       string    // name of the pre-tokenizer; see the table in pretokenize.go. Unused by Llama
	Tokens    []string  // text by id; in GPT2 vocabularies in GPT-2's alphabet of 256 printable characters
	Scores    []float32 // by id; Llama, Unigram and PLaMo2
	Types     []Type    // by id; nil means all Normal
	Merges    []string  // "left right", best first; GPT2 and BPE

	BOS, EOS, UNK, PAD int32
	Stop               []int32 // tokens that end a generation, besides EOS and those known by name

	AddBOS, AddEOS bool   // whether a prompt starts with BOS, ends with EOS
	ByteFallback   bool   // text without a token becomes byte tokens if all bytes have one, else UNK; BPE and Unigram
	FuseUNK        bool   // neighbouring characters without a token are one UNK; BPE (Unigram always does so)
	IgnoreMerges   bool   // a word that is a token as a whole is not split
	MaxWord        int    // characters; a longer word is UNK; 0: no bound; WordPiece
	Continuing     string // prefix of pieces that continue a word; "" where Space marks those that begin one; WordPiece

	Normalize []Normalizer // of text between special tokens, in this order
	Steps     []Step       // pre-tokenization that Pre and Prefix cannot express
	Prefix    SpacePrefix  // with Steps, which put the spaces, it affects decoding only

	// LeftmostSpecial finds special tokens from the left, the longest at each place, as Hugging
	// Face does. Otherwise the longest ones are found first, wherever they are.
	LeftmostSpecial bool
	SingleWord      []int32 // special tokens that match only without word characters beside them
	Apart           []int32 // special tokens that are found in text but never result from merges, although they are not control tokens
	Normalized      []int32 // user-defined tokens that are searched in normalized text; LeftmostSpecial

	// Special tokens that absorb the white space before and after them.
	StripLeft, StripRight []int32
}

// ErrSpec marks a vocabulary that is inconsistent or has unsupported settings. Errors of New,
// SpecFromGGUF and ParseHF wrap it.
var ErrSpec = errors.New("bad vocabulary")

func specError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrSpec}, args...)...)
}

// Bounds of what a file can ask for: normalizers and steps, each of which reads the whole text; the
// factor by which normalizers make a text longer (those of ALBERT's files could by 181); the bytes
// of a token that is searched at every place of a text.
const maxParts, maxGrowth, maxSearched = 100, 256, 1024

// validate returns the first inconsistency; the error names the field.
func (s *Spec) validate() error {
	n := len(s.Tokens)
	if n == 0 {
		return specError("no tokens")
	}
	if n > math.MaxInt32/2 { // the upper half of the ids is for texts that only occur in merges
		return specError("%d tokens", n)
	}
	if s.Types != nil && len(s.Types) != n {
		return specError("%d token types for %d tokens", len(s.Types), n)
	}
	switch s.Algorithm {
	case Llama, Unigram, PLaMo2:
		if _, ok := pretokenizers[s.Pre]; !ok {
			return specError("unknown pre-tokenizer %q", s.Pre)
		}
		if len(s.Scores) != n {
			return specError("%d scores for %d tokens", len(s.Scores), n)
		}
		for id, score := range s.Scores {
			if score != score || s.Algorithm != Llama && math.IsInf(float64(score), 0) {
				return specError("score of token %d is %v: want a number", id, score)
			}
		}
	case WordPiece:
		if _, ok := pretokenizers[s.Pre]; !ok {
			return specError("unknown pre-tokenizer %q", s.Pre)
		}
	case GPT2, BPE:
		pre, ok := pretokenizers[s.Pre]
		if !ok {
			return specError("unknown pre-tokenizer %q", s.Pre)
		}
		if pre.characters && s.Algorithm == GPT2 {
			return specError("pre-tokenizer %q is not for bytes", s.Pre)
		}
		if len(s.Merges) > math.MaxInt32/2 {
			return specError("%d merges", len(s.Merges))
		}
		for i, m := range s.Merges {
			if left, right := splitMerge(m); left == "" || right == "" {
				return specError("merge %d is %q: no two parts", i, m)
			}
		}
	default:
		return specError("unknown model %q", s.Algorithm)
	}
	bytes := map[byte]bool{}
	for id, text := range s.Tokens {
		if b, ok := byteToken(text); ok && s.typeOf(id) == Byte {
			bytes[b] = true
		}
		searched := s.Algorithm == Unigram || s.Algorithm == PLaMo2
		switch s.typeOf(id) {
		case Control, Unknown, UserDefined:
			searched = true
		}
		if searched && len(text) > maxSearched {
			return specError("token %d has %d bytes: more than %d", id, len(text), maxSearched)
		}
	}
	if s.Algorithm == PLaMo2 && len(bytes) < 256 {
		return specError("%d bytes have a token, not 256", len(bytes))
	}
	if len(s.Normalize) > maxParts || len(s.Steps) > maxParts {
		return specError("%d normalizers and %d steps: more than %d", len(s.Normalize), len(s.Steps), maxParts)
	}
	growth := 1.0
	for _, n := range s.Normalize {
		kind, ok := normalizers[n.Kind]
		if !ok {
			return specError("unknown normalizer %q", n.Kind)
		}
		if _, err := kind.make(n); err != nil {
			return fmt.Errorf("normalizer %s: %w", n.Kind, err)
		}
		if growth *= kind.growth(n); growth > maxGrowth {
			return specError("normalizer %s: with those before it, a text can get more than %d times as long", n.Kind, maxGrowth)
		}
	}
	if _, err := newStages(s.Steps); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		ids  []int32
	}{
		{"BOS", []int32{s.BOS}}, {"EOS", []int32{s.EOS}}, {"UNK", []int32{s.UNK}}, {"PAD", []int32{s.PAD}},
		{"stop", s.Stop}, {"strip", s.StripLeft}, {"strip", s.StripRight},
		{"single word", s.SingleWord}, {"normalized", s.Normalized}, {"apart", s.Apart},
	} {
		for _, id := range f.ids {
			if id < None || int(id) >= n {
				return specError("%s token %d of %d", f.name, id, n)
			}
		}
	}
	if s.AddBOS && s.BOS == None {
		return specError("a start token is to be added, but none is named")
	}
	if s.AddEOS && s.EOS == None {
		return specError("an end token is to be added, but none is named")
	}
	return nil
}

// splitMerge splits "left right" at its first space; the left part may be a space.
func splitMerge(m string) (left, right string) {
	if len(m) < 3 {
		return "", ""
	}
	i := strings.IndexByte(m[1:], ' ') + 1
	if i == 0 {
		return "", ""
	}
	return m[:i], m[i+1:]
}

// typeOf returns the type of a token as in the file.
func (s *Spec) typeOf(id int) Type {
	if s.Types == nil {
		return Normal
	}
	return s.Types[id]
}

// text returns the text of a token, nothing for [None].
func (s *Spec) text(id int32) string {
	if id == None {
		return ""
	}
	return s.Tokens[id]
}

// spaced reports whether encoding puts a space before text.
func (s *Spec) spaced() bool {
	return s.Prefix != NoPrefix || s.Algorithm == WordPiece ||
		slices.ContainsFunc(s.Normalize, func(n Normalizer) bool { return n.Kind == kindGGMLUnigram && n.New != "" })
}

// sum returns SHA-256 over a canonical form: every field in the order of the struct, each list and
// string after its length.
func (s *Spec) sum() [32]byte {
	w := canonical{Hash: sha256.New()}
	w.text("smelt tokenizer 2")
	w.text(string(s.Algorithm))
	w.text(s.Pre)
	w.texts(s.Tokens)
	w.number(len(s.Scores))
	for _, v := range s.Scores {
		w.word(math.Float32bits(v))
	}
	w.number(len(s.Types))
	for _, v := range s.Types {
		w.word(uint32(v))
	}
	w.texts(s.Merges)
	w.ids([]int32{s.BOS, s.EOS, s.UNK, s.PAD})
	w.ids(s.Stop)
	w.flags(s.AddBOS, s.AddEOS, s.ByteFallback, s.FuseUNK, s.IgnoreMerges, s.LeftmostSpecial)
	w.number(s.MaxWord)
	w.text(s.Continuing)
	w.number(len(s.Normalize))
	for _, n := range s.Normalize {
		w.texts([]string{n.Kind, n.Old, n.New})
	}
	w.number(len(s.Steps))
	for _, x := range s.Steps {
		w.texts([]string{x.Kind, x.Pattern, x.Behavior})
		w.flags(x.Invert, x.Alphabet)
	}
	w.word(uint32(s.Prefix))
	w.ids(s.SingleWord)
	w.ids(s.Apart)
	w.ids(s.Normalized)
	w.ids(s.StripLeft)
	w.ids(s.StripRight)
	w.flush()
	return [32]byte(w.Sum(nil))
}

// canonical buffers the input of the hash, since a write per word would dominate the time.
type canonical struct {
	hash.Hash
	buf []byte
}

func (w *canonical) flush() {
	w.Write(w.buf)
	w.buf = w.buf[:0]
}

func (w *canonical) word(v uint32) {
	w.buf = binary.LittleEndian.AppendUint32(w.buf, v)
	if len(w.buf) > 1<<15 {
		w.flush()
	}
}

func (w *canonical) number(n int) {
	w.word(uint32(n))
	w.word(uint32(uint64(n) >> 32))
}

func (w *canonical) text(s string) {
	w.number(len(s))
	w.buf = append(w.buf, s...)
}

func (w *canonical) flags(list ...bool) {
	for _, flag := range list {
		w.word(map[bool]uint32{true: 1}[flag])
	}
}

func (w *canonical) texts(list []string) {
	w.number(len(list))
	for _, s := range list {
		w.text(s)
	}
}

func (w *canonical) ids(list []int32) {
	w.number(len(list))
	for _, id := range list {
		w.word(uint32(id))
	}
}
