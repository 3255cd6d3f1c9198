package verify_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/samber/lo"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/internal/verify"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models"
	"github.com/smelt-ml/smelt/models/quant"
)

func verified(t *testing.T, path, device string, bisect bool) *verify.Findings {
	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	defer m.Close()
	f, err := verify.Model(t.Context(), m, verify.Job{
		Program: options(t, device, dtype.F16), Device: smelt.Device{Name: device}, Bisect: bisect,
	})
	require.NoError(t, err)
	text, err := json.Marshal(f) // NaN has no JSON
	require.NoError(t, err)
	require.True(t, json.Valid(text))
	return f
}

// options are those of a device, with a cache of the type given.
func options(t *testing.T, device string, kv dtype.Type) smelt.Options {
	return fixture.Options(t, device, kv)
}

func opened(t testing.TB, path string) *smelt.Model {
	m, err := smelt.Open(path, "")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func check(t *testing.T, f *verify.Findings, name string) verify.Check {
	i := slices.IndexFunc(f.Checks, func(c verify.Check) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return f.Checks[i]
}

// TestVerify verifies models whose ways to run agree. The emulator takes long over a
// trained one, and has all checks with random weights too.
func TestVerify(t *testing.T) {
	emulated := "tiny-llama/gguf/tiny-llama-F16.gguf"
	if !testfiles.Full("models") {
		emulated = tiny.Random(t, tiny.Narrow(), "f16")
		defer verify.EmulatedWork(1e8)() // half of the tokens
	}
	for _, tt := range []struct {
		path, device string
		checks       []string
	}{
		{"tiny-qwen3/gguf/tiny-qwen3-F16.gguf", "cpu", []string{
			"source / fused", "native / emulated", "float / half", "float64 / cpu", "float64 / emulated", "float64 / emu f16", "prefill / decode",
			"threads", "rearranged weights", "stored weights", "plan read back", "plan looked at", "products alone",
		}},
		{"tiny-llama/gguf/tiny-llama-Q4_0.gguf", "cpu", []string{
			"source / fused", "float / int8", "float / half", "float64 / cpu", "float64 / emulated", "float64 / emu f16", "prefill / decode",
			"threads", "rearranged weights", "stored weights", "plan read back", "plan looked at", "products alone",
		}},
		{emulated, "emu", []string{
			"source / fused", "native / emulated", "float / half", "float64 / emu f16", "float64 / cpu", "float64 / emulated", "prefill / decode",
			"threads", "descending order", "shuffled order", "plan read back", "plan looked at",
		}},
	} {
		t.Run(filepath.Base(tt.path)+"/"+tt.device, func(t *testing.T) {
			f := verified(t, tiny.Path(t, tt.path), tt.device, true)
			var names []string
			for _, c := range f.Checks {
				names = append(names, c.Name)
				require.Equal(t, verify.Within, c.Verdict, c.Name)
				if c.Against == verify.AgainstBits {
					require.Zero(t, c.Absolute, c.Name)
					require.Zero(t, c.Bound, c.Name)
					continue
				}
				require.Positive(t, float64(c.Relative), c.Name) // two different computations
				require.LessOrEqual(t, float64(c.Relative), c.Bound, c.Name)
			}
			require.Equal(t, tt.checks, names)
			require.True(t, f.OK)
			require.Empty(t, f.Bisect.Pass)
			require.Nil(t, f.Bisect.NonFinite)
			require.Nil(t, f.Bisect.Wrong)

			kernels := map[string]bool{}
			for _, k := range f.Kernels {
				kernels[k.Kernel] = kernels[k.Kernel] || k.Native
				require.Equal(t, verify.Within, k.Verdict, k.Kernel)
			}
			m, err := smelt.Open(tiny.Path(t, tt.path), "")
			require.NoError(t, err)
			defer m.Close()
			opts := options(t, "cpu", dtype.F16)
			opts.Context = 128
			p, err := m.Compile(opts)
			require.NoError(t, err)
			for i := range p.Plan.Phases {
				for _, d := range p.Plan.Phases[i].Dispatches {
					require.True(t, kernels[d.Kernel], "nothing was said of the native %s", d.Kernel)
				}
			}
		})
	}
}

// TestVerifyFindsPass has one pass go wrong after the other; the bisection names
// it, though the passes after it run on its graph.
func TestVerifyFindsPass(t *testing.T) {
	first := func(f *ir.Func, op ir.Op) *ir.Value {
		i := slices.IndexFunc(f.Values, func(v *ir.Value) bool { return v.Op == op })
		if i < 0 {
			return nil
		}
		return f.Values[i]
	}
	narrow := tiny.Random(t, tiny.Narrow(), "f16")
	for _, tt := range []struct {
		pass  string
		spoil func(f *ir.Func)
	}{
		{"kv_replication_elimination", func(f *ir.Func) {
			v := first(f, ir.OpAttention)
			a := v.Attr.(ir.AttentionAttr)
			a.Scale *= 1.1
			v.Attr = a
		}},
		{"gated_activation", func(f *ir.Func) { slices.Reverse(first(f, ir.OpGate).Args) }},
		{"gate_up", func(f *ir.Func) {
			for _, v := range f.Values {
				if a, ok := v.Attr.(ir.LinearAttr); ok && a.Gated && v.Layer == 1 {
					v.Args[1], v.Args[2] = v.Args[2], v.Args[1]
				}
			}
		}},
		{"rope_qkv_write", func(f *ir.Func) {
			if v := first(f, ir.OpRopeQKVWrite); v != nil {
				a := v.Attr.(ir.RopeWriteAttr)
				a.Rope.FreqScale *= 1.01
				v.Attr = a
			}
		}},
	} {
		t.Run(tt.pass, func(t *testing.T) {
			defer verify.AfterPass(func(pass string, f *ir.Func) {
				if pass == tt.pass {
					tt.spoil(f)
				}
			})()
			f := verified(t, narrow, "cpu", true)
			require.False(t, f.OK)
			require.Equal(t, verify.Beyond, check(t, f, "source / fused").Verdict)
			require.Equal(t, tt.pass, f.Bisect.Pass)
			require.Nil(t, f.Bisect.NonFinite)
			for _, p := range f.Bisect.Passes {
				require.Equal(t, p.Pass == tt.pass, p.Verdict == verify.Beyond, p.Pass)
			}
		})
	}
}

// enlarge makes every element of a stored row 1 % larger, or, where scales are powers of two,
// those of one block twice as large.
func enlarge(t *testing.T, row []byte, typ dtype.Type) {
	if typ.IsQuantized() && typ.Row().Halves == nil {
		row[0]++ // an exponent
		return
	}
	for ; len(row) > 0; row = row[typ.BlockBytes():] {
		parts, of := typ.Row().Halves, dtype.F16
		if parts == nil {
			parts, of = []int{0}, typ
		}
		for _, at := range parts {
			var x [1]float32
			b := row[at:][:of.BlockBytes()]
			require.NoError(t, quant.Dequantize(x[:], b, of))
			x[0] *= 1.01
			require.NoError(t, quant.Quantize(b, x[:], of))
		}
	}
}

// findsRow gives the device a model with one row of a tensor 1 % larger, and float64 the
// model as it was.
func findsRow(t *testing.T, path, tensor string, row int) *verify.Findings {
	m := opened(t, path)
	defer verify.ReferenceWeights(m.File())()
	w, ok := m.File().Tensor(tensor)
	require.True(t, ok, tensor)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	bytes := w.DType.Bytes(int64(w.Shape[len(w.Shape)-1]))
	enlarge(t, data[w.Offset+int64(row)*bytes:][:bytes], w.DType)
	wrong := filepath.Join(t.TempDir(), filepath.Base(path))
	require.NoError(t, os.WriteFile(wrong, data, 0o600))
	return verified(t, wrong, "cpu", true)
}

// TestVerifyFindsRow makes one row of one matrix wrong by 1 %, in each type of weights:
// float64 does not agree with native kernels, nor with their emulation, nor with half
// precision, and the bisection names the op, the matrix and the row. Without the fault
// they all agree.
func TestVerifyFindsRow(t *testing.T) {
	defer verify.EmulatedWork(4e7)() // some layers, and some rows of each product
	for _, typ := range dtype.Weights() {
		if _, inFiles := typ.GGUF(); !inFiles || !testfiles.Full("models") && slices.Contains([]dtype.Type{dtype.BF16, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q2_K, dtype.Q3_K, dtype.Q5_K, dtype.Q6_K, dtype.IQ4_NL, dtype.IQ4_XS}, typ) {
			continue
		}
		t.Run(typ.String(), func(t *testing.T) {
			shape := tiny.Narrow()
			if typ.BlockElems() == 256 {
				shape = tiny.Small()
			}
			path := tiny.Random(t, shape, typ.Row().Mixture)
			const tensor, row = "blk.1.attn_q.weight", 41
			w, ok := opened(t, path).File().Tensor(tensor)
			require.True(t, ok)
			require.Equal(t, typ, w.DType)

			good := verified(t, path, "cpu", false)
			require.True(t, good.OK, "%+v", good.Checks)

			f := findsRow(t, path, tensor, row)
			require.False(t, f.OK)
			for _, name := range []string{"float64 / cpu", "float64 / emulated", "float64 / emu f16"} {
				c := check(t, f, name)
				require.Equal(t, verify.Beyond, c.Verdict, name)
				require.Contains(t, c.Where, "row 41 of "+tensor, name)
				t.Logf("%s: %.2g, %.0f times the bound", name, float64(c.Relative), float64(c.Relative)/c.Bound)
			}
			o := f.Bisect.Wrong
			require.NotNil(t, o)
			require.Equal(t, tensor, o.Weight)
			require.Equal(t, row, o.WeightRow)
			require.Equal(t, 1, o.Layer)
			require.Equal(t, "fused_linear", o.Op)
			require.Equal(t, "cpu", o.Device)
			require.Empty(t, f.Bisect.Pass)
		})
	}
}

// TestVerifyFindsEveryMatrix does so with each kind of matrix, embeddings of tokens that
// no step feeds among them.
func TestVerifyFindsEveryMatrix(t *testing.T) {
	defer verify.EmulatedWork(4e7)()
	for path, tensors := range map[string][]string{
		tiny.Random(t, tiny.Narrow(), "q4_0"): {
			"token_embd.weight", "blk.0.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight", "blk.0.ffn_gate.weight",
			"blk.1.ffn_up.weight", "blk.1.ffn_down.weight", "output.weight",
		},
		"tiny-qwen3/gguf/tiny-qwen3-F16.gguf": {"token_embd.weight", "blk.3.ffn_down.weight"}, // tied
		tiny.Random(t, mixture(), "mxfp4"): {
			"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight",
		},
	} {
		path := tiny.Path(t, path)
		for _, tensor := range tensors {
			t.Run(filepath.Base(path)+"/"+tensor, func(t *testing.T) {
				row := lo.Ternary(strings.HasSuffix(tensor, "_inp.weight"), 2, 11) // of the first expert
				f := findsRow(t, path, tensor, row)
				require.False(t, f.OK)
				require.Equal(t, verify.Beyond, check(t, f, "float64 / cpu").Verdict)
				o := f.Bisect.Wrong
				require.NotNil(t, o)
				require.Equal(t, row, o.WeightRow)
				want := tensor
				if layer, of, pair := strings.Cut(tensor, ".ffn_gate"); pair && of != "_inp.weight" {
					want = tensor + " and " + layer + ".ffn_up" + of
				} else if layer, of, pair := strings.Cut(tensor, ".ffn_up"); pair {
					want = layer + ".ffn_gate" + of + " and " + tensor
				}
				require.Equal(t, want, o.Weight)
			})
		}
	}
}

// mixture is a shape of experts, of which tokens go to one and another.
func mixture() models.Config {
	c := tiny.Narrow()
	c.Name, c.Experts = "mixture", models.Experts{Count: 5, Chosen: 2}
	return c
}

// shared is a mixture whose experts' shares are what the router's kernel writes beside their
// numbers, and one more expert that all tokens go to.
func shared() models.Config {
	c := mixture()
	c.Family, c.Name, c.Rope.Llama3 = "qwen2moe", "shared", nil
	c.Experts.FFN, c.Experts.Shared = 96, 64
	return c
}

func TestVerifyMixture(t *testing.T) {
	defer verify.EmulatedWork(4e7)()
	for _, c := range []models.Config{mixture(), shared()} {
		for _, device := range []string{"cpu", "emu"} {
			f := verified(t, tiny.Random(t, c, "q4_0"), device, false)
			require.True(t, f.OK, "%s on %s: %+v", c.Name, device, f.Checks)
		}
	}
}

// TestVerifyFeedsAlone counts the products of models that are fed with tokens alone: none is
// left out.
func TestVerifyFeedsAlone(t *testing.T) {
	defer verify.EmulatedWork(4e7)()
	for _, tt := range []struct {
		config   models.Config
		products int // of a layer: Q, K and V, the output, the router with the shared expert's gate, two of the experts, and two of the shared one
	}{
		{tiny.Narrow(), 4}, {mixture(), 5}, {shared(), 7},
	} {
		c := check(t, verified(t, tiny.Random(t, tt.config, "q4_0"), "cpu", false), "products alone")
		require.Equal(t, fmt.Sprintf("%d products of 33 tokens on cpu, and of single ones", tt.config.Layers*tt.products+1), c.What, tt.config.Name)
	}
}

// TestVerifyFindsExperts has kernels compute a product of experts wrongly: in steps of one
// token alone, by a bit; and the results of two experts exchanged, or a share applied twice, by
// one of the two ways to run it. The check that sees this way finds it, and no other.
func TestVerifyFindsExperts(t *testing.T) {
	defer verify.EmulatedWork(4e7)()
	path := tiny.Random(t, shared(), "f16")
	for _, tt := range []struct {
		fault, device string
		tokens        int // of the steps that it is in, 0 for all
		mixed         bool
		change        func(tokens int, out []float32)
		check         string
	}{
		{"a bit of a token by itself", "cpu", 1, false, func(_ int, out []float32) { out[0] = math.Nextafter32(out[0], 9) }, "products alone"},
		{"a bit of a mixture by itself", "cpu", 1, true, func(_ int, out []float32) { out[0] = math.Nextafter32(out[0], 9) }, "products alone"},
		{"experts exchanged", "cpu", 0, false, exchangeExperts, "float64 / cpu"},
		{"experts exchanged", "emu", 0, false, exchangeExperts, "float64 / emulated"},
		{"a share applied twice", "cpu", 0, true, func(_ int, out []float32) {
			for i := range out {
				out[i] *= 0.5
			}
		}, "float64 / cpu"},
	} {
		t.Run(tt.fault+"/"+tt.device, func(t *testing.T) {
			defer verify.AfterDispatch(func(device string, v *ir.Value, tokens int, out []float32) {
				a, ok := v.Attr.(ir.RoutedAttr)
				if ok && v.Layer == 1 && a.Mixed == tt.mixed && device == tt.device && v.Type.DType == dtype.F32 && (tt.tokens == 0 || tt.tokens == tokens) {
					tt.change(tokens, out)
				}
			})()
			f := verified(t, path, "cpu", false)
			require.False(t, f.OK)
			for _, c := range f.Checks {
				if c.Informational { // halves may choose another expert
					continue
				}
				// Single tokens have float activations beside a cache in halves too.
				wrong := c.Name == tt.check || tt.device == "emu" && c.Name == "float64 / emu f16"
				require.Equal(t, wrong, c.Verdict == verify.Beyond, "%s: %+v", c.Name, c)
			}
			require.Contains(t, check(t, f, tt.check).Where, "layer 1: routed_linear")
			for _, k := range f.Kernels {
				if k.Verdict == verify.Beyond {
					require.Contains(t, k.Kernel, "linear_vec")
					require.Equal(t, tt.device, k.Device)
				}
			}
		})
	}
}

// exchangeExperts gives the two experts of each token each other's results.
func exchangeExperts(tokens int, out []float32) {
	for pair := range slices.Chunk(out, len(out)/tokens) {
		half := len(pair) / 2
		for i := range half {
			pair[i], pair[half+i] = pair[half+i], pair[i]
		}
	}
}

func TestVerifyFindsNaN(t *testing.T) {
	defer verify.EmulatedWork(1e8)()
	for _, tt := range []struct {
		path, tensor string
		row, layer   int
		op, kernel   string
	}{
		{"tiny-qwen3/gguf/tiny-qwen3-F16.gguf", "blk.2.ffn_down.weight", 7, 2, "fused_linear", "linear_mat_f32_f32"},
		{tiny.Random(t, tiny.Narrow(), "q4_0"), "blk.1.attn_v.weight", 3, 1, "fused_linear", "linear_mat_f32_f32"},
		{tiny.Random(t, tiny.Narrow(), "f16"), "output.weight", 100, -1, "linear", "linear_mat_f32_f32"},
	} {
		t.Run(tt.tensor, func(t *testing.T) {
			f := verified(t, tiny.Spoilt(t, tt.path, tt.tensor, tt.row), "cpu", true)
			require.False(t, f.OK)
			require.Equal(t, verify.NotFinite, check(t, f, "source / fused").Verdict)
			n := f.Bisect.NonFinite
			require.NotNil(t, n)
			require.Equal(t, tt.layer, n.Layer)
			require.Equal(t, tt.op, n.Op)
			require.Equal(t, tt.kernel, n.Kernel)
			require.Equal(t, "NaN", n.Is)
			require.Contains(t, n.Line, n.Value+" = "+n.Op)
			require.Equal(t, []string{fmt.Sprintf("%s, row %d", tt.tensor, tt.row)}, n.Weights)
			require.Empty(t, f.Bisect.Pass) // no pass is to blame
		})
	}
}

// TestVerifyFindsOverflow raises weights until a value leaves the range of halves,
// while floats still hold it: only half precision is at fault.
func TestVerifyFindsOverflow(t *testing.T) {
	const tensor = "blk.1.ffn_up.weight"
	path := tiny.Patched(t, tiny.Random(t, tiny.Narrow(), "f16"), tensor, 5, func(row []byte) {
		for i := 1; i < len(row); i += 64 { // few, whose products do not cancel
			row[i-1], row[i] = 0xff, 0x7b // 65504
		}
	})
	require.True(t, verified(t, path, "cpu", false).Checks[0].Verdict == verify.Within)
	f := verified(t, path, "emu", true)
	require.False(t, f.OK)
	require.Equal(t, verify.Within, check(t, f, "source / fused").Verdict)
	require.Equal(t, verify.NotFinite, check(t, f, "float / half").Verdict)
	n := f.Bisect.NonFinite
	require.NotNil(t, n)
	require.Equal(t, 1, n.Layer)
	require.Contains(t, n.Is, "Inf")
	require.Equal(t, "norm_linear_mat_f32_f16_f16", n.Kernel)
	require.Empty(t, n.Weights)
	require.Equal(t, "narrow", f.Bisect.Pass)
}

// TestVerifyInPart verifies a model that would take too long to emulate whole.
func TestVerifyInPart(t *testing.T) {
	defer verify.EmulatedWork(5e7)()
	f := verified(t, testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "cpu", true)
	require.True(t, f.OK)
	require.Equal(t, []int{33, 1, 1}, f.Steps)
	for _, name := range []string{"source / fused", "float / int8", "float / half", "float64 / emulated"} {
		require.Contains(t, check(t, f, name).What, "layers 0-1 of 4")
	}
	require.Contains(t, f.Bisect.What, "layers 0-1 of 4")
	require.Contains(t, f.Partly, "35 tokens instead of 69, 2 of 4 layers")
	require.NotContains(t, check(t, f, "float64 / cpu").What, "of 4") // native kernels are quick
	for _, k := range f.Kernels {
		if k.Device == "emu" {
			require.NotContains(t, k.Where, "layer 2")
		}
	}
}

func TestVerifyLevels(t *testing.T) {
	m := opened(t, tiny.Random(t, tiny.Narrow(), "f16"))
	opts := options(t, "cpu", dtype.F32)
	opts.Level = smelt.Unoptimised
	f, err := verify.Model(t.Context(), m, verify.Job{Program: opts, Device: smelt.Device{Name: "auto"}})
	require.NoError(t, err)
	require.True(t, f.OK)
	require.Equal(t, verify.Skipped, check(t, f, "source / fused").Verdict)

	opts.Context = 16
	_, err = verify.Model(t.Context(), m, verify.Job{Program: opts, Device: smelt.Device{Name: "cpu"}})
	require.ErrorContains(t, err, "the context has 16")

	shape, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	_, err = verify.Model(t.Context(), shape, verify.Job{Device: smelt.Device{Name: "cpu"}})
	require.ErrorIs(t, err, smelt.ErrNoWeights)
}

func TestCompareBits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tt := range []struct {
		name      string
		op        ir.Op
		want, got []float32
		verdict   verify.Verdict
		absolute  float64
	}{
		{"same", ir.OpAdd, []float32{1, 2}, []float32{1, 2}, verify.Within, 0},
		{"one bit", ir.OpAdd, []float32{1, 2}, []float32{1, 2 + 0x1p-22}, verify.Beyond, 0x1p-22},
		{"the sign of zero", ir.OpAdd, []float32{0, 2}, []float32{float32(math.Copysign(0, -1)), 2}, verify.Beyond, 0},
		{"NaN in both", ir.OpAdd, []float32{1, nan}, []float32{1, nan}, verify.NotFinite, 0},
		{"NaN in one", ir.OpAdd, []float32{1, 2}, []float32{nan, 2}, verify.NotFinite, math.Inf(1)},
		{"a mask", ir.OpMask, []float32{1, -inf}, []float32{1, -inf}, verify.Within, 0},
		{"fewer", ir.OpAdd, []float32{1, 2}, []float32{1}, verify.Beyond, math.Inf(1)},
	} {
		d := verify.CompareBits(tt.op, 1, tt.want, tt.got)
		require.Equal(t, tt.verdict, d.Verdict, tt.name)
		require.Equal(t, tt.absolute, float64(d.Absolute), tt.name)
	}
}

func TestCompare(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, tt := range []struct {
		name      string
		op        ir.Op
		rows      int
		want, got []float32
		relative  float64
		verdict   verify.Verdict
	}{
		{"same", ir.OpAdd, 1, []float32{1, 2}, []float32{1, 2}, 0, verify.Within},
		{"within", ir.OpAdd, 1, []float32{1, 2}, []float32{1, 2.01}, 0.005, verify.Within},
		{"beyond", ir.OpAdd, 1, []float32{1, 2}, []float32{1.5, 2}, 0.25, verify.Beyond},
		{"a small row counts by itself", ir.OpAdd, 2, []float32{100, 100, 1, 1}, []float32{100, 100, 1, 2}, 1, verify.Beyond},
		{"nothing becomes something", ir.OpAdd, 1, []float32{0, 0}, []float32{0, 1e-9}, math.Inf(1), verify.Beyond},
		{"NaN on one side", ir.OpAdd, 1, []float32{1, 2}, []float32{1, nan}, math.Inf(1), verify.NotFinite},
		{"NaN on both", ir.OpAdd, 1, []float32{1, nan}, []float32{1, nan}, 0, verify.NotFinite},
		{"the same infinity", ir.OpAdd, 1, []float32{1, inf}, []float32{1, inf}, 0, verify.NotFinite},
		{"a mask", ir.OpMask, 1, []float32{1, -inf}, []float32{1, -inf}, 0, verify.Within},
		{"another mask", ir.OpMask, 1, []float32{1, -inf}, []float32{1, 2}, math.Inf(1), verify.NotFinite},
		{"half a mask", ir.OpMask, 1, []float32{1, inf}, []float32{1, inf}, 0, verify.NotFinite},
	} {
		d := verify.Compare(tt.op, "", tt.rows, tt.want, tt.got, 0.01)
		require.Equal(t, tt.verdict, d.Verdict, tt.name)
		if math.IsInf(tt.relative, 1) {
			require.True(t, math.IsInf(float64(d.Relative), 1), tt.name)
		} else {
			require.InDelta(t, tt.relative, float64(d.Relative), 1e-5, tt.name)
		}
	}
	// Logits are measured by their spread, whatever they have in common.
	d := verify.Compare(ir.OpLinear, "logits", 1, []float32{1000, 1002}, []float32{1000, 1002.1}, 0.01)
	require.InDelta(t, 0.1, float64(d.Relative), 1e-3)
}
