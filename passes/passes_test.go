package passes_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/smelt-ml/smelt/internal/golden"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/passes"
)

// TestPasses runs single passes on the graphs in testdata/PASS, at the fused stage
// on a target that computes in half precision.
func TestPasses(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txtar")
	require.NoError(t, err)
	tested := make(map[string]bool)
	for _, file := range files {
		pass := filepath.Base(filepath.Dir(file))
		name := pass + "/" + strings.TrimSuffix(filepath.Base(file), ".txtar")
		tested[pass] = true
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			archive := txtar.Parse(text)
			require.Equal(t, "in", archive.Files[0].Name)
			f, err := ir.Parse(string(archive.Files[0].Data))
			require.NoError(t, err)
			tgt, step := target(t, dtype.F16), decoding
			if pass == "legalise" {
				tgt = sourceTarget(t, dtype.F16)
			}
			if pass == "wanted_rows" || pass == "narrow" && !strings.HasPrefix(name, "narrow/few_tokens") {
				step = prompts
			}
			_, err = passes.RunOne(pass, f, tgt, step)
			require.NoError(t, err)
			require.NoError(t, f.Verify())
			archive.Files = []txtar.File{archive.Files[0], {Name: "out", Data: []byte(f.String())}}
			golden.Check(t, file, string(txtar.Format(archive)))
		})
	}
	for _, p := range passes.Passes() {
		if !p.Rule && p.Name != "late_dead_code" {
			require.True(t, tested[p.Name], "no graph tests %s", p.Name)
		}
	}
}

func TestOrder(t *testing.T) {
	rows := passes.Passes()
	require.NoError(t, passes.CheckOrder(rows))
	at := func(name string) int {
		for i, p := range rows {
			if p.Name == name {
				return i
			}
		}
		t.Fatal(name)
		return -1
	}
	for _, pair := range [][2]string{{"kv_replication_elimination", "narrow"}, {"gated_activation", "gate_up"}, {"views", "cse"}} {
		swapped := passes.Passes()
		i, j := at(pair[0]), at(pair[1])
		swapped[i], swapped[j] = swapped[j], swapped[i]
		require.ErrorContains(t, passes.CheckOrder(swapped), "must run before")
	}
	require.ErrorContains(t, passes.CheckOrder(append(rows, passes.Pass{Name: "later"})), "after legalise")
	require.ErrorContains(t, passes.CheckOrder(append(rows, rows[0])), "two passes")
	require.ErrorContains(t, passes.CheckOrder(rows[1:]), "no such pass")
}

func TestFusedLayer(t *testing.T) {
	for name, want := range map[string]struct {
		sample sample
		fused  string
	}{
		"qwen3": {tinyQwen, "head_norm_rope_kv_write"},
		"llama": {tinyLlama, "rope_qkv_write"},
	} {
		f := want.sample.build(t)
		require.Positive(t, f.OpCounts()[ir.OpRepeatKV])
		report, err := passes.Compile(f, target(t, dtype.F16), decoding, passes.Options{Level: 1})
		require.NoError(t, err)
		n := want.sample.layers
		require.Equal(t, n, report.Fusions["kv_replication_elimination"], name)
		require.Equal(t, n, report.Fusions[want.fused], name)
		require.Equal(t, n, report.Fusions["gate_up"], name)
		require.Equal(t, 2*n, report.Fusions["linear_residual"], name)
		require.Equal(t, 2*n+1, report.Fusions["norm_prologue"], name)
		requireKernels(t, f)
		perLayer := make(map[ir.Op]int)
		for _, v := range f.Values {
			if v.Layer == 1 && !v.Op.IsLeaf() && v.Op != ir.OpSelect && v.Op != ir.OpReshape {
				perLayer[v.Op]++
			}
		}
		require.Equal(t, n, report.Fusions["attention_write"], name)
		op, _ := ir.ParseOp(want.fused + "_attention")
		require.Equal(t, map[ir.Op]int{ir.OpFusedLinear: 4, op: 1}, perLayer, name)
	}
}

func TestLevelZeroLeavesSource(t *testing.T) {
	f := tinyQwen.build(t)
	before := f.String()
	report, err := passes.Compile(f, target(t, dtype.F16), decoding, passes.Options{})
	require.NoError(t, err)
	require.Equal(t, before, f.String())
	require.Len(t, report.Rows, 1)
	require.Empty(t, report.Fusions)
}

func TestUnsupportedOp(t *testing.T) {
	tgt := target(t, dtype.F32)
	tgt.Kernels[ir.OpSoftmax] = nil
	_, err := passes.Compile(tinyQwen.build(t), tgt, decoding, passes.Options{})
	require.ErrorIs(t, err, passes.ErrUnsupported)
	require.ErrorContains(t, err, "softmax")
	var failed *passes.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "legalise", failed.Pass)

	tgt = target(t, dtype.F32)
	for _, rows := range tgt.Kernels {
		for i := range rows {
			rows[i].Weights &^= dtype.SetOf(dtype.F32)
		}
	}
	_, err = passes.Compile(tinyQwen.build(t), tgt, decoding, passes.Options{})
	require.ErrorIs(t, err, passes.ErrUnsupported)
	require.ErrorContains(t, err, "embd: f32[11,12]")
}

func TestPartsOfFusedLinear(t *testing.T) {
	has := func(f *ir.Func, is func(a ir.LinearAttr) bool) bool {
		return slices.ContainsFunc(f.Values, func(v *ir.Value) bool {
			a, ok := v.Attr.(ir.LinearAttr)
			return ok && is(a)
		})
	}
	for name, c := range map[string]struct {
		lack func(t *ir.Target)
		is   func(a ir.LinearAttr) bool
	}{
		"norm": {func(t *ir.Target) { t.FewNorms = nil }, func(a ir.LinearAttr) bool { return a.Norm != ir.NoNorm }},
		"pair": {func(t *ir.Target) { t.Gated = false }, func(a ir.LinearAttr) bool { return a.Gated }},
	} {
		f, tgt := tinyQwen.build(t), target(t, dtype.F32)
		_, err := passes.Compile(f, tgt, decoding, passes.Options{Level: 1, Disabled: []string{"head_norm_rope_kv_write"}})
		require.NoError(t, err)
		require.True(t, has(f, c.is), name)
		c.lack(tgt)
		_, err = passes.RunOne("legalise", f, tgt, decoding)
		require.NoError(t, err)
		require.NoError(t, f.Verify())
		require.False(t, has(f, c.is), name)
		require.True(t, has(f, func(a ir.LinearAttr) bool { return a.Residual }), "what the target has stays")
	}
}

// TestOtherHeads: heads that are longer than kernels take, or no multiple of what they take, run as
// source ops.
func TestOtherHeads(t *testing.T) {
	for _, change := range []func(tgt *ir.Target){
		func(tgt *ir.Target) { tgt.MaxHead = tinyQwen.head - 1 },
		func(tgt *ir.Target) { tgt.HeadStep = tinyQwen.head - 1 },
	} {
		tgt := target(t, dtype.F32)
		change(tgt)
		f := tinyQwen.build(t)
		_, err := passes.Compile(f, tgt, decoding, passes.Options{Level: 1})
		require.NoError(t, err)
		for _, op := range []ir.Op{ir.OpAttention, ir.OpHeadNormRopeKVWrite, ir.OpHeadNormRopeKVWriteAttention} {
			require.Zero(t, f.OpCounts()[op], op)
		}
		for _, op := range []ir.Op{ir.OpSoftmax, ir.OpRope, ir.OpCacheWrite} {
			require.Positive(t, f.OpCounts()[op], op)
		}
	}
}

// shuffled puts values into a random order that is still a program.
func shuffled(f *ir.Func, r *rand.Rand) *ir.Func {
	g := f.Clone()
	waiting := make(map[*ir.Value]int)
	users := make(map[*ir.Value][]*ir.Value)
	after := func(v, first *ir.Value) {
		waiting[v]++
		users[first] = append(users[first], v)
	}
	for _, v := range g.Values {
		for _, a := range v.Args {
			after(v, a)
		}
	}
	var ready, order []*ir.Value
	for _, v := range g.Values {
		if waiting[v] == 0 {
			ready = append(ready, v)
		}
	}
	for len(ready) > 0 {
		i := r.IntN(len(ready))
		v := ready[i]
		ready[i] = ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		order = append(order, v)
		for _, u := range users[v] {
			if waiting[u]--; waiting[u] == 0 {
				ready = append(ready, u)
			}
		}
	}
	g.Values = order
	return g
}

func TestShuffledOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	for seed := range uint64(graphs) {
		source, in, want := random(t, seed)
		plain := source.Clone()
		_, err := passes.Compile(plain, target(t, dtype.F16), decoding, passes.Options{Level: 1})
		require.NoError(t, err)
		for range 3 {
			f := shuffled(source, r)
			require.NoError(t, f.Verify())
			_, err := passes.Compile(f, target(t, dtype.F16), decoding, passes.Options{Level: 1})
			require.NoError(t, err)
			require.Equal(t, plain.OpCounts(), f.OpCounts())
			requireSame(t, want, execute(t, f, in), f.String)
		}
	}
}

func TestDeterminism(t *testing.T) {
	var first string
	for i := range 5 {
		f := tinyLlama.build(t)
		_, err := passes.Compile(f, target(t, dtype.F16), decoding, passes.Options{Level: 1})
		require.NoError(t, err)
		if i == 0 {
			first = f.String()
		}
		require.Equal(t, first, f.String())
	}
}

func TestObserver(t *testing.T) {
	var seen []string
	report, err := passes.Compile(tinyQwen.build(t), target(t, dtype.F32), decoding, passes.Options{
		Level: 1, Disabled: []string{"cse"}, Observer: func(pass string, f *ir.Func) { seen = append(seen, pass) },
	})
	require.NoError(t, err)
	want := []string{""}
	for _, row := range report.Rows {
		want = append(want, row.Name)
	}
	require.Equal(t, want, seen)
	require.NotContains(t, seen, "cse")
}

func TestPanickingPassIsNamed(t *testing.T) {
	for name, run := range map[string]func(f *ir.Func) error{
		"panic":         func(f *ir.Func) error { panic("broken") },
		"error":         func(f *ir.Func) error { return errors.New("broken") },
		"invalid graph": func(f *ir.Func) error { f.Results[0].Value.Args = nil; return nil },
	} {
		_, err := passes.CompileWith(passes.NewPass("bad", run), tinyQwen.build(t), target(t, dtype.F32), decoding)
		var failed *passes.Error
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, "bad", failed.Pass, name)
	}
}

func TestDebug(t *testing.T) {
	d, err := passes.ParseDebug("cse/off, gated_activation/dump,views/time,views/stats")
	require.NoError(t, err)
	require.False(t, d.Help)
	var out bytes.Buffer
	f := tinyQwen.build(t)
	report, err := passes.Compile(f, target(t, dtype.F32), decoding, passes.Options{Level: 1, Debug: d, Output: &out})
	require.NoError(t, err)
	for _, row := range report.Rows {
		require.NotEqual(t, "cse", row.Name)
	}
	require.Contains(t, out.String(), "views: 0 changes")
	require.Contains(t, out.String(), "verify")
	require.Contains(t, out.String(), "# after gated_activation\nfunc sample fused {")
	require.Equal(t, 1, strings.Count(out.String(), "# after"))

	d, err = passes.ParseDebug("help")
	require.NoError(t, err)
	require.True(t, d.Help)
}

func TestDebugAllOff(t *testing.T) {
	d, err := passes.ParseDebug("all/off")
	require.NoError(t, err)
	f := tinyQwen.build(t)
	report, err := passes.Compile(f, target(t, dtype.F16), decoding, passes.Options{Level: 1, Debug: d})
	require.NoError(t, err)
	require.Empty(t, report.Fusions)
	require.Positive(t, f.OpCounts()[ir.OpRepeatKV])
}

func TestDebugErrors(t *testing.T) {
	for text, want := range map[string]string{
		"rope_qvk_write/off":              "did you mean rope_qkv_write?",
		"kv_replication/dump":             "did you mean kv_replication_elimination?",
		"legalise/off":                    "required",
		"dead_code/off":                   "required",
		"cse":                             "want NAME/off",
		"cse/print":                       "want NAME/off",
		"cse/off,/time":                   "unknown pass",
		"kv_replication_elimination/off/": "want NAME/off",
	} {
		_, err := passes.ParseDebug(text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := passes.ParseDebug("cs/off")
	require.ErrorIs(t, err, passes.ErrUnknown)
	_, err = passes.ParseDebug("legalise/off")
	require.ErrorIs(t, err, passes.ErrRequired)
	_, err = passes.Compile(tinyQwen.build(t), target(t, dtype.F32), decoding, passes.Options{Disabled: []string{"csee"}})
	require.ErrorIs(t, err, passes.ErrUnknown)
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, passes.WriteHelp(&out))
	golden.Check(t, "testdata/help.golden", out.String())
}

// BenchmarkCompile must grow with the number of layers and no faster.
func BenchmarkCompile(b *testing.B) {
	for _, layers := range []int{8, 16, 28, 64, 128} {
		b.Run(fmt.Sprintf("layers=%d", layers), func(b *testing.B) {
			s := qwen06b
			s.layers = layers
			source := s.build(b)
			for b.Loop() {
				b.StopTimer()
				f := source.Clone()
				b.StartTimer()
				if _, err := passes.Compile(f, target(b, dtype.F16), decoding, passes.Options{Level: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
