package tokenizer

import (
	"slices"
	"strings"
)

// wordPieces splits words by the longest piece at the start, then at the start of the rest, in time
// linear in the word, however long the pieces are (Song et al., 2021, "Fast WordPiece
// Tokenization"). Where a text cannot go on from a node of the trie, the node knows the pieces that
// its own text begins with, and the node of what these leave of it.
type wordPieces struct {
	trie pieces
	rest int32   // the root of the pieces that continue a word
	fail []int32 // node → the node of what its pieces leave; None: its text cannot be spelled
	last []int32 // node → the last of its pieces, an index into list; None: it has none
	list []piece
}

// A piece of a node's text, and the index of the one before it, or None.
type piece struct{ id, before int32 }

// newWordPieces takes the ids by text; mark precedes the texts that continue a word.
func newWordPieces(mark string, ids map[string]int32) *wordPieces {
	w := &wordPieces{trie: newPieces()}
	if mark != "" {
		w.rest = w.trie.node()
	}
	for text, id := range ids {
		w.trie.add(0, text, id)
		if inner, ok := strings.CutPrefix(text, mark); ok && mark != "" && inner != "" {
			w.trie.add(w.rest, inner, id)
		}
	}
	w.trie.freeze()
	w.fail, w.last = make([]int32, len(w.trie.ids)), make([]int32, len(w.trie.ids))
	queue := make([]int32, 0, len(w.trie.ids)) // nodes by the length of their texts
	for _, root := range slices.Compact([]int32{0, w.rest}) {
		w.fail[root], w.last[root] = None, None
		queue = append(queue, root)
	}
	for i := 0; i < len(queue); i++ {
		node := queue[i]
		for at := w.trie.start[node]; at < w.trie.start[node+1]; at++ {
			w.link(node, w.trie.bytes[at], w.trie.to[at])
			queue = append(queue, w.trie.to[at])
		}
	}
	return w
}

// link sets the pieces of a child, and the node of what they leave, when all shorter texts have
// theirs.
func (w *wordPieces) link(node int32, b byte, child int32) {
	if id := w.trie.ids[child]; id != None {
		w.last[child], w.fail[child] = w.push(id, None), w.rest
		return
	}
	last, rest := w.last[node], w.fail[node]
	for rest != None && w.trie.child(rest, b) == 0 {
		for _, id := range w.append(nil, rest) {
			last = w.push(id, last)
		}
		rest = w.fail[rest]
	}
	w.last[child], w.fail[child] = last, None
	if rest != None {
		w.fail[child] = w.trie.child(rest, b)
	}
}

func (w *wordPieces) push(id, before int32) int32 {
	w.list = append(w.list, piece{id, before})
	return int32(len(w.list) - 1)
}

// append appends the pieces of a node.
func (w *wordPieces) append(ids []int32, node int32) []int32 {
	first := len(ids)
	for at := w.last[node]; at != None; at = w.list[at].before {
		ids = append(ids, w.list[at].id)
	}
	slices.Reverse(ids[first:])
	return ids
}

// split appends the pieces of a word, which is not empty; ok is false if it cannot be spelled.
func (w *wordPieces) split(ids []int32, word string) (_ []int32, ok bool) {
	node := int32(0)
	for i := 0; i < len(word); {
		if next := w.trie.child(node, word[i]); next != 0 {
			node = next
			i++
			continue
		}
		if w.fail[node] == None {
			return ids, false
		}
		ids, node = w.append(ids, node), w.fail[node]
	}
	for node != w.rest {
		if w.fail[node] == None {
			return ids, false
		}
		ids, node = w.append(ids, node), w.fail[node]
	}
	return ids, true
}
