package graphviz

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tetratelabs/wazero/api"
)

// imported is a function that the module imports, by the name that its linker assigned. Types are
// those of WebAssembly: i and I are integers of 32 and 64 bits, F is a float of 64 bits.
type imported struct {
	name, is        string // is: its name in C
	params, results string
	call            func(mem api.Memory, stack []uint64) // nil: returns 0
}

// Error codes of calls, as numbered in Emscripten's C library.
const (
	noFile  = -44
	noCall  = -52
	badFile = 8 // of WASI, whose errors are positive
)

// imports returns the module's only access to its host: its errors, its memory, and a file system,
// clock and environment that are empty.
func (m *module) imports() []imported {
	return []imported{
		{"a", "__assert_fail", "iiii", "", stops("a failed assertion")},
		{"b", "__cxa_throw", "iii", "", stops("a C++ exception")},
		{"c", "exit", "i", "", stops("exit")},
		{"d", "fd_write", "iiii", "i", m.print},
		{"e", "fd_close", "i", "i", nil},
		{"f", "fcntl64", "iii", "i", answers(noCall)},
		{"g", "emscripten_date_now", "", "F", nil},
		{"h", "abort", "", "", stops("abort")},
		{"i", "fd_read", "iiii", "i", answers(badFile)},
		{"j", "ioctl", "iii", "i", answers(noCall)},
		{"k", "emscripten_resize_heap", "i", "i", grow},
		{"l", "openat", "iiii", "i", answers(noFile)},
		{"m", "mmap", "iiiiIii", "i", answers(noCall)},
		{"n", "munmap", "iiiiiI", "i", answers(noCall)},
		{"o", "localtime", "Ii", "i", answers(noCall)},
		{"p", "viz_errorf", "i", "i", m.complain},
		{"q", "tzset", "iiii", "", nil},
		{"r", "fd_seek", "iIii", "i", answers(badFile)},
		{"s", "environ_get", "ii", "i", nil},
		{"t", "environ_sizes_get", "ii", "i", func(mem api.Memory, stack []uint64) {
			clear(span(mem, stack[0], 4))
			clear(span(mem, stack[1], 4))
			stack[0] = 0
		}},
		{"u", "random_get", "ii", "i", func(mem api.Memory, stack []uint64) {
			clear(span(mem, stack[0], stack[1]))
			stack[0] = 0
		}},
		{"v", "newfstatat", "iiii", "i", answers(noFile)},
		{"w", "fstat64", "ii", "i", answers(noCall)},
		{"x", "clock_time_get", "iIi", "i", func(mem api.Memory, stack []uint64) {
			clear(span(mem, stack[2], 8))
			stack[0] = 0
		}},
		{"y", "faccessat", "iiii", "i", answers(noFile)},
	}
}

// export calls the function with the module's memory; without call it returns 0.
func (f *imported) export(_ context.Context, in api.Module, stack []uint64) {
	switch {
	case f.call != nil:
		f.call(in.Memory(), stack)
	case f.results != "":
		stack[0] = 0
	}
}

// types expands a signature.
func types(letters string) (list []api.ValueType) {
	for _, l := range letters {
		list = append(list, map[rune]api.ValueType{'i': api.ValueTypeI32, 'I': api.ValueTypeI64, 'F': api.ValueTypeF64}[l])
	}
	return list
}

func answers(result int32) func(api.Memory, []uint64) {
	return func(_ api.Memory, stack []uint64) { stack[0] = api.EncodeI32(result) }
}

// stops returns a function that traps; the runtime turns the panic into an error.
func stops(why string) func(api.Memory, []uint64) {
	return func(api.Memory, []uint64) { panic(fmt.Errorf("it ended with %s", why)) }
}

// span returns a range of the module's memory; it traps if the range is outside.
func span(mem api.Memory, at, size uint64) []byte {
	b, ok := mem.Read(uint32(at), uint32(size))
	if !ok {
		panic(fmt.Errorf("%d bytes at %d are outside of its memory", uint32(size), uint32(at)))
	}
	return b
}

// text copies the zero-terminated string at an address.
func text(mem api.Memory, at uint32) []byte {
	all := span(mem, uint64(at), uint64(mem.Size()-at))
	end := bytes.IndexByte(all, 0)
	return bytes.Clone(all[:max(end, 0)])
}

// page is the granularity of growing WebAssembly's memory.
const page = 64 << 10

// grow returns 1 if the memory has, or now has, the requested number of bytes.
func grow(mem api.Memory, stack []uint64) {
	missing := int64(uint32(stack[0])) - int64(mem.Size())
	stack[0] = 1
	// Doubling bounds the number of copies.
	for _, more := range []int64{max(missing, int64(mem.Size())), missing} {
		if _, ok := mem.Grow(uint32((max(more, 0) + page - 1) / page)); ok {
			return
		}
	}
	stack[0] = 0
}

// print records writes to a file, which can only be standard error.
func (m *module) print(mem api.Memory, stack []uint64) {
	total := 0
	for i := range uint64(uint32(stack[2])) {
		at, _ := mem.ReadUint32Le(uint32(stack[1] + 8*i))
		size, _ := mem.ReadUint32Le(uint32(stack[1] + 8*i + 4))
		total += int(size)
		m.said.Write(span(mem, uint64(at), uint64(size)))
	}
	mem.WriteUint32Le(uint32(stack[3]), uint32(total))
	stack[0] = 0
}

// complain records an error message of Graphviz.
func (m *module) complain(mem api.Memory, stack []uint64) {
	m.said.Write(text(mem, uint32(stack[0])))
	stack[0] = 0
}
