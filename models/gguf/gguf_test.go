package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// The numbers of ggml_type that the tests write.
const (
	TypeF32  TensorType = 0
	TypeF16  TensorType = 1
	TypeQ4_0 TensorType = 2
	TypeQ8_0 TensorType = 8
	TypeQ4_K TensorType = 12
	TypeBF16 TensorType = 30
)

// bytesOf makes a tensor whose data count up.
func bytesOf(name string, t TensorType, shape ...int64) TensorWriter {
	return TensorWriter{Name: name, Type: t, Shape: shape, Write: func(w io.Writer) error {
		size, err := t.size(shape)
		if err != nil {
			return err
		}
		for i := range size {
			if _, err := w.Write([]byte{byte(i)}); err != nil {
				return err
			}
		}
		return nil
	}}
}

// sample has every kind of value and tensors of several types.
func sample() ([]KV, []TensorWriter) {
	metadata := []KV{
		{"general.architecture", String("llama")},
		{"u32", Uint32(7)},
		{"u64", Uint64(math.MaxUint64)},
		{"i32", Int32(-7)},
		{"f32", Float32(0.5)},
		{"yes", Bool(true)},
		{"empty", String("")},
		{"tokens", StringArray([]string{"a", "", "été", "\x00\xff"})},
		{"scores", Float32Array([]float32{0, -1.5})},
		{"types", Int32Array([]int32{1, -2, 3})},
		{"ids", Uint32Array([]uint32{1, math.MaxUint32})},
		{"none", StringArray(nil)},
		{"u8", Value{kind: KindUint8, raw: "\xff"}},
		{"i8", Value{kind: KindInt8, raw: "\xff"}},
		{"u16", Value{kind: KindUint16, raw: "\xfe\xff"}},
		{"i16", Value{kind: KindInt16, raw: "\xfe\xff"}},
		{"i64", Value{kind: KindInt64, raw: "\xfd\xff\xff\xff\xff\xff\xff\xff"}},
		{"f64", Value{kind: KindFloat64, raw: "\x00\x00\x00\x00\x00\x00\xf8\x3f"}},
		{"f64s", Value{kind: KindArray, elem: KindFloat64, n: 1, raw: "\x00\x00\x00\x00\x00\x00\xf8\x3f"}},
		{"u64s", Value{kind: KindArray, elem: KindUint64, n: 1, raw: "\xff\xff\xff\xff\xff\xff\xff\xff"}},
		{"bools", Value{kind: KindArray, elem: KindBool, n: 2, raw: "\x00\x01"}},
		{"nested", Value{kind: KindArray, elem: KindArray, n: 2, raw: "" +
			"\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x05\x06" +
			"\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00ab"}},
	}
	return metadata, []TensorWriter{
		bytesOf("w.f32", TypeF32, 3, 5),
		bytesOf("w.q8", TypeQ8_0, 2, 64),
		bytesOf("w.q4k", TypeQ4_K, 2, 3, 256),
		bytesOf("w.f16", TypeF16, 1),
		bytesOf("w.iq", TensorType(16), 256), // IQ2_XXS: listed, not usable
	}
}

func encode(t testing.TB, metadata []KV, tensors []TensorWriter) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, metadata, tensors))
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	metadata, tensors := sample()
	data := encode(t, metadata, tensors)
	require.Zero(t, len(data)%defaultAlignment)
	f, err := Parse(data, "sample.gguf")
	require.NoError(t, err)
	require.Equal(t, metadata, f.Metadata)
	require.Equal(t, uint32(3), f.Version)
	require.Len(t, f.Tensors, len(tensors))
	end := f.DataOffset
	for i, src := range tensors {
		got := f.Tensors[i]
		require.Equal(t, src.Name, got.Name)
		require.Equal(t, src.Shape, got.Shape)
		require.Equal(t, src.Type, got.Type)
		require.Equal(t, end, got.Offset)
		require.Len(t, got.Data, int(got.Size))
		for j, b := range got.Data {
			require.Equal(t, byte(j), b)
		}
		end = (got.Offset + got.Size + 31) / 32 * 32
		byName, ok := f.Tensor(src.Name)
		require.True(t, ok)
		require.Equal(t, got, byName)
	}
	require.Equal(t, f.Size, end)
	require.Equal(t, dtype.Q8_0, f.Tensors[1].DType)
	require.Equal(t, int64(2*3*256/256*144), f.Tensors[2].Size)
	require.Equal(t, dtype.Invalid, f.Tensors[4].DType)
	require.Equal(t, "IQ2_XXS", f.Tensors[4].Type.String())
	_, ok := f.Tensor("absent")
	require.False(t, ok)

	again := make([]TensorWriter, len(f.Tensors))
	for i, tensor := range f.Tensors {
		again[i] = tensor.Writer()
	}
	require.Equal(t, data, encode(t, f.Metadata, again))
}

func TestGetters(t *testing.T) {
	metadata, _ := sample()
	f, err := Parse(encode(t, metadata, nil), "sample.gguf")
	require.NoError(t, err)

	for key, want := range map[string]any{
		"general.architecture": "llama", "u32": uint32(7), "u64": uint64(math.MaxUint64), "i32": int32(-7),
		"f32": float32(0.5), "f64": 1.5, "yes": true, "empty": "", "u8": uint8(255), "i8": int8(-1),
		"u16": uint16(65534), "i16": int16(-2), "i64": int64(-3),
		"tokens": []any{"a", "", "été", "\x00\xff"}, "none": []any{}, "bools": []any{false, true},
		"nested": []any{[]any{uint8(5), uint8(6)}, []any{"ab"}},
	} {
		v, ok := f.Lookup(key)
		require.True(t, ok, key)
		require.Equal(t, want, v.Any(), key)
	}
	require.False(t, f.Has("absent"))

	uints := map[string]uint64{"u8": 255, "u16": 65534, "u32": 7, "u64": math.MaxUint64}
	for key, want := range uints {
		got, err := f.Uint(key)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	ints := map[string]int64{"u8": 255, "i8": -1, "i16": -2, "i32": -7, "i64": -3}
	for key, want := range ints {
		got, err := f.Int(key)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	x, err := f.Float("f64")
	require.NoError(t, err)
	require.Equal(t, 1.5, x)
	floats, err := f.Floats("f64s")
	require.NoError(t, err)
	require.Equal(t, []float32{1.5}, floats)
	list, err := f.Ints("types")
	require.NoError(t, err)
	require.Equal(t, []int64{1, -2, 3}, list)
	list, err = f.Ints("ids")
	require.NoError(t, err)
	require.Equal(t, []int64{1, math.MaxUint32}, list)
	flags, err := f.Bools("bools")
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, flags)
	tokens, err := f.Strings("tokens")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "", "été", "\x00\xff"}, tokens)
	yes, err := f.Bool("yes")
	require.NoError(t, err)
	require.True(t, yes)
	s, err := f.String("general.architecture")
	require.NoError(t, err)
	require.Equal(t, "llama", s)
}

func TestGetterErrors(t *testing.T) {
	metadata, _ := sample()
	f, err := Parse(encode(t, metadata, nil), "sample.gguf")
	require.NoError(t, err)
	get := map[string]func(string) error{
		"String":  func(k string) error { _, err := f.String(k); return err },
		"Uint":    func(k string) error { _, err := f.Uint(k); return err },
		"Int":     func(k string) error { _, err := f.Int(k); return err },
		"Float":   func(k string) error { _, err := f.Float(k); return err },
		"Bool":    func(k string) error { _, err := f.Bool(k); return err },
		"Strings": func(k string) error { _, err := f.Strings(k); return err },
		"Floats":  func(k string) error { _, err := f.Floats(k); return err },
		"Ints":    func(k string) error { _, err := f.Ints(k); return err },
		"Bools":   func(k string) error { _, err := f.Bools(k); return err },
	}
	for _, c := range []struct{ getter, key, message string }{
		{"String", "u32", `sample.gguf: metadata "u32" is uint32, not string`},
		{"Uint", "i32", `sample.gguf: metadata "i32" is int32 -7, not unsigned integer`},
		{"Uint", "f32", `sample.gguf: metadata "f32" is float32, not unsigned integer`},
		{"Int", "u64", `sample.gguf: metadata "u64" is uint64 18446744073709551615, not integer of 64 bits`},
		{"Int", "yes", `sample.gguf: metadata "yes" is bool, not integer of 64 bits`},
		{"Float", "u32", `sample.gguf: metadata "u32" is uint32, not float`},
		{"Bool", "u8", `sample.gguf: metadata "u8" is uint8, not bool`},
		{"Strings", "scores", `sample.gguf: metadata "scores" is array of 2 float32, not array of strings`},
		{"Strings", "empty", `sample.gguf: metadata "empty" is string, not array of strings`},
		{"Floats", "types", `sample.gguf: metadata "types" is array of 3 int32, not array of floats`},
		{"Bools", "types", `sample.gguf: metadata "types" is array of 3 int32, not array of bools`},
		{"Ints", "u32", `sample.gguf: metadata "u32" is uint32, not array of integers of 64 bits`},
		{"Ints", "u64s", `sample.gguf: metadata "u64s" is array of 1 uint64, element 0 is 18446744073709551615, not array of integers of 64 bits`},
	} {
		err := get[c.getter](c.key)
		require.EqualError(t, err, c.message)
		require.ErrorIs(t, err, ErrKind)
		require.NotErrorIs(t, err, ErrMissing)
	}
	for name, g := range get {
		err := g("absent")
		require.ErrorIs(t, err, ErrMissing, name)
		require.NotErrorIs(t, err, ErrKind, name)
		var key *KeyError
		require.ErrorAs(t, err, &key)
		require.Equal(t, "absent", key.Key)
	}
}

func TestValueString(t *testing.T) {
	for _, c := range []struct {
		v    Value
		want string
	}{
		{Uint32(7), "7"},
		{String("a\nb"), `"a\nb"`},
		{Bool(true), "true"},
		{StringArray([]string{"a", "b"}), `[2 string]{"a", "b"}`},
		{Int32Array(make([]int32, 9)), "[9 int32]{0, 0, 0, 0, 0, 0, 0, 0, …}"},
		{Value{}, "<nil>"},
	} {
		require.Equal(t, c.want, c.v.String())
	}
}

// rawFile is a file made by hand, so that it can be wrong.
type rawFile struct{ bytes.Buffer }

func (r *rawFile) u32(x uint32) *rawFile { binary.Write(r, binary.LittleEndian, x); return r }
func (r *rawFile) u64(x uint64) *rawFile { binary.Write(r, binary.LittleEndian, x); return r }
func (r *rawFile) str(s string) *rawFile { r.u64(uint64(len(s))).WriteString(s); return r }
func (r *rawFile) pad(n int) *rawFile    { r.Write(make([]byte, n)); return r }

func start(tensors, kvs uint64) *rawFile {
	r := new(rawFile)
	r.WriteString(magic)
	return r.u32(3).u64(tensors).u64(kvs)
}

func (r *rawFile) tensor(name string, t TensorType, offset uint64, ne ...uint64) *rawFile {
	r.str(name).u32(uint32(len(ne)))
	for _, n := range ne {
		r.u64(n)
	}
	return r.u32(uint32(t)).u64(offset)
}

func (r *rawFile) array(key string, elem Kind, n uint64) *rawFile {
	return r.str(key).u32(uint32(KindArray)).u32(uint32(elem)).u64(n)
}

func TestParseRefuses(t *testing.T) {
	version := func(v uint32) *rawFile {
		r := new(rawFile)
		r.WriteString(magic)
		return r.u32(v).pad(64)
	}
	text := func(s string) *rawFile { r := new(rawFile); r.WriteString(s); return r }
	nested := start(0, 1).array("k", KindArray, 1)
	for range 6 {
		nested.u32(uint32(KindArray)).u64(1)
	}
	nested.pad(64)
	for name, c := range map[string]struct {
		file  *rawFile
		field string
		want  string
		is    error
	}{
		"empty":              {text(""), "magic", "4 bytes wanted, 0 left", ErrTruncated},
		"other magic":        {text("abcdefgh"), "magic", `it begins with "abcd"`, ErrMagic},
		"ggml":               {text("tjggxxxx"), "magic", "ggjt", ErrMagic},
		"html":               {text("<!DOCTYPE html>"), "magic", "HTML", ErrMagic},
		"version 1":          {version(1), "version", "version 1", ErrVersion},
		"version 4":          {version(4), "version", "version 4", ErrVersion},
		"big endian":         {version(3 << 24), "version", "big endian", ErrVersion},
		"tensor count":       {start(1<<60, 0).pad(64), "tensor count", "do not fit", ErrTruncated},
		"metadata count":     {start(0, 1<<60).pad(64), "metadata count", "do not fit", ErrTruncated},
		"key length":         {start(0, 1).u64(1 << 62).pad(64), "key of metadata entry 0", "name of 4611686018427387904 bytes", nil},
		"key past the end":   {start(0, 1).u64(100).pad(64), "key of metadata entry 0", "100 bytes wanted, 64 left", ErrTruncated},
		"empty key":          {start(0, 1).str("").pad(64), "key of metadata entry 0", "name of 0 bytes", nil},
		"unknown kind":       {start(0, 1).str("k").u32(13).pad(8), `metadata "k"`, "unknown kind of value 13", nil},
		"duplicate key":      {start(0, 2).str("k").u32(4).u32(0).str("k").u32(4).u32(0), `metadata "k"`, "occurs twice", nil},
		"string length":      {start(0, 1).str("k").u32(8).u64(math.MaxUint64).pad(8), `metadata "k"`, "bytes wanted, 8 left", ErrTruncated},
		"array length":       {start(0, 1).array("k", KindUint64, 1<<61).pad(8), `metadata "k"`, "do not fit", ErrTruncated},
		"array of strings":   {start(0, 1).array("k", KindString, 3).str("").str("").u64(9).pad(8), `metadata "k"`, "9 bytes wanted, 8 left", ErrTruncated},
		"array kind":         {start(0, 1).array("k", Kind(99), 0).pad(8), `metadata "k"`, "unknown kind of value 99", nil},
		"deep array":         {nested, `metadata "k"`, "nested deeper", nil},
		"bool":               {start(0, 1).str("k").u32(7).u32(2), `metadata "k"`, "bool of value 2", nil},
		"alignment kind":     {start(0, 1).str(alignmentKey).u32(5).u32(32), `metadata "general.alignment"`, "kind is int32", nil},
		"alignment zero":     {start(0, 1).str(alignmentKey).u32(4).u32(0), `metadata "general.alignment"`, "0 is not a power of two", nil},
		"alignment odd":      {start(0, 1).str(alignmentKey).u32(4).u32(48), `metadata "general.alignment"`, "48 is not a power of two", nil},
		"alignment huge":     {start(0, 1).str(alignmentKey).u32(4).u32(1 << 31), `metadata "general.alignment"`, "not a power of two up to", nil},
		"tensor name":        {start(1, 0).str("").pad(64), "name of tensor 0", "name of 0 bytes", nil},
		"duplicate tensor":   {start(2, 0).tensor("a", TypeF32, 0, 1).tensor("a", TypeF32, 32, 1).pad(128), `tensor "a"`, "occurs twice", nil},
		"dimensions":         {start(1, 0).tensor("a", TypeF32, 0, 1, 1, 1, 1, 1).pad(64), `tensor "a"`, "5 dimensions", nil},
		"many dimensions":    {start(1, 0).str("a").u32(math.MaxUint32).pad(64), `tensor "a"`, "4294967295 dimensions", nil},
		"negative dimension": {start(1, 0).tensor("a", TypeF32, 0, math.MaxUint64).pad(64), `tensor "a"`, "dimension of 18446744073709551615", nil},
		"zero dimension":     {start(1, 0).tensor("a", TypeF32, 0, 4, 0).pad(64), `tensor "a"`, "dimension of 0", nil},
		"overflow":           {start(1, 0).tensor("a", TypeF32, 0, 1<<32, 1<<32).pad(64), `tensor "a"`, "too many elements", nil},
		"overflow in bytes":  {start(1, 0).tensor("a", TypeF32, 0, 1<<31, 1<<31).pad(64), `tensor "a"`, "too many bytes", nil},
		"block":              {start(1, 0).tensor("a", TypeQ4_K, 0, 128, 2).pad(512), `tensor "a"`, "rows of 128 elements are not whole Q4_K blocks of 256", nil},
		"block of a scalar":  {start(1, 0).tensor("a", TypeQ8_0, 0).pad(512), `tensor "a"`, "not whole Q8_0 blocks", nil},
		"misaligned":         {start(1, 0).tensor("a", TypeF32, 16, 1).pad(512), `tensor "a"`, "offset 16 is not a multiple", nil},
		"offset":             {start(1, 0).tensor("a", TypeF32, 1<<63, 1).pad(512), `tensor "a"`, "data at offset", ErrTruncated},
		"offset of unknown":  {start(1, 0).tensor("a", 99, 96, 1).pad(64), `tensor "a"`, "", ErrTruncated},
		"past the end":       {start(1, 0).tensor("a", TypeF32, 0, 256).pad(512), `tensor "a"`, "1024 bytes of data at byte 64 of 569", ErrTruncated},
		"overlap":            {start(2, 0).tensor("a", TypeF32, 32, 8).tensor("b", TypeF32, 0, 9).pad(512), `tensor "a"`, `overlap those of tensor "b"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse(c.file.Bytes(), "bad.gguf")
			require.Nil(t, f)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.Equal(t, "bad.gguf", format.File)
			require.Equal(t, c.field, format.Field)
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

func TestParseAccepts(t *testing.T) {
	v2 := start(0, 0)
	v2.Bytes()[4] = 2
	for name, c := range map[string]struct {
		file    *rawFile
		tensors int
	}{
		"nothing":           {start(0, 0), 0},
		"version 2":         {v2, 0},
		"unknown type":      {start(1, 0).tensor("a", 99, 0, 5).pad(64), 1},
		"withdrawn type":    {start(1, 0).tensor("a", 31, 0, 5).pad(64), 1},
		"scalar":            {start(1, 0).tensor("a", TypeF32, 0).pad(64), 1},
		"gap, no order":     {start(2, 0).tensor("a", TypeF32, 96, 1).tensor("b", TypeF32, 0, 1).pad(256), 2},
		"no final padding":  {start(1, 0).tensor("a", TypeF32, 0, 1).pad(7 + 4), 1},
		"larger alignment":  {start(1, 1).str(alignmentKey).u32(4).u32(4096).tensor("a", TypeF32, 4096, 1).pad(8192), 1},
		"shallow nesting":   {start(0, 1).array("k", KindArray, 1).u32(uint32(KindUint8)).u64(0), 0},
		"metadata at limit": {start(0, 1).str("k").u32(0).pad(1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse(c.file.Bytes(), "good.gguf")
			require.NoError(t, err)
			require.Len(t, f.Tensors, c.tensors)
			exercise(t, f)
		})
	}
	f, err := Parse(start(1, 0).tensor("a", 99, 0, 5).pad(64).Bytes(), "good.gguf")
	require.NoError(t, err)
	require.Equal(t, "ggml_type(99)", f.Tensors[0].Type.String())
	require.Equal(t, int64(-1), f.Tensors[0].Size)
	require.Nil(t, f.Tensors[0].Data)
}

// Every prefix of a file that lacks a byte of the header or of a tensor is refused.
func TestTruncation(t *testing.T) {
	metadata, tensors := sample()
	data := encode(t, metadata, tensors)
	whole, err := Parse(data, "whole.gguf")
	require.NoError(t, err)
	last := whole.Tensors[len(whole.Tensors)-1]
	for n := range data {
		f, err := Parse(data[:n:n], "short.gguf")
		if int64(n) >= last.Offset+last.Size { // only padding is missing
			require.NoError(t, err)
			continue
		}
		require.Nil(t, f)
		require.ErrorIs(t, err, ErrTruncated, "%d bytes", n)
	}
}

// Counts that the file cannot hold must not be allocated for.
func TestLyingCounts(t *testing.T) {
	for name, file := range map[string]*rawFile{
		"tensors":  start(1<<40, 0).pad(1 << 12),
		"metadata": start(0, 1<<40).pad(1 << 12),
		"array":    start(0, 1).array("k", KindUint8, 1<<40).pad(1 << 12),
		"strings":  start(0, 1).array("k", KindString, 1<<40).pad(1 << 12),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(file.Bytes(), "lie.gguf")
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
		})
	}
}

func TestOpen(t *testing.T) {
	metadata, tensors := sample()
	path := filepath.Join(t.TempDir(), "sample.gguf")
	require.NoError(t, WriteFile(path, metadata, tensors))
	_, err := os.Stat(path + ".partial")
	require.ErrorIs(t, err, os.ErrNotExist)
	f, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, byte(1), f.Tensors[0].Data[1])
	tokens, err := f.Strings("tokens")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.Equal(t, "été", tokens[2], "metadata outlive the map")
	require.Nil(t, f.Tensors[0].Data)

	require.NoError(t, os.Truncate(path, 100))
	_, err = Open(path)
	require.ErrorIs(t, err, ErrTruncated)
	require.ErrorContains(t, err, path)
	_, err = Open(filepath.Join(t.TempDir(), "absent.gguf"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
}

func TestWriteRefuses(t *testing.T) {
	one := []TensorWriter{bytesOf("a", TypeF32, 1)}
	failing := errors.New("no more")
	data := func(n int) func(io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(make([]byte, n)); return err }
	}
	for name, c := range map[string]struct {
		metadata []KV
		tensors  []TensorWriter
		want     string
	}{
		"empty key":        {[]KV{{"", Uint32(1)}}, one, "metadata key of 0 bytes"},
		"duplicate key":    {[]KV{{"k", Uint32(1)}, {"k", Uint32(1)}}, one, `metadata "k" occurs twice`},
		"no value":         {[]KV{{"k", Value{}}}, one, `metadata "k" has no value`},
		"alignment":        {[]KV{{alignmentKey, Uint32(12)}}, one, "power of two"},
		"alignment's kind": {[]KV{{alignmentKey, Uint64(32)}}, one, "not an uint32"},
		"long name":        {nil, []TensorWriter{bytesOf(strings.Repeat("x", 64), TypeF32, 1)}, "64 bytes, not 1 to 63"},
		"duplicate name":   {nil, append(one, one...), "occurs twice"},
		"no shape":         {nil, []TensorWriter{bytesOf("a", TypeF32)}, "the shape is empty"},
		"zero dimension":   {nil, []TensorWriter{bytesOf("a", TypeF32, 0)}, "dimension of 0"},
		"block":            {nil, []TensorWriter{bytesOf("a", TypeQ4_0, 4, 8)}, "not whole Q4_0 blocks"},
		"unknown type":     {nil, []TensorWriter{bytesOf("a", 99, 1)}, "size of type ggml_type(99) is not known"},
		"too large":        {nil, []TensorWriter{bytesOf("a", TypeF32, 1<<60), bytesOf("b", TypeF32, 1<<60), bytesOf("c", TypeF32, 1<<59)}, "too large"},
		"too little data":  {nil, []TensorWriter{{"a", TypeF32, []int64{2}, data(7)}}, `tensor "a": 1 of 8 bytes are missing`},
		"too much data":    {nil, []TensorWriter{{"a", TypeF32, []int64{2}, data(9)}}, `tensor "a": more data than the shape takes`},
		"callback fails":   {nil, []TensorWriter{{"a", TypeF32, []int64{2}, func(io.Writer) error { return failing }}}, `tensor "a": no more`},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Write(io.Discard, c.metadata, c.tensors), c.want)
			dir := t.TempDir()
			require.ErrorContains(t, WriteFile(filepath.Join(dir, "f.gguf"), c.metadata, c.tensors), c.want)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left, "nothing is left behind")
		})
	}
}

func TestAlignment(t *testing.T) {
	for _, a := range []uint32{1, 8, 32, 4096} {
		data := encode(t, []KV{{alignmentKey, Uint32(a)}}, []TensorWriter{bytesOf("a", TypeF16, 3), bytesOf("b", TypeF16, 3)})
		f, err := Parse(data, "aligned.gguf")
		require.NoError(t, err)
		require.Equal(t, int64(a), f.Alignment)
		for _, tensor := range f.Tensors {
			require.Zero(t, tensor.Offset%int64(a))
			require.Equal(t, []byte{0, 1, 2, 3, 4, 5}, tensor.Data)
		}
	}
}

func TestTypeOf(t *testing.T) {
	for _, d := range dtype.All() {
		typ, ok := TypeOf(d)
		if d.Row().GGUF == dtype.NoGGUF {
			require.False(t, ok, d)
			continue
		}
		require.True(t, ok, d)
		require.Equal(t, d, typ.DType())
		require.Equal(t, d.String(), strings.ToLower(typ.String()))
	}
	_, ok := TypeOf(dtype.Invalid)
	require.False(t, ok)
}

// The dump was made by ggml's own reader.
func TestStories260K(t *testing.T) {
	f, err := Open(testfiles.Data(t, "models/stories260K/stories260K.gguf"))
	require.NoError(t, err)
	defer f.Close()
	want, err := os.ReadFile(testfiles.Data(t, "expected/stories260K.gguf_dump.txt"))
	require.NoError(t, err)
	require.Equal(t, string(want), dump(f))
}

// dumpHash is FNV-1a from the offset basis that the reference dump uses, which is
// not the usual one.
type dumpHash uint64

func newDumpHash() *dumpHash { h := dumpHash(1469598103934665603); return &h }

func (h *dumpHash) Write(b []byte) (int, error) {
	for _, c := range b {
		*h = (*h ^ dumpHash(c)) * 0x100000001b3
	}
	return len(b), nil
}

// dump prints a file in the form of the reference dump.
func dump(f *File) string {
	short := map[Kind]string{KindString: "str", KindFloat32: "f32", KindInt32: "i32", KindUint32: "u32"}
	var b strings.Builder
	fmt.Fprintf(&b, "version %d\nalignment %d\ndata %d\n", f.Version, f.Alignment, f.DataOffset)
	for _, kv := range f.Metadata {
		v := kv.Value
		fmt.Fprintf(&b, "kv %s ", kv.Key)
		switch v.Kind() {
		case KindArray:
			h := newDumpHash()
			if v.Elem() == KindString {
				for _, s := range v.strings() {
					io.WriteString(h, s)
					h.Write([]byte{0})
				}
			} else {
				io.WriteString(h, v.raw)
			}
			fmt.Fprintf(&b, "arr %s x%d fnv:%016x\n", short[v.Elem()], v.Len(), uint64(*h))
		case KindFloat32:
			fmt.Fprintf(&b, "f32 f32:%08x\n", load(v.raw, 4))
		default:
			fmt.Fprintf(&b, "%s %v\n", short[v.Kind()], v)
		}
	}
	for _, t := range f.Tensors {
		h := newDumpHash()
		h.Write(t.Data)
		fmt.Fprintf(&b, "tensor %s %v at %d size %d fnv:%016x\n", t.Name, t.DType, t.Offset, t.Size, uint64(*h))
	}
	return b.String()
}

// Writing what was read gives the same bytes, for files of llama.cpp's tools too.
func TestRewrite(t *testing.T) {
	for _, file := range []struct {
		at   func(testing.TB, string) string
		path string
	}{
		{testfiles.Model, "tiny-llama/gguf/tiny-llama-F16.gguf"},
		{testfiles.Model, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"},
		{testfiles.Shared, "models/tiny-llama/gguf/tiny-llama-Q4_K_M.gguf"},
		{testfiles.Data, "models/stories260K/stories260K.gguf"},
		{testfiles.Data, "tokenizers/ggml-vocab/ggml-vocab-llama-spm.gguf"},
	} {
		t.Run(file.path, func(t *testing.T) {
			path := file.at(t, file.path)
			f, err := Open(path)
			require.NoError(t, err)
			tensors := make([]TensorWriter, len(f.Tensors))
			for i, tensor := range f.Tensors {
				tensors[i] = tensor.Writer()
			}
			copied := filepath.Join(t.TempDir(), "copy.gguf")
			require.NoError(t, WriteFile(copied, f.Metadata, tensors))
			require.NoError(t, f.Close())
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			got, err := os.ReadFile(copied)
			require.NoError(t, err)
			if f.Version == 2 {
				want[4] = 3
			}
			require.True(t, bytes.Equal(want, got[:len(want)]), path)
			require.Less(t, len(got)-len(want), 32, "no more than final padding")
		})
	}
}

func TestVocabularies(t *testing.T) {
	for name, size := range map[string]int{"llama-spm": 32000, "llama-bpe": 128256, "qwen2": 151669, "gpt-2": 50257, "phi-3": 32064} {
		f, err := Open(testfiles.Data(t, "tokenizers/ggml-vocab/ggml-vocab-"+name+".gguf"))
		require.NoError(t, err)
		tokens, err := f.Strings("tokenizer.ggml.tokens")
		require.NoError(t, err)
		require.Equal(t, size, len(tokens), name)
		require.Empty(t, f.Tensors)
		require.NoError(t, f.Close())
	}
}

// exercise reads all that a parsed file gives access to.
func exercise(t testing.TB, f *File) {
	for _, kv := range f.Metadata {
		_ = kv.Value.String()
		_ = kv.Value.Any()
		for _, get := range []func(string) error{
			func(k string) error { _, err := f.String(k); return err },
			func(k string) error { _, err := f.Uint(k); return err },
			func(k string) error { _, err := f.Int(k); return err },
			func(k string) error { _, err := f.Float(k); return err },
			func(k string) error { _, err := f.Bool(k); return err },
			func(k string) error { _, err := f.Strings(k); return err },
			func(k string) error { _, err := f.Floats(k); return err },
			func(k string) error { _, err := f.Ints(k); return err },
			func(k string) error { _, err := f.Bools(k); return err },
		} {
			require.NotErrorIs(t, get(kv.Key), ErrMissing)
		}
	}
	for _, tensor := range f.Tensors {
		require.Equal(t, max(tensor.Size, 0), int64(len(tensor.Data)))
		if tensor.DType != dtype.Invalid {
			require.Equal(t, tensor.DType.Bytes(tensor.Elems()), tensor.Size)
		}
		sum := byte(0)
		for _, b := range tensor.Data {
			sum += b
		}
		_ = sum
	}
}

func FuzzOpen(f *testing.F) {
	metadata, tensors := sample()
	data := encode(f, metadata, tensors)
	f.Add(data)
	for n := 1; n < len(data); n += n/3 + 1 {
		f.Add(data[:n])
	}
	f.Add(encode(f, nil, nil))
	f.Add(encode(f, []KV{{alignmentKey, Uint32(64)}}, []TensorWriter{bytesOf("a", TypeBF16, 2, 2)}))
	f.Add(start(2, 0).tensor("a", 99, 0, 5).tensor("b", 31, 32).pad(64).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(bytes.Clone(data), "fuzz.gguf")
		if err != nil {
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.NotEmpty(t, format.Field)
			return
		}
		exercise(t, file)
		rewritten := make([]TensorWriter, len(file.Tensors))
		for i, tensor := range file.Tensors {
			rewritten[i] = tensor.Writer()
		}
		var b bytes.Buffer
		if Write(&b, file.Metadata, rewritten) != nil {
			return // types without a size, long names, empty shapes
		}
		again, err := Parse(b.Bytes(), "rewritten.gguf")
		require.NoError(t, err)
		require.Equal(t, file.Metadata, again.Metadata)
		for i := range file.Tensors {
			require.Equal(t, file.Tensors[i].Data, again.Tensors[i].Data)
		}
	})
}

func BenchmarkOpenVocabulary(b *testing.B) {
	path := testfiles.Data(b, "tokenizers/ggml-vocab/ggml-vocab-qwen2.gguf")
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path)
		require.NoError(b, err)
		_, err = f.Strings("tokenizer.ggml.tokens")
		require.NoError(b, err)
		_, err = f.Strings("tokenizer.ggml.merges")
		require.NoError(b, err)
		require.NoError(b, f.Close())
	}
}

func ExampleWrite() {
	weights := TensorWriter{Name: "output.weight", Type: TypeF32, Shape: []int64{2, 3}, Write: func(w io.Writer) error {
		return binary.Write(w, binary.LittleEndian, []float32{1, 2, 3, 4, 5, 6})
	}}
	var file bytes.Buffer
	if err := Write(&file, []KV{{"general.architecture", String("llama")}}, []TensorWriter{weights}); err != nil {
		fmt.Println(err)
	}
	f, err := Parse(file.Bytes(), "tiny.gguf")
	if err != nil {
		fmt.Println(err)
		return
	}
	t, _ := f.Tensor("output.weight")
	fmt.Println(f.Metadata[0].Key, f.Metadata[0].Value, t.DType, t.Shape, len(t.Data))
	_, err = f.Uint("llama.block_count")
	fmt.Println(err)
	// Output:
	// general.architecture "llama" f32 [2 3] 24
	// tiny.gguf: metadata "llama.block_count" is missing (unsigned integer)
}
