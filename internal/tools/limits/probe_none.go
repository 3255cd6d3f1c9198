//go:build !cgo

package limits

import "encoding/binary"

// Without cgo there are no native kernels and no peaks.
func peaksOf(string) peaks { return peaks{} }

func loads() []Way { return []Way{{Width: 8, Streams: 1}} }

func (w Way) sum(b []byte) uint64 {
	var s uint64
	for ; len(b) >= 8; b = b[8:] {
		s += binary.LittleEndian.Uint64(b)
	}
	return s
}
