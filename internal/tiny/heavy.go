package tiny

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/smelt-ml/smelt/models/gguf"
)

// Heavy returns the path of a Q4_0 file that gives a trained model's results at the cost of a
// larger model. Its layers have the given number of hidden elements; those beyond the model's
// own add nothing, because the rows that read them are zero. Step time is then bound by reading
// weights, as with real models.
func Heavy(t testing.TB, model string, hidden int) string {
	t.Helper()
	source, err := gguf.Open(GGUF(t, model, "Q4_0"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	metadata, own := append([]gguf.KV(nil), source.Metadata...), int64(0)
	for i, kv := range metadata {
		if strings.HasSuffix(kv.Key, ".feed_forward_length") {
			n, err := source.Uint(kv.Key)
			if err != nil {
				t.Fatal(err)
			}
			own, metadata[i].Value = int64(n), gguf.Uint32(uint32(hidden))
		}
	}
	more := int64(hidden) - own
	r := rand.New(rand.NewPCG(1, 2))
	var tensors []gguf.TensorWriter
	for _, tensor := range source.Tensors {
		s := tensor.Writer()
		row := tensor.Size / tensor.Shape[0]
		_, name, _ := strings.Cut(strings.TrimPrefix(tensor.Name, "blk."), ".")
		switch name {
		case "ffn_gate.weight", "ffn_up.weight": // own rows again, in another order
			s.Shape = []int64{int64(hidden), tensor.Shape[1]}
			s.Write = func(w io.Writer) error {
				_, err := w.Write(tensor.Data)
				for range more {
					at := r.Int64N(own) * row
					if _, rowErr := w.Write(tensor.Data[at : at+row]); err == nil {
						err = rowErr
					}
				}
				return err
			}
		case "ffn_down.weight":
			s.Shape = []int64{tensor.Shape[0], int64(hidden)}
			s.Write = func(w io.Writer) error {
				nothing := bytes.Repeat([]byte{0}, int(tensor.DType.Bytes(more)))
				for at := int64(0); at < tensor.Size; at += row {
					if _, err := w.Write(append(tensor.Data[at:at+row:at+row], nothing...)); err != nil {
						return err
					}
				}
				return nil
			}
		}
		tensors = append(tensors, s)
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d.gguf", model, hidden))
	if err := gguf.WriteFile(path, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return path
}
