package tokenizer

import (
	"slices"
	"strings"
)

// specials cuts special tokens out of text, with llama.cpp's rules
// (tokenizer_st_partition): the longest token text first, wherever it stands,
// and each from left to right; then the next longest in what is left.
type specials struct {
	order []special         // longest first
	trie  map[uint64]int32  // node << 8 | byte → node
	first [256]int32        // the root's children, 0 where there is none
	ends  map[int32][]int32 // node → indices into order
}

type special struct {
	id                    int32
	text                  string
	control               bool // recognised on request only
	stripLeft, stripRight bool
}

// A fragment is a special token, or text with id None and its place.
type fragment struct {
	text string
	id   int32
	at   int
}

func newSpecials(s *Spec, types []Type) *specials {
	p := &specials{trie: map[uint64]int32{}, ends: map[int32][]int32{}}
	left, right := idSet(s.StripLeft), idSet(s.StripRight)
	for id, text := range s.Tokens {
		if k := types[id]; text != "" && (k == Control || k == Unknown || k == UserDefined) {
			p.order = append(p.order, special{
				id: int32(id), text: text, control: k != UserDefined,
				stripLeft: left[int32(id)], stripRight: right[int32(id)],
			})
		}
	}
	slices.SortStableFunc(p.order, func(a, b special) int { return len(b.text) - len(a.text) })
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

// child is the node after node, or 0: the root is nobody's child.
func (p *specials) child(node int32, b byte) int32 {
	if node == 0 {
		return p.first[b]
	}
	return p.trie[edge(node, b)]
}

// present lists the special tokens whose text occurs, longest first. Searching
// for these only keeps the cost off vocabularies with thousands of them.
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

// split cuts text into fragments; no text fragment is empty. Nothing that a quoted byte
// takes part in is a control token.
func (p *specials) split(text string, control bool, quoted []Range) []fragment {
	if text == "" {
		return nil
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

// touches reports whether a range has a byte in one of a list of ranges.
func touches(list []Range, from, to int) bool {
	i, _ := slices.BinarySearchFunc(list, from, func(r Range, from int) int {
		if r.To <= from {
			return -1
		}
		return 1
	})
	return i < len(list) && list[i].From < to
}

const asciiSpace = " \t\n\v\f\r"
