package kernels_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
)

func parse(t *testing.T, file string) *mslgen.Unit {
	t.Helper()
	unit, err := mslgen.Parse(file, mslgen.ReadFile("."))
	require.NoError(t, err)
	return unit
}

// TestTableMatchesSources compares every kernel of every file with the table.
func TestTableMatchesSources(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range kernels.Files() {
		unit := parse(t, file)
		for _, source := range unit.Kernels {
			t.Run(source.Name, func(t *testing.T) {
				require.False(t, seen[source.Name], "host name twice")
				seen[source.Name] = true
				k, ok := kernels.Lookup(source.Name)
				require.True(t, ok, "not in the table")
				require.Equal(t, file, k.File)
				require.Equal(t, source.ThreadgroupBytes(), k.ThreadgroupBytes)
				require.LessOrEqual(t, k.ThreadgroupBytes, kernels.MaxThreadgroupBytes)
				require.Equal(t, signature(unit, source), tableSignature(k))
			})
		}
	}
	for _, k := range kernels.All() {
		require.True(t, seen[k.Name], "%s is in the table but in no source", k.Name)
	}
}

// signature writes what a source says about a kernel, one line a binding.
func signature(unit *mslgen.Unit, k *mslgen.Kernel) []string {
	var out []string
	for _, a := range k.Args {
		switch {
		case a.Kind == mslgen.Position:
		case a.Kind == mslgen.Threadgroup:
			out = append(out, fmt.Sprintf("threadgroup(%d) %s", a.Index, a.Name))
		case a.Space == "constant":
			out = append(out, fmt.Sprintf("buffer(%d) constant %s", a.Index, a.Type))
		default:
			out = append(out, fmt.Sprintf("buffer(%d) %s %s const=%v", a.Index, a.Name, a.Type, a.Const))
		}
	}
	for _, c := range unit.Constants {
		if slices.Contains(k.Constants, c.Index) {
			out = append(out, fmt.Sprintf("constant(%d) %s %s required=%v", c.Index, c.Name, c.Type, slices.Contains(k.Required, c.Index)))
		}
	}
	slices.Sort(out)
	return out
}

func tableSignature(k *kernels.Kernel) []string {
	out := []string{fmt.Sprintf("buffer(%d) constant %s", k.ParamsIndex, k.Params)}
	for _, a := range k.Args {
		out = append(out, fmt.Sprintf("buffer(%d) %s %s const=%v", a.Index, a.Name, a.Element, a.Access == kernels.Read))
	}
	for _, c := range k.Constants {
		out = append(out, fmt.Sprintf("constant(%d) %s %s required=%v", c.Index, c.Name, c.Type, !c.Optional))
	}
	slices.Sort(out)
	return out
}

// named returns the words of a struct by the names that kernels have for them.
func named(t *testing.T, kernel string, words []uint32) map[string]uint32 {
	t.Helper()
	k, ok := kernels.Lookup(kernel)
	require.True(t, ok, kernel)
	require.Len(t, words, k.ParamWords)
	out := map[string]uint32{}
	for i, w := range words {
		out[k.ParamNames[i]] = w
	}
	return out
}

func TestEncodeParams(t *testing.T) {
	require.Equal(t, map[string]uint32{"rows": 1, "width": 2, "x_stride": 3, "eps": 0x3f800000, "groups": 1},
		named(t, "rms_norm_f32_f32", kernels.Words(kernels.NormParams{Rows: 1, Width: 2, XStride: 3, Eps: 1, Groups: 1})))
	require.Equal(t, map[string]uint32{"size[0]": 1, "size[1]": 2, "size[2]": 3, "stride[0]": 4, "stride[1]": 5, "stride[2]": 6},
		named(t, "transpose_f32", kernels.Words(kernels.TransposeParams{Size: [3]uint32{1, 2, 3}, Stride: [3]uint32{4, 5, 6}})))
	bytes := kernels.Encode(kernels.EmbedParams{Tokens: 1, Width: 0x200, Vocab: 0x30000})
	words := make([]uint32, len(bytes)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(bytes[4*i:])
	}
	require.Equal(t, map[string]uint32{"tokens": 1, "width": 0x200, "vocab": 0x30000}, named(t, "embed", words))
}

// TestSourceIsSelfContained checks what Metal's compiler is given.
func TestSourceIsSelfContained(t *testing.T) {
	include := regexp.MustCompile(`(?m)^\s*#\s*include.*$`)
	hashes := map[string]string{}
	for _, file := range kernels.Files() {
		text := kernels.Source(file)
		for _, line := range include.FindAllString(text, -1) {
			require.Regexp(t, `<(metal_stdlib|stdint\.h)>`, line, file)
		}
		require.Equal(t, 1, strings.Count(text, "struct EmbedParams {"), "%s: params.h once", file)
		require.NotContains(t, hashes, kernels.Hash(file))
		hashes[kernels.Hash(file)] = file
	}
	onDisk, err := filepath.Glob("*.metal")
	require.NoError(t, err)
	published, err := filepath.Glob("published/*.metal")
	require.NoError(t, err)
	onDisk = slices.Sorted(slices.Values(append(onDisk, published...)))
	require.Equal(t, onDisk, kernels.Files())
}

func TestLookup(t *testing.T) {
	k, ok := kernels.Lookup("linear_vec_f16_f32")
	require.True(t, ok)
	require.Equal(t, "linear_vec", k.Family)
	x, ok := k.Named("x")
	require.True(t, ok)
	require.Equal(t, kernels.Arg{Index: x.Index, Name: "x", Access: kernels.Read, Element: kernels.Half}, x)
	same, ok := k.Arg(x.Index)
	require.True(t, ok)
	require.Equal(t, x, same)
	out, _ := k.Named("out")
	require.Equal(t, kernels.Float, out.Element)
	_, ok = k.Arg(k.ParamsIndex)
	require.False(t, ok, "the parameters are no argument")
	_, ok = k.Named("p")
	require.False(t, ok)
	c, ok := k.Constant("fc_norm")
	require.True(t, ok)
	require.Equal(t, "uint", c.Type)
	_, ok = k.Constant("norm")
	require.False(t, ok)
	require.Len(t, k.ParamNames, k.ParamWords)
	require.Subset(t, k.ParamNames, []string{"tokens", "n0", "x_stride", "eps"})
	word, ok := k.Param("x_stride")
	require.True(t, ok)
	require.Equal(t, uint32(7), kernels.Words(kernels.LinearParams{XStride: 7})[word])
	_, ok = k.Param("XStride")
	require.False(t, ok)
	_, ok = kernels.Lookup("linear_vec")
	require.False(t, ok)
}

func TestBind(t *testing.T) {
	k, ok := kernels.Lookup("layer_norm_f32_f16")
	require.True(t, ok)
	x, bias := []byte{1}, []byte{2}
	params := kernels.NormParams{Rows: 3}
	buffers, bits, err := kernels.Bind(k.Name, map[string][]byte{"x": x, "bias": bias}, params, map[string]uint32{"fc_bias": 1})
	require.NoError(t, err)
	want := make([][]byte, len(buffers))
	for name, b := range map[string][]byte{"x": x, "bias": bias} {
		a, ok := k.Named(name)
		require.True(t, ok)
		want[a.Index] = b
	}
	want[k.ParamsIndex] = kernels.Encode(params)
	require.Equal(t, want, buffers)
	c, ok := k.Constant("fc_bias")
	require.True(t, ok)
	require.Equal(t, map[uint32]uint32{uint32(c.Index): 1}, bits)

	for want, bind := range map[string]func() error{
		"no kernel is called layer_norm": func() error { _, _, err := kernels.Bind("layer_norm", nil, params, nil); return err },
		`no argument "y"`: func() error {
			_, _, err := kernels.Bind(k.Name, map[string][]byte{"y": x}, params, nil)
			return err
		},
		`no function constant "fc_y"`: func() error {
			_, _, err := kernels.Bind(k.Name, nil, params, map[string]uint32{"fc_y": 1})
			return err
		},
		"takes NormParams, not EmbedParams": func() error { _, _, err := kernels.Bind(k.Name, nil, kernels.EmbedParams{}, nil); return err },
	} {
		require.ErrorContains(t, bind(), want)
	}
}

// TestGridsMatchSources compares the grid of every kernel's row with what its source says
// above the signature, and the tiles of those whose grid more than parameters decide.
func TestGridsMatchSources(t *testing.T) {
	chosen := map[string]string{
		"linear_mat":         fmt.Sprintf("Grid (ceil(tokens/fc_tile), ceil(N/%d), 1), or ceil(N/%d) of a gate, of %%d threads", kernels.MatColumns, kernels.MatColumns/2),
		"norm_linear_mat":    fmt.Sprintf("Grid (ceil(tokens/fc_tile), ceil(N/%d), 1), or ceil(N/%d) of a gate, of %%d threads", kernels.MatColumns, kernels.MatColumns/2),
		"attention_tile":     fmt.Sprintf("Grid (ceil(tokens/%d) + seqs, heads, ceil(head/256)) of %%d threads", kernels.AttentionTile),
		"attention_vec":      "Grid (heads, tokens, 1) of %d threads",
		"repeat_kv":          "groups of %d threads in x",
		"repeat_kv_pair":     "groups of %d threads in x",
		"paged_attention_v1": "Grid (heads, seqs, 1) of %d threads",
		"paged_attention_v2": "Grid (heads, seqs, partitions) of %d threads",
		"rope_qkv_write":     fmt.Sprintf("Grid (ceil((heads + 2·kv_heads)/n), tokens, 1) of %%d threads, n being %d", kernels.RopeWriteRows(8)),
	}
	for _, k := range kernels.All() {
		want, ok := chosen[k.Family]
		if k.Grid != nil {
			axes := make([]string, 3)
			for i, axis := range k.Grid {
				names := []string{}
				for _, w := range axis.Words {
					names = append(names, k.ParamNames[w])
				}
				axes[i] = strings.Join(names, "·")
				if len(names) == 0 {
					axes[i] = "1"
				}
				if axis.Tile != 1 {
					axes[i] = fmt.Sprintf("ceil(%s/%d)", axes[i], axis.Tile)
				}
			}
			want, ok = "("+strings.Join(axes, ", ")+") of %d threads", true
			if size := map[string]string{"rms_norm": "32 to %d", "norm_residual": "32 to %d", "layer_norm": "32 to %d", "attention_reduce": "head/4", "delta_net": "head", "mamba2": "head · (256 / head)"}[k.Family]; size != "" {
				want = strings.Replace(want, "%d", size, 1)
			}
		}
		if !ok {
			continue // nothing but what function constants say
		}
		if strings.Contains(want, "%d") {
			want = fmt.Sprintf(want, k.MaxThreads)
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(kernels.Source(k.File), "\n//", "\n")), " ")
		require.Contains(t, text, want, "%s says of %s", k.File, k.Family)
	}
}
