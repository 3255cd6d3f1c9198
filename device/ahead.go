package device

import (
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// reader brings the weights of a mapped file into memory while the first step runs, in the
// order in which it wants them. Without it each page is waited for when it is touched: those
// that the page cache holds cost a fault each, others come from the disk a window at a time,
// while the threads that want them rest. It ends with the step; what was not wanted by then, such
// as experts of no token, is not read for its own sake.
type reader struct {
	leave atomic.Bool
	done  chan struct{}
}

const (
	// readPiece is what the reader maps at a time, little enough to end soon when it is told to.
	readPiece = 1 << 20
	// readLead is how far before that the disk is at work. Of a disk of 4 GB/s 32 MiB get three
	// quarters.
	readLead = 128 << 20
	// readDoubt is how far pages are asked for behind one that was missing. Where all are there,
	// asking costs as much as mapping; where few are, a disk that is faster than what wants them
	// may not be waited for in a while.
	readDoubt = 1 << 30
)

// read starts a reader of memory that files are mapped to.
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

// bring maps pieces one after the other until it is told to leave. It asks for none before one was
// waited for.
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

// stop ends a reader, if there is one: after it, memory may be unmapped.
func (r *reader) stop() {
	if r != nil {
		r.leave.Store(true)
		<-r.done
	}
}

// stepDone tells a reader, if there is one, that a step has run.
func (r *reader) stepDone() {
	if r != nil {
		r.leave.Store(true)
	}
}

// readAhead starts a reader of the weights that steps read whole, if memory has room for them:
// what it brings in must not drive out what it has brought before. Experts are among them where
// all are going to be rearranged; else a step reads those that its tokens go to. What loading
// rearranges no step reads, and its pages, which are dropped, would come back.
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

// wholePages returns memory of a mapping from the beginning of its first page on.
func wholePages(memory []byte) []byte {
	begin := unsafe.Pointer(unsafe.SliceData(memory))
	before := int(uintptr(begin) % uintptr(os.Getpagesize()))
	return unsafe.Slice((*byte)(unsafe.Add(begin, -before)), before+len(memory))
}
