package smelt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/lower"
)

// step is the sizes of one: tokens, sequences, rows, tokens of the longest, its context.
type step struct{ t, b, r, longest, keys int64 }

func (s step) phase(p *lower.Plan) *lower.Phase {
	i := p.PhaseFor(&lower.Sizes{ir.T: s.t, ir.B: s.b, ir.R: s.r, ir.NB: 1, ir.Smax: s.keys}, s.longest)
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
		for s, want := range map[step]string{
			{1, 1, 1, 1, 64}:              "decode 1",
			{1, 1, 0, 1, context}:         "decode 1",
			{2, 2, 2, 1, 64}:              "batch 2-8",
			{8, 8, 8, 1, context}:         "batch 2-8",
			{8, 8, 1, 1, context}:         "batch 2-8",
			{9, 9, 9, 1, 64}:              "batch 9-16",
			{16, 16, 16, 1, context}:      "batch 9-16",
			{8, 7, 7, 2, 64}:              "prefill 2-512", // one brings two
			{2, 1, 1, 2, 64}:              "prefill 2-512",
			{512, 16, 32, 497, context}:   "prefill 2-512",
			{512, 1, 1, 512, 512}:         "prefill 2-512",
			{17, 17, 17, 1, 64}:           "", // sequences
			{513, 1, 1, 513, 1024}:        "", // tokens
			{512, 1, 33, 512, 512}:        "", // rows
			{8, 8, 9, 1, 64}:              "",
			{512, 1, 1, 512, context + 1}: "",
		} {
			name := ""
			if ph := s.phase(p.Plan); ph != nil {
				if name = fmt.Sprintf("%s %d", ph.Name, ph.Least[ir.T]); ph.Bounds[ir.T] > ph.Least[ir.T] {
					name += fmt.Sprintf("-%d", ph.Bounds[ir.T])
				}
			}
			require.Equal(t, want, name, "%s: %+v", target, s)
		}
	}
}

// TestBatchesDecode: a step of up to eight sequences that bring a token each has the
// kernels and the fusions of one sequence's, dispatch by dispatch, over short contexts and
// long ones; more of them share the products of prompts, and no tile of queries. What one
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
				require.Equal(t, one.phase(alone.Plan).Dispatches, decode.Dispatches, "decoding of one sequence")
				few := step{8, 8, 8, 1, keys}.phase(p.Plan)
				require.Equal(t, kernelsOf(decode), kernelsOf(few))
				norms := func(ph *lower.Phase) (n int) {
					for i := range ph.Dispatches {
						n += strings.Count(ph.Dispatches[i].Kernel, "rms_norm")
					}
					return n
				}
				require.Zero(t, norms(few), "products normalise what they read")
				many := step{16, 16, 16, 1, keys}.phase(p.Plan)
				require.Positive(t, norms(many))
				kernels := strings.Fields(kernelsOf(many))
				for _, family := range []string{"attention_tile", "linear_vec"} {
					require.False(t, slices.ContainsFunc(kernels, func(k string) bool { return strings.HasPrefix(k, family) }), family)
				}
			}
		}
	}
}
