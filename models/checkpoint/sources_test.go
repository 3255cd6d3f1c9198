package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/quant"
)

// typed is a tensor of whole numbers, which all types below hold exactly.
func typed(t *testing.T, elem dtype.Type, shape ...int) (Tensor, []float32) {
	w := Tensor{Name: "blk.1.w", DType: elem, Stored: elem.String(), Shape: shape, File: "model.gguf", Offset: 64}
	x := make([]float32, w.Elements())
	for i := range x {
		x[i] = float32(i*37%255 - 127)
		if i%32 == 0 {
			x[i] = 127 // the scale of a block is one
		}
	}
	w.Data = make([]byte, w.Bytes())
	require.NoError(t, quant.Quantize(w.Data, x, elem))
	return w, x
}

func elements(t *testing.T, w *Tensor) []float32 {
	x := make([]float32, w.Elements())
	require.NoError(t, quant.Dequantize(x, w.Data, w.DType))
	return x
}

// TestSourceOf knows tensors of layers by their whole names.
func TestSourceOf(t *testing.T) {
	sources := map[string]models.Source{"w": {Role: "w"}}
	for name, want := range map[string]bool{"blk.0.w": true, "blk.1.w": true, "blk.2.w": false, "blk.-1.w": false, "blk.00.w": false, "enc.w": false, "w": false, "blk.0.v": false} {
		_, ok := sourceOf(sources, name, 2)
		require.Equal(t, want, ok, name)
	}
}

// remake returns the weights of a source.
func remake(s models.Source, w Tensor, memory *arena) (all []Tensor, err error) {
	f := &models.Family{Sources: func(*models.Config) []models.Source { return []models.Source{s} }}
	err = run(memory, []Tensor{w}, remade(f, &models.Config{Layers: 2}), func(t Tensor, _ []Tensor) { all = append(all, t) })
	return all, err
}

// TestMade takes rows in another order, rows with zeros between, rows that follow each other, and
// those of transposed matrices.
func TestMade(t *testing.T) {
	const k = 32
	for _, elem := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.Q8_0} {
		t.Run(elem.String(), func(t *testing.T) {
			w, x := typed(t, elem, 2, 3, k)
			s := models.Source{Role: "w", Shape: []int{2, 3, k}, Makes: []models.Made{
				{Role: "backwards", Rows: 6, Row: func(i int) int { return 5 - i }},
				{Role: "apart", Rows: 4, Row: func(i int) int { return i%2*(i+1) - (1 - i%2) }}, // −1, 2, −1, 4
				{Role: "after", Rows: 3, Row: func(i int) int { return 2 + i }},
				{Role: "across", Stack: 2, Rows: 4, Row: func(i int) int { return i/2*3 + 2 - i%2 }, Turned: true}, // 2, 1; 5, 4
			}}
			memory := &arena{}
			defer memory.close()
			all, err := remake(s, w, memory)
			require.NoError(t, err)
			row := func(i int) []float32 { return x[i*k:][:k] }
			for i, name := range []string{"blk.1.backwards", "blk.1.apart", "blk.1.after", "blk.1.across"} {
				require.Equal(t, name, all[i].Name)
			}
			for i := range 6 {
				require.Equal(t, row(5-i), elements(t, &all[0])[i*k:][:k])
			}
			require.Equal(t, []int{4, k}, all[1].Shape)
			apart := elements(t, &all[1])
			require.Equal(t, make([]float32, k), apart[:k])
			require.Equal(t, row(2), apart[k:2*k])
			require.Equal(t, make([]float32, k), apart[2*k:3*k])
			require.Equal(t, row(4), apart[3*k:])
			require.Equal(t, x[2*k:5*k], elements(t, &all[2]))
			require.Equal(t, []string{"", "", w.File, ""}, []string{all[0].File, all[1].File, all[2].File, all[3].File})
			require.Equal(t, w.Offset+elem.Bytes(2*k), all[2].Offset)
			require.Equal(t, []int{2, k, 2}, all[3].Shape)
			require.True(t, all[3].DType.IsFloat())
			across := elements(t, &all[3])
			for i := range 2 * k {
				for c := range 2 {
					require.InDelta(t, row(i/k*3 + 2 - c)[i%k], across[i*2+c], 0)
				}
			}

			w.Data = nil
			shapes, err := remake(s, w, memory)
			require.NoError(t, err)
			for i, shape := range shapes {
				require.Nil(t, shape.Data)
				require.Equal(t, []any{all[i].Name, all[i].DType, all[i].Shape}, []any{shape.Name, shape.DType, shape.Shape})
			}
			w.Shape = []int{6, k}
			_, err = remake(s, w, memory)
			require.ErrorIs(t, err, models.ErrConfig)
			require.ErrorContains(t, err, `tensor "blk.1.w" is [6 32], want [2 3 32]`)
		})
	}
}
