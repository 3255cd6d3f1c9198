package limits

import (
	"fmt"
	"runtime"
	"slices"
)

const (
	lineBytes = 64      // of a cache; unit of the sums
	pageBytes = 4 << 10 // the smallest page size
)

// Way is a way in which threads read memory. No way is best on every machine: four streams read
// 19 GB/s on one machine whose single streams reach 52, and are faster than one on another;
// prefetching helps where the hardware prefetcher does little, and costs where it does well.
type Way struct {
	Width   int     // bytes of a load
	Streams int     // concurrent streams per thread, each in its part of the thread's share
	Ahead   int     // prefetch distance in bytes; 0: no prefetch
	Huge    bool    // whether memory is on huge pages
	GBs     float64 // highest rate so far, in 10⁹ bytes per second
}

func (w Way) String() string {
	text := fmt.Sprintf("%d-byte loads, %d streams", w.Width, w.Streams)
	if w.Ahead > 0 {
		text += fmt.Sprintf(", prefetch %d bytes ahead", w.Ahead)
	}
	if w.Huge {
		text += ", huge pages"
	}
	return text
}

// kept is the number of fastest ways that GBs goes on measuring: a few sweeps do not settle
// which one is fastest.
const kept = 4

// tryRounds is the number of rounds over all ways before GBs keeps the fastest.
const tryRounds = 2

// Reader repeatedly measures the memory bandwidth of all threads together, beside each
// measurement of something else, because the bandwidth left on a shared machine varies. It is
// used by one goroutine at a time.
type Reader struct {
	buffers map[bool]buffer // by whether it is on huge pages
	threads int
	ways    []Way // fastest first, once measured
	tried   bool
	sums    []uint64
}

type buffer struct {
	bytes   []byte
	release func()
}

// NewReader allocates a buffer of the given number of bytes for each page size. Close releases
// them.
func NewReader(bytes, threads int) *Reader {
	threads = max(threads, 1)
	r := &Reader{buffers: make(map[bool]buffer), threads: threads, sums: make([]uint64, threads)}
	for _, huge := range pageKinds {
		b, release := allocate(max(bytes, threads*lineBytes), huge)
		r.buffers[huge] = buffer{b, release}
		together(threads, func(i int) { // untouched pages would all map one zero page
			for share, at := r.share(b, i), 0; at < len(share); at += pageBytes {
				share[at] = 1
			}
		})
		for _, w := range loads() {
			w.Huge = huge
			r.ways = append(r.ways, w)
		}
	}
	return r
}

// share returns a thread's part of the buffer, in whole cache lines.
func (r *Reader) share(b []byte, i int) []byte {
	lines := len(b) / lineBytes
	return b[i*lines/r.threads*lineBytes : (i+1)*lines/r.threads*lineBytes]
}

// Try reads once in each way per round, so that a disturbance affects all ways alike, and
// returns the ways with their highest rates, fastest first.
func (r *Reader) Try(rounds int) []Way {
	r.tried = true
	for range rounds {
		r.sweep(r.ways)
	}
	slices.SortStableFunc(r.ways, func(x, y Way) int {
		switch {
		case x.GBs > y.GBs:
			return -1
		case x.GBs < y.GBs:
			return 1
		}
		return 0
	})
	return slices.Clone(r.ways)
}

// GBs returns the highest rate over sweeps of the fastest ways, in 10⁹ bytes per second.
func (r *Reader) GBs(sweeps int) float64 {
	if !r.tried {
		r.Try(tryRounds)
	}
	rate := 0.0
	for range sweeps {
		rate = max(rate, r.sweep(r.ways[:min(kept, len(r.ways))]))
	}
	return rate
}

// sweep reads once in each way and returns the highest rate.
func (r *Reader) sweep(ways []Way) float64 {
	highest := 0.0
	for k := range ways {
		w := &ways[k]
		b := r.buffers[w.Huge].bytes
		elapsed := together(r.threads, func(i int) { r.sums[i] = w.sum(r.share(b, i)) })
		rate := float64(len(b)) / float64(max(elapsed.Nanoseconds(), 1))
		w.GBs, highest = max(w.GBs, rate), max(highest, rate)
	}
	runtime.KeepAlive(r.sums)
	return highest
}

// Close releases the buffers.
func (r *Reader) Close() {
	for _, b := range r.buffers {
		b.release()
	}
	r.buffers = nil
}
