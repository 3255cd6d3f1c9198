package limits

import "runtime"

const (
	lineBytes = 64      // of a cache, and what the sums go by
	pageBytes = 4 << 10 // or fewer than a page has
)

// Reader measures again and again how fast all threads together read memory: beside
// each measurement of something else, since the bandwidth that a shared machine has
// left moves. It is used by one goroutine at a time.
type Reader struct {
	buffer  []byte
	threads int
	sums    []uint64
}

// NewReader allocates a buffer of so many bytes, on huge pages where the system has
// them, as a page table of small ones would be read along. Close releases it.
func NewReader(bytes, threads int) *Reader {
	threads = max(threads, 1)
	r := &Reader{buffer: allocate(max(bytes, threads*lineBytes)), threads: threads, sums: make([]uint64, threads)}
	together(threads, func(i int) { // a page that was never written is one page of zeros for all
		for share, b := r.share(i), 0; b < len(share); b += pageBytes {
			share[b] = 1
		}
	})
	return r
}

// share is a thread's part, of whole lines.
func (r *Reader) share(i int) []byte {
	lines := len(r.buffer) / lineBytes
	return r.buffer[i*lines/r.threads*lineBytes : (i+1)*lines/r.threads*lineBytes]
}

// GBs returns the highest rate of a few sweeps over the buffer, 10⁹ bytes a second.
func (r *Reader) GBs(sweeps int) float64 {
	rate := best(sweeps, r.threads, func(i int) { r.sums[i] = sum(r.share(i)) }, func() int64 { return int64(len(r.buffer)) })
	runtime.KeepAlive(r.sums)
	return rate
}

// Close releases the buffer.
func (r *Reader) Close() {
	release(r.buffer)
	r.buffer = nil
}
