package device

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"
)

// padding is the maximum number of bytes that file formats put between two tensors. Tensors that
// are nearer are of one mapping, as every file begins with a longer header.
const padding = 64

// span is the memory of consecutive tensors; members are their indices.
type span struct {
	begin, end uintptr
	members    []int
}

// bytes returns the memory of the span; data is that of its first tensor.
func (s *span) bytes(data []byte) []byte {
	return unsafe.Slice(unsafe.SliceData(data), s.end-s.begin)
}

// spans groups tensors into runs that, rounded to whole pages, have at most `most` bytes. Empty
// tensors are in no run. It returns a *tensorError for a tensor that is too large by itself.
func spans(tensors [][]byte, page, most int64) ([]span, error) {
	var order []int
	for i, data := range tensors {
		if len(data) > 0 {
			order = append(order, i)
		}
	}
	at := func(i int) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(tensors[i]))) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at(a), at(b)) })
	rounded := func(begin, end uintptr) int64 {
		p := uintptr(page)
		return int64((end+p-1)/p*p - begin/p*p)
	}
	var out []span
	for _, i := range order {
		begin, end := at(i), at(i)+uintptr(len(tensors[i]))
		if rounded(begin, end) > most {
			return nil, &tensorError{i, fmt.Sprintf("%s; the device's largest buffer has %s", FormatBytes(int64(end-begin)), FormatBytes(most))}
		}
		if n := len(out); n > 0 {
			last := &out[n-1]
			if begin <= last.end+padding && rounded(last.begin, max(end, last.end)) <= most {
				last.end = max(end, last.end)
				last.members = append(last.members, i)
				continue
			}
		}
		out = append(out, span{begin, end, []int{i}})
	}
	return out, nil
}

// tensorError is an error about the tensor at an index.
type tensorError struct {
	index   int
	message string
}

func (e *tensorError) Error() string { return e.message }
