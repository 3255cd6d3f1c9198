package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// step is the sizes of one: tokens, sequences, rows, tokens of the longest, its context.
type step struct{ t, b, r, longest, keys int64 }

func (s step) phase(p *plan.Plan) *plan.Phase {
	i := p.PhaseFor(&sym.Sizes{sym.T: s.t, sym.B: s.b, sym.R: s.r, sym.NB: 1, sym.Smax: s.keys}, s.longest)
	if i < 0 {
		return nil
	}
	return &p.Phases[i]
}

// TestPhases: which phase a Plan for sixteen sequences has for a step follows from its
// tokens, sequences, rows, the longest sequence and the context.
func TestPhases(t *testing.T) {
	m, err := smelt.Open("arch:llama3.2-1b", "q4_0")
	require.NoError(t, err)
	const context = 4096
	for _, target := range []string{"cpu", "metal"} {
		p, err := m.Compile(smelt.Options{Target: target, Level: 1, Context: context, Sequences: 16, Rows: 32})
		require.NoError(t, err)
		few, many := "prefill 2-512", "prefill 2-512"
		if target == "metal" {
			few, many = "prefill 2-64", "prefill 65-512"
		}
		for s, want := range map[step]string{
			{1, 1, 1, 1, 64}:              "decode 1",
			{1, 1, 0, 1, context}:         "decode 1",
			{2, 2, 2, 1, 64}:              "batch 2-8",
			{8, 8, 8, 1, context}:         "batch 2-8",
			{8, 8, 1, 1, context}:         "batch 2-8",
			{9, 9, 9, 1, 64}:              "batch 9-16",
			{16, 16, 16, 1, context}:      "batch 9-16",
			{8, 7, 7, 2, 64}:              few, // one brings two
			{2, 1, 1, 2, 64}:              few,
			{64, 3, 32, 62, context}:      few,
			{65, 3, 32, 62, context}:      many,
			{512, 16, 32, 497, context}:   many,
			{512, 1, 1, 512, 512}:         many,
			{17, 17, 17, 1, 64}:           "", // sequences
			{513, 1, 1, 513, 1024}:        "", // tokens
			{512, 1, 33, 512, 512}:        "", // rows
			{8, 8, 9, 1, 64}:              "",
			{512, 1, 1, 512, context + 1}: "",
		} {
			name := ""
			if ph := s.phase(p.Plan); ph != nil {
				if name = fmt.Sprintf("%s %d", ph.Name, ph.Least[sym.T]); ph.Bounds[sym.T] > ph.Least[sym.T] {
					name += fmt.Sprintf("-%d", ph.Bounds[sym.T])
				}
			}
			require.Equal(t, want, name, "%s: %+v", target, s)
		}
	}
}

// dispatch is one whose bindings have names of buffers in their order, for plans that number
// buffers otherwise.
type dispatch struct {
	plan.Dispatch
	buffers []string
}

func named(p *plan.Plan, ph *plan.Phase) (out []dispatch) {
	for _, d := range ph.Dispatches {
		of := dispatch{Dispatch: d}
		of.Bindings = slices.Clone(d.Bindings)
		for i := range of.Bindings {
			b := &of.Bindings[i]
			of.buffers = append(of.buffers, fmt.Sprint(p.Buffers[b.Buffer].Kind, " ", p.Buffers[b.Buffer].Name))
			b.Buffer = 0
		}
		out = append(out, of)
	}
	return out
}

// TestBatchesDecode: a step of up to eight sequences that bring a token each has the
// kernels and the fusions of one sequence's, dispatch by dispatch, over short contexts and
// long ones; more of them share the products of short prompts, and no tile of queries. What one
// sequence gets depends on none of this.
func TestBatchesDecode(t *testing.T) {
	for _, arch := range []string{"qwen3-0.6b", "llama3.2-1b"} {
		m, err := smelt.Open("arch:"+arch, "q4_0")
		require.NoError(t, err)
		for _, target := range []string{"cpu", "metal"} {
			opts := smelt.Options{Target: target, Level: 1, Context: 4096}
			alone, err := m.Compile(opts)
			require.NoError(t, err)
			opts.Sequences = 16
			p, err := m.Compile(opts)
			require.NoError(t, err)
			for _, keys := range []int64{64, 4096} {
				one := step{1, 1, 1, 1, keys}
				decode := one.phase(p.Plan)
				require.Equal(t, named(alone.Plan, one.phase(alone.Plan)), named(p.Plan, decode), "decoding of one sequence")
				few := step{8, 8, 8, 1, keys}.phase(p.Plan)
				require.Equal(t, kernelsOf(decode), kernelsOf(few))
				norms := func(ph *plan.Phase) (n int) {
					for i := range ph.Dispatches {
						n += strings.Count(ph.Dispatches[i].Kernel, "rms_norm")
					}
					return n
				}
				require.Zero(t, norms(few), "products normalise what they read")
				many := step{16, 16, 16, 1, keys}.phase(p.Plan)
				require.Equal(t, target == "cpu", norms(many) > 0, "tiles of a GPU normalise what they read")
				kernels := strings.Fields(kernelsOf(many))
				for _, family := range []string{"attention_tile", "linear_vec"} {
					require.False(t, slices.ContainsFunc(kernels, func(k string) bool { return strings.HasPrefix(k, family) }), family)
				}
			}
		}
	}
}

// TestOwnersBySize: which kernels attend in a step of several sequences, and how their
// threadgroups find their sequence, is chosen by what it costs, and explain says so.
func TestOwnersBySize(t *testing.T) {
	m, err := smelt.Open("arch:qwen3-0.6b", "q4_0")
	require.NoError(t, err)
	for _, c := range []struct {
		phase     string
		sequences int
		off       []string
		want      []string // kernels of attention and how they find sequences
	}{
		{"prefill", 1, nil, []string{"attention_tile_f16_f16: tiles of 32 queries"}},
		{"prefill", 16, nil, []string{
			"attention_vec_f16_f16: sequences of up to 4 tokens, by map",
			"attention_tile_f16_f16: tiles of 32 queries; sequences of more than 4 tokens, by map"}},
		{"decode", 16, nil, []string{"attention_write_f16_f16: a threadgroup for 2 of 2 heads and a token; sequences by search"}},
		{"decode", 16, []string{"attention_write"}, []string{"attention_vec_f16_f16: a threadgroup for 2 of 2 heads and a token; sequences by map"}},
		{"decode", 2, []string{"attention_write"}, []string{"attention_vec_f32_f16: a threadgroup for a head and token; sequences by search"}},
		{"decode", 1, []string{"attention_write"}, []string{"attention_vec_f32_f16: a threadgroup for a head and token"}},
	} {
		p, err := m.Compile(fixture.With(smelt.Options{Target: "metal", Level: 1, Context: 512, Sequences: c.sequences}, compiler.Knobs{Disabled: c.off}))
		require.NoError(t, err)
		e, err := p.Explain(c.phase, c.sequences)
		require.NoError(t, err)
		var got []string
		for _, choice := range e.Choices {
			if choice.Op == ir.OpAttention.String() {
				require.Equal(t, e.Layers, choice.Dispatches)
				got = append(got, choice.Kernel+": "+choice.Choice)
			}
		}
		require.Equal(t, c.want, got, "%s of %d without %v", c.phase, c.sequences, c.off)
	}
}
