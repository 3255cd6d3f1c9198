package tiny_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
)

var names = []string{"tiny-llama", "tiny-qwen3"}

// TestForms makes every form, each of which is compared with its digest.
func TestForms(t *testing.T) {
	for _, model := range names {
		for _, typ := range tiny.Types {
			t.Run(model+"/"+typ, func(t *testing.T) {
				require.NoError(t, tiny.Check(model+"-"+typ+".gguf", tiny.GGUF(t, model, typ)))
			})
		}
		t.Run(model+"/folder", func(t *testing.T) {
			dir := tiny.Folder(t, model)
			require.NoError(t, tiny.Check(model+"/model.safetensors", filepath.Join(dir, "model.safetensors")))
			require.FileExists(t, filepath.Join(dir, "tokenizer.json"))
		})
	}
}

// TestDigests computes digests.txt from the files of other tools.
func TestDigests(t *testing.T) {
	dir := testfiles.Shared(t, "models")
	var b strings.Builder
	for _, model := range names {
		for _, typ := range tiny.Types {
			name := model + "-" + typ + ".gguf"
			digest, err := tiny.Digest(filepath.Join(dir, model, "gguf", name))
			require.NoError(t, err)
			fmt.Fprintf(&b, "%s  %s\n", digest, name)
		}
		digest, err := tiny.Digest(filepath.Join(dir, model, "hf", "model.safetensors"))
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s  %s/model.safetensors\n", digest, model)
	}
	golden.Check(t, "digests.txt", b.String())
}

// TestOneByte changes a byte of a tensor, and of a folder's weights.
func TestOneByte(t *testing.T) {
	dir := tiny.Folder(t, "tiny-llama")
	for name, path := range map[string]string{
		"tiny-llama-Q4_K_M.gguf":       tiny.GGUF(t, "tiny-llama", "Q4_K_M"),
		"tiny-llama/model.safetensors": filepath.Join(dir, "model.safetensors"),
	} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[len(data)-100] ^= 1
		require.NoError(t, os.WriteFile(path, data, 0o644))
		require.ErrorContains(t, tiny.Check(name, path), name)
	}
}
