package tokenizer

import "slices"

// pieces is a trie of texts by their bytes. Node 0 is its root.
type pieces struct {
	ids   []int32          // of the text that ends at a node, or None
	next  map[uint64]int32 // edge → node, until freeze
	first [256]int32       // the root's edges, which are followed most
	// The edges of node i are [start[i], start[i+1]), sorted by byte.
	start []int32
	bytes []byte
	to    []int32
}

func newPieces() pieces { return pieces{next: map[uint64]int32{}, ids: []int32{None}} }

// node adds a node without an edge to it.
func (p *pieces) node() int32 {
	p.ids = append(p.ids, None)
	return int32(len(p.ids) - 1)
}

// add adds a text below a node.
func (p *pieces) add(node int32, text string, id int32) {
	for i := range len(text) {
		at := edge(node, text[i])
		next := p.next[at]
		if next == 0 {
			next = p.node()
			p.next[at] = next
		}
		node = next
	}
	p.ids[node] = id
}

// freeze ends adding and permits searching.
func (p *pieces) freeze() {
	edges := make([]uint64, 0, len(p.next))
	for at := range p.next {
		edges = append(edges, at)
	}
	slices.Sort(edges)
	p.start, p.bytes, p.to = make([]int32, len(p.ids)+1), make([]byte, len(edges)), make([]int32, len(edges))
	for i, at := range edges {
		p.start[at>>8+1] = int32(i + 1)
		p.bytes[i], p.to[i] = byte(at), p.next[at]
		if at>>8 == 0 {
			p.first[byte(at)] = p.to[i]
		}
	}
	for i := range p.ids { // nodes without edges
		p.start[i+1] = max(p.start[i+1], p.start[i])
	}
	p.next = nil
}

func edge(node int32, b byte) uint64 { return uint64(node)<<8 | uint64(b) }

// child returns the node behind an edge, or 0, since none leads to the root.
func (p *pieces) child(node int32, b byte) int32 {
	if node == 0 {
		return p.first[b]
	}
	low, high := p.start[node], p.start[node+1]
	for high-low > 8 {
		if middle := (low + high) / 2; p.bytes[middle] <= b {
			low = middle
		} else {
			high = middle
		}
	}
	for ; low < high; low++ {
		if p.bytes[low] == b {
			return p.to[low]
		}
	}
	return 0
}

// walk calls yield with the length and the id of every prefix of text in the trie, the shortest
// first.
func (p *pieces) walk(text string, yield func(n int, id int32)) {
	node := int32(0)
	for i := range len(text) {
		if node = p.child(node, text[i]); node == 0 {
			return
		}
		if id := p.ids[node]; id != None {
			yield(i+1, id)
		}
	}
}
