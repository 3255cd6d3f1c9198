package limits

import (
	"fmt"
	"runtime"
	"slices"
)

const (
	lineBytes = 64      // of a cache, and what the sums go by
	pageBytes = 4 << 10 // or fewer than a page has
)

// Way is one in which threads read memory. No way is the best on every machine: four
// streams read 19 GB/s on one whose single streams reach 52, and more than one stream on
// another; prefetching helps where the processor's own prefetcher does little, and costs
// where it does well.
type Way struct {
	Width   int     // bytes of a load
	Streams int     // that a thread reads at once, in parts of its share
	Ahead   int     // bytes from a load to what is prefetched with it; 0 for nothing
	Huge    bool    // memory on huge pages
	GBs     float64 // the highest rate so far, 10⁹ bytes a second
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

// kept is how many of the fastest ways GBs goes on with: which is the fastest is not
// certain after a few sweeps.
const kept = 4

// tryRounds is how often GBs tries all ways before it goes on with some.
const tryRounds = 2

// Reader measures again and again how fast all threads together read memory: beside
// each measurement of something else, since the bandwidth that a shared machine has
// left moves. It is used by one goroutine at a time.
type Reader struct {
	buffers map[bool]buffer // on huge pages or not
	threads int
	ways    []Way // the fastest first, once they were tried
	tried   bool
	sums    []uint64
}

type buffer struct {
	bytes   []byte
	release func()
}

// NewReader allocates a buffer of so many bytes for each size of pages. Close releases
// them.
func NewReader(bytes, threads int) *Reader {
	threads = max(threads, 1)
	r := &Reader{buffers: make(map[bool]buffer), threads: threads, sums: make([]uint64, threads)}
	for _, huge := range pageKinds {
		b, release := allocate(max(bytes, threads*lineBytes), huge)
		r.buffers[huge] = buffer{b, release}
		together(threads, func(i int) { // a page that was never written is one page of zeros for all
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

// share is a thread's part, of whole lines.
func (r *Reader) share(b []byte, i int) []byte {
	lines := len(b) / lineBytes
	return b[i*lines/r.threads*lineBytes : (i+1)*lines/r.threads*lineBytes]
}

// Try reads once in each way and again, so that a bad moment of the machine falls on all
// of them, and returns the ways with the highest rate of each, the fastest first.
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

// GBs returns the highest rate of a few sweeps in each of the ways that are the fastest
// here, 10⁹ bytes a second.
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

// sweep reads once in each way, and returns the highest rate.
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
