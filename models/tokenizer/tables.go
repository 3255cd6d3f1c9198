package tokenizer

import (
	"math"
	"strconv"
	"strings"
)

// tables are the indices that encoding needs. They are built when a text is first encoded, since
// decoding and planning need none of them.
type tables struct {
	ids        map[string]int32 // of tokens that text can become; the first of equal texts
	bytes      [256]int32       // token of a single byte, or None
	pairs      map[uint64]merge // by left id << 32 | right id; GPT2 and BPE
	extra      []string         // texts that only occur in merges: extra[i] has id len(Tokens)+i
	ranks      []uint32         // of each token by its score, best first; Llama
	unigram    *unigram         // Unigram and PLaMo2
	wordPieces *wordPieces      // WordPiece
	widest     int              // bytes of the longest text in ids

	// wordwise marks vocabularies without a token that has a Space after another character: no
	// merge spans words, so that a text is encoded word by word.
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
		k := types[id]
		if b, ok := byteToken(text); ok && s.Algorithm != GPT2 && k != Control {
			t.bytes[b] = int32(id)
		}
		if text == "" || k == Control || k == Unknown || k == Byte || apart[int32(id)] {
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
	case Unigram, PLaMo2:
		t.unigram = newUnigram(s, types)
	case WordPiece:
		t.wordPieces = newWordPieces(s.Continuing, t.ids)
	}
	return t
}

func (t *tables) lookup(text string) int32 {
	if id, ok := t.ids[text]; ok {
		return id
	}
	return None
}

// rankScores maps scores to ranks that order as unsigned integers: the bits of a float order like
// its value once negative ones are flipped.
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

// readMerges resolves merges to ids. As in llama.cpp, a part or a result without a token still
// merges: it gets an id beyond the vocabulary's.
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
			part = strings.Clone(part) // result texts share a buffer
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
	// A byte without a token may still begin a merge.
	if s.Algorithm == GPT2 {
		for b := range t.bytes {
			if id, ok := extra[byteText[b]]; ok {
				t.bytes[b] = id
			}
		}
	}
}

func pair(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// byteToken parses "<0xNN>".
func byteToken(text string) (byte, bool) {
	if len(text) != 6 || text[:3] != "<0x" || text[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(text[3:5], 16, 8)
	return byte(b), err == nil
}

// wordStarts reports whether Space occurs only before other characters.
func wordStarts(text string) bool {
	return !strings.Contains(strings.TrimLeft(text, Space), Space)
}
