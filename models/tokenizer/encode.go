package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Encode returns the ids of a text, without a start token. If special is set, the texts of control
// tokens in it become those tokens; user-defined tokens always do. Text that the vocabulary cannot
// spell becomes UNK, or nothing if there is no such token or it is a control token; see the
// package's laws.
func (t *Tokenizer) Encode(text string, special bool) []int32 {
	return t.EncodeAfter(nil, text, special)
}

// EncodeAfter returns the ids of a continuation of the text of before, without a space prefix where
// the joined text would have none. The ids of both are those of the joined text, unless a word or a
// merge spans the joint.
func (t *Tokenizer) EncodeAfter(before []int32, text string, special bool) []int32 {
	return t.encode(before, text, special, nil)
}

// Range is a range of bytes [From, To).
type Range struct{ From, To int }

// EncodeQuoted returns the ids of a text with quoted ranges, which ascend and do not overlap. The
// text of a control token becomes that token only if no byte of it is quoted. Text between two
// control tokens is encoded as a whole, quoted or not.
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

// EncodeWhole returns the ids of a complete text as a model reads it: with the start and the end
// token if the model has them. Prompts for a generation have no end token.
func (t *Tokenizer) EncodeWhole(text string, special bool) []int32 {
	start := t.Opening()
	ids := append(start, t.EncodeAfter(start, text, special)...)
	if t.spec.AddEOS {
		ids = append(ids, t.spec.EOS)
	}
	return ids
}

// joint is what precedes a text; it decides on the space prefix.
type joint uint8

const (
	atStart joint = iota // of the text, or behind the start token
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

// encoder is the state of one call of Encode: its memory, and the ids so far.
type encoder struct {
	t *Tokenizer
	*tables
	merger
	ids     []int32
	scratch []byte
	paths   []path
}

// text encodes raw text between special tokens. User-defined tokens may still occur in its normal
// form.
func (e *encoder) text(text string, after joint) {
	text = e.t.normalized(text, after != afterText)
	p := e.t.specials()
	if len(p.normalized.ids) == 1 {
		e.plain(text, after)
		return
	}
	for i, f := range p.splitLeftmost(&p.normalized, text, false, nil) {
		if f.id != None {
			e.ids = append(e.ids, f.id)
			continue
		}
		if i > 0 {
			after = afterSpecial
		}
		e.plain(f.text, after)
	}
}

// normalized returns a normalized text, with a space before it if prefixed and the vocabulary puts
// one before every text.
func (t *Tokenizer) normalized(text string, prefixed bool) string {
	for _, normalize := range t.normalize {
		text = normalize(text)
	}
	if prefixed && text != "" && t.spec.Prefix == PrefixAlways && len(t.stages) == 0 {
		text = " " + text
	}
	return text
}

// plain encodes normalized text without special tokens.
func (e *encoder) plain(text string, after joint) {
	if text == "" {
		return
	}
	s := &e.t.spec
	word := e.cutWords
	switch s.Algorithm {
	case GPT2:
		word = e.byteWord
	case WordPiece:
		word = e.pieceWord
	case Unigram:
		word = e.unigramWord
	case PLaMo2:
		word = e.plamoWord
	}
	if len(e.t.stages) > 0 {
		runSteps(e.t.stages, text, after != afterText, after == atStart, word)
		return
	}
	if marked := s.Algorithm == Llama || s.Algorithm == BPE; marked {
		text = strings.ReplaceAll(text, " ", Space)
		if after != afterText && (s.Prefix == PrefixMissing || s.Prefix == PrefixMissingFirst && after == atStart) && !strings.HasPrefix(text, Space) {
			text = Space + text
		}
	} else if after != afterText && s.Prefix == PrefixMissing && text[0] != ' ' {
		text = " " + text
	}
	e.t.pre.words(text, word)
}

// cutWords encodes the text before each run of spaces separately if no merge spans it, which keeps
// the queue short.
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

// byteWord encodes one word by merging bytes.
func (e *encoder) byteWord(word string) {
	if e.t.spec.IgnoreMerges {
		e.scratch = appendAlphabet(e.scratch[:0], word)
		if id, ok := e.tables.ids[string(e.scratch)]; ok {
			e.ids = append(e.ids, id)
			return
		}
	}
	dropped := e.t.spec.LeftmostSpecial && e.t.unk == None // before merges, as Hugging Face does, or after them
	e.expect(len(word))
	for i := range len(word) {
		if id := e.bytes[word[i]]; id != None || !dropped {
			e.add(id, i, i+1)
		}
	}
	e.run(word, e.mergePair, func(s symbol) { e.emit(s, word) })
}

// charWord encodes one word by merging characters; a byte that is not UTF-8 counts as one.
func (e *encoder) charWord(word string) {
	byChar := e.t.spec.Algorithm == Llama
	if e.t.pre.wholeLines && strings.Trim(word, "\n") == "" {
		if id := e.lookup(word); id != None {
			e.ids = append(e.ids, id)
			return
		}
	}
	e.expect(utf8.RuneCountInString(word))
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		id := e.lookup(word[i : i+n])
		if id == None && !byChar {
			e.unknownChar(word[i:i+n], i)
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

// pieceWord encodes one word by the longest piece at its start, then at the start of the rest. A
// word that cannot be spelled so, or has too many characters, becomes one UNK.
func (e *encoder) pieceWord(word string) {
	start := len(e.ids)
	s := &e.t.spec
	known := s.MaxWord == 0 || utf8.RuneCountInString(word) <= s.MaxWord
	if s.Continuing == "" {
		word = Space + word
	}
	if known {
		e.ids, known = e.wordPieces.split(e.ids, word)
	}
	if !known {
		e.ids = e.ids[:start]
		if e.t.unk != None {
			e.ids = append(e.ids, e.t.unk)
		}
	}
}

// unknownChar adds a character without a token: as its bytes, which may merge like other symbols,
// or else as UNK, which a run of such characters may share.
func (e *encoder) unknownChar(char string, at int) {
	s := &e.t.spec
	bytes := s.ByteFallback
	for j := range len(char) {
		bytes = bytes && e.bytes[char[j]] != None
	}
	last := len(e.symbols) - 1
	switch {
	case bytes:
		for j := range len(char) {
			e.add(e.bytes[char[j]], at+j, at+j+1)
		}
	case e.t.unk == None:
	case s.FuseUNK && last >= 0 && e.symbols[last].id == e.t.unk && int(e.symbols[last].end) == at:
		e.symbols[last].end += int32(len(char))
	default:
		e.add(e.t.unk, at, at+len(char))
	}
}

// mergePair is the rule of vocabularies with a list of merges.
func (e *encoder) mergePair(_ string, left, right *symbol) (uint32, int32, bool) {
	m, ok := e.pairs[pair(left.id, right.id)]
	return m.rank, m.id, ok
}

// mergeText is the rule of vocabularies with scores: neighbours merge if their joint text is a
// token.
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

// emit appends a symbol's token, or those of its bytes.
func (e *encoder) emit(s symbol, word string) {
	if s.id != None && int(s.id) < e.t.Len() {
		e.ids = append(e.ids, s.id)
		return
	}
	for _, b := range []byte(word[s.start:s.end]) {
		id := e.bytes[b]
		if id == None || int(id) >= e.t.Len() {
			id = e.t.unk
		}
		if id != None {
			e.ids = append(e.ids, id)
		}
	}
}
