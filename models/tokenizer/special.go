package tokenizer

import (
	"container/heap"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// specials finds special tokens in text by llama.cpp's rules (tokenizer_st_partition): the longest
// token text first, wherever it is, from left to right; then the next longest in the rest. With
// Spec.LeftmostSpecial it goes by Hugging Face's.
type specials struct {
	leftmost        bool
	order           []special // longest first
	raw, normalized pieces    // indices into order by text: of the raw text, and of the normalized one
}

type special struct {
	id                    int32
	text                  string
	control               bool // found on request only
	stripLeft, stripRight bool
	singleWord            bool
	next                  int32 // in order: what else the text is or begins with, the longest first; None
}

// A fragment is a special token, or a text with id None.
type fragment struct {
	text string
	id   int32
	at   int
}

func newSpecials(t *Tokenizer) *specials {
	s, types := &t.spec, t.types
	p := &specials{leftmost: s.LeftmostSpecial, raw: newPieces(), normalized: newPieces()}
	left, right, single, normalized := idSet(s.StripLeft), idSet(s.StripRight), idSet(s.SingleWord), idSet(s.Normalized)
	for id, text := range s.Tokens {
		if k := types[id]; text != "" && (k == Control || k == Unknown || k == UserDefined) {
			p.order = append(p.order, special{
				id: int32(id), text: text, control: k != UserDefined, next: None,
				stripLeft: left[int32(id)], stripRight: right[int32(id)], singleWord: single[int32(id)],
			})
		}
	}
	slices.SortStableFunc(p.order, func(a, b special) int { return len(b.text) - len(a.text) })
	for i, sp := range p.order {
		// Quotes are ranges of the raw text, so control tokens are searched there even if the
		// file marks them as normalized.
		if !p.leftmost || sp.control || !normalized[sp.id] {
			p.raw.add(0, sp.text, int32(i))
		} else if text := t.normalized(sp.text, true); text != "" && len(text) <= maxSearched {
			p.normalized.add(0, text, int32(i))
		}
	}
	p.raw.freeze()
	p.normalized.freeze()
	if !p.leftmost {
		p.chain()
	}
	return p
}

// chain sets what each special token begins with. Of equal texts the trie has the last; it gets the
// first instead.
func (p *specials) chain() {
	for i := len(p.order) - 1; i >= 0; i-- {
		node := int32(0)
		sp := &p.order[i]
		for j := range len(sp.text) {
			if k := p.raw.ids[node]; k != None {
				sp.next = k
			}
			node = p.raw.child(node, sp.text[j])
		}
		if k := p.raw.ids[node]; int(k) != i {
			sp.next = k
		}
		p.raw.ids[node] = int32(i)
	}
}

func idSet(ids []int32) map[int32]bool {
	set := make(map[int32]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// split splits text into fragments, of which no text is empty. A control token is not found where a
// byte of it is quoted.
func (p *specials) split(text string, control bool, quoted []Range) []fragment {
	if text == "" {
		return nil
	}
	if p.leftmost {
		return p.splitLeftmost(&p.raw, text, control, quoted)
	}
	// Of the tokens at a place only the longest one waits; the next takes its turn where that one
	// overlaps what was found before.
	var queue queue
	offer := func(k int32, at int) {
		for ; k != None; k = p.order[k].next {
			if sp := &p.order[k]; !sp.control || control && !touches(quoted, at, at+len(sp.text)) {
				heap.Push(&queue, uint64(k)<<32|uint64(at))
				return
			}
		}
	}
	for at := range len(text) {
		longest := None
		p.raw.walk(text[at:], func(_ int, k int32) { longest = k })
		offer(longest, at)
	}
	if len(queue) == 0 {
		return []fragment{{text, None, 0}}
	}
	taken := make([]bool, len(text))
	var found []fragment // their texts are what they absorb
	for len(queue) > 0 {
		key := heap.Pop(&queue).(uint64)
		sp, at := &p.order[key>>32], int(uint32(key))
		// What was taken before is no shorter, so that it has the first or the last byte if any.
		from, to := at, at+len(sp.text)
		switch {
		case taken[from]:
			continue
		case taken[to-1]:
			offer(sp.next, at)
			continue
		}
		for sp.stripLeft && from > 0 && !taken[from-1] && strings.IndexByte(asciiSpace, text[from-1]) >= 0 {
			from--
		}
		for sp.stripRight && to < len(text) && !taken[to] && strings.IndexByte(asciiSpace, text[to]) >= 0 {
			to++
		}
		for i := from; i < to; i++ {
			taken[i] = true
		}
		found = append(found, fragment{text[from:to], sp.id, from})
	}
	slices.SortFunc(found, func(a, b fragment) int { return a.at - b.at })
	var list []fragment
	last := 0
	for _, f := range found {
		if f.at > last {
			list = append(list, fragment{text[last:f.at], None, last})
		}
		list = append(list, fragment{id: f.id})
		last = f.at + len(f.text)
	}
	if last < len(text) {
		list = append(list, fragment{text[last:], None, last})
	}
	return list
}

// queue is a heap of special tokens and their places in a text: the first in order, then leftmost.
type queue []uint64

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i] < q[j] }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(uint64)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// touches reports whether a range overlaps one of a sorted list.
func touches(list []Range, from, to int) bool {
	i, _ := slices.BinarySearchFunc(list, from, func(r Range, from int) int {
		if r.To <= from {
			return -1
		}
		return 1
	})
	return i < len(list) && list[i].From < to
}

// splitLeftmost splits text at the special tokens of a tree, from the left, the longest at each
// place first (AddedVocabulary::find_matches of Hugging Face).
func (p *specials) splitLeftmost(tree *pieces, text string, control bool, quoted []Range) []fragment {
	var list []fragment
	last := 0
	for at := 0; at < len(text); {
		n, found := 0, int32(0)
		tree.walk(text[at:], func(length int, i int32) {
			if !p.order[i].control || control && !touches(quoted, at, at+length) {
				n, found = length, i
			}
		})
		if n == 0 {
			at++
			continue
		}
		sp, start, end := &p.order[found], at, at+n
		at = end
		if sp.singleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if sp.stripLeft {
			start = last + len(strings.TrimRightFunc(text[last:start], unicode.IsSpace))
		}
		if sp.stripRight {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
			at = end
		}
		if start > last {
			list = append(list, fragment{text[last:start], None, last})
		}
		list = append(list, fragment{id: sp.id})
		last = end
	}
	if last < len(text) {
		list = append(list, fragment{text[last:], None, last})
	}
	return list
}

func startsWithWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return isWordRune(r)
}

func endsWithWord(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return isWordRune(r)
}

// isWordRune reports whether a character matches \w in Rust's regular expressions, as in the
// pattern "word".
func isWordRune(r rune) bool {
	return r != utf8.RuneError && (unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic) || r == '\u200c' || r == '\u200d')
}

const asciiSpace = " \t\n\v\f\r"
