package kernels_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/gguf"
	"github.com/smelt-ml/smelt/models/quant"
)

// addToy adds a type of 64 elements of two bits, d·(q − 1), with d a half before them.
func addToy(t *testing.T) dtype.Type {
	toy, remove := dtype.Add(dtype.Row{Name: "toy", Elems: 64, Bytes: 18, GGUF: 4001, Mixture: "toy_s", FileType: 4002, Narrower: dtype.Q4_1,
		Halves: []int{0}, Codes: dtype.Span{From: 2, To: 18}, Offset: true, Up: 2, Cycles: 64, VecRows: 4})
	t.Cleanup(remove)
	t.Cleanup(quant.Add(toy, func(dst []float32, src []byte) {
		for ; len(dst) >= 64; dst, src = dst[64:], src[18:] {
			for i := range 64 {
				dst[i] = float32(one(src)) * float32(int(src[2+i%16]>>(i/16*2)&3)-1)
			}
		}
	}, func([]byte, []float32) int { return -1 }))
	return toy
}

// one is what the half before a block stands for: 1, or 0 of any other.
func one(b []byte) int { return map[uint16]int{0x3c00: 1}[binary.LittleEndian.Uint16(b)] }

// TestToyType adds a type as a row and a decoder: names, files, mixtures and what replaces it,
// what kernels check and rearrange, and the headers that they are compiled with follow.
func TestToyType(t *testing.T) {
	toy := addToy(t)
	parsed, err := dtype.Parse("TOY")
	require.NoError(t, err)
	require.Equal(t, toy, parsed)
	require.EqualValues(t, 36, toy.Bytes(128))

	block := append([]byte{0, 0x3c}, bytes.Repeat([]byte{0b00011011}, 16)...)
	x := make([]float32, 64)
	require.NoError(t, quant.Dequantize(x, block, toy))
	require.Equal(t, []float32{2, 1, 0, -1}, []float32{x[0], x[16], x[32], x[48]})

	t.Run("file", func(t *testing.T) {
		number, ok := gguf.TypeOf(toy)
		require.True(t, ok)
		require.Equal(t, gguf.TensorType(4001), number)
		require.Equal(t, "TOY", number.String())
		var b bytes.Buffer
		require.NoError(t, gguf.Write(&b, nil, []gguf.TensorWriter{{Name: "w", Type: number, Shape: []int64{2, 64}, Write: func(w io.Writer) error {
			_, err := w.Write(slices.Repeat(block, 2))
			return err
		}}}))
		f, err := gguf.Parse(b.Bytes(), "toy.gguf")
		require.NoError(t, err)
		require.Equal(t, toy, f.Tensors[0].DType)
		require.Equal(t, slices.Repeat(block, 2), f.Tensors[0].Data)
	})

	t.Run("mixture", func(t *testing.T) {
		require.Contains(t, checkpoint.WeightTypes(), "toy_s")
		c := tiny.Narrow() // rows of 32, 48 and 64
		m, err := checkpoint.Synthetic(c, "TOY_S")
		require.NoError(t, err)
		types := map[dtype.Type]int{}
		for _, w := range m.Tensors() {
			types[w.DType]++
			if len(w.Shape) == 2 && w.Shape[1]%64 == 0 && w.Name != "output.weight" {
				require.Equal(t, toy, w.DType, w.Name)
			}
		}
		require.Positive(t, types[toy])
		require.Positive(t, types[dtype.Q4_1], "rows of 32")
	})

	t.Run("kernels", func(t *testing.T) {
		require.True(t, kernels.HasLines(uint32(toy)))
		lines := make([]byte, 36)
		kernels.PutLines(uint32(toy), lines, slices.Repeat(block, 2))
		require.Equal(t, slices.Concat(slices.Repeat(block[2:], 2), slices.Repeat(block[:2], 2)), lines)
		require.EqualValues(t, 4*128, kernels.ShiftCycles(uint32(toy)+kernels.Lines, 128))

		types, decode := typesHeader(dtype.Weights()), decodeHeader(dtype.Weights())
		require.Contains(t, types, "#define SMELT_TOY 21\n")
		require.Contains(t, types, "X(TOY, 64, 18)")
		require.Contains(t, decode, "static_assert(sizeof(scales_toy) == 2,")
		require.Contains(t, decode, "return decode_toy<2>(block<block_toy, 4>(row.at, r), block<block_toy, 4>(row.at, r), r % 4);")
		require.Contains(t, decode, "return decode_toy<8>(block<codes_toy, 4>(row.at, r), block<scales_toy, 4>(row.scales, r), r % 4);")
	})
}

// TestDecoders compares the decoders in C++ with the table, in both directions: those of the Metal
// sources, and of native sets those of vectors and those of plain loops. A type that no set has
// runs by emulation of the Metal source.
func TestDecoders(t *testing.T) {
	names := func(expr string, files ...string) (found []string) {
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(expr).FindAllStringSubmatch(string(text), -1) {
				found = append(found, strings.ToLower(m[1]))
			}
		}
		return lo.Uniq(found)
	}
	var quantized []string
	for _, d := range dtype.Weights() {
		if d.IsQuantized() {
			quantized = append(quantized, d.String())
		}
	}
	decoders := lo.Without(names(`inline Run decode_(\w+)\(`, "quant.h"), "plain", "run")
	require.ElementsMatch(t, quantized, decoders)

	vectors := names(`X\((?:\w+, )?(\w+)\)`, "native/src/blocks.h", "native/src/codes.h", "native/src/affine.h")
	plain := names(`plain_type<Plain(?:\w+<SMELT_)?(\w+)`, "native/src/plain.h")
	require.ElementsMatch(t, vectors, plain)
	require.Subset(t, quantized, vectors)
}

// TestFilesOfAType holds the page that shows how a type of weights is added to the tree: there are
// eight files at most, and the product names the example in them alone.
func TestFilesOfAType(t *testing.T) {
	page, err := os.ReadFile("../docs/guides/add-a-type.md")
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
	}
	require.LessOrEqual(t, len(listed), 8)
	names, ours := regexp.MustCompile(`(?i)iq4_nl\b`), regexp.MustCompile(`\.(go|h|cc|cpp|c|m|metal)$`)
	var found []string
	require.NoError(t, fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || path == "internal/tools" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !ours.MatchString(path) || strings.Contains(path, ".gen."):
			return nil
		case strings.HasSuffix(path, "_test.go") && !slices.Contains(listed, path):
			return nil
		}
		text, err := os.ReadFile("../" + path)
		if names.Match(text) {
			found = append(found, path)
		}
		return err
	}))
	require.ElementsMatch(t, listed, found)
}
