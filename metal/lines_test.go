//go:build fakemetal && linux

package metal_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/metal/internal/fakemetal"
)

// TestLinesThroughTheBridge runs a Plan with every matrix that can be in lines in them: a
// short prompt, whose tiles normalise, and tokens. The bits are those of emu, and of the
// file's blocks.
func TestLinesThroughTheBridge(t *testing.T) {
	for _, file := range []string{"tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf", "tiny-llama/gguf/tiny-llama-Q4_0.gguf"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			model, err := smelt.Open(testfiles.Model(t, file), "")
			require.NoError(t, err)
			defer model.Close()
			opts := smelt.Options{Target: "metal", Level: 1, Context: 40, Prefill: 16}
			run := func(on string) (logits [][]float32, lines int) {
				program, err := model.Compile(opts)
				require.NoError(t, err)
				for i := range program.Plan.Buffers {
					if program.Plan.Buffers[i].Lines {
						lines++
					}
				}
				session := sessionOn(t, program, on, device.Options{})
				defer session.Loaded().Close()
				for _, ids := range [][]int32{{5, 9, 300, 12, 44, 7, 8, 101, 33, 2}, {7}, {250}} {
					out, err := session.Feed(t.Context(), ids)
					require.NoError(t, err)
					logits = append(logits, slices.Clone(out))
				}
				return logits, lines
			}
			fake(t, fakemetal.Options{Poison: true})
			blocks, lines := run("metal")
			require.Zero(t, lines)
			program, err := model.Compile(opts)
			require.NoError(t, err)
			compiler.KnobsOf(&opts).Tuning = &lower.Tuning{}
			for i := range program.Plan.Phases {
				for _, s := range program.Plan.Phases[i].Sites {
					if s.Choice == "layout" {
						compiler.KnobsOf(&opts).Tuning.Keep(lower.Winner{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape, Setting: plan.Setting{"rearranged": 1}})
					}
				}
			}
			got, lines := run("metal")
			require.Greater(t, lines, 10)
			require.Equal(t, blocks, got)
			want, _ := run("emu")
			require.Equal(t, want, got)
			nothingLeft(t)
		})
	}
}
