package page

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/internal/graphviz"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/predict"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/passes"
)

// input compiles a known shape and simulates a step of it.
func input(t testing.TB, arch, weights, phase string, maxT int64) *Input {
	t.Helper()
	m, err := checkpoint.Arch(arch, weights)
	require.NoError(t, err)
	f, err := m.Build(ir.Options{KV: dtype.F16, Block: 512})
	require.NoError(t, err)
	target, err := lower.NewTarget("metal")
	require.NoError(t, err)
	in := &Input{Trace: &Trace{}, Draw: draw(t)}
	report, err := passes.Compile(f, &target.Target, ir.StepsOf(maxT), passes.Options{Level: 1, Observer: in.Trace.Observe})
	require.NoError(t, err)
	for _, rule := range slices.Sorted(maps.Keys(report.Fusions)) {
		in.Fusions = append(in.Fusions, Fusion{Rule: rule, Matches: report.Fusions[rule], Dispatches: 1, Read: 2500000, Written: -1000, Micros: 1.5})
	}
	in.Plan, err = lower.Lower(arch, []lower.Range{{Name: phase, Func: f, MinT: 1, MaxT: maxT}}, target, lower.Options{Context: 512})
	require.NoError(t, err)
	in.Phase = &in.Plan.Phases[0]
	in.Sizes = &in.Phase.Bounds
	chip, err := predict.FindChip("m4-max")
	require.NoError(t, err)
	in.Timeline, err = predict.Simulate(in.Plan, in.Phase, in.Sizes, chip)
	require.NoError(t, err)
	return in
}

func draw(t testing.TB) func([]byte, string) ([]byte, error) {
	return func(dot []byte, format string) ([]byte, error) { return graphviz.Render(t.Context(), dot, format) }
}

func write(t testing.TB, in *Input) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, in))
	return b.Bytes()
}

func TestPage(t *testing.T) {
	in := input(t, "qwen3-0.6b", "q4_0", "decode", 1)
	html := write(t, in)
	if path := os.Getenv("SMELT_PAGE"); path != "" { // to look at
		require.NoError(t, os.WriteFile(path, html, 0o644))
	}
	require.Less(t, len(html), 5<<20)
	require.Equal(t, html, write(t, in), "the same input gives the same page")
	require.NotRegexp(t, `(src|href)="(https?:)?//`, string(html), "something is loaded from elsewhere")

	dom, console := load(t, html)
	require.Empty(t, console)
	for _, id := range []string{"counts", "passes", "graphs", "schedule", "arena"} {
		require.Regexp(t, `<section id="`+id+`"`, dom)
	}
	require.Len(t, regexp.MustCompile(`<article`).FindAllString(dom, -1), len(in.Trace.steps))
	require.Len(t, regexp.MustCompile(`<div class="picture">`).FindAllString(dom, -1), 3)
	require.GreaterOrEqual(t, strings.Count(dom, "<rect"), 2*len(in.Phase.Dispatches))
	require.Contains(t, dom, "equal to: 1–27")
	require.Contains(t, dom, "This is a prediction")
	require.Regexp(t, `<td><code>gate_up</code></td><td class="n">28</td><td class="n">1</td><td class="n">2.5 MB</td><td class="n">−1 kB</td><td class="n">1.5</td>`, dom)
	require.Len(t, regexp.MustCompile(`class="barrier"`).FindAllString(dom, -1), barriersOf(in))
}

// barriersOf counts the barriers that the timelines draw: all, and those of the
// closer one.
func barriersOf(in *Input) (n int) {
	for _, c := range in.schedule() {
		for _, l := range c.Lines {
			if l.Class == "barrier" {
				n++
			}
		}
	}
	return n
}

// load opens a page in a browser that nothing else uses and returns what it made
// of it and what it complained about.
func load(t *testing.T, html []byte) (dom, console string) {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "page.html")
	require.NoError(t, os.WriteFile(path, html, 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--dump-dom", "file://"+path)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	require.NoError(t, cmd.Run(), complaints.String())
	for line := range strings.Lines(complaints.String()) {
		if strings.Contains(line, ":CONSOLE") {
			console += line
		}
	}
	return out.String(), console
}

// The check of the browser's complaints sees them.
func TestLoadSeesErrors(t *testing.T) {
	_, console := load(t, []byte(`<!DOCTYPE html><link rel="icon" href="data:,"><img src="missing.png"><script>nothing()</script>`))
	require.Contains(t, console, "nothing is not defined")
}

func TestPrefillPage(t *testing.T) {
	html := string(write(t, input(t, "llama3.1-8b", "q4_k_m", "prefill", 512)))
	require.Contains(t, html, "llama3.1-8b")
	require.Contains(t, html, "compute")
	require.Contains(t, html, "<summary>layer 0, equal to:")
}

func TestNoTrace(t *testing.T) {
	require.ErrorIs(t, Write(nil, &Input{}), ErrNoTrace)
}

// Every fused op has source ops of its colour, and every source op in layer 0 that
// a fused one stands for has its.
func TestPaint(t *testing.T) {
	in := input(t, "qwen3-0.6b", "f16", "decode", 1)
	p := in.Trace.paint()
	used := map[string]int{}
	for _, v := range in.Trace.first().Values {
		c := p.colours[v.ID]
		if !v.Op.IsLeaf() && v.Layer == 0 && in.Trace.steps[len(in.Trace.steps)-1].byID[v.ID] == nil {
			require.NotEmpty(t, c, v.LongString())
		}
		used[c]++
	}
	byOp := map[ir.Op]int{}
	for _, v := range in.Trace.last().Values {
		if shown(v) && v.Op.CanDecompose() {
			byOp[v.Op]++
			require.NotZero(t, used[p.colours[v.ID]], v.LongString())
		}
	}
	require.Equal(t, 1, byOp[ir.OpHeadNormRopeKVWriteAttention])
	require.Equal(t, len(p.legend), len(palette[:len(p.legend)]))
	colour := func(op ir.Op, rank int) (all []string) {
		for _, v := range in.Trace.first().Values {
			if v.Layer == 0 && v.Op == op && len(v.Type.Shape) == rank {
				all = append(all, p.colours[v.ID])
			}
		}
		return all
	}
	norms := colour(ir.OpRMSNorm, 2) // before attention, before the feed-forward part
	linears := colour(ir.OpLinear, 2)
	require.Len(t, norms, 2)
	require.Len(t, linears, 7)
	for i, want := range []string{norms[0], norms[0], norms[0], linears[3], norms[1], norms[1], linears[6]} {
		require.Equal(t, want, linears[i])
	}
	require.NotEqual(t, norms[0], norms[1])
	require.NotEqual(t, linears[3], linears[6])
	heads := colour(ir.OpRMSNorm, 3)
	require.Equal(t, colour(ir.OpRope, 3), heads)
	require.NotEqual(t, norms[0], heads[0])
	require.Equal(t, colour(ir.OpSoftmax, 3)[0], heads[0])
}

func TestDiff(t *testing.T) {
	parse := func(text string) *ir.Func {
		f, err := ir.Parse(text)
		require.NoError(t, err)
		return f
	}
	var trace Trace
	trace.Observe("", parse(`func f source {
  v1 = input {name="x"} : f32[T,8]
  v2 = activate v1 {activation=silu} : f32[T,8]
  v3 = mul v2 v1 : f32[T,8]
  return "y" v3
}`))
	trace.Observe("p", parse(`func f fused {
  v1 = input {name="x"} : f32[T,8]
  v4 = gate v1 v1 {activation=silu} : f32[T,8]
  return "y" v4
}`))
	var got []string
	for _, l := range diff(&trace.steps[0], &trace.steps[1], ir.NoLayer) {
		got = append(got, strings.TrimSpace(l.Mark+" "+l.Text))
	}
	require.Equal(t, []string{
		`v1 = input {name="x"} : f32[T,8]`,
		`new v4 = gate v1 v1 {activation=silu} : f32[T,8]`,
		`gone v2 = activate v1 {activation=silu} : f32[T,8]`,
		`gone v3 = mul v2 v1 : f32[T,8]`,
		`edit return "y" v4`,
	}, got)
}

func TestRanges(t *testing.T) {
	require.Equal(t, "1–3, 5, 7–8", ranges([]int{1, 2, 3, 5, 7, 8}))
	require.Equal(t, "999 B", size(999))
	require.Equal(t, "1.5 MB", size(1500000))
	require.Equal(t, "2.5 G", amount(2500000000))
}

// TestData: boxes lie within their pictures, each dispatch of the drawn layers has one, and says
// what it does.
func TestData(t *testing.T) {
	in := input(t, "qwen3-0.6b", "q4_0", "decode", 1)
	d, err := NewData(in)
	require.NoError(t, err)
	require.Len(t, d.Dispatches, len(in.Phase.Dispatches))
	require.Len(t, d.Pictures, 3)
	for _, p := range d.Pictures {
		of := map[int]bool{}
		for _, b := range p.Boxes {
			require.NotEmpty(t, b.Lines)
			require.GreaterOrEqual(t, b.X-b.Width/2, -0.5, b.Lines)
			require.LessOrEqual(t, b.X+b.Width/2, p.Width+0.5, b.Lines)
			require.GreaterOrEqual(t, b.Y-b.Height/2, -0.5, b.Lines)
			require.LessOrEqual(t, b.Y+b.Height/2, p.Height+0.5, b.Lines)
			for _, i := range b.Dispatches {
				of[i] = true
			}
		}
		require.NotEmpty(t, p.Arrows)
		for i, x := range in.Phase.Dispatches {
			if p.Name == "plan" && x.Layer <= 0 {
				require.True(t, of[i], x.Label())
			}
		}
	}
	attention := 0
	for i := range d.Dispatches {
		x := &d.Dispatches[i]
		require.NotEmpty(t, x.Summary)
		require.NotEmpty(t, x.Buffers)
		require.Positive(t, x.Grid[0]*x.Grid[1]*x.Grid[2])
		require.GreaterOrEqual(t, x.End, x.Start)
		for _, rule := range x.Rules {
			require.NotEmpty(t, d.Rules[rule], rule)
		}
		if in.Phase.Dispatches[i].Op == ir.OpHeadNormRopeKVWriteAttention.String() {
			attention++
			require.Contains(t, x.Rules, "kv_replication_elimination")
		} else {
			require.NotContains(t, x.Rules, "kv_replication_elimination", x.Label)
		}
		if of := &in.Phase.Dispatches[i]; of.Layer >= 0 && of.Op == ir.OpFusedLinear.String() {
			require.NotEmpty(t, x.Rules, x.Label)
			require.NotContains(t, x.Rules, "attention_write", "that is another dispatch's")
		}
	}
	require.Len(t, in.Plan.Caches, attention, "one of each layer")
}
