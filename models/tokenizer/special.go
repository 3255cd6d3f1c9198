package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// specials finds special tokens in text by llama.cpp's rules (tokenizer_st_partition): the longest
// token text first, wherever it is, from left to right; then the next longest in the rest.
type specials struct {
	order []special         // longest first
	trie  map[uint64]int32  // node << 8 | byte → node
	first [256]int32        // the root's children; 0: none
	ends  map[int32][]int32 // node → indices into order

	// With Spec.LeftmostSpecial only these are used: indices into order by text.
	leftmost        bool
	raw, normalized pieces
}

type special struct {
	id                    int32
	text                  string
	control               bool // found on request only
	stripLeft, stripRight bool
	singleWord            bool
}

// A fragment is a special token, or a text with id None.
type fragment struct {
	text string
	id   int32
	at   int
}

func newSpecials(t *Tokenizer) *specials {
	s, types := &t.spec, t.types
	p := &specials{leftmost: s.LeftmostSpecial, trie: map[uint64]int32{}, ends: map[int32][]int32{}}
	left, right, single, normalized := idSet(s.StripLeft), idSet(s.StripRight), idSet(s.SingleWord), idSet(s.Normalized)
	for id, text := range s.Tokens {
		if k := types[id]; text != "" && (k == Control || k == Unknown || k == UserDefined) {
			p.order = append(p.order, special{
				id: int32(id), text: text, control: k != UserDefined,
				stripLeft: left[int32(id)], stripRight: right[int32(id)], singleWord: single[int32(id)],
			})
		}
	}
	slices.SortStableFunc(p.order, func(a, b special) int { return len(b.text) - len(a.text) })
	if p.leftmost {
		for i, sp := range p.order {
			// Quotes are ranges of the raw text, so control tokens are searched there even if the
			// file marks them as normalized.
			if sp.control || !normalized[sp.id] {
				p.raw.add(sp.text, int32(i))
			} else if text := t.normalized(sp.text, true); text != "" {
				p.normalized.add(text, int32(i))
			}
		}
		return p
	}
	nodes := int32(0)
	for i, sp := range p.order {
		node := int32(0)
		for j := range len(sp.text) {
			next := p.child(node, sp.text[j])
			if next == 0 {
				nodes++
				next = nodes
				if node == 0 {
					p.first[sp.text[j]] = next
				} else {
					p.trie[edge(node, sp.text[j])] = next
				}
			}
			node = next
		}
		p.ends[node] = append(p.ends[node], int32(i))
	}
	return p
}

func idSet(ids []int32) map[int32]bool {
	set := make(map[int32]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func edge(node int32, b byte) uint64 { return uint64(node)<<8 | uint64(b) }

// child returns the child of a node, or 0, since the root is never one.
func (p *specials) child(node int32, b byte) int32 {
	if node == 0 {
		return p.first[b]
	}
	return p.trie[edge(node, b)]
}

// present returns the special tokens whose text occurs, longest first. Searching these only bounds
// the cost of vocabularies with thousands of them.
func (p *specials) present(text string, control bool) []int32 {
	found := map[int32]bool{}
	for i := range len(text) {
		for node, j := p.first[text[i]], i+1; node != 0; j++ {
			for _, k := range p.ends[node] {
				if control || !p.order[k].control {
					found[k] = true
				}
			}
			if j == len(text) {
				break
			}
			node = p.child(node, text[j])
		}
	}
	list := make([]int32, 0, len(found))
	for k := range found {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
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
	list := []fragment{{text, None, 0}}
	for _, k := range p.present(text, control) {
		sp := &p.order[k]
		var out []fragment
		for _, f := range list {
			if f.id != None {
				out = append(out, f)
				continue
			}
			rest, place := f.text, f.at
			for from := 0; ; {
				at := strings.Index(rest[from:], sp.text)
				if at < 0 {
					break
				}
				at += from
				if sp.control && touches(quoted, place+at, place+at+len(sp.text)) {
					from = at + 1
					continue
				}
				left, right := rest[:at], rest[at+len(sp.text):]
				if sp.stripLeft {
					left = strings.TrimRight(left, asciiSpace)
				}
				if sp.stripRight {
					right = strings.TrimLeft(right, asciiSpace)
				}
				if left != "" {
					out = append(out, fragment{left, None, place})
				}
				out = append(out, fragment{id: sp.id})
				place += len(rest) - len(right)
				rest, from = right, 0
			}
			if rest != "" {
				out = append(out, fragment{rest, None, place})
			}
		}
		list = out
	}
	return list
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
			start = max(last, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
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
