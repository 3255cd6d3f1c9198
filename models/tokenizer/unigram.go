package tokenizer

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// unigram splits a word into the pieces whose scores, logarithms of probabilities, have the largest
// sum (Kudo, 2018; SentencePiece's unigram_model.cc). Of equal sums the one wins whose last piece
// begins first.
type unigram struct {
	trie    pieces
	scores  []float64
	unknown float64 // score of a character without a piece
}

// unknownPLaMo is the score of a character of PLaMo's vocabularies without a piece.
const unknownPLaMo = -1000

// unknownPenalty is the difference between the worst piece's score and an unknown character's.
const unknownPenalty = 10

func newUnigram(s *Spec, types []Type) *unigram {
	u := &unigram{trie: newPieces(), scores: make([]float64, len(s.Tokens))}
	least, apart := math.MaxFloat32, idSet(s.Apart)
	for id, text := range s.Tokens {
		k := types[id]
		if k == Normal {
			least = min(least, float64(s.Scores[id]))
			u.scores[id] = float64(s.Scores[id])
		}
		// User-defined texts have no probability: a score of 0 exceeds all logarithms.
		if text != "" && !apart[int32(id)] && (k == Normal || k == UserDefined || k == Unused) {
			if k == Unused {
				u.scores[id] = float64(s.Scores[id])
			}
			u.trie.add(0, text, int32(id))
		}
	}
	u.trie.freeze()
	u.unknown = float64(float32(least) - unknownPenalty)
	if s.Algorithm == PLaMo2 { // whose sums are exact
		for i, score := range u.scores {
			u.scores[i] = math.Round(score * 1e4)
		}
		u.unknown = unknownPLaMo * 1e4
	}
	return u
}

// A path is the best split up to a place in a word: its score, its last piece, and the start of
// that.
type path struct {
	score     float64
	id, start int32
}

// unigramWord encodes one word. A run of unknown characters becomes one unknown piece.
func (e *encoder) unigramWord(word string) {
	u := e.tables.unigram
	unk := e.t.unk
	e.paths = append(e.paths[:0], path{})
	for range len(word) {
		e.paths = append(e.paths, path{score: math.Inf(-1)})
	}
	offer := func(start, end int, id int32, score float64) {
		if sum := e.paths[start].score + score; sum > e.paths[end].score {
			e.paths[end] = path{sum, id, int32(start)}
		}
	}
	for start := 0; start < len(word); {
		_, size := utf8.DecodeRuneInString(word[start:])
		whole := false
		u.trie.walk(word[start:], func(n int, id int32) {
			whole = whole || n == size
			offer(start, start+n, id, u.scores[id])
		})
		if !whole {
			offer(start, start+size, None, u.unknown)
		}
		start += size
	}
	first := len(e.ids)
	for end, after := len(word), 0; end > 0; {
		p := e.paths[end]
		switch {
		case p.id != None && p.id != unk:
			e.ids = append(e.ids, p.id)
			after = 0
		case after == 0:
			after = end
		}
		start := int(p.start)
		if after > 0 && (start == 0 || e.paths[start].id != None && e.paths[start].id != unk) {
			e.unknownBackwards(word[start:after])
		}
		end = start
	}
	slices.Reverse(e.ids[first:])
}

// plamoWord encodes a text by PLaMo's pieces, whose rounded scores have the largest sum, and its other
// characters by their bytes (llama.cpp's llm_tokenizer_plamo2). Of equal sums the one wins whose first
// piece is longest. A byte order mark is dropped.
func (e *encoder) plamoWord(text string) {
	text = strings.TrimPrefix(string([]rune(text)), "\ufeff") // bytes that are no characters become U+FFFD
	u := e.tables.unigram
	e.paths = e.paths[:0] // of the rest of the text: its first piece, and where that ends
	for range len(text) {
		e.paths = append(e.paths, path{score: math.Inf(-1)})
	}
	e.paths = append(e.paths, path{})
	for at := len(text); at > 0; {
		_, size := utf8.DecodeLastRuneInString(text[:at])
		at -= size
		best := &e.paths[at]
		u.trie.walk(text[at:], func(n int, id int32) {
			if sum := e.paths[at+n].score + u.scores[id]; sum >= best.score {
				*best = path{sum, id, int32(at + n)}
			}
		})
		if sum := e.paths[at+size].score + u.unknown; sum > best.score {
			*best = path{sum, None, int32(at + size)}
		}
	}
	for at := 0; at < len(text); {
		p := e.paths[at]
		if p.id != None {
			e.ids = append(e.ids, p.id)
		} else {
			for i := at; i < int(p.start); i++ {
				e.ids = append(e.ids, e.bytes[text[i]])
			}
		}
		at = int(p.start)
	}
}

// unknownBackwards appends the byte tokens of a text, last first, or UNK if some byte has none.
func (e *encoder) unknownBackwards(text string) {
	first := len(e.ids)
	if e.t.spec.ByteFallback {
		for i := len(text) - 1; i >= 0; i-- {
			id := e.bytes[text[i]]
			if id == None {
				e.ids = e.ids[:first]
				break
			}
			e.ids = append(e.ids, id)
		}
	}
	if unk := e.t.unk; len(e.ids) == first && unk != None {
		e.ids = append(e.ids, unk)
	}
}
