package tokenizer

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
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
	e := encoder{t: t, tables: t.tables(), ids: make([]int32, 0, len(text)/3+8)}
	joint := t.joint(before)
	for i, f := range t.specials().split(text, special) {
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
}

// text encodes what stands between special tokens.
func (e *encoder) text(text string, after joint) {
	s := &e.t.spec
	if s.NFC {
		text = norm.NFC.String(text)
	}
	if after != afterText && (s.Prefix == PrefixAlways ||
		(s.Prefix == PrefixMissing || s.Prefix == PrefixMissingFirst && after == atStart) && text[0] != ' ') {
		text = " " + text
	}
	if s.Algorithm == GPT2 {
		pretokenizers[s.Pre].words(text, e.byteWord)
		return
	}
	words := pretokenizers[s.Pre]
	if s.Algorithm == Llama {
		words = pretokenizer{}
	}
	words.words(strings.ReplaceAll(text, " ", Space), e.cutWords)
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
	if pretokenizers[e.t.spec.Pre].wholeLines && strings.Trim(word, "\n") == "" {
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
