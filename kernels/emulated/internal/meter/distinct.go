package meter

import "math/bits"

// line holds the bytes of a line that an interval touched: a smelt_line.
type line struct {
	Number        uint64
	Read, Written mask
}

// mask has a bit for each byte of a line.
type mask [2]uint64

func (m mask) count() int64 { return int64(bits.OnesCount64(m[0]) + bits.OnesCount64(m[1])) }

// add adds o and returns the number of new bytes.
func (m *mask) add(o mask) int64 {
	fresh := mask{o[0] &^ m[0], o[1] &^ m[1]}
	m[0] |= o[0]
	m[1] |= o[1]
	return fresh.count()
}

// distinct counts the distinct bytes that are read and written, in the whole launch and in
// each threadgroup.
type distinct struct {
	read, written int64 // in the launch
	tile          int64 // sum over threadgroups of the bytes that each reads and writes

	group int32 // the running threadgroup, from 1
	index lineMap
	lines []seen

	// met is the address, plus 1, of the first byte that one threadgroup accesses and another
	// writes: their order is undefined.
	met uint64
}

type seen struct {
	read, written mask
	group         int32 // the threadgroup of the next two fields
	own           [2]mask
	others        [2]mask // of earlier threadgroups
}

func (d *distinct) touch(l *line) {
	at := d.index.at(l.Number)
	if *at == 0 {
		d.lines = append(d.lines, seen{})
		*at = int32(len(d.lines))
	}
	s := &d.lines[*at-1]
	d.read += s.read.add(l.Read)
	d.written += s.written.add(l.Written)
	if s.group != d.group {
		s.others[0].add(s.own[0])
		s.others[1].add(s.own[1])
		s.group, s.own = d.group, [2]mask{}
	}
	for i := range l.Read {
		if both := l.Read[i]&s.others[1][i] | l.Written[i]&(s.others[0][i]|s.others[1][i]); both != 0 && d.met == 0 {
			d.met = 1 + l.Number*Line + uint64(64*i+bits.TrailingZeros64(both))
		}
	}
	d.tile += s.own[0].add(l.Read) + s.own[1].add(l.Written)
}
