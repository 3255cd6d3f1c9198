package synth_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/synth"
)

// shape has whole blocks in every row, and factors of RoPE of its own.
func shape(t *testing.T, weightType string) *checkpoint.Checkpoint {
	m, err := checkpoint.Synthetic(models.Config{
		Family: "llama", Name: "small", Vocab: 300, Width: 256, Layers: 2, Heads: 4, KVHeads: 2, Head: 64, FFN: 512, Context: 64, Eps: 1e-5,
		Rope: models.Rope{Theta: 1e4, Llama3: &models.Llama3Rope{Factor: 8, LowFrequency: 1, HighFrequency: 4, OldContext: 32}},
	}, weightType)
	require.NoError(t, err)
	return m
}

// The same seed gives the same bytes, today as in the files that measurements were made
// with; another seed gives others. A file holds what is made in memory.
func TestSeed(t *testing.T) {
	const weightType = "q4_k_m"
	m := shape(t, weightType)
	written := func(seed uint64) []byte {
		var b bytes.Buffer
		require.NoError(t, synth.Write(&b, m, weightType, seed, nil))
		return b.Bytes()
	}
	first := written(1)
	require.True(t, bytes.Equal(first, written(1)))
	require.False(t, bytes.Equal(first, written(2)))
	digest := sha256.Sum256(first)
	require.Equal(t, "d61b81b9c5adb3cd292eb69908996949f133d18b41f9a0fd039c0829919a5968", hex.EncodeToString(digest[:]))

	path := filepath.Join(t.TempDir(), "random.gguf")
	require.NoError(t, os.WriteFile(path, first, 0o600))
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	tensors, err := synth.Tensors(t.Context(), m, 1)
	require.NoError(t, err)
	require.Len(t, tensors, len(f.Tensors))
	for i, want := range f.Tensors {
		require.Equal(t, want.Name, tensors[i].Name)
		require.True(t, bytes.Equal(want.Data, tensors[i].Data), want.Name)
	}
}

func TestStops(t *testing.T) {
	m := shape(t, "f32")
	full := errors.New("full")
	err := synth.Write(io.Discard, m, "f32", 1, func(done, total int64) error {
		require.LessOrEqual(t, done, total)
		return full
	})
	require.ErrorIs(t, err, full)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = synth.Tensors(ctx, m, 1)
	require.ErrorIs(t, err, context.Canceled)
}
