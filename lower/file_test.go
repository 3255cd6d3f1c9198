package lower

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func written(t testing.TB, plan *Plan) []byte {
	var b bytes.Buffer
	require.NoError(t, (&File{Plan: plan, Model: ModelID{Base: "m.gguf"}}).Write(&b))
	return b.Bytes()
}

func TestReadRefuses(t *testing.T) {
	whole := written(t, lowered(t))
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

// FuzzDecode reads what stands behind the checksum, which a hostile file has right.
// Whatever is accepted is a Plan that can be written and drawn.
func FuzzDecode(f *testing.F) {
	whole := written(f, lowered(f))[headerSize:]
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
