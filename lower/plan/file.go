package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"
)

// A Plan file is the magic, the version, the SHA-256 of what follows, and the
// File as deterministic CBOR (RFC 8949, section 4.2).
const (
	fileMagic   = "SMELTPLN"
	fileVersion = 11
	headerSize  = len(fileMagic) + 4 + sha256.Size
	maxFile     = 256 << 20
)

// File is the content of a Plan file: the Plan and the identity of its model file.
type File struct {
	Plan  *Plan
	Model ModelID
}

// ModelID identifies a model file without a path: a loader searches for the base name and compares
// the rest.
type ModelID struct {
	Base      string   // base name of the file or folder; "" for a shape without weights
	Arch      string   // "qwen3-0.6b" where the Plan was made from a known shape
	Size      int64    // bytes of the tensor data
	Header    [32]byte // SHA-256 of names, types, shapes and offsets of all tensors
	Samples   [32]byte // SHA-256 of pages sampled evenly over the data
	Tokenizer [32]byte // hash of the tokenizer
}

// Errors that Read wraps.
var (
	ErrNotPlan = errors.New("not a plan file")
	ErrVersion = errors.New("plan file of another version")
	ErrCorrupt = errors.New("corrupted plan file")
)

var (
	encoding = must(encodingOptions().EncMode())
	decoding = must(cbor.DecOptions{
		TextUnmarshaler:  cbor.TextUnmarshalerTextString,
		MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 10, MaxNestedLevels: 16,
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	}.DecMode())
)

// encodingOptions returns the options of deterministic CBOR, with text for types that marshal to
// text.
func encodingOptions() cbor.EncOptions {
	o := cbor.CoreDetEncOptions()
	o.TextMarshaler = cbor.TextMarshalerTextString
	return o
}

func must[M any](mode M, err error) M {
	if err != nil {
		panic(err)
	}
	return mode
}

// Write writes the file. The same File gives the same bytes.
func (f *File) Write(w io.Writer) error {
	body, err := encoding.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding the plan: %w", err)
	}
	sum := sha256.Sum256(body)
	header := append([]byte(fileMagic), fileVersion, 0, 0, 0)
	_, err = w.Write(append(append(header, sum[:]...), body...))
	return err
}

// Read reads a Plan file and validates the Plan.
func Read(r io.Reader) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxFile:
		return nil, fmt.Errorf("%w: larger than %d MiB", ErrCorrupt, maxFile>>20)
	case !bytes.HasPrefix(data, []byte(fileMagic)):
		return nil, ErrNotPlan
	case len(data) < headerSize:
		return nil, fmt.Errorf("%w: it ends after %d bytes", ErrCorrupt, len(data))
	}
	if v := binary.LittleEndian.Uint32(data[len(fileMagic):]); v != fileVersion {
		return nil, fmt.Errorf("%w: version %d, this smelt reads %d", ErrVersion, v, fileVersion)
	}
	body := data[headerSize:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], data[headerSize-sha256.Size:headerSize]) {
		return nil, fmt.Errorf("%w: the checksum does not match", ErrCorrupt)
	}
	return decode(body)
}

// decode reads the part behind the header.
func decode(body []byte) (*File, error) {
	f := new(File)
	if err := decoding.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if f.Plan == nil {
		return nil, fmt.Errorf("%w: it holds no plan", ErrCorrupt)
	}
	return f, f.Plan.Validate()
}
