package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
)

func source(name string, t dtype.Type, data string, shape ...int64) TensorWriter {
	return TensorWriter{Name: name, DType: t, Shape: shape, Write: func(w io.Writer) error {
		_, err := io.WriteString(w, data)
		return err
	}}
}

func sample(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, map[string]string{"format": "pt"}, []TensorWriter{
		source("w", dtype.BF16, "abcdefghijkl", 2, 3),
		source("scalar", dtype.F32, "0123"),
		source("empty", dtype.F16, "", 0, 7),
		source(`odd "name"`, dtype.F16, "xy", 1),
	}))
	return b.Bytes()
}

// file puts a header before data.
func file(header, data string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+data...)
}

func TestRoundTrip(t *testing.T) {
	data := sample(t)
	f, err := Parse(data, "sample")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata)
	require.Len(t, f.Tensors, 4)
	w, ok := f.Tensor("w")
	require.True(t, ok)
	require.Equal(t, "abcdefghijkl", string(w.Data))
	require.Equal(t, []int64{2, 3}, w.Shape)
	require.Equal(t, dtype.BF16, w.DType)
	require.Equal(t, "BF16", w.Type)
	require.Zero(t, w.Offset%8)
	require.Equal(t, w.Data, data[w.Offset:w.Offset+12])
	scalar, ok := f.Tensor("scalar")
	require.True(t, ok)
	require.Empty(t, scalar.Shape)
	require.Equal(t, int64(1), scalar.Elems())
	odd, ok := f.Tensor(`odd "name"`)
	require.True(t, ok)
	require.Equal(t, "xy", string(odd.Data))
	_, ok = f.Tensor("absent")
	require.False(t, ok)
}

func TestParseRefuses(t *testing.T) {
	one := func(entry string) []byte { return file(`{"a":`+entry+`}`, "01234567") }
	for name, c := range map[string]struct {
		data        []byte
		field, want string
	}{
		"empty":              {nil, "header length", "file is too short: it has 0 bytes"},
		"short":              {[]byte("1234567"), "header length", "file is too short"},
		"not safetensors":    {[]byte("GGUF\x03\x00\x00\x00...."), "header length", "is it a safetensors file?"},
		"long header":        {file(`{}`, "")[:9], "header length", "file is too short: header of 2 bytes, 1 left"},
		"no header":          {file("", ""), "header", "not JSON"},
		"not UTF-8":          {file("{\"\xff\":1}", ""), "header", "not UTF-8"},
		"not JSON":           {file(`{"a"`, ""), "header", "not JSON"},
		"an array":           {file(`[]`, ""), "header", "not a JSON object"},
		"more after it":      {file(`{} {}`, ""), "header", "2 bytes after the JSON object"},
		"duplicate tensor":   {file(`{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, "01"), "header", `"a" occurs twice`},
		"duplicate field":    {one(`{"dtype":"F16","dtype":"F32","shape":[4],"data_offsets":[0,8]}`), `tensor "a"`, `"dtype" occurs twice`},
		"not an object":      {one(`7`), `tensor "a"`, "not a JSON object"},
		"no dtype":           {one(`{"shape":[4],"data_offsets":[0,8]}`), `tensor "a"`, "dtype is missing"},
		"dtype":              {one(`{"dtype":7,"shape":[4],"data_offsets":[0,8]}`), `tensor "a"`, "dtype: not a string"},
		"no shape":           {one(`{"dtype":"F16","data_offsets":[0,8]}`), `tensor "a"`, "shape is missing"},
		"shape":              {one(`{"dtype":"F16","shape":null,"data_offsets":[0,8]}`), `tensor "a"`, "shape: not an array"},
		"negative dimension": {one(`{"dtype":"F16","shape":[-4],"data_offsets":[0,8]}`), `tensor "a"`, "shape: -4 is not an unsigned integer"},
		"fraction":           {one(`{"dtype":"F16","shape":[4.0],"data_offsets":[0,8]}`), `tensor "a"`, "shape: 4.0 is not an unsigned integer"},
		"string":             {one(`{"dtype":"F16","shape":["4"],"data_offsets":[0,8]}`), `tensor "a"`, "is not an unsigned integer"},
		"many dimensions":    {one(`{"dtype":"F16","shape":[` + strings.Repeat("1,", 40) + `4],"data_offsets":[0,8]}`), `tensor "a"`, "41 dimensions"},
		"overflow":           {one(`{"dtype":"F16","shape":[4294967296,4294967296],"data_offsets":[0,8]}`), `tensor "a"`, "too many elements"},
		"hidden overflow":    {one(`{"dtype":"F16","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}`), `tensor "a"`, "too many elements"},
		"no offsets":         {one(`{"dtype":"F16","shape":[4]}`), `tensor "a"`, "data_offsets: 0 numbers"},
		"one offset":         {one(`{"dtype":"F16","shape":[4],"data_offsets":[0]}`), `tensor "a"`, "data_offsets: 1 numbers"},
		"offsets swapped":    {one(`{"dtype":"F16","shape":[4],"data_offsets":[8,0]}`), `tensor "a"`, "data_offsets: 8 is after 0"},
		"offset past end":    {one(`{"dtype":"F16","shape":[5],"data_offsets":[0,10]}`), `tensor "a"`, "data_offsets: file is too short"},
		"size":               {one(`{"dtype":"F32","shape":[4],"data_offsets":[0,8]}`), `tensor "a"`, "8 bytes for [4] elements of F32"},
		"size of a scalar":   {one(`{"dtype":"F32","shape":[],"data_offsets":[0,8]}`), `tensor "a"`, "8 bytes for [] elements of F32"},
		"half a byte":        {file(`{"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}}`, ""), `tensor "a"`, "0 bytes for [1] elements of F4"},
		"a hole":             {file(`{"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}`, "0123"), `tensor "a"`, "begin at 2 where the data before end at 0"},
		"an overlap":         {file(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}`, "0123"), `tensor "b"`, "begin at 2 where the data before end at 4"},
		"data after the end": {one(`{"dtype":"F16","shape":[1],"data_offsets":[0,2]}`), "data", "6 bytes belong to no tensor"},
		"metadata":           {file(`{"__metadata__":{"a":1}}`, ""), "__metadata__", `"a": not a string`},
		"metadata twice":     {file(`{"__metadata__":{"a":"","a":""}}`, ""), "__metadata__", `"a" occurs twice`},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse(c.data, "bad.safetensors")
			require.Nil(t, f)
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.Equal(t, "bad.safetensors", format.File)
			require.Equal(t, c.field, format.Field)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestUnusableTypesAreListed(t *testing.T) {
	f, err := Parse(file(`{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},`+
		`"b":{"dtype":"F4","shape":[3,2],"data_offsets":[8,11]},`+
		`"c":{"dtype":"NEW","shape":[9],"data_offsets":[11,12],"extra":[]}}  `, "0123456789ab"), "f")
	require.NoError(t, err)
	for i, want := range []string{"I64", "F4", "NEW"} {
		require.Equal(t, want, f.Tensors[i].Type)
		require.Equal(t, dtype.Invalid, f.Tensors[i].DType)
	}
	require.Equal(t, "b", string(f.Tensors[2].Data))
}

func TestTruncation(t *testing.T) {
	data := sample(t)
	for n := range data {
		_, err := Parse(data[:n:n], "short")
		require.ErrorIs(t, err, ErrTruncated, "%d bytes", n)
	}
}

func TestLyingLength(t *testing.T) {
	data := append(binary.LittleEndian.AppendUint64(nil, maxHeader), '{')
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Parse(data, "lie")
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrTruncated)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func TestWriteRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		tensors []TensorWriter
		want    string
	}{
		"type":      {[]TensorWriter{source("a", dtype.Q8_0, "", 32)}, "type q8_0"},
		"twice":     {[]TensorWriter{source("a", dtype.F16, "12", 1), source("a", dtype.F16, "12", 1)}, "the name is taken"},
		"reserved":  {[]TensorWriter{source(metadataKey, dtype.F16, "12", 1)}, "the name is taken"},
		"shape":     {[]TensorWriter{source("a", dtype.F16, "", -1)}, "shape [-1]"},
		"overflow":  {[]TensorWriter{source("a", dtype.F16, "", 1<<40, 1<<40)}, "shape"},
		"too short": {[]TensorWriter{source("a", dtype.F16, "1", 1)}, "1 of 2 bytes are missing"},
		"too long":  {[]TensorWriter{source("a", dtype.F16, "123", 1)}, "more data than the shape takes"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Write(io.Discard, nil, c.tensors), c.want)
		})
	}
}

// folder writes files into a new folder.
func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

func shard(t *testing.T, tensors ...TensorWriter) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, nil, tensors))
	return b.Bytes()
}

func TestOpenFolder(t *testing.T) {
	a := shard(t, source("x", dtype.F16, "12", 1), source("surplus", dtype.F16, "56", 1))
	b := shard(t, source("y", dtype.F16, "34", 1), source("x", dtype.F16, "??", 1))
	index := []byte(`{"metadata":{"total_size":4},"weight_map":{"x":"1.safetensors","y":"2.safetensors"}}`)
	for name, c := range map[string]struct {
		files map[string][]byte
		want  map[string]string
	}{
		"single":  {map[string][]byte{singleName: a, indexName: index}, map[string]string{"x": "12", "surplus": "56"}},
		"sharded": {map[string][]byte{"1.safetensors": a, "2.safetensors": b, "other.safetensors": nil, indexName: index}, map[string]string{"x": "12", "y": "34", "surplus": "56"}},
		"any":     {map[string][]byte{"weights.safetensors": a, "config.json": nil}, map[string]string{"x": "12", "surplus": "56"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(folder(t, c.files))
			require.NoError(t, err)
			got := map[string]string{}
			for _, tensor := range f.Tensors {
				got[tensor.Name] = string(tensor.Data)
				byName, ok := f.Tensor(tensor.Name)
				require.True(t, ok)
				require.Equal(t, tensor, byName)
			}
			require.Equal(t, c.want, got)
			require.NoError(t, f.Close())
			require.NoError(t, f.Close())
		})
	}
}

func TestOpenFolderRefuses(t *testing.T) {
	a := shard(t, source("x", dtype.F16, "12", 1))
	index := func(text string) map[string][]byte {
		return map[string][]byte{"1.safetensors": a, "2.safetensors": a, indexName: []byte(text)}
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"nothing":            {nil, "no *.safetensors in the folder"},
		"two have it":        {map[string][]byte{"1.safetensors": a, "2.safetensors": a}, `2.safetensors: tensor "x": it is in 1.safetensors too`},
		"bad shard":          {map[string][]byte{singleName: a[:20]}, singleName + ": header length"},
		"not JSON":           {index(`{`), "index: not JSON"},
		"no map":             {index(`{}`), "weight_map: missing"},
		"empty map":          {index(`{"weight_map":{}}`), "weight_map: no tensors"},
		"not a name":         {index(`{"weight_map":{"x":7}}`), `weight_map "x": not a string`},
		"twice":              {index(`{"weight_map":{"x":"1.safetensors","x":"2.safetensors"}}`), `weight_map: "x" occurs twice`},
		"parent":             {index(`{"weight_map":{"x":"../1.safetensors"}}`), "is not the name of a .safetensors file in this folder"},
		"absolute":           {index(`{"weight_map":{"x":"/etc/1.safetensors"}}`), "is not the name"},
		"windows":            {index(`{"weight_map":{"x":"..\\1.safetensors"}}`), "is not the name"},
		"drive":              {index(`{"weight_map":{"x":"C:1.safetensors"}}`), "is not the name"},
		"below":              {index(`{"weight_map":{"x":"sub/1.safetensors"}}`), "is not the name"},
		"other file":         {index(`{"weight_map":{"x":"config.json"}}`), "is not the name"},
		"shard missing":      {index(`{"weight_map":{"x":"3.safetensors"}}`), "3.safetensors: no such file"},
		"tensor missing":     {index(`{"weight_map":{"x":"1.safetensors","y":"1.safetensors"}}`), `weight_map: "y" is not in 1.safetensors`},
		"many are missing":   {index(`{"weight_map":{"a":"1.safetensors","b":"1.safetensors","c":"1.safetensors","d":"1.safetensors","e":"1.safetensors","f":"1.safetensors"}}`), "and 1 more"},
		"in the wrong shard": {index(`{"weight_map":{"x":"2.safetensors","y":"1.safetensors"}}`), `"y" is not in 1.safetensors`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(folder(t, c.files))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Open(filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzParse(f *testing.F) {
	data := sample(f)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add(file(`{"__metadata__":{"a":"b"},"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, "01"))
	f.Add(file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"NEW","shape":[],"data_offsets":[0,2]}}`, "01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data, "fuzz")
		if err != nil {
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.NotEmpty(t, format.Field)
			return
		}
		total := 0
		for _, tensor := range file.Tensors {
			total += len(tensor.Data)
			if tensor.DType != dtype.Invalid {
				require.Equal(t, tensor.DType.Bytes(tensor.Elems()), int64(len(tensor.Data)))
			}
			require.LessOrEqual(t, tensor.Offset+int64(len(tensor.Data)), int64(len(data)))
		}
		require.LessOrEqual(t, total, len(data)-8)
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"x":"1.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"x":"../1.safetensors"}}`))
	f.Add([]byte(`{"metadata":{},"weight_map":{"x":"a/b.safetensors","y":"..\\c.safetensors"}}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, indexName)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		home, shards, err := readIndex(path)
		if err != nil {
			var format *FormatError
			require.ErrorAs(t, err, &format)
			return
		}
		require.NotEmpty(t, home)
		for _, s := range shards {
			require.Equal(t, dir, filepath.Dir(s), "a shard lies outside the folder")
		}
	})
}

func ExampleParse() {
	var b bytes.Buffer
	err := Write(&b, nil, []TensorWriter{{
		Name: "lm_head.weight", DType: dtype.F32, Shape: []int64{1, 2},
		Write: func(w io.Writer) error { return binary.Write(w, binary.LittleEndian, []float32{1, 2}) },
	}})
	if err != nil {
		fmt.Println(err)
	}
	f, err := Parse(b.Bytes(), "model.safetensors")
	if err != nil {
		fmt.Println(err)
		return
	}
	t, _ := f.Tensor("lm_head.weight")
	fmt.Println(t.Type, t.Shape, len(t.Data))
	// Output: F32 [1 2] 8
}
