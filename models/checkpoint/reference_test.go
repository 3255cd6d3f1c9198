package checkpoint_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/ref"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/checkpoint"
)

// oracle runs a model's source graph in the interpreter.
type oracle struct {
	t       testing.TB
	model   *checkpoint.Checkpoint
	f       *ir.Func
	weights *ref.Weights
	caches  []*ref.Cache
	watch   func(*ir.Value, *ref.Tensor)
}

func open(t testing.TB, path string) *checkpoint.Checkpoint {
	m, err := checkpoint.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func newOracle(t testing.TB, m *checkpoint.Checkpoint, block, blocks int) *oracle {
	f, err := m.Build(ir.Options{KV: dtype.F32, Block: block})
	require.NoError(t, err)
	return &oracle{t: t, model: m, f: f, weights: ref.NewWeights(m.Data), caches: ref.CachesFor(f, blocks)}
}

// step returns the logits of the rows that the inputs ask for.
func (o *oracle) step(inputs map[string][]int32) [][]float64 {
	bound := 0
	for _, n := range inputs[sym.ContextLens] {
		bound = max(bound, int(n))
	}
	out, err := ref.Run(o.f, ref.Env{
		Sizes: ref.SizesFor(inputs, bound), Inputs: inputs, Weight: o.weights.Load, Caches: o.caches, Watch: o.watch,
	})
	require.NoError(o.t, err)
	logits := cmp.Or(out.Tensors["logits"], out.Tensors[models.Embeddings])
	rows := make([][]float64, logits.Shape[0])
	for i := range rows {
		rows[i] = logits.Data[i*logits.Shape[1] : (i+1)*logits.Shape[1]]
	}
	return rows
}

// packed packs sequences of which every token gets a row of logits.
func packed(block int, sequences ...batch.Piece) map[string][]int32 {
	for i := range sequences {
		sequences[i].Rows = batch.All
	}
	return batch.Pack(block, 1<<20, sequences...).Inputs
}

// prefill runs a whole prompt from an empty contiguous cache.
func prefill(t testing.TB, m *checkpoint.Checkpoint, ids []int32) [][]float64 {
	o := newOracle(t, m, len(ids), 1)
	return o.step(batch.Pack(len(ids), len(ids), batch.Piece{Tokens: ids, Blocks: []int32{0}, Rows: batch.All}).Inputs)
}

// requireClose compares rows with a flat array.
func requireClose(t testing.TB, want []float32, got [][]float64, bound float64) {
	t.Helper()
	require.Equal(t, len(want), len(got)*len(got[0]))
	require.LessOrEqual(t, compare.Largest(want, slices.Concat(got...)), bound)
}

// reference is the part of reference.json that the tests here read.
type reference struct {
	Logits  struct{ IDs []int32 }
	Prompts []struct {
		IDs     []int32
		Greedy  []int32 `json:"greedy_ids"`
		Margins []float64
	}
}

func readReference(t testing.TB, model string) (r reference) {
	raw, err := os.ReadFile(testfiles.Model(t, model+"/reference/reference.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &r))
	return r
}

func readNpy(t testing.TB, path string) npy.Array[float32] {
	a, err := npy.ReadFile[float32](testfiles.Model(t, path))
	require.NoError(t, err)
	return a
}

// TestLogits compares every form of the trained models with a float64
// implementation in PyTorch that read the same weights.
func TestLogits(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-qwen3"} {
		ids := readReference(t, model).Logits.IDs
		for _, form := range []struct {
			name, logits string
			bound        float64
		}{
			{"F16", "logits.npy", 1e-4},
			{"folder", "logits.npy", 1e-4},
			{"Q8_0", "logits-Q8_0.npy", 1e-3},
			{"Q4_0", "logits-Q4_0.npy", 1e-3},
			{"Q6_K", "logits-Q6_K.npy", 1e-3},
			{"Q5_K_M", "logits-Q5_K_M.npy", 1e-3},
			{"Q4_K_M", "logits-Q4_K_M.npy", 1e-3},
			{"Q3_K_M", "logits-Q3_K_M.npy", 1e-3},
			{"Q2_K", "logits-Q2_K.npy", 1e-3},
		} {
			t.Run(model+"/"+form.name, func(t *testing.T) {
				var m *checkpoint.Checkpoint
				if form.name == "folder" {
					m = open(t, tiny.Folder(t, model))
				} else {
					m = open(t, tiny.GGUF(t, model, form.name))
				}
				requireClose(t, readNpy(t, model+"/reference/"+form.logits).Data, prefill(t, m, ids), form.bound)
			})
		}
	}
}

// TestHidden compares the residual stream after each layer.
func TestHidden(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-qwen3"} {
		t.Run(model, func(t *testing.T) {
			ids := readReference(t, model).Logits.IDs
			want := readNpy(t, model+"/reference/hidden.npy") // [layers+2, tokens, width]
			m := open(t, testfiles.Model(t, fmt.Sprintf("%s/gguf/%s-F16.gguf", model, model)))
			o := newOracle(t, m, len(ids), 1)
			got := make([][]float64, want.Shape[0])
			o.watch = func(v *ir.Value, x *ref.Tensor) {
				switch {
				case v.Op == ir.OpEmbed:
					got[0] = x.Data
				case v.Op == ir.OpAdd:
					got[1+v.Layer] = x.Data // the last one of the layer stays
				case v.Op == ir.OpRMSNorm && v.Layer == ir.NoLayer:
					got[len(got)-1] = x.Data
				}
			}
			o.step(batch.Pack(len(ids), len(ids), batch.Piece{Tokens: ids, Blocks: []int32{0}, Rows: batch.All}).Inputs)
			requireClose(t, want.Data, got, 1e-4)
		})
	}
}

// TestStories260K compares with a model that others trained, which has a width of 64,
// heads of 8 and a feed-forward width of 172.
func TestStories260K(t *testing.T) {
	m := open(t, testfiles.Data(t, "models/stories260K/stories260K.gguf"))
	raw, err := os.ReadFile(testfiles.Data(t, "expected/stories260K.greedy200.ids"))
	require.NoError(t, err)
	var ids []int32
	for _, field := range strings.Fields(string(raw)) {
		var id int32
		_, err := fmt.Sscan(field, &id)
		require.NoError(t, err)
		ids = append(ids, id)
	}
	raw, err = os.ReadFile(testfiles.Data(t, "expected/stories260K.f64_logits_f32.bin"))
	require.NoError(t, err)
	want := make([]float32, len(raw)/4)
	for i := range want {
		want[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	got := prefill(t, m, ids)
	requireClose(t, want, got[:len(want)/m.Config.Vocab], 1e-4)
	for i, row := range got[:len(ids)-1] { // the ids are greedy: each follows from those before
		require.Equal(t, ids[i+1], argmax(row), "step %d", i)
	}
}

func argmax(row []float64) (best int32) {
	for i, x := range row {
		if x > row[best] {
			best = int32(i)
		}
	}
	return best
}

// TestGreedy continues a prompt token by token.
func TestGreedy(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-qwen3"} {
		t.Run(model, func(t *testing.T) {
			p := readReference(t, model).Prompts[0]
			m := open(t, testfiles.Model(t, fmt.Sprintf("%s/gguf/%s-F16.gguf", model, model)))
			o := newOracle(t, m, 128, 1)
			next, start := p.IDs, 0
			for i, want := range p.Greedy[:16] {
				row := o.step(batch.Pack(128, 128, batch.Piece{Tokens: next, Start: start, Blocks: []int32{0}}).Inputs)[0]
				require.Equal(t, want, argmax(row), "step %d, margin %g", i, p.Margins[i])
				next, start = []int32{want}, start+len(next)
			}
		})
	}
}

// TestSteps cuts a prompt into steps of several sizes, on a cache of small blocks
// in any order: the logits are those of one prefill.
func TestSteps(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-qwen3"} {
		t.Run(model, func(t *testing.T) {
			ids := readReference(t, model).Logits.IDs
			m := open(t, testfiles.Model(t, fmt.Sprintf("%s/gguf/%s-F16.gguf", model, model)))
			whole := prefill(t, m, ids)
			const block = 4
			blocks := []int32{7, 2, 5, 0, 1, 6}
			o := newOracle(t, m, block, 8)
			var parts [][]float64
			for _, end := range []int{9, 10, 11, 16, 24} {
				start := len(parts)
				parts = append(parts, o.step(packed(block, batch.Piece{Tokens: ids[start:end], Start: start, Blocks: blocks}))...)
			}
			requireSame(t, whole, parts)
		})
	}
}

// TestPackedSequences runs two sequences in one batch over shared blocks: each
// sees itself alone.
func TestPackedSequences(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-qwen3"} {
		t.Run(model, func(t *testing.T) {
			ids := readReference(t, model).Logits.IDs
			m := open(t, testfiles.Model(t, fmt.Sprintf("%s/gguf/%s-F16.gguf", model, model)))
			a, b := ids[:11], ids[3:20]
			const block = 4
			o := newOracle(t, m, block, 8)
			blocksA, blocksB := []int32{6, 1, 3}, []int32{0, 5, 2, 7, 4}
			// The first step brings unequal parts, the second the rest.
			first := o.step(packed(block, batch.Piece{Tokens: a[:6], Blocks: blocksA}, batch.Piece{Tokens: b[:15], Blocks: blocksB}))
			second := o.step(packed(block,
				batch.Piece{Tokens: a[6:], Start: 6, Blocks: blocksA}, batch.Piece{Tokens: b[15:], Start: 15, Blocks: blocksB}))
			requireSame(t, prefill(t, m, a), append(first[:6:6], second[:5]...))
			requireSame(t, prefill(t, m, b), append(first[6:21:21], second[5:]...))
		})
	}
}

func requireSame(t testing.TB, want, got [][]float64) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		require.InDeltaSlice(t, want[i], got[i], 1e-9, "row %d", i)
	}
}
