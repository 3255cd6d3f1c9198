package meter

import "math/bits"

// line is what an interval touched of a line: a smelt_line.
type line struct {
	Number        uint64
	Read, Written mask
}

// mask has a bit for each byte of a line.
type mask [2]uint64

func (m mask) count() int64 { return int64(bits.OnesCount64(m[0]) + bits.OnesCount64(m[1])) }

// add returns how many bytes of o are new.
func (m *mask) add(o mask) int64 {
	fresh := mask{o[0] &^ m[0], o[1] &^ m[1]}
	m[0] |= o[0]
	m[1] |= o[1]
	return fresh.count()
}

// distinct counts the bytes that are read and written, each once: in the whole launch,
// and in each threadgroup.
type distinct struct {
	read, written int64 // in the launch
	tile          int64 // sum over threadgroups of what each reads and writes

	group int32 // that runs, from 1
	index lineMap
	lines []seen

	// met is the first byte that a threadgroup touches and another writes, plus 1: a
	// threadgroup has no word in when others run.
	met uint64
}

type seen struct {
	read, written mask
	group         int32 // that the next two are of
	own           [2]mask
	others        [2]mask // of the groups before
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
