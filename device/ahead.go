package device

import (
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// reader prefetches the weights of a mapped file while the first step runs, in the order in which
// the step reads them. Without it every page of the page cache costs a fault, and others are read
// from the disk one window at a time while threads wait. It stops with the step; pages that no
// step has needed by then, such as those of experts without tokens, are not prefetched.
type reader struct {
	leave atomic.Bool
	done  chan struct{}
}

const (
	// readPiece is the number of bytes that the reader maps at a time: small, so that it stops
	// soon.
	readPiece = 1 << 20
	// readLead is the prefetch distance in bytes. 32 MiB reach three quarters of the bandwidth
	// of a disk of 4 GB/s.
	readLead = 128 << 20
	// readDoubt is the number of bytes after a missing page within which pages are prefetched.
	// Advice about pages that are in memory costs as much as mapping them; on a fast disk, few
	// pages are waited for although many are missing.
	readDoubt = 1 << 30
)

// read starts a reader of mapped memory.
func read(ranges [][]byte) *reader {
	var pieces [][]byte
	for _, r := range ranges {
		for ; len(r) > readPiece; r = r[readPiece:] {
			pieces = append(pieces, r[:readPiece])
		}
		pieces = append(pieces, r)
	}
	r := &reader{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		runtime.LockOSThread() // for mapPages
		defer runtime.UnlockOSThread()
		r.bring(pieces, askPages, mapPages)
	}()
	return r
}

// bring maps pieces one after the other until leave is set. It prefetches (ask) only after mapped
// has reported a wait.
func (r *reader) bring(pieces [][]byte, ask func([]byte), mapped func(piece []byte, arriving bool) (waited bool)) {
	asked, until := 0, 0
	for i, piece := range pieces {
		if r.leave.Load() {
			return
		}
		if mapped(piece, i < asked) {
			asked, until = max(asked, i+1), i+1+readDoubt/readPiece
		}
		for ; i < until && asked < min(i+1+readLead/readPiece, len(pieces)) && !r.leave.Load(); asked++ {
			ask(pieces[asked])
		}
	}
}

// stop ends a reader, which may be nil, and waits for it, so that memory can be unmapped.
func (r *reader) stop() {
	if r != nil {
		r.leave.Store(true)
		<-r.done
	}
}

// stepDone ends a reader, which may be nil, without waiting.
func (r *reader) stepDone() {
	if r != nil {
		r.leave.Store(true)
	}
}

// readAhead starts a reader of the weights that steps read whole, if all of them fit in memory, so
// that prefetched pages do not evict each other. Experts are included only where all will be
// rearranged, as a step reads those of its tokens only. Weights that Load rearranges are excluded:
// no step reads their pages, which are dropped.
func (p *Executable) readAhead(weights []weight, matrices []Matrix) {
	if !p.device.opts.Mapped {
		return
	}
	stacked := make(map[string]bool, len(p.plan.Tensors))
	for i := range p.plan.Tensors {
		stacked[p.plan.Tensors[i].Name] = len(p.plan.Tensors[i].Shape) > 2
	}
	var ranges [][]byte
	var bytes int64
	for _, i := range p.plan.ReadingOrder() {
		data, moves := weights[i].data, matrices[i].Rows != 0 && p.device.rearranges()
		switch {
		case len(data) == 0, moves && p.device.opts.Rearrange == RearrangeNow, !moves && stacked[p.plan.Buffers[i].Name]:
		default:
			ranges, bytes = append(ranges, data), bytes+int64(len(data))
		}
	}
	if bytes > 0 && bytes <= availableMemory() {
		p.reader = read(ranges)
	}
}

// wholePages extends memory of a mapping down to the beginning of its first page.
func wholePages(memory []byte) []byte {
	begin := unsafe.Pointer(unsafe.SliceData(memory))
	before := int(uintptr(begin) % uintptr(os.Getpagesize()))
	return unsafe.Slice((*byte)(unsafe.Add(begin, -before)), before+len(memory))
}
