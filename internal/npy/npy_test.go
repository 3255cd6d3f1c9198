package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
)

func file(version byte, header string, data ...byte) []byte {
	b := append([]byte(magic), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return append(append(b, header...), data...)
}

func encode[T Element](t testing.TB, shape []int, data []T) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, shape, data))
	return b.Bytes()
}

func roundTrip[T Element](t *testing.T, shape []int, data []T) {
	t.Helper()
	b := encode(t, shape, data)
	a, err := Parse[T](b)
	require.NoError(t, err)
	require.Equal(t, shape, a.Shape)
	require.Equal(t, data, a.Data)
	require.Zero(t, bytes.IndexByte(b, '\n')%64-63)
}

func TestRoundTrip(t *testing.T) {
	for _, shape := range [][]int{{}, {6}, {2, 3}, {3, 1, 2}, {0}, {2, 0, 3}, {1, 1, 1, 1, 1}} {
		n := 1
		for _, d := range shape {
			n *= d
		}
		f32, f64, i32, i64 := make([]float32, n), make([]float64, n), make([]int32, n), make([]int64, n)
		for i := range n {
			f32[i], f64[i], i32[i], i64[i] = float32(i)+0.5, float64(i)-0.1, int32(-i), int64(i)<<40
		}
		roundTrip(t, shape, f32)
		roundTrip(t, shape, f64)
		roundTrip(t, shape, i32)
		roundTrip(t, shape, i64)
	}
}

// NumPy wrote the references; writing them again gives the same bytes.
func TestReferences(t *testing.T) {
	for _, model := range []struct {
		name          string
		vocab, hidden int
	}{{"tiny-qwen3", 1024, 256}, {"tiny-llama", 512, 256}} {
		for name, shape := range map[string][]int{
			"logits.npy": {24, model.vocab}, "logits-Q4_0.npy": {24, model.vocab}, "hidden.npy": nil, "valid_ids.npy": nil,
		} {
			path := testfiles.Model(t, model.name+"/reference/"+name)
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			copied := filepath.Join(t.TempDir(), name)
			var got []int
			if name == "valid_ids.npy" {
				ids, err := ReadFile[int32](path)
				require.NoError(t, err)
				got = ids.Shape
				for _, id := range ids.Data {
					require.Less(t, id, int32(model.vocab))
				}
				require.NoError(t, WriteFile(copied, ids.Shape, ids.Data))
			} else {
				a, err := ReadFile[float32](path)
				require.NoError(t, err)
				got = a.Shape
				require.NoError(t, WriteFile(copied, a.Shape, a.Data))
			}
			if shape != nil {
				require.Equal(t, shape, got)
			}
			b, err := os.ReadFile(copied)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, b), path)
		}
	}
}

func TestConversions(t *testing.T) {
	wide, err := Parse[float32](encode(t, []int{2}, []float64{0.1, 1e300}))
	require.NoError(t, err)
	require.Equal(t, []float32{0.1, float32(math.Inf(1))}, wide.Data)
	exact, err := Parse[float64](encode(t, []int{1}, []float32{0.1}))
	require.NoError(t, err)
	require.Equal(t, []float64{float64(float32(0.1))}, exact.Data)
	ids, err := Parse[int32](encode(t, []int{2}, []int64{-7, math.MaxInt32}))
	require.NoError(t, err)
	require.Equal(t, []int32{-7, math.MaxInt32}, ids.Data)
	_, err = Parse[int32](encode(t, []int{2}, []int64{0, math.MaxInt32 + 1}))
	require.ErrorIs(t, err, ErrType)
	require.ErrorContains(t, err, "element 1 is 2147483648")
	_, err = Parse[float32](encode(t, []int{1}, []int32{1}))
	require.ErrorIs(t, err, ErrType)
	require.ErrorContains(t, err, "<i4 cannot be read as float32")
	_, err = Parse[int64](encode(t, []int{1}, []float32{1}))
	require.ErrorIs(t, err, ErrType)
}

func TestHeaders(t *testing.T) {
	one := []byte{0, 0, 0x80, 0x3f}
	for name, data := range map[string][]byte{
		"version 2":     file(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", one...),
		"version 3":     file(3, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", one...),
		"other order":   file(1, "{'shape': (1,), 'fortran_order': False, 'descr': '<f4'}", one...),
		"double quotes": file(1, `{"descr":"<f4","fortran_order":False,"shape":(1,)}`, one...),
		"no rank":       file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", one...),
	} {
		a, err := Parse[float32](data)
		require.NoError(t, err, name)
		require.Equal(t, []float32{1}, a.Data, name)
	}
}

func TestParseRefuses(t *testing.T) {
	head := func(descr, order, shape string) []byte {
		return file(1, fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape), 1, 2, 3, 4)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
		is   error
	}{
		"empty":         {nil, "does not begin with", ErrFormat},
		"magic":         {[]byte("PK\x03\x04........"), "does not begin with", ErrFormat},
		"version":       {file(9, "{}"), "version 9", ErrFormat},
		"length":        {[]byte(magic + "\x01\x00\x05"), "length is cut off", ErrFormat},
		"header":        {[]byte(magic + "\x01\x00\x05\x00{}"), "header of 5 bytes, 2 left", ErrFormat},
		"long header":   {[]byte(magic + "\x02\x00\xff\xff\xff\xff{}"), "header of 4294967295 bytes, 2 left", ErrFormat},
		"no dictionary": {file(1, "[]"), "not a dictionary", ErrFormat},
		"key":           {file(1, "{descr: 1}"), "a key is expected", ErrFormat},
		"unknown key":   {file(1, "{'x': 1}"), `unknown key "x"`, ErrFormat},
		"key twice":     {file(1, "{'descr': '<f4', 'descr': '<f4'}"), `"descr" occurs twice`, ErrFormat},
		"no comma":      {file(1, "{'descr': '<f4' 'shape': ()}"), "a comma is expected", ErrFormat},
		"missing":       {file(1, "{'descr': '<f4', 'shape': ()}"), `"fortran_order" is missing`, ErrFormat},
		"cut off":       {file(1, "{'descr': '<f4"), "descr: unexpected", ErrFormat},
		"more":          {file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), } x", 0, 0, 0, 0), "follows the dictionary", ErrFormat},
		"order":         {head("<f4", "True", "(1,)"), "only C order", ErrFormat},
		"order's value": {head("<f4", "1", "(1,)"), "fortran_order: unexpected", ErrFormat},
		"big endian":    {head(">f4", "False", "(1,)"), `descr ">f4"`, ErrType},
		"half":          {head("<f2", "False", "(2,)"), `descr "<f2"`, ErrType},
		"shape":         {head("<f4", "False", "1"), "shape: unexpected", ErrFormat},
		"negative":      {head("<f4", "False", "(-1,)"), "shape: unexpected", ErrFormat},
		"huge":          {head("<f4", "False", "(99999999999999999999,)"), "shape: unexpected", ErrFormat},
		"overflow":      {head("<f4", "False", "(4611686018427387904, 4)"), "too many elements", ErrFormat},
		"rank":          {head("<f4", "False", "("+strings.Repeat("1, ", 65)+")"), "shape: unexpected", ErrFormat},
		"too large":     {head("<f4", "False", "(2,)"), "takes 8 bytes, the file has 4", ErrFormat},
		"too small":     {head("<f4", "False", "(0,)"), "takes 0 bytes, the file has 4", ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse[float32](c.data)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.want)
		})
	}
	path := filepath.Join(t.TempDir(), "bad.npy")
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
	_, err := ReadFile[float32](path)
	require.ErrorContains(t, err, path)
}

func TestTruncation(t *testing.T) {
	data := encode(t, []int{2, 3}, []float32{1, 2, 3, 4, 5, 6})
	for n := range data {
		_, err := Parse[float32](data[:n:n])
		require.ErrorIs(t, err, ErrFormat, "%d bytes", n)
	}
}

func TestWriteRefuses(t *testing.T) {
	require.ErrorContains(t, Write(io.Discard, []int{2}, []float32{1}), "shape [2] does not hold 1 elements")
	require.ErrorContains(t, Write(io.Discard, []int{-1, -1}, []float32{1}), "shape [-1 -1]")
	require.ErrorContains(t, Write(io.Discard, []int{math.MaxInt, 2}, []float32{}), "shape")
	require.Error(t, WriteFile(t.TempDir(), []int{0}, []float32{}))
}

func FuzzParse(f *testing.F) {
	f.Add(encode(f, []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}))
	f.Add(encode(f, []int{1}, []int64{7}))
	f.Add(file(2, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }"))
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, data, Parse[float64])
		check(t, data, Parse[int64])
	})
}

func check[T Element](t *testing.T, data []byte, parse func([]byte) (Array[T], error)) {
	a, err := parse(data)
	if err != nil {
		return
	}
	var b bytes.Buffer
	require.NoError(t, Write(&b, a.Shape, a.Data))
	again, err := parse(b.Bytes())
	require.NoError(t, err)
	require.Equal(t, a.Shape, again.Shape)
	require.Equal(t, len(a.Data), len(again.Data))
}

func ExampleWrite() {
	var b bytes.Buffer
	if err := Write(&b, []int{2, 2}, []float32{1, 2, 3, 4}); err != nil {
		fmt.Println(err)
	}
	a, err := Parse[float32](b.Bytes())
	fmt.Println(a.Shape, a.Data, err)
	// Output: [2 2] [1 2 3 4] <nil>
}
