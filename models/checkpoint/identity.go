package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
)

const (
	samplePages = 64
	samplePage  = 4096
)

// Identity identifies a model by the content of its file, not by path or time, and without reading
// all of it.
type Identity struct {
	Base      string   // base name of the file or folder, which Differs ignores; "" for a shape
	Arch      string   // name of a shape
	Size      int64    // bytes of the tensors' data
	Header    [32]byte // SHA-256 of names, types, shapes and offsets of all tensors
	Samples   [32]byte // SHA-256 of pages sampled evenly over the data
	Tokenizer [32]byte // hash of the tokenizer; zero where there is no vocabulary
}

// Identity returns the model's identity. Its cost does not grow with the weights.
func (m *Checkpoint) Identity() Identity {
	id := Identity{}
	if !m.HasWeights() {
		id.Arch = strings.TrimPrefix(m.Path, ArchPrefix)
		return id
	}
	id.Base = filepath.Base(filepath.Clean(m.Path))
	tensors := m.tensors
	header := sha256.New()
	ends := make([]int64, len(tensors)) // of each tensor in the concatenation of all tensors
	for i, t := range tensors {
		fmt.Fprintf(header, "%q %s %v %d\n", t.Name, t.Stored, t.Shape, t.Offset)
		id.Size += int64(len(t.Data))
		ends[i] = id.Size
	}
	header.Sum(id.Header[:0])

	samples := sha256.New()
	for k := range int64(samplePages) {
		at := k * max(0, id.Size-samplePage) / (samplePages - 1)
		_ = binary.Write(samples, binary.LittleEndian, at)
		end := min(at+samplePage, id.Size)
		for i := sort.Search(len(ends), func(i int) bool { return ends[i] > at }); at < end; i++ {
			data := tensors[i].Data
			data = data[at-(ends[i]-int64(len(data))):]
			n := min(int64(len(data)), end-at)
			samples.Write(data[:n])
			at += n
		}
	}
	samples.Sum(id.Samples[:0])

	if tok, err := m.Tokenizer(); err == nil { // models without a vocabulary still have an identity
		id.Tokenizer = tok.Hash()
	}
	return id
}

// Differs returns the first property in which two identities differ, or ""; names, which users may
// change, do not count.
func (id Identity) Differs(from Identity) string {
	for _, part := range []struct {
		name string
		same bool
	}{
		{"size of its data", id.Size == from.Size},
		{"layout of its tensors", id.Header == from.Header},
		{"content of its tensors", id.Samples == from.Samples},
		{"tokenizer", id.Tokenizer == from.Tokenizer},
	} {
		if !part.same {
			return part.name
		}
	}
	return ""
}
