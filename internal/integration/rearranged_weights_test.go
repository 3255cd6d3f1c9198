package integration_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/native"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/quantize"
)

// TestRearrangedBetweenSteps has weights change over between any two steps, some of a launch before
// others, whose tokens are quantized another way for weights as the file holds them than for
// rearranged ones.
func TestRearrangedBetweenSteps(t *testing.T) {
	m, err := smelt.Open(testfiles.Model(t, "tiny-qwen3/gguf/tiny-qwen3-Q4_0.gguf"), "")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	p, err := m.Compile(fixture.Options(t, "cpu", dtype.F16))
	require.NoError(t, err)
	ids := fixture.ReadReference(t, "tiny-qwen3").Logits.IDs[:4]
	var want []float32
	for i := range 200 {
		when := device.RearrangeLater
		if i == 0 {
			when = device.RearrangeNever
		}
		l, err := p.Load(smelt.Device{Name: "cpu", Threads: 1, Options: device.Options{Rearrange: when}})
		require.NoError(t, err)
		s, err := l.NewSession()
		require.NoError(t, err)
		for range 6 {
			s.Reset()
			got, err := s.Feed(t.Context(), ids)
			require.NoError(t, err)
			if want == nil {
				want = slices.Clone(got)
			}
			require.Equal(t, bitsOf([][]float32{want}), bitsOf([][]float32{got}))
		}
		require.NoError(t, l.Close())
	}
}

// TestRearranged decodes with weights as the file holds them, rearranged from the start,
// and rearranged from step to step: all have the same bits.
func TestRearranged(t *testing.T) {
	for _, model := range fixture.Trained {
		whole, err := smelt.Open(testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), "")
		require.NoError(t, err)
		defer whole.Close()
		for _, mixture := range []string{"f16", "q8_0", "q4_0", "q4_k_m", "q5_0", "q2_k"} {
			t.Run(model+"/"+mixture, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), mixture+".gguf")
				file, err := os.Create(path)
				require.NoError(t, err)
				_, err = quantize.Write(t.Context(), file, whole.File(), mixture, nil)
				require.NoError(t, err)
				require.NoError(t, file.Close())
				m, err := smelt.Open(path, "")
				require.NoError(t, err)
				t.Cleanup(func() { m.Close() })
				p, err := m.Compile(fixture.Options(t, "cpu", dtype.F16))
				require.NoError(t, err)
				ids := fixture.ReadReference(t, model).Logits.IDs
				prompt, rest := ids[:len(ids)/2], ids[len(ids)/2:]
				var want [][]float32
				var converted int64
				for _, when := range []device.Rearrange{device.RearrangeNever, device.RearrangeNow, device.RearrangeLater} {
					s := fixture.SessionOn(t, p, smelt.Device{Name: "cpu", Threads: 2, Options: device.Options{Rearrange: when}})
					var got [][]float32
					feed := func(ids []int32) {
						l, err := s.Feed(t.Context(), ids)
						require.NoError(t, err)
						got = append(got, append([]float32(nil), l...))
					}
					feed(prompt)
					for _, id := range rest {
						feed([]int32{id})
					}
					if when == device.RearrangeNever {
						require.Zero(t, s.OnDevice().Counters().Rearranged)
						want, converted = got, s.Loaded().OnDevice().Memory().Converted
						continue
					}
					require.Greater(t, s.Loaded().OnDevice().Memory().Converted, converted, "a norm's gain would keep the pages around it")
					require.Equal(t, bitsOf(want), bitsOf(got), "%v", when)
					if !rearranges(p.Plan) {
						require.Zero(t, s.OnDevice().Counters().Rearranged)
						continue
					}
					// It has an end, and what comes after is still the same.
					for deadline := time.Now().Add(20 * time.Second); s.OnDevice().Counters().Rearranged == 0; {
						require.Less(t, time.Now(), deadline, "nothing is ever rearranged")
						s.Truncate(len(ids) - 1)
						feed(ids[len(ids)-1:])
						require.Equal(t, bitsOf(want[len(want)-1:]), bitsOf(got[len(got)-1:]))
					}
				}
			})
		}
	}
}

// TestLines runs Plans of target Metal with every matrix that can be in lines in them: the
// device copies it, and logits have the same bits.
func TestLines(t *testing.T) {
	const model = "tiny-qwen3"
	whole, err := smelt.Open(testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), "")
	require.NoError(t, err)
	defer whole.Close()
	ids := fixture.ReadReference(t, model).Logits.IDs[:12]
	for _, mixture := range []string{"q4_0", "q4_k_m"} {
		t.Run(mixture, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), mixture+".gguf")
			file, err := os.Create(path)
			require.NoError(t, err)
			_, err = quantize.Write(t.Context(), file, whole.File(), mixture, nil)
			require.NoError(t, err)
			require.NoError(t, file.Close())
			m, err := smelt.Open(path, "")
			require.NoError(t, err)
			t.Cleanup(func() { m.Close() })
			opts := fixture.Options(t, "metal", dtype.F16)
			run := func() (logits [][]float32, p *smelt.Program, memory device.Memory) {
				p, err := m.Compile(opts)
				require.NoError(t, err)
				s := fixture.SessionOn(t, p, smelt.Device{Name: "emu", Threads: 2})
				l, err := s.Feed(t.Context(), ids[:9])
				require.NoError(t, err)
				logits = append(logits, slices.Clone(l))
				for _, id := range ids[9:] {
					l, err := s.Feed(t.Context(), []int32{id})
					require.NoError(t, err)
					logits = append(logits, slices.Clone(l))
				}
				return logits, p, s.Loaded().OnDevice().Memory()
			}
			want, p, before := run()
			compiler.KnobsOf(&opts).Tuning = inLines(p.Plan)
			got, p, after := run()
			require.Equal(t, bitsOf(want), bitsOf(got))
			var bytes int64
			for i := range p.Plan.Buffers {
				b := &p.Plan.Buffers[i]
				require.Equal(t, b.Kind == plan.Weight && kernels.HasLines(uint32(b.DType)), b.Lines, b.Name)
				if b.Lines {
					n, _ := b.Bytes.IsConst()
					bytes += n
				}
			}
			require.Positive(t, bytes)
			require.Equal(t, bytes, after.Converted-before.Converted)
		})
	}
}

// inLines is a tuning that has every matrix of a plan of target Metal in lines that can be.
func inLines(p *plan.Plan) *lower.Tuning {
	t := &lower.Tuning{}
	for i := range p.Phases {
		for _, s := range p.Phases[i].Sites {
			if s.Choice == "layout" {
				t.Keep(lower.Winner{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape, Setting: plan.Setting{"rearranged": 1}})
			}
		}
	}
	return t
}

// rearranges reports whether the native kernels at hand have an order of their own for any
// of a plan's matrices. The portable ones have none for quantized weights.
func rearranges(p *plan.Plan) bool {
	libraries := native.Libraries()
	at := slices.IndexFunc(libraries, func(l native.Library) bool { return l.ISA() == native.ISA() })
	return slices.ContainsFunc(p.Buffers, func(b plan.Buffer) bool {
		const rows, k = 64, 256
		return b.Rearrange && libraries[at].Interleave(uint32(b.DType), rows, k, make([]byte, b.DType.Bytes(rows*k))) != nil
	})
}

func bitsOf(rows [][]float32) [][]uint32 {
	out := make([][]uint32, len(rows))
	for i, row := range rows {
		out[i] = make([]uint32, len(row))
		for j, v := range row {
			out[i][j] = math.Float32bits(v)
		}
	}
	return out
}
