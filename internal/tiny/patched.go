package tiny

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-ml/smelt/models/checkpoint"
)

// Path returns the path of a model, given its file or folder under testdata/models, such as
// "tiny-llama/gguf/tiny-llama-Q8_0.gguf" or "tiny-llama/hf". An absolute path stays.
func Path(t testing.TB, name string) string {
	t.Helper()
	if filepath.IsAbs(name) {
		return name
	}
	model, form, _ := strings.Cut(name, "/")
	if form == "hf" {
		return Folder(t, model)
	}
	return GGUF(t, model, strings.TrimSuffix(strings.TrimPrefix(form, "gguf/"+model+"-"), ".gguf"))
}

// Patched returns the path of a copy of a model's file, named as for [Path], in which change has
// edited the stored bytes of one row of a tensor.
func Patched(t testing.TB, name, tensor string, row int, change func(row []byte)) string {
	t.Helper()
	path := Path(t, name)
	m, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := m.Tensor(tensor)
	if !ok {
		t.Fatalf("%s has no tensor %q", path, tensor)
	}
	at, width := w.Offset, w.DType.Bytes(int64(w.Shape[len(w.Shape)-1]))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change(data[at+int64(row)*width : at+int64(row+1)*width])
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}

// Spoilt is [Patched] with a half NaN at the start of a row: an element of F16, or the scale of
// a block.
func Spoilt(t testing.TB, name, tensor string, row int) string {
	t.Helper()
	return Patched(t, name, tensor, row, func(b []byte) { b[0], b[1] = 0, 0x7e })
}
