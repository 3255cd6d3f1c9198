package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Encode gives the ids of a text, without a start token. With special true,
// the texts of control tokens in it become those tokens; user-defined tokens
// always do. What the vocabulary cannot spell becomes UNK, or nothing where
// there is no such token; see the package's laws.
func (t *Tokenizer) Encode(text string, special bool) []int32 {
	return t.EncodeAfter(nil, text, special)
}

// EncodeAfter gives the ids of a text that goes on after others: it gets no space
// prefix where the text of both in one would have none. Together the ids are those of
// that text, unless its words or merges reach across the joint.
func (t *Tokenizer) EncodeAfter(before []int32, text string, special bool) []int32 {
	return t.encode(before, text, special, nil)
}

// Range is a range of bytes, From up to and without To.
type Range struct{ From, To int }

// EncodeQuoted gives the ids of a text in which others are quoted, in ranges that ascend and
// do not overlap. The texts of control tokens become those tokens where no byte of them is
// quoted; else they are text like any other. What stands between two control tokens is
// encoded as a whole, quoted or not.
func (t *Tokenizer) EncodeQuoted(text string, quoted []Range) []int32 {
	return t.encode(nil, text, true, quoted)
}

func (t *Tokenizer) encode(before []int32, text string, special bool, quoted []Range) []int32 {
	e := encoder{t: t, tables: t.tables(), ids: make([]int32, 0, len(text)/3+8)}
	joint := t.joint(before)
	for i, f := range t.specials().split(text, special, quoted) {
		if f.id != None {
			e.ids = append(e.ids, f.id)
			continue
		}
		if i > 0 {
			joint = afterSpecial
		}
		e.text(f.text, joint)
	}
	return e.ids
}

// EncodeWhole gives the ids of a whole text as a model reads it: with the start and the end
// token where it has them. A generation leaves the end token out.
func (t *Tokenizer) EncodeWhole(text string, special bool) []int32 {
	var start []int32
	if t.spec.AddBOS {
		start = append(start, t.spec.BOS)
	}
	ids := append(start, t.EncodeAfter(start, text, special)...)
	if t.spec.AddEOS {
		ids = append(ids, t.spec.EOS)
	}
	return ids
}

// joint is what a text follows, which its space prefix depends on.
type joint uint8

const (
	atStart joint = iota // nothing, or the start token
	afterSpecial
	afterText
)

func (t *Tokenizer) joint(before []int32) joint {
	if len(before) == 0 {
		return atStart
	}
	last := before[len(before)-1]
	switch t.Type(last) {
	case Control, UserDefined:
		if len(before) == 1 && last == t.spec.BOS {
			return atStart
		}
		return afterSpecial
	}
	return afterText
}

// encoder is one call of Encode: its memory, and the ids so far.
type encoder struct {
	t *Tokenizer
	*tables
	merger
	ids     []int32
	scratch []byte
	paths   []path
}

// text encodes what stands between special tokens.
func (e *encoder) text(text string, after joint) {
	s := &e.t.spec
	for _, normalize := range e.t.normalize {
		text = normalize(text)
	}
	if text == "" {
		return
	}
	if after != afterText && (s.Prefix == PrefixAlways ||
		(s.Prefix == PrefixMissing || s.Prefix == PrefixMissingFirst && after == atStart) && text[0] != ' ') {
		text = " " + text
	}
	switch s.Algorithm {
	case GPT2:
		e.t.pre.words(text, e.byteWord)
	case WordPiece:
		e.t.pre.words(text, e.pieceWord)
	case Unigram:
		e.t.pre.words(text, e.unigramWord)
	default:
		e.t.pre.words(strings.ReplaceAll(text, " ", Space), e.cutWords)
	}
}

// cutWords cuts before each run of spaces where nothing joins across, so that
// the queue stays short.
func (e *encoder) cutWords(text string) {
	for e.wordwise {
		lead := len(text) - len(strings.TrimLeft(text, Space))
		i := strings.Index(text[lead:], Space)
		if i < 0 {
			break
		}
		e.charWord(text[:lead+i])
		text = text[lead+i:]
	}
	e.charWord(text)
}

// byteWord encodes one word by its bytes.
func (e *encoder) byteWord(word string) {
	if e.t.spec.IgnoreMerges {
		e.scratch = appendAlphabet(e.scratch[:0], word)
		if id, ok := e.tables.ids[string(e.scratch)]; ok {
			e.ids = append(e.ids, id)
			return
		}
	}
	for i := range len(word) {
		e.add(e.bytes[word[i]], i, i+1)
	}
	e.run(word, e.mergePair, func(s symbol) { e.emit(s, word) })
}

// charWord encodes one word by its characters; a byte that is not UTF-8 is one.
func (e *encoder) charWord(word string) {
	byChar := e.t.spec.Algorithm == Llama
	if e.t.pre.wholeLines && strings.Trim(word, "\n") == "" {
		if id := e.lookup(word); id != None {
			e.ids = append(e.ids, id)
			return
		}
	}
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		id := e.lookup(word[i : i+n])
		if id == None && !byChar {
			// Here byte tokens are symbols like any other, and may merge.
			for j := range n {
				e.add(e.bytes[word[i+j]], i+j, i+j+1)
			}
		} else {
			e.add(id, i, i+n)
		}
		i += n
	}
	rule := e.mergePair
	if byChar {
		rule = e.mergeText
	}
	e.run(word, rule, func(s symbol) { e.emit(s, word) })
}

// pieceWord encodes one word by the longest piece at its start, then at what is left. A word
// that has no such pieces, or too many characters, is unknown as a whole.
func (e *encoder) pieceWord(word string) {
	start := len(e.ids)
	longest := e.t.spec.MaxWord
	known := longest == 0 || utf8.RuneCountInString(word) <= longest
	e.scratch = append(append(e.scratch[:0], Space...), word...)
	for rest := e.scratch; known && len(rest) > 0; {
		n := min(len(rest), e.widest)
		for ; n > 0; n-- {
			if id, ok := e.tables.ids[string(rest[:n])]; ok {
				e.ids = append(e.ids, id)
				break
			}
		}
		known, rest = n > 0, rest[n:]
	}
	if !known {
		e.ids = e.ids[:start]
		if unk := e.t.spec.UNK; unk != None {
			e.ids = append(e.ids, unk)
		}
	}
}

// mergePair joins what the list of merges joins.
func (e *encoder) mergePair(_ string, left, right *symbol) (uint32, int32, bool) {
	m, ok := e.pairs[pair(left.id, right.id)]
	return m.rank, m.id, ok
}

// mergeText joins what has the text of a token.
func (e *encoder) mergeText(word string, left, right *symbol) (uint32, int32, bool) {
	if int(right.end-left.start) > e.widest {
		return 0, None, false
	}
	id, ok := e.tables.ids[word[left.start:right.end]]
	if !ok {
		return 0, None, false
	}
	return e.ranks[id], id, true
}

// emit appends a symbol's token, or the tokens of its bytes.
func (e *encoder) emit(s symbol, word string) {
	if s.id != None && int(s.id) < e.t.Len() {
		e.ids = append(e.ids, s.id)
		return
	}
	for _, b := range []byte(word[s.start:s.end]) {
		id := e.bytes[b]
		if id == None || int(id) >= e.t.Len() {
			id = e.t.spec.UNK
		}
		if id != None {
			e.ids = append(e.ids, id)
		}
	}
}
