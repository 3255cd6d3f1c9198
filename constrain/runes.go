package constrain

import (
	"encoding/binary"
	"slices"
	"unicode"
	"unicode/utf8"
)

// runes is a set of characters as inclusive ranges, sorted and disjoint after a call of normal.
type runes [][2]rune

func (s runes) normal() runes {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && r[0] <= out[n-1][1]+1 {
			out[n-1][1] = max(out[n-1][1], r[1])
		} else {
			out = append(out, r)
		}
	}
	return out
}

func (s runes) negate() (out runes) {
	next := rune(0)
	for _, r := range s.normal() {
		if r[0] > next {
			out = append(out, [2]rune{next, r[0] - 1})
		}
		next = r[1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, [2]rune{next, unicode.MaxRune})
	}
	return out
}

func fromTable(t *unicode.RangeTable) (s runes) {
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			s = append(s, [2]rune{lo, hi})
			return
		}
		for c := lo; c <= hi; c += stride {
			s = append(s, [2]rune{c, c})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return s.normal()
}

const surrogateMin, surrogateMax = 0xD800, 0xDFFF

// utf8Ranges returns the sequences of byte ranges that encode the characters of s in UTF-8, without
// surrogates.
func utf8Ranges(s runes) (out [][][2]byte) {
	limits := []rune{0x7F, 0x7FF, 0xFFFF, unicode.MaxRune}
	var split func(lo, hi rune)
	split = func(lo, hi rune) {
		switch {
		case lo > hi:
			return
		case lo <= surrogateMax && hi >= surrogateMin:
			split(lo, min(hi, surrogateMin-1))
			split(max(lo, surrogateMax+1), hi)
			return
		}
		for _, l := range limits {
			if lo <= l && hi > l {
				split(lo, l)
				split(l+1, hi)
				return
			}
		}
		// Split off the ends that do not fill a block of continuation bytes.
		for i := 1; i < utf8.RuneLen(lo); i++ {
			block := rune(1)<<(6*i) - 1
			if lo&^block == hi&^block {
				break
			}
			if lo&block != 0 {
				split(lo, lo|block)
				split((lo|block)+1, hi)
				return
			}
			if hi&block != block {
				split(lo, hi&^block-1)
				split(hi&^block, hi)
				return
			}
		}
		a, b := []byte(string(lo)), []byte(string(hi))
		seq := make([][2]byte, len(a))
		for i := range a {
			seq[i] = [2]byte{a[i], b[i]}
		}
		out = append(out, seq)
	}
	for _, r := range s {
		split(r[0], r[1])
	}
	return out
}

// class returns the expression for one character of s.
func (p *pool) class(s runes) re {
	s = s.normal()
	p.spend(len(s))
	key := make([]byte, 0, 8*len(s))
	for _, c := range s {
		key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(key, uint32(c[0])), uint32(c[1]))
	}
	hash := hashOf(key)
	if r, ok := p.classes[hash]; ok {
		return r
	}
	var parts []re
	for _, seq := range utf8Ranges(s) {
		r := reEps
		for i := len(seq) - 1; i >= 0; i-- {
			var set byteSet
			set.addRange(seq[i][0], seq[i][1])
			r = p.cat2(p.set(set), r)
		}
		parts = append(parts, r)
	}
	r := p.or(parts...)
	p.nodes[r].char = r != reNone
	p.classes[hash] = r
	return r
}
