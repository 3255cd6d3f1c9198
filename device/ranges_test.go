package device

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpans(t *testing.T) {
	file := make([]byte, 1<<16)
	part := func(begin, end int) []byte { return file[begin:end:end] }
	rows := []struct {
		name       string
		tensors    [][]byte
		page, most int64
		want       [][]int
	}{
		{"none", nil, 4096, 1 << 20, nil},
		{"neighbours", [][]byte{part(0, 100), part(128, 300), part(300, 400)}, 1, 1 << 20, [][]int{{0, 1, 2}}},
		{"not in order", [][]byte{part(300, 400), part(0, 100), part(128, 300)}, 1, 1 << 20, [][]int{{1, 2, 0}}},
		{"far apart", [][]byte{part(0, 100), part(1000, 1100)}, 1, 1 << 20, [][]int{{0}, {1}}},
		{"a buffer is full", [][]byte{part(0, 600), part(600, 1100), part(1100, 1500)}, 1, 1000, [][]int{{0}, {1, 2}}},
		{"the same twice", [][]byte{part(0, 100), part(0, 100)}, 1, 1 << 20, [][]int{{0, 1}}},
		{"empty ones", [][]byte{part(0, 100), nil, part(100, 100)}, 1, 1 << 20, [][]int{{0}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := spans(row.tensors, row.page, row.most)
			require.NoError(t, err)
			var members [][]int
			for i := range got {
				members = append(members, got[i].members)
				memory := got[i].bytes(row.tensors[got[i].members[0]])
				require.LessOrEqual(t, int64(len(memory)), row.most)
			}
			require.Equal(t, row.want, members)
		})
	}
	_, err := spans([][]byte{part(0, 10), part(100, 2000)}, 1, 1000)
	require.ErrorContains(t, err, "1.9 KiB; the device's largest buffer has 1000 bytes")
	require.Equal(t, 1, err.(*tensorError).index)
}
