// Package tiny gives tests the small trained models in every format. F16 and Q4_0 files are kept
// under testdata/models; the other types of weights, the folders in Hugging Face's format and
// the files of a vocabulary alone are made from the F16 file on demand.
//
//	path := tiny.GGUF(t, "tiny-llama", "Q4_K_M")
//	dir := tiny.Folder(t, "tiny-qwen3")
//
// The files equal those that other tools made of the same weights: llama-quantize the K-quants,
// numpy code checked against llama.cpp Q8_0, the training the folders. digests.txt holds the
// SHA-256 of their contents, and a test whose file has another digest fails.
package tiny

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
	"github.com/smelt-ml/smelt/models/quantize"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// Types are the weight types of the models.
var Types = []string{"F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K"}

// weightsFile is the weights file of a folder.
const weightsFile = "model.safetensors"

// made holds the files that this process has made, by their name in digests.txt.
var made struct {
	sync.Mutex
	files map[string][]byte
}

// GGUF returns the path of a model's GGUF file with weights of a type.
func GGUF(t testing.TB, model, weightType string) string {
	t.Helper()
	if weightType == "F16" || weightType == "Q4_0" {
		return testfiles.Model(t, model+"/gguf/"+model+"-"+weightType+".gguf")
	}
	name := model + "-" + weightType + ".gguf"
	return write(t, t.TempDir(), name, name, func() ([]byte, error) { return quantized(t, model, weightType) })
}

// Folder returns the path of a model's folder, which the test may change.
func Folder(t testing.TB, model string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), model)
	if err := os.CopyFS(dir, os.DirFS(testfiles.Model(t, model+"/hf"))); err != nil {
		t.Fatal(err)
	}
	write(t, dir, weightsFile, model+"/"+weightsFile, func() ([]byte, error) { return folderWeights(t, model) })
	return dir
}

// Vocabulary returns the path of a GGUF file with a model's metadata and no tensors.
func Vocabulary(t testing.TB, model string) string {
	t.Helper()
	source, err := gguf.Open(GGUF(t, model, "F16"))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	path := filepath.Join(t.TempDir(), model+"-vocab.gguf")
	if err := gguf.WriteFile(path, source.Metadata, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// write writes a file once per process, and fails the test where the contents do not match the
// named digest of digests.txt.
func write(t testing.TB, dir, file, name string, make func() ([]byte, error)) string {
	t.Helper()
	made.Lock()
	defer made.Unlock()
	data, ok := made.files[name]
	path := filepath.Join(dir, file)
	if !ok {
		var err error
		if data, err = make(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if !ok {
		if err := Check(name, path); err != nil {
			t.Fatal(err)
		}
		if made.files == nil {
			made.files = map[string][]byte{}
		}
		made.files[name] = data
	}
	return path
}

// quantized returns the bytes of a GGUF file with weights of a type.
func quantized(t testing.TB, model, weightType string) ([]byte, error) {
	m, err := checkpoint.Open(GGUF(t, model, "F16"))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var b bytes.Buffer
	_, err = quantize.Write(t.Context(), &b, m, weightType, nil)
	return b.Bytes(), err
}

// folderNames map the names of tensors in a GGUF file to those in a folder.
var folderNames = strings.NewReplacer(
	"token_embd", "model.embed_tokens", "output_norm", "model.norm", "blk.", "model.layers.",
	"attn_norm", "input_layernorm", "ffn_norm", "post_attention_layernorm",
	"attn_q_norm", "self_attn.q_norm", "attn_k_norm", "self_attn.k_norm",
	"attn_q", "self_attn.q_proj", "attn_k", "self_attn.k_proj", "attn_v", "self_attn.v_proj", "attn_output", "self_attn.o_proj",
	"ffn_gate", "mlp.gate_proj", "ffn_up", "mlp.up_proj", "ffn_down", "mlp.down_proj",
	"output", "lm_head",
)

// folderWeights returns the bytes of a folder's weights: BF16, which holds every weight of these
// models exactly, in the order of their names. Rows of Q and K, which a GGUF file of Llama
// interleaves, return to the halves of their head.
func folderWeights(t testing.TB, model string) ([]byte, error) {
	m, err := checkpoint.Open(GGUF(t, model, "F16"))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var sources []safetensors.TensorWriter
	for _, from := range m.Tensors() {
		var shape []int64
		for _, n := range from.Shape {
			shape = append(shape, int64(n))
		}
		values := make([]float32, from.Elements())
		if err := quant.Dequantize(values, from.Data, from.DType); err != nil {
			return nil, err
		}
		if m.Config.Family == "llama" && (strings.HasSuffix(from.Name, "attn_q.weight") || strings.HasSuffix(from.Name, "attn_k.weight")) {
			values = halves(values, m.Config.Head, m.Config.Width)
		}
		data := make([]byte, dtype.BF16.Bytes(from.Elements()))
		if err := quant.Quantize(data, values, dtype.BF16); err != nil {
			return nil, err
		}
		sources = append(sources, safetensors.TensorWriter{Name: folderNames.Replace(from.Name), DType: dtype.BF16, Shape: shape,
			Write: func(w io.Writer) error { _, err := w.Write(data); return err }})
	}
	slices.SortFunc(sources, func(a, b safetensors.TensorWriter) int { return strings.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	err = safetensors.Write(&b, map[string]string{"format": "pt"}, sources)
	return b.Bytes(), err
}

// halves moves the even rows of each head before its odd ones.
func halves(w []float32, head, width int) []float32 {
	out := make([]float32, 0, len(w))
	for at := 0; at < len(w); at += head * width {
		for parity := range 2 {
			for row := parity; row < head; row += 2 {
				out = append(out, w[at+row*width:][:width]...)
			}
		}
	}
	return out
}

//go:embed digests.txt
var digests string

// Check compares the contents of a file with the named digest. The error gives the file's
// digest.
func Check(name, path string) error {
	got, err := Digest(path)
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Split(digests, "\n"), got+"  "+name) {
		return fmt.Errorf("%s has another digest than in digests.txt: %s", name, got)
	}
	return nil
}

// Digest returns the SHA-256 of a file's contents: of all its bytes, or for a GGUF file of its
// metadata and tensors in the order of their names.
func Digest(path string) (string, error) {
	h := sha256.New()
	if filepath.Ext(path) != ".gguf" {
		data, err := os.ReadFile(path)
		h.Write(data)
		return hex.EncodeToString(h.Sum(nil)), err
	}
	f, err := gguf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	metadata := slices.Clone(f.Metadata)
	slices.SortFunc(metadata, func(a, b gguf.KV) int { return strings.Compare(a.Key, b.Key) })
	for _, kv := range metadata {
		fmt.Fprintf(h, "%s %T %v\n", kv.Key, kv.Value.Any(), kv.Value.Any())
	}
	tensors := slices.Clone(f.Tensors)
	slices.SortFunc(tensors, func(a, b gguf.Tensor) int { return strings.Compare(a.Name, b.Name) })
	for _, tensor := range tensors {
		fmt.Fprintf(h, "%s %s %v %d\n", tensor.Name, tensor.DType, tensor.Shape, len(tensor.Data))
		h.Write(tensor.Data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
