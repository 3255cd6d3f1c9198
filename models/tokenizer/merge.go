package tokenizer

import "slices"

// A symbol is a part of a word that currently is one token. The symbols of a word form a list in
// text order; a symbol merged into its left neighbour leaves the list and has no length.
type symbol struct {
	id         int32 // None where no token has this text
	start, end int32 // bytes of the word
	prev, next int32 // neighbours, -1 at the ends
}

// A join is a pair of neighbours that may merge into one token.
type join struct {
	order      uint64 // rank, then position: the least comes first
	right, end int32  // the right symbol, and where it ended when the pair was found
	id         int32
}

// A rule returns the token that two neighbours merge into and its rank (0 merges first).
type rule func(word string, left, right *symbol) (rank uint32, id int32, ok bool)

// merger merges the symbols of one word after another, reusing its memory. It takes n log n for n
// symbols: each join removes one symbol and queues at most two pairs.
type merger struct {
	symbols []symbol
	queue   []join // binary heap
}

// add appends a symbol to the word.
func (m *merger) add(id int32, start, end int) {
	i := int32(len(m.symbols))
	if i > 0 {
		m.symbols[i-1].next = i
	}
	m.symbols = append(m.symbols, symbol{id, int32(start), int32(end), i - 1, -1})
}

// expect makes room for that many symbols and pairs, which append would move several times.
func (m *merger) expect(n int) {
	m.symbols, m.queue = slices.Grow(m.symbols, n), slices.Grow(m.queue, n)
}

// run merges neighbours until no rule applies and calls yield for each symbol left.
func (m *merger) run(word string, rule rule, yield func(symbol)) {
	m.queue = m.queue[:0]
	for i := 1; i < len(m.symbols); i++ {
		if j, ok := m.find(word, rule, int32(i-1), int32(i)); ok {
			m.queue = append(m.queue, j)
		}
	}
	for i := len(m.queue)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	for len(m.queue) > 0 {
		j := m.pop()
		l := int32(uint32(j.order))
		left, right := &m.symbols[l], &m.symbols[j.right]
		// A pair is stale if either symbol has gone or the right one has grown; a left one that
		// grew has absorbed the right one.
		if left.start == left.end || right.start == right.end || right.end != j.end {
			continue
		}
		left.id, left.end, left.next = j.id, right.end, right.next
		right.end = right.start
		if right.next >= 0 {
			m.symbols[right.next].prev = l
		}
		m.offer(word, rule, left.prev, l)
		m.offer(word, rule, l, left.next)
	}
	for i := int32(0); i >= 0 && len(m.symbols) > 0; i = m.symbols[i].next {
		yield(m.symbols[i])
	}
	m.symbols = m.symbols[:0]
}

func (m *merger) find(word string, rule rule, l, r int32) (join, bool) {
	left, right := &m.symbols[l], &m.symbols[r]
	rank, id, ok := rule(word, left, right)
	return join{uint64(rank)<<32 | uint64(uint32(l)), r, right.end, id}, ok
}

func (m *merger) offer(word string, rule rule, l, r int32) {
	if l < 0 || r < 0 {
		return
	}
	j, ok := m.find(word, rule, l, r)
	if !ok {
		return
	}
	m.queue = append(m.queue, j)
	for i := len(m.queue) - 1; i > 0; {
		up := (i - 1) / 2
		if m.queue[up].order <= m.queue[i].order {
			break
		}
		m.queue[up], m.queue[i] = m.queue[i], m.queue[up]
		i = up
	}
}

func (m *merger) pop() join {
	top, last := m.queue[0], len(m.queue)-1
	m.queue[0] = m.queue[last]
	m.queue = m.queue[:last]
	m.sink(0)
	return top
}

func (m *merger) sink(i int) {
	for {
		down := 2*i + 1
		if down >= len(m.queue) {
			return
		}
		if down+1 < len(m.queue) && m.queue[down+1].order < m.queue[down].order {
			down++
		}
		if m.queue[i].order <= m.queue[down].order {
			return
		}
		m.queue[i], m.queue[down] = m.queue[down], m.queue[i]
		i = down
	}
}
