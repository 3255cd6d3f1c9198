package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

const (
	magic            = "GGUF"
	defaultAlignment = 32
	// maxAlignment is far above any page size; it keeps padding bounded.
	maxAlignment = 1 << 20
	// maxName bounds keys (the format's limit) and tensor names.
	maxName = 1<<16 - 1
	// maxNesting bounds arrays of arrays; files in use have none.
	maxNesting = 4
	// minTensor is the least size of an entry of the tensor table: length of the name, number of
	// dimensions, type, offset.
	minTensor = 8 + 4 + 4 + 8
	// minKV is the least size of a metadata entry: length of the key, kind, one byte.
	minKV = 8 + 4 + 1
	// firstAlloc caps the allocation for a count before its entries are read.
	firstAlloc = 1 << 12

	alignmentKey = "general.alignment"
)

// foreign names other formats found under the extension .gguf, by their first four bytes.
var foreign = map[string]string{
	"lmgg":             "a GGML file from before GGUF (ggml)",
	"fmgg":             "a GGML file from before GGUF (ggmf)",
	"tjgg":             "a GGML file from before GGUF (ggjt)",
	"algg":             "a GGML adapter from before GGUF (ggla)",
	"FUGG":             "a GGUF file whose bytes are swapped",
	"PK\x03\x04":       "a ZIP archive (a PyTorch checkpoint?)",
	"vers":             "a Git LFS pointer: the file itself was not downloaded",
	"<!DO":             "an HTML page",
	"<htm":             "an HTML page",
	"\x00\x00\x00\x00": "a file of zeros",
}

// parser walks the header. The first error sticks; values read after it are zero.
type parser struct {
	data  []byte
	pos   int
	file  string
	field string
	err   error
	spans [][2]int // of the metadata values, in the order of the file
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = &FormatError{File: p.file, Field: p.field, Offset: int64(p.pos), Err: fmt.Errorf(format, args...)}
	}
}

func (p *parser) left() int { return len(p.data) - p.pos }

// take returns the next n bytes, or nil.
func (p *parser) take(n uint64) []byte {
	if p.err == nil && n > uint64(p.left()) {
		p.fail("%w: %d bytes wanted, %d left", ErrTruncated, n, p.left())
	}
	if p.err != nil {
		return nil
	}
	b := p.data[p.pos : p.pos+int(n)]
	p.pos += int(n)
	return b
}

func (p *parser) u32() uint32 {
	if b := p.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a number of entries of at least size bytes each, which must fit the rest of the file.
func (p *parser) count(size int, what string) int {
	n := p.u64()
	if p.err == nil && n > uint64(p.left()/size) {
		p.fail("%w: %d %s do not fit into the remaining %d bytes", ErrTruncated, n, what, p.left())
	}
	if p.err != nil {
		return 0
	}
	return int(n)
}

// name reads a key or a tensor's name.
func (p *parser) name() string {
	n := p.u64()
	if p.err == nil && (n == 0 || n > maxName) {
		p.fail("name of %d bytes", n)
	}
	return string(p.take(n))
}

// Parse checks the bytes of a GGUF file; name is that of the file in errors. Tensor data of the
// result are slices of data; everything else is copied.
func Parse(data []byte, name string) (*File, error) {
	p := &parser{data: data, file: name}
	f := &File{Name: name, Size: int64(len(data)), Alignment: defaultAlignment}
	tensors, kvs := p.preamble(f)
	p.metadata(f, kvs)
	p.alignment(f)
	p.tensorTable(f, tensors)
	if p.err == nil {
		p.place(f)
	}
	if p.err != nil {
		return nil, p.err
	}
	header := string(data[:p.pos])
	for i, span := range p.spans {
		f.Metadata[i].Value.raw = header[span[0]:span[1]]
	}
	return f, nil
}

func (p *parser) preamble(f *File) (tensors, kvs int) {
	p.field = "magic"
	got := string(p.take(4))
	if p.err == nil && got != magic {
		what := foreign[got]
		if what == "" {
			what = fmt.Sprintf("it begins with %q", got)
		}
		p.pos = 0
		p.fail("%w: %s", ErrMagic, what)
	}
	p.field = "version"
	f.Version = p.u32()
	switch {
	case p.err != nil || f.Version == 2 || f.Version == 3:
	case f.Version == 1:
		p.fail("%w 1: its sizes are 32-bit; convert the model again", ErrVersion)
	case f.Version&0xffff == 0:
		p.fail("%w: the file is big endian; only little endian is read", ErrVersion)
	default:
		p.fail("%w %d: 2 and 3 are read", ErrVersion, f.Version)
	}
	p.field = "tensor count"
	tensors = p.count(minTensor, "tensors")
	p.field = "metadata count"
	kvs = p.count(minKV, "entries")
	return
}

func (p *parser) metadata(f *File, n int) {
	f.Metadata = make([]KV, 0, min(n, firstAlloc))
	f.keys = make(map[string]int, min(n, firstAlloc))
	for i := 0; i < n && p.err == nil; i++ {
		p.field = fmt.Sprintf("key of metadata entry %d", i)
		start := p.pos
		key := p.name()
		p.field = fmt.Sprintf("metadata %q", key)
		if _, dup := f.keys[key]; dup {
			p.pos = start
			p.fail("the key occurs twice")
		}
		v := p.value()
		f.keys[key] = i
		f.Metadata = append(f.Metadata, KV{key, v})
	}
}

// value reads a value without its bytes, whose position it adds to spans.
func (p *parser) value() Value {
	v := Value{kind: p.kind()}
	n := 1
	elem := v.kind
	if v.kind == KindArray {
		elem, n = p.arrayHeader()
		v.elem, v.n = elem, n
	}
	start := p.pos
	p.skip(elem, n, 1)
	p.spans = append(p.spans, [2]int{start, p.pos})
	return v
}

func (p *parser) kind() Kind {
	k := Kind(p.u32())
	if p.err == nil && !k.known() {
		p.pos -= 4
		p.fail("unknown kind of value %d", uint32(k))
	}
	return k
}

func (p *parser) arrayHeader() (elem Kind, n int) {
	elem = p.kind()
	if p.err != nil {
		return 0, 0
	}
	return elem, p.count(kinds[elem].min, "elements")
}

// skip checks and skips n values of one kind, nested in depth arrays.
func (p *parser) skip(k Kind, n, depth int) {
	switch {
	case p.err != nil:
	case k == KindBool:
		for i, b := range p.take(uint64(n)) {
			if b > 1 {
				p.pos -= n - i
				p.fail("bool of value %d", b)
				return
			}
		}
	case kinds[k].fixed:
		p.take(uint64(n) * uint64(kinds[k].min)) // count has bounded the product
	case k == KindString:
		for i := 0; i < n && p.err == nil; i++ {
			p.take(p.u64())
		}
	case depth > maxNesting:
		p.fail("arrays are nested deeper than %d", maxNesting)
	default:
		for i := 0; i < n && p.err == nil; i++ {
			elem, m := p.arrayHeader()
			p.skip(elem, m, depth+1)
		}
	}
}

func (p *parser) alignment(f *File) {
	i, ok := f.keys[alignmentKey]
	if !ok || p.err != nil {
		return
	}
	p.field = fmt.Sprintf("metadata %q", alignmentKey)
	v := f.Metadata[i].Value
	if v.kind != KindUint32 {
		p.fail("kind is %v, not %v", v.kind, KindUint32)
		return
	}
	a := binary.LittleEndian.Uint32(p.data[p.spans[i][0]:])
	if a == 0 || a&(a-1) != 0 || a > maxAlignment {
		p.fail("%d is not a power of two up to %d", a, maxAlignment)
		return
	}
	f.Alignment = int64(a)
}

func (p *parser) tensorTable(f *File, n int) {
	f.Tensors = make([]Tensor, 0, min(n, firstAlloc))
	f.names = make(map[string]int, min(n, firstAlloc))
	for i := 0; i < n && p.err == nil; i++ {
		p.field = fmt.Sprintf("name of tensor %d", i)
		start := p.pos
		t := Tensor{Name: p.name()}
		p.field = fmt.Sprintf("tensor %q", t.Name)
		if _, dup := f.names[t.Name]; dup {
			p.pos = start
			p.fail("the name occurs twice")
			return
		}
		dims := p.u32()
		if dims > maxDims {
			p.fail("%d dimensions are more than %d", dims, maxDims)
			return
		}
		t.Shape = make([]int64, dims)
		for d := range t.Shape {
			n := p.u64()
			if n > math.MaxInt64 {
				p.fail("dimension of %d", n)
			}
			t.Shape[len(t.Shape)-1-d] = int64(n)
		}
		t.Type = TensorType(p.u32())
		t.DType = t.Type.DType()
		offset := p.u64()
		if p.err != nil {
			return
		}
		var err error
		if t.Size, err = t.Type.size(t.Shape); err != nil {
			p.fail("%w", err)
			return
		}
		if offset > uint64(len(p.data)) {
			p.fail("%w: data at offset %d", ErrTruncated, offset)
			return
		}
		t.File = p.file
		t.Offset = int64(offset) // from the start of tensor data, until place
		f.names[t.Name] = i
		f.Tensors = append(f.Tensors, t)
	}
}

// place turns the tensors' offsets into positions in the file and checks them.
func (p *parser) place(f *File) {
	f.DataOffset = (int64(p.pos) + f.Alignment - 1) &^ (f.Alignment - 1)
	byOffset := make([]int, len(f.Tensors))
	for i := range f.Tensors {
		byOffset[i] = i
		t := &f.Tensors[i]
		p.field = fmt.Sprintf("tensor %q", t.Name)
		if t.Offset%f.Alignment != 0 {
			p.fail("data offset %d is not a multiple of the alignment of %d", t.Offset, f.Alignment)
			return
		}
		t.Offset += f.DataOffset
		if room := f.Size - t.Offset; room < max(t.Size, 0) {
			p.fail("%w: %d bytes of data at byte %d of %d", ErrTruncated, t.Size, t.Offset, f.Size)
			return
		}
		if t.Size >= 0 {
			t.Data = p.data[t.Offset : t.Offset+t.Size : t.Offset+t.Size]
		}
	}
	slices.SortStableFunc(byOffset, func(a, b int) int {
		return cmp.Compare(f.Tensors[a].Offset, f.Tensors[b].Offset)
	})
	for i := 1; i < len(byOffset); i++ {
		a, b := f.Tensors[byOffset[i-1]], f.Tensors[byOffset[i]]
		if a.Offset+a.Size > b.Offset {
			p.field = fmt.Sprintf("tensor %q", b.Name)
			p.fail("its data at byte %d overlap those of tensor %q", b.Offset, a.Name)
			return
		}
	}
}
