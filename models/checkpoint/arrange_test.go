package checkpoint

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
)

func halves(name string, shape []int, values ...uint16) Tensor {
	t := Tensor{Name: name, DType: dtype.BF16, Stored: "BF16", Shape: shape, File: "model.safetensors", Offset: 64}
	for _, x := range values {
		t.Data = binary.LittleEndian.AppendUint16(t.Data, x)
	}
	return t
}

func halvesOf(t Tensor) []uint16 {
	out := make([]uint16, len(t.Data)/2)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(t.Data[2*i:])
	}
	return out
}

// folderTensors are what the changes of the tests start from.
func folderTensors() []Tensor {
	return []Tensor{
		halves("h.0.qkv", []int{6, 2}, 0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51),
		halves("h.0.up", []int{2, 3}, 0, 1, 2, 10, 11, 12),
		halves("h.0.more", []int{1, 2}, 60, 61),
		halves("h.0.bias", []int{3}, 7, 8, 9),
		halves("norm", []int{2}, 0x3f80, 0xbf00), // 1, −0.5
	}
}

func TestStored(t *testing.T) {
	rows := func(first, n int) func(*models.Config) (int, int) {
		return func(*models.Config) (int, int) { return first, n }
	}
	for name, c := range map[string]struct {
		from  models.Stored
		shape []int
		want  []uint16
		view  bool // of the file
	}{
		"rename":      {models.As("h.#.qkv"), []int{6, 2}, []uint16{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51}, true},
		"split":       {models.Stored{Names: []string{"h.#.qkv"}, Rows: rows(2, 2)}, []int{2, 2}, []uint16{20, 21, 30, 31}, true},
		"join":        {models.Stored{Names: []string{"h.#.more", "h.#.qkv"}, Rows: rows(0, 2)}, []int{2, 2}, []uint16{60, 61, 0, 1}, false},
		"transpose":   {models.Stored{Names: []string{"h.#.up"}, Transposed: true}, []int{3, 2}, []uint16{0, 10, 1, 11, 2, 12}, false},
		"permute":     {models.Stored{Names: []string{"h.#.qkv"}, Order: func(_ *models.Config, i int) int { return i%2*3 + i/2 }}, []int{6, 2}, []uint16{0, 1, 30, 31, 10, 11, 40, 41, 20, 21, 50, 51}, false},
		"part of one": {models.Stored{Names: []string{"h.#.bias"}, Rows: rows(1, 2)}, []int{2}, []uint16{8, 9}, true},
		"columns":     {models.Stored{Names: []string{"h.#.up"}, Transposed: true, Rows: rows(1, 2)}, []int{2, 2}, []uint16{1, 11, 2, 12}, false},
	} {
		t.Run(name, func(t *testing.T) {
			memory := &arena{}
			defer memory.close()
			family := models.Family{Tensors: map[string]models.Stored{"blk.#.w": c.from}}
			stored := folderTensors()
			all, err := derive(stored, memory, arrange(&family, &models.Config{Layers: 1}))
			require.NoError(t, err)
			m, err := newCheckpoint("test", &family, models.Config{}, all)
			require.NoError(t, err)
			w, ok := m.Tensor("blk.0.w")
			require.True(t, ok)
			require.Equal(t, c.shape, w.Shape)
			require.Equal(t, c.want, halvesOf(*w))
			require.Equal(t, c.view, w.File != "")
			require.Equal(t, c.view, len(memory.mappings) == 0)
			if from, ok := lo.Find(stored, func(s Tensor) bool {
				return w.File != "" && "h.0."+strings.TrimPrefix(c.from.Names[0], "h.#.") == s.Name
			}); ok {
				require.Equal(t, w.Data, from.Data[w.Offset-from.Offset:][:len(w.Data)])
			}
			require.Len(t, all, len(stored)+1-len(c.from.Names), "the others keep their names")
			_, ok = m.Tensor("norm")
			require.True(t, ok)
		})
	}
}

func TestStoredValue(t *testing.T) {
	memory := &arena{}
	family := models.Family{Tensors: map[string]models.Stored{"gain": {Names: []string{"norm"}, Value: models.PlusOne}}}
	all, err := derive(folderTensors(), memory, arrange(&family, &models.Config{}))
	require.NoError(t, err)
	gain := all[len(all)-1]
	require.Equal(t, dtype.F32, gain.DType)
	require.InDelta(t, 2, math.Float32frombits(binary.LittleEndian.Uint32(gain.Data)), 0)
	require.InDelta(t, 0.5, math.Float32frombits(binary.LittleEndian.Uint32(gain.Data[4:])), 0)
	require.NoError(t, memory.close())
	require.NoError(t, memory.close())
}

func TestStoredErrors(t *testing.T) {
	ints := Tensor{Name: "ints", DType: dtype.I32, Stored: "I32", Shape: []int{1}, Data: make([]byte, 4)}
	floats := Tensor{Name: "floats", DType: dtype.F32, Stored: "F32", Shape: []int{1, 2}, Data: make([]byte, 8)}
	for want, from := range map[string]models.Stored{
		`tensor "h.0.qkv" has 6 rows, not 7`:                            {Names: []string{"h.#.qkv"}, Rows: func(*models.Config) (int, int) { return 5, 2 }},
		`tensor "ints" is I32: only floats`:                             {Names: []string{"ints"}, Value: models.PlusOne},
		`tensor "h.0.bias" is [3]`:                                      {Names: []string{"h.#.bias"}, Transposed: true},
		`tensors "h.0.more" and "floats", of one weight, are BF16 and`:  {Names: []string{"h.#.more", "floats"}},
		`tensors "h.0.qkv" and "h.0.up", of one weight, have rows of 2`: {Names: []string{"h.#.qkv", "h.#.up"}},
	} {
		family := models.Family{Tensors: map[string]models.Stored{"blk.#.w": from}}
		_, err := derive(append(folderTensors(), ints, floats), &arena{}, arrange(&family, &models.Config{Layers: 1}))
		require.ErrorIs(t, err, models.ErrConfig)
		require.ErrorContains(t, err, want)
	}
	family := models.Family{Tensors: map[string]models.Stored{"blk.#.w": models.As("none")}}
	all, err := derive(folderTensors(), &arena{}, arrange(&family, &models.Config{Layers: 1}))
	require.NoError(t, err)
	require.Len(t, all, 5)
}

// TestHistory says in words how weights come about.
func TestHistory(t *testing.T) {
	family := models.Family{Tensors: map[string]models.Stored{
		"blk.#.a": models.As("h.#.up"), "blk.#.b": {Names: []string{"h.#.qkv"}, Rows: func(*models.Config) (int, int) { return 2, 2 }},
		"blk.#.c": {Names: []string{"h.#.more", "h.#.qkv"}}, "blk.#.d": {Names: []string{"h.#.up"}, Transposed: true},
		"blk.#.e": {Names: []string{"h.#.qkv"}, Order: func(_ *models.Config, i int) int { return 5 - i }}, "output.weight": models.Gain("norm"),
		"blk.#.attn_qkv.weight": {Names: []string{"h.#.qkv"}, Order: func(_ *models.Config, i int) int { return 5 - i }},
	}}
	memory := &arena{}
	c := &models.Config{Layers: 1, Heads: 2, KVHeads: 2, Head: 1}
	all, err := derive(folderTensors(), memory, arrange(&family, c), tie)
	require.NoError(t, err)
	m, err := newCheckpoint("test", &family, *c, all)
	require.NoError(t, err)
	m.memory.mappings = append(m.memory.mappings, memory.mappings...)
	defer m.Close()
	for name, want := range map[string]string{
		"h.0.bias": "stored: stored", "blk.0.a": "stored: stored as h.0.up", "blk.0.b": "parted: part of h.0.qkv: rows 2 to 3",
		"blk.0.c": "joined: joined of h.0.more, h.0.qkv", "blk.0.d": "made: made of h.0.up: transposed", "blk.0.e": "made: made of h.0.qkv: rows reordered",
		"token_embd.weight":   "tied: tied to output.weight (made of norm: each element computed)",
		"blk.0.attn_k.weight": "parted: part of blk.0.attn_qkv.weight (made of h.0.qkv: rows reordered): rows 2 to 3",
	} {
		w, ok := m.Tensor(name)
		require.True(t, ok, name)
		require.Equal(t, want, string(w.How())+": "+w.History(), name)
	}
	experts := &Tensor{Derived: &Derivation{Way: Joined, From: make([]Tensor, 8), Steps: []string{"a stack"}}}
	require.Equal(t, "joined of , , …, , 8 in all: a stack", experts.History())
}
