package tokenizer

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsmap is SentencePiece's precompiled table of replacements: a double array of the texts to be
// replaced (Yata's Darts-clone, as SentencePiece writes it), and their replacements, each ended by
// NUL.
type charsmap struct {
	units []uint32
	texts string
}

// longestReplacement bounds the bytes of a text to be replaced, and of its replacement. The longest
// of Unicode's normal forms has 33 bytes.
const longestReplacement = 256

func newCharsmap(data string) (charsmap, error) {
	if data == "" {
		return charsmap{}, nil
	}
	if len(data) < 4 {
		return charsmap{}, specError("precompiled charsmap of %d bytes", len(data))
	}
	size := uint64(binary.LittleEndian.Uint32([]byte(data[:4])))
	if size == 0 || size%4 != 0 || size >= uint64(len(data)-4) {
		return charsmap{}, specError("precompiled charsmap of %d bytes: a table of %d", len(data), size)
	}
	m := charsmap{make([]uint32, size/4), data[4+size:]}
	if m.texts[len(m.texts)-1] != 0 {
		return charsmap{}, specError("precompiled charsmap: its last text has no end")
	}
	for text := range strings.SplitSeq(m.texts, "\x00") {
		if len(text) > longestReplacement {
			return charsmap{}, specError("precompiled charsmap: a text of %d bytes", len(text))
		}
	}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32([]byte(data[4+4*i : 8+4*i]))
	}
	return m, nil
}

// growth returns a bound of the bytes that a byte can become.
func (m *charsmap) growth() float64 {
	longest := 0
	for text := range strings.SplitSeq(m.texts, "\x00") {
		longest = max(longest, len(text))
	}
	most := max(1, float64(longest)/3)
	for pair := range 1 << 16 { // what is shorter than three bytes
		m.matches(string([]byte{byte(pair >> 8), byte(pair)}), func(n int, at uint32) bool {
			most = max(most, float64(len(m.text(at)))/float64(n))
			return true
		})
	}
	return most
}

// matches calls yield for every prefix of text in the table, the shortest first, with its length
// and the offset of its replacement, until yield returns false. An edge that leads out of the table
// ends the search.
func (m *charsmap) matches(text string, yield func(n int, at uint32) bool) {
	if len(m.units) == 0 {
		return
	}
	offset := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	node := offset(m.units[0])
	for i := range min(len(text), longestReplacement) {
		node ^= uint32(text[i])
		if text[i] == 0 || uint64(node) >= uint64(len(m.units)) || m.units[node]&(1<<31|0xFF) != uint32(text[i]) {
			return
		}
		unit := m.units[node]
		node ^= offset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if uint64(node) >= uint64(len(m.units)) {
			return
		}
		if at := m.units[node] & (1<<31 - 1); uint64(at) < uint64(len(m.texts)) && !yield(i+1, at) {
			return
		}
	}
}

func (m *charsmap) text(at uint32) string {
	text, _, _ := strings.Cut(m.texts[at:], "\x00")
	return text
}

// longest returns the replacement of the longest prefix of text in the table, and the prefix's
// length; 0 if there is none.
func (m *charsmap) longest(text string) (replacement string, n int) {
	var last uint32
	m.matches(text, func(length int, at uint32) bool {
		n, last = length, at
		return true
	})
	if n == 0 {
		return "", 0
	}
	return m.text(last), n
}

// shortest returns the replacement of the shortest prefix.
func (m *charsmap) shortest(text string) (replacement string, ok bool) {
	m.matches(text, func(_ int, at uint32) bool {
		replacement, ok = m.text(at), true
		return false
	})
	return replacement, ok
}

// precompiled is the normalizer Precompiled. A grapheme cluster of less than 6 bytes, or else each
// character by itself, becomes the replacement of its shortest prefix in the table. This drops the
// rest of the cluster, but the ids that models were trained on depend on it.
func (m *charsmap) precompiled(s string) string {
	var out strings.Builder
	out.Grow(len(s))
	state := -1
	for rest := s; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if len(cluster) < 6 {
			if text, ok := m.shortest(cluster); ok {
				out.WriteString(text)
				continue
			}
		}
		for i := 0; i < len(cluster); {
			_, size := utf8.DecodeRuneInString(cluster[i:])
			if text, ok := m.shortest(cluster[i : i+size]); ok {
				out.WriteString(text)
			} else {
				out.WriteString(cluster[i : i+size])
			}
			i += size
		}
	}
	return out.String()
}

// ggmlUnigram is llama.cpp's normalizer of T5's kind (llm_tokenizer_ugm_session). It replaces the
// longest prefix of the rest that is in the table, bytes that are not UTF-8 by U+FFFD, and spaces
// by Space; the options add one before the first word, and merge runs of them.
type ggmlUnigram struct {
	charsmap
	prefix, merge bool
}

// Options in Normalizer.New of this kind.
const optionPrefix, optionMerge = "space before", "no extra spaces"

func ggmlUnigramNormalizer(charsmap string, prefix, merge bool) Normalizer {
	var options []string
	if prefix {
		options = append(options, optionPrefix)
	}
	if merge {
		options = append(options, optionMerge)
	}
	return Normalizer{Kind: kindGGMLUnigram, Old: charsmap, New: strings.Join(options, ", ")}
}

func readGGMLUnigram(n Normalizer) (ggmlUnigram, error) {
	m, err := newCharsmap(n.Old)
	return ggmlUnigram{m, strings.Contains(n.New, optionPrefix), strings.Contains(n.New, optionMerge)}, err
}

func (u *ggmlUnigram) normalize(s string) string {
	var out strings.Builder
	out.Grow(len(s) + len(s)/4)
	prefixed, inWord := !u.prefix, false
	for at := 0; at < len(s); {
		text, n := u.longest(s[at:])
		if n == 0 {
			r, size := utf8.DecodeRuneInString(s[at:])
			text, n = s[at:at+size], size
			if r == utf8.RuneError && size == 1 {
				text = "\uFFFD"
			}
		}
		at += n
		for len(text) > 0 {
			if text[0] == ' ' {
				inWord = false
				if !u.merge {
					out.WriteString(Space)
				}
				text = text[1:]
				continue
			}
			if !inWord {
				inWord = true
				if !prefixed || u.merge {
					out.WriteString(Space)
					prefixed = true
				}
			}
			end := strings.IndexByte(text, ' ')
			if end < 0 {
				end = len(text)
			}
			out.WriteString(text[:end])
			text = text[end:]
		}
	}
	return out.String()
}
