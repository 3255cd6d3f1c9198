package device

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"
)

// padding is the most that file formats put between two tensors. What lies nearer
// than that belongs to one mapping: files begin with a header that is longer.
const padding = 64

// span is memory of tensors that lie one behind the other; members are indices.
type span struct {
	begin, end uintptr
	members    []int
}

// bytes returns the memory of the span, of which data is the first tensor's.
func (s *span) bytes(data []byte) []byte {
	return unsafe.Slice(unsafe.SliceData(data), s.end-s.begin)
}

// spans cuts tensors into runs that each fit a buffer of so many bytes once rounded to
// whole pages. Empty tensors are in none. A tensor that no buffer holds is an error
// of its index.
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

// tensorError is an error of one tensor, by index.
type tensorError struct {
	index   int
	message string
}

func (e *tensorError) Error() string { return e.message }
