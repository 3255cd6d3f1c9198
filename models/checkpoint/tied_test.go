package checkpoint_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/families"
	"github.com/smelt-ml/smelt/models/safetensors"
)

// asFolder writes a model without permuted rows as a Hugging Face folder; rename gives a
// tensor another name than the family has for it, or none, which leaves it out.
func asFolder(t *testing.T, m *checkpoint.Checkpoint, rename map[string]string) string {
	families := families.All()
	family := families[slices.IndexFunc(families, func(f models.Family) bool { return f.Name == m.Config.Family })]
	layer := regexp.MustCompile(`\bblk\.(\d+)\.`)
	var tensors []safetensors.TensorWriter
	for _, w := range m.Tensors() {
		stored := family.Stored()[layer.ReplaceAllString(w.Name, "blk.#.")]
		require.Len(t, stored.Names, 1, w.Name)
		name := stored.Names[0]
		if number := layer.FindStringSubmatch(w.Name); number != nil {
			name = strings.Replace(name, "#", number[1], 1)
		}
		if other, ok := rename[name]; ok {
			name = other
		}
		if name != "" {
			tensors = append(tensors, safetensors.TensorWriter{Name: name, DType: w.DType, Shape: wide(w.Shape), Write: func(to io.Writer) error {
				_, err := to.Write(w.Data)
				return err
			}})
		}
	}
	c := &m.Config
	config, err := json.Marshal(map[string]any{
		"architectures": []string{family.HF}, "vocab_size": c.Vocab, "hidden_size": c.Width, "num_hidden_layers": c.Layers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.Head, "intermediate_size": c.FFN,
		"max_position_embeddings": c.Context, "rms_norm_eps": c.Eps, "rope_theta": c.Rope.Theta, "tie_word_embeddings": c.Tied, "hidden_act": "silu",
	})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, map[string]string{"format": "pt"}, tensors))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o600))
	return dir
}

// TestTiedNames stores the table of a tied model under the name of the embedding, as
// most folders do, or under that of the head: the model is the same.
func TestTiedNames(t *testing.T) {
	file := open(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-F16.gguf"))
	require.True(t, file.Config.Tied)
	ids := readReference(t, "tiny-qwen3").Logits.IDs[:8]
	want := prefill(t, file, ids)
	for name, rename := range map[string]map[string]string{
		"embedding": nil, "head": {"model.embed_tokens.weight": "lm_head.weight"},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, asFolder(t, file, rename))
			require.True(t, m.Config.Tied)
			requireSame(t, want, prefill(t, m, ids))
			_, tensors, err := m.Rewrite("q8_0")
			require.NoError(t, err)
			require.Len(t, tensors, len(file.Tensors()))
		})
	}
	neither := open(t, asFolder(t, file, map[string]string{"model.embed_tokens.weight": ""}))
	_, err := neither.Build(ir.Options{})
	require.ErrorContains(t, err, "token_embd.weight")
}
