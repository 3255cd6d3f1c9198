package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/smelt-ml/smelt/models/mapped"
)

// Tokenizer encodes and decodes text by one vocabulary.
type Tokenizer struct {
	spec      Spec
	types     []Type // by id, with the corrections of endings
	stop      []int32
	unk       int32 // what text becomes that the vocabulary cannot spell: UNK, or None
	pre       pretokenizer
	normalize []func(string) string
	stages    []stage
	tables    func() *tables
	specials  func() *specials
	hash      func() [32]byte
	longest   func() int
}

// New returns a tokenizer of a valid vocabulary. It keeps the lists of s, which must not change
// afterwards. Errors wrap [ErrSpec].
func New(s Spec) (*Tokenizer, error) {
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	t := &Tokenizer{spec: s}
	t.types, t.stop = endings(&s)
	t.unk = unknown(&s, t.types, t.stop)
	t.pre = pretokenizers[s.Pre]
	for _, n := range s.Normalize {
		normalize, _ := normalizers[n.Kind].make(n) // validate has built it and the steps without error
		t.normalize = append(t.normalize, normalize)
	}
	t.stages, _ = newStages(s.Steps)
	t.tables = sync.OnceValue(func() *tables { return newTables(&t.spec, t.types) })
	t.specials = sync.OnceValue(func() *specials { return newSpecials(t) })
	t.hash = sync.OnceValue(t.spec.sum)
	t.longest = sync.OnceValue(t.newLongest)
	return t, nil
}

// FromGGUF returns the tokenizer of a GGUF file; see [SpecFromGGUF].
func FromGGUF(file Metadata) (*Tokenizer, error) {
	s, err := SpecFromGGUF(file)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return New(s)
}

// maxFile bounds the bytes of a tokenizer.json. Vocabularies of 262,144 tokens have 33 MB.
const maxFile = 128 << 20

// FromHF returns the tokenizer of a Hugging Face folder, from tokenizer.json and, if they exist,
// tokenizer_config.json and generation_config.json.
func FromHF(dir string) (*Tokenizer, error) {
	var data [3][]byte
	for i, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		b, err := mapped.ReadFile(filepath.Join(dir, name), maxFile)
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		data[i] = b
	}
	s, err := ParseHF(data[0], data[1])
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", dir, err)
	}
	if err := s.addGenerationConfig(data[2]); err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", dir, err)
	}
	return New(s)
}

// Spec returns the vocabulary; its lists must not be changed.
func (t *Tokenizer) Spec() Spec { return t.spec }

// Len returns the number of tokens. A model's logits may be longer (padded).
func (t *Tokenizer) Len() int { return len(t.spec.Tokens) }

// BOS returns the token that prompts start with; ok is false if they start with none.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.spec.BOS, t.spec.AddBOS }

// Opening returns the tokens that every prompt starts with: the start token, or none.
func (t *Tokenizer) Opening() []int32 {
	if !t.spec.AddBOS {
		return nil
	}
	return []int32{t.spec.BOS}
}

// Open returns ids with [Tokenizer.Opening] before them, unless they begin with it already.
func (t *Tokenizer) Open(ids []int32) []int32 {
	opening := t.Opening()
	if len(opening) == 0 || len(ids) > 0 && ids[0] == opening[0] {
		return ids
	}
	return append(opening, ids...)
}

// EOS returns the end token, or [None]. Other tokens may end a generation, too: [Tokenizer.IsStop].
func (t *Tokenizer) EOS() int32 { return t.spec.EOS }

// Texts returns the bytes that each token adds to a text, by id; nil for tokens without text.
func (t *Tokenizer) Texts() [][]byte {
	texts := make([][]byte, t.Len())
	for id := range texts {
		switch t.Type(int32(id)) {
		case Normal, UserDefined, Byte:
			texts[id] = t.Piece(int32(id))
		}
	}
	return texts
}

// StopIDs returns the tokens that end a generation, ascending.
func (t *Tokenizer) StopIDs() []int32 { return slices.Clone(t.stop) }

// IsStop reports whether a token ends a generation.
func (t *Tokenizer) IsStop(id int32) bool {
	_, ok := slices.BinarySearch(t.stop, id)
	return ok
}

// Type returns the role of a token, [Undefined] outside the vocabulary. As in llama.cpp, a token
// with a well-known control text, such as <|im_end|>, is [Control] even if the file has another
// type.
func (t *Tokenizer) Type(id int32) Type {
	if id < 0 || int(id) >= len(t.types) {
		return Undefined
	}
	return t.types[id]
}

// Hash returns SHA-256 over a canonical form of the [Spec]. Tokenizers with equal hashes return
// equal ids.
func (t *Tokenizer) Hash() [32]byte { return t.hash() }
