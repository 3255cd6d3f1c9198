package kernels

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Launch describes a dispatch for [Check]: sizes and constants, without the memory.
type Launch struct {
	Kernel           string
	Constants        map[uint32]uint32 // bits by [[function_constant(i)]]
	Buffers          []int64           // bytes by [[buffer(i)]]; Unbound, or past the end, if none is bound
	Params           []uint32          // words of the parameter struct
	Grid             [3]uint32         // threadgroups
	Group            [3]uint32         // threads in a threadgroup
	ThreadgroupBytes []uint32          // dynamic, by [[threadgroup(i)]]
	Rows             int64             // of x that an index names at most; 0: unknown
}

// Unbound is the size, in [Launch], of a buffer that is not bound.
const Unbound = -1

// ErrLaunch is wrapped by every error of [Check].
var ErrLaunch = errors.New("invalid launch")

// LaunchError names the field of a launch that a kernel cannot execute.
type LaunchError struct {
	Kernel string // host name
	Field  string // parameter, function constant, buffer, "grid", "threadgroup", …
	Reason string // its value, and what is wrong with it
}

// Error returns "invalid launch: kernel K: field: reason".
func (e *LaunchError) Error() string {
	return fmt.Sprintf("%v: kernel %s: %s: %s", ErrLaunch, e.Kernel, e.Field, e.Reason)
}

// Unwrap returns [ErrLaunch].
func (e *LaunchError) Unwrap() error { return ErrLaunch }

// Check returns a *LaunchError if the kernel does not support a constant or size of the
// launch, a buffer is shorter than the sizes imply, or the grid or threadgroup is not the
// one that the kernel expects. It refuses sizes of zero: a step without work has no
// dispatch. It does not see the contents of buffers.
func Check(l *Launch) error {
	k, ok := Lookup(l.Kernel)
	if !ok {
		return &LaunchError{l.Kernel, "name", "there is no such kernel"}
	}
	c := &checker{Launch: l, kernel: k}
	c.general()
	if k.check != nil && c.err == nil {
		k.check(c)
	}
	return c.err
}

// checker keeps the first error of a launch. Its methods use the names of params.h and of
// the kernels' signatures.
type checker struct {
	*Launch
	kernel *Kernel
	err    error
}

func (c *checker) refuse(field, format string, args ...any) {
	if c.err == nil {
		c.err = &LaunchError{c.kernel.Name, field, fmt.Sprintf(format, args...)}
	}
}

func (c *checker) require(ok bool, field, format string, args ...any) {
	if !ok {
		c.refuse(field, format, args...)
	}
}

// general makes the checks that every family shares.
func (c *checker) general() {
	k := c.kernel
	c.require(len(c.Params) == k.ParamWords, "parameters", "%d words, %s has %d", len(c.Params), k.Params, k.ParamWords)
	for i := range k.Constants {
		v, set := c.Constants[uint32(k.Constants[i].Index)]
		c.require(set || k.Constants[i].Optional, k.Constants[i].Name, "the function constant is not set")
		c.require(k.Constants[i].Type != "bool" || v <= 1, k.Constants[i].Name, "%d is no truth value", v)
	}
	for _, index := range slices.Sorted(maps.Keys(c.Constants)) {
		if v := c.Constants[index]; v != 0 && !slices.ContainsFunc(k.Constants, func(have Constant) bool { return uint32(have.Index) == index }) {
			c.refuse(fmt.Sprintf("function constant %d", index), "%d, but the kernel has none", v)
		}
	}
	for i := range k.Args {
		c.require(k.Args[i].Optional || c.bytes(k.Args[i].Index) != Unbound, k.Args[i].Name, "buffer %d is not bound", k.Args[i].Index)
	}
	for i, n := range c.Buffers {
		if _, ok := k.Arg(i); !ok && n != Unbound && i != k.ParamsIndex {
			c.refuse(fmt.Sprintf("buffer %d", i), "the kernel has none")
		}
	}
	threads := uint64(1)
	for i, n := range c.Grid {
		c.require(n > 0, "grid", "%v: nothing to do", c.Grid)
		c.require(c.Group[i] > 0, "threadgroup", "%v threads", c.Group)
		c.require(uint64(n)*uint64(c.Group[i]) <= 1<<32, "grid", "%v of %v threads: positions have 32 bits", c.Grid, c.Group)
		threads = product(threads, uint64(c.Group[i]))
	}
	c.require(threads <= uint64(k.MaxThreads), "threadgroup", "%v threads, at most %d", c.Group, k.MaxThreads)
	memory := uint64(k.ThreadgroupBytes)
	for _, n := range c.ThreadgroupBytes {
		memory = sum(memory, uint64(n))
	}
	c.require(memory <= MaxThreadgroupBytes, "threadgroup memory", "%d bytes, at most %d", memory, MaxThreadgroupBytes)
}

func (c *checker) bytes(index int) int64 {
	if index >= len(c.Buffers) {
		return Unbound
	}
	return c.Buffers[index]
}

// paramsOf returns the parameters as a struct. Every field has 32 bits, and general has
// checked the number of words.
func paramsOf[P Params](c *checker) P { return *(*P)(unsafe.Pointer(unsafe.SliceData(c.Params))) }

// size is a parameter that is a count.
type size struct {
	field string
	n     uint32
}

// positive refuses sizes of zero.
func (c *checker) positive(sizes ...size) {
	for _, s := range sizes {
		c.require(s.n > 0, s.field, "0: nothing to do")
	}
}

// narrow refuses sizes whose product, which the kernel computes in 32 bits, overflows.
func (c *checker) narrow(sizes ...size) {
	n, field := uint64(1), ""
	for i, s := range sizes {
		n = product(n, uint64(s.n))
		if i > 0 {
			field += "·"
		}
		field += s.field
	}
	c.require(n <= math.MaxInt32, field, "%d has more than 31 bits", n)
}

// constant returns the bits of a function constant by name: 0 and false if it is not set
// or the kernel has none of that name.
func (c *checker) constant(name string) (bits uint32, set bool) {
	k, ok := c.kernel.Constant(name)
	if !ok {
		return 0, false
	}
	bits, set = c.Constants[uint32(k.Index)]
	return bits, set
}

// on reports whether a function constant of type bool is set and true.
func (c *checker) on(name string) bool {
	bits, _ := c.constant(name)
	return bits == 1
}

// unlessOff reports whether a function constant of type bool is unset or true.
func (c *checker) unlessOff(name string) bool {
	bits, set := c.constant(name)
	return !set || bits == 1
}

// arg returns a buffer by name.
func (c *checker) arg(name string) Arg {
	a, ok := c.kernel.Named(name)
	if !ok {
		panic(fmt.Sprintf("kernels: %s has no argument %s", c.kernel.Name, name))
	}
	return a
}

// holds refuses a buffer that has fewer elements or is not bound.
func (c *checker) holds(name string, elements uint64) {
	a := c.arg(name)
	if a.Element == Blocks {
		elements = (elements + 31) / 32
	}
	c.holdsBytes(a, product(elements, uint64(a.Element.Size())))
}

func (c *checker) holdsBytes(a Arg, want uint64) {
	switch n := c.bytes(a.Index); {
	case n == Unbound:
		c.refuse(a.Name, "buffer %d is not bound", a.Index)
	case want == math.MaxUint64 || n < 0 || uint64(n) < want:
		c.refuse(a.Name, "buffer %d has %d bytes, the sizes ask for %s", a.Index, n, count(want))
	}
}

// spread returns the number of elements from the first to the last of strided rows.
func spread(rows, stride, width uint64) uint64 {
	if rows == 0 {
		return 0
	}
	return sum(product(rows-1, stride), width)
}

// rows refuses a buffer too small for strided rows.
func (c *checker) rows(name string, rows, stride, width uint32) {
	c.holds(name, spread(uint64(rows), uint64(stride), uint64(width)))
}

// rowsFrom is rows for elements that follow `from` others in each row.
func (c *checker) rowsFrom(name string, rows, stride, from, width uint32) {
	c.holds(name, sum(uint64(from), spread(uint64(rows), uint64(stride), uint64(width))))
}

// gathered refuses an x too small for the rows that an index names, or for one where their number
// is unknown.
func (c *checker) gathered(stride, width uint32) {
	c.holds("x", spread(uint64(max(c.Rows, 1)), uint64(stride), uint64(width)))
}

// dense refuses a buffer too small for a dense tensor of these extents.
func (c *checker) dense(name string, extents ...uint32) {
	n := uint64(1)
	for _, e := range extents {
		n = product(n, uint64(e))
	}
	c.holds(name, n)
}

// grid refuses any grid but [x, y, z].
func (c *checker) grid(x, y, z uint64) {
	want := [3]uint64{x, y, z}
	for i, n := range want {
		if uint64(c.Grid[i]) != n {
			c.refuse("grid", "%v threadgroups, the sizes ask for %v", c.Grid, want)
		}
	}
}

// threads refuses any threadgroup but one of n threads.
func (c *checker) threads(n uint32) { c.threadsBetween(n, n) }

// threadsBetween refuses threadgroups but those of low to high threads in whole
// simdgroups.
func (c *checker) threadsBetween(low, high uint32) {
	n := c.Group[0]
	if c.Group[1] != 1 || c.Group[2] != 1 || n < low || n > high || n%32 != 0 {
		want := fmt.Sprint(low)
		if high != low {
			want += fmt.Sprintf(" to %d, a multiple of 32", high)
		}
		c.refuse("threadgroup", "%v threads, the kernel takes %s", c.Group, want)
	}
}

// tiles returns ⌈n / tile⌉.
func tiles(n, tile uint32) uint64 { return (uint64(n) + uint64(tile) - 1) / uint64(tile) }

// round32 returns n rounded up to whole simdgroups.
func round32(n uint32) uint32 { return uint32(tiles(n, 32) * 32) }

// product and sum saturate at the largest uint64, which no buffer's size reaches.
func product(a, b uint64) uint64 {
	if hi, lo := bits.Mul64(a, b); hi == 0 {
		return lo
	}
	return math.MaxUint64
}

func sum(a, b uint64) uint64 {
	if n, carry := bits.Add64(a, b, 0); carry == 0 {
		return n
	}
	return math.MaxUint64
}

func count(n uint64) string {
	if n == math.MaxUint64 {
		return "more than 64 bits can count"
	}
	return fmt.Sprint(n)
}

// weight refuses a type that is no weight type, rows of width elements that are not whole
// blocks of it, and a buffer too small for the matrix.
func (c *checker) weight(name, constant string, rows, width uint32) {
	c.weights(name, constant, uint64(rows), width)
}

// weights is weight for a stack of matrices, whose rows are counted together.
func (c *checker) weights(name, constant string, rows uint64, width uint32) {
	typ, _ := c.constant(constant)
	stored := stored(typ)
	if stored == dtype.Invalid {
		c.refuse(constant, "%d is no type of stored weights", typ)
		return
	}
	elements := uint32(stored.BlockElems())
	c.require(width%elements == 0, constant, "rows of %d elements are not whole blocks of %d", width, elements)
	c.holdsBytes(c.arg(name), product(product(rows, uint64(width/elements)), uint64(stored.BlockBytes())))
}

// head refuses head sizes that attention and the fused writes do not support, and a
// function constant that names another size.
func (c *checker) head(head uint32) { c.headUpTo(head, MaxHead) }

// headUpTo refuses heads of more than `most` elements, or of no multiple of HeadStep.
func (c *checker) headUpTo(head, most uint32) {
	c.require(head > 0 && head%HeadStep == 0 && head <= most, "head", "%d; it must be a multiple of %d up to %d", head, HeadStep, most)
	if fixed, set := c.constant("fc_head"); set && fixed != head {
		c.refuse("fc_head", "%d, for heads of %d", fixed, head)
	}
}

// groups refuses a number of query heads that is no multiple of the KV heads.
func (c *checker) groups(heads, kvHeads uint32) {
	c.positive(size{"heads", heads}, size{"kv_heads", kvHeads})
	if kvHeads > 0 {
		c.require(heads%kvHeads == 0, "heads", "%d is no multiple of the %d KV heads", heads, kvHeads)
	}
}

// caches refuses cache buffers that do not hold the same whole number of dense blocks
// [kv_heads, block, head].
func (c *checker) caches(kvHeads, block, head uint32, names ...string) {
	c.positive(size{"kv_heads", kvHeads}, size{"block", block}, size{"head", head})
	for _, name := range names {
		a := c.arg(name)
		c.require(a.Element != Blocks || head%32 == 0, "head", "%d; blocks of Q8_0 need a multiple of 32", head)
		c.dense(name, kvHeads, block, head)
		if c.err != nil {
			return
		}
		one := uint64(kvHeads) * uint64(block) * uint64(head) * uint64(a.Element.Size())
		if a.Element == Blocks {
			one /= 32
		}
		n, first := c.bytes(a.Index), c.bytes(c.arg(names[0]).Index)
		c.require(uint64(n)%one == 0, name, "buffer %d has %d bytes, not a multiple of the block size %d", a.Index, n, one)
		c.require(n == first, name, "buffer %d has %d bytes, %s has %d", a.Index, n, names[0], first)
	}
}
