package plan

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

func written(t testing.TB, plan *Plan) []byte {
	var b bytes.Buffer
	require.NoError(t, (&File{Plan: plan, Model: ModelID{Base: "m.gguf"}}).Write(&b))
	return b.Bytes()
}

// small returns a valid Plan of one dispatch.
func small() *Plan {
	return &Plan{
		Model: "small", Target: "cpu", Act: dtype.F32, Context: 8,
		Buffers: []Buffer{
			{Kind: Input, Name: sym.Tokens, DType: dtype.I32, Bytes: Size(sym.T).Times(4)},
			{Kind: Output, Name: "logits", DType: dtype.F32, Bytes: Size(sym.T).Times(4)},
		},
		Phases: []Phase{{
			Name: "decode", Least: sym.Sizes{sym.T: 1}, Bounds: sym.Sizes{sym.T: 8, sym.Smax: 8}, Longest: Interval{1, 8},
			Dispatches: []Dispatch{{
				Kernel: "copy", Op: "reshape", Value: 1, Layer: -1, ParamsAt: 2, Params: []Expr{Size(sym.T)},
				Grid: [3]Expr{Size(sym.T).Over(256), Number(1), Number(1)}, Group: [3]uint32{256, 1, 1},
				Bindings: []Binding{
					{Index: 0, Buffer: 0, Bytes: Size(sym.T).Times(4), Read: true},
					{Index: 1, Buffer: 1, Bytes: Size(sym.T).Times(4), Write: true},
				},
			}},
		}},
	}
}

func TestReadRefuses(t *testing.T) {
	whole := written(t, small())
	change := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 1
		return b
	}
	for name, tt := range map[string]struct {
		data []byte
		want error
	}{
		"empty":          {nil, ErrNotPlan},
		"another format": {[]byte("GGUF....."), ErrNotPlan},
		"magic only":     {whole[:8], ErrCorrupt},
		"no body":        {whole[:headerSize], ErrCorrupt},
		"truncated":      {whole[:len(whole)-1], ErrCorrupt},
		"version":        {change(8), ErrVersion},
		"checksum":       {change(20), ErrCorrupt},
		"body":           {change(len(whole) / 2), ErrCorrupt},
		"more behind":    {append(bytes.Clone(whole), 0), ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(tt.data))
			require.ErrorIs(t, err, tt.want)
		})
	}
	_, err := decode([]byte{0xa0})
	require.ErrorIs(t, err, ErrCorrupt, "a file without a plan")
	_, err = Read(bytes.NewReader(written(t, &Plan{})))
	require.ErrorIs(t, err, ErrPlan, "a plan that does not hold together")
}

// FuzzDecode decodes the part after the checksum, which a hostile file can have right. Every accepted
// Plan can be written and drawn.
func FuzzDecode(f *testing.F) {
	whole := written(f, small())[headerSize:]
	f.Add(whole)
	f.Add(whole[:len(whole)/3])
	f.Add([]byte{0xa0})
	f.Fuzz(func(t *testing.T, body []byte) {
		file, err := decode(body)
		if err != nil {
			return
		}
		_ = written(t, file.Plan)
		for i := range file.Plan.Phases {
			file.Plan.Dependencies(&file.Plan.Phases[i])
		}
	})
}
