package tokenizer

import (
	"math"
	"strconv"
	"strings"
)

// tables are what encoding looks things up in. They are built when a text is
// first encoded: decoding and planning need none of them.
type tables struct {
	ids     map[string]int32 // of what text can become, by text; the first of equal texts
	bytes   [256]int32       // the token of a single byte, None where there is none
	pairs   map[uint64]merge // by left id << 32 | right id; GPT2 and BPE
	extra   []string         // texts that only merges name: extra[i] has id len(Tokens)+i
	ranks   []uint32         // of each token by its score, best first; Llama
	unigram *unigram         // Unigram
	widest  int              // bytes of the longest text in ids

	// No text that can be merged has a Space after another character, so a
	// SentencePiece text may be cut before each word: nothing joins across.
	wordwise bool
}

type merge struct {
	rank uint32
	id   int32
}

func newTables(s *Spec, types []Type) *tables {
	t := &tables{ids: make(map[string]int32, len(s.Tokens)), wordwise: true}
	for b := range t.bytes {
		t.bytes[b] = None
	}
	apart := idSet(s.Apart)
	for id, text := range s.Tokens {
		if b, ok := byteToken(text); ok && s.Algorithm != GPT2 {
			t.bytes[b] = int32(id)
		}
		if k := types[id]; text == "" || k == Control || k == Unknown || k == Byte || apart[int32(id)] {
			continue
		}
		if _, ok := t.ids[text]; !ok {
			t.ids[text] = int32(id)
			t.widest = max(t.widest, len(text))
		}
	}
	if s.Algorithm == GPT2 {
		for b := range t.bytes {
			t.bytes[b] = t.lookup(byteText[b])
		}
	}
	switch s.Algorithm {
	case Llama:
		t.rankScores(s)
	case GPT2, BPE:
		t.readMerges(s)
	case Unigram:
		t.unigram = newUnigram(s, types)
	}
	return t
}

func (t *tables) lookup(text string) int32 {
	if id, ok := t.ids[text]; ok {
		return id
	}
	return None
}

// rankScores turns scores into ranks that order as unsigned integers: the bits
// of a float order like its value once the negative ones are flipped.
func (t *tables) rankScores(s *Spec) {
	t.ranks = make([]uint32, len(s.Scores))
	for id, score := range s.Scores {
		bits := math.Float32bits(score)
		if score == 0 {
			bits = 0 // of -0 too
		}
		if bits>>31 == 0 {
			bits ^= math.MaxUint32 >> 1
		}
		t.ranks[id] = bits
	}
	for text := range t.ids {
		t.wordwise = t.wordwise && wordStarts(text)
	}
}

// readMerges resolves the merges to ids. A part or a result that is no token
// still takes part, as in llama.cpp: it gets an id past the vocabulary's.
func (t *tables) readMerges(s *Spec) {
	t.pairs = make(map[uint64]merge, len(s.Merges))
	extra := map[string]int32{}
	var text []byte
	intern := func(part string) int32 {
		if id, ok := t.ids[part]; ok {
			return id
		}
		id, ok := extra[part]
		if !ok {
			part = strings.Clone(part) // result texts lie in a buffer
			id = int32(len(s.Tokens) + len(t.extra))
			extra[part] = id
			t.extra = append(t.extra, part)
		}
		return id
	}
	for rank, m := range s.Merges {
		left, right := splitMerge(m)
		text = append(append(text[:0], left...), right...)
		key := pair(intern(left), intern(right))
		if _, ok := t.pairs[key]; ok {
			continue
		}
		id, ok := t.ids[string(text)]
		if !ok {
			id = intern(string(text))
		}
		t.pairs[key] = merge{uint32(rank), id}
		t.wordwise = t.wordwise && (s.Algorithm != BPE || wordStarts(string(text)))
	}
	// A byte that is no token may still begin a merge.
	if s.Algorithm == GPT2 {
		for b := range t.bytes {
			if id, ok := extra[byteText[b]]; ok {
				t.bytes[b] = id
			}
		}
	}
}

func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// byteToken reads "<0xNN>".
func byteToken(text string) (byte, bool) {
	if len(text) != 6 || text[:3] != "<0x" || text[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(text[3:5], 16, 8)
	return byte(b), err == nil
}

// wordStarts reports whether a Space comes only before other characters.
func wordStarts(text string) bool {
	return !strings.Contains(strings.TrimLeft(text, Space), Space)
}
