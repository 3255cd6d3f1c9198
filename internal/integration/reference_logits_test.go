package integration_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compare"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/internal/npy"
	"github.com/smelt-ml/smelt/internal/testfiles"
	"github.com/smelt-ml/smelt/internal/tiny"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/passes"
)

// The trained models are compared with logits and texts that a float64
// implementation made from the same weights.

// Bounds for quantized files: 1.5 times what llama.cpp is off.
var quantized = map[string]map[string]float64{
	"tiny-qwen3": {"Q8_0": 1.5 * 0.1377, "Q4_0": 1.5 * 0.1111},
	"tiny-llama": {"Q8_0": 1.5 * 0.1493, "Q4_0": 1.5 * 0.1542},
}

func TestLogits(t *testing.T) {
	for _, model := range fixture.Trained {
		ref := fixture.ReadReference(t, model)
		for device, bound := range fixture.Bounds {
			for _, format := range []string{"F16", "Q8_0", "Q4_0", "hf"} {
				t.Run(fmt.Sprintf("%s/%s/%s", model, format, device), func(t *testing.T) {
					var path string
					want, bound := model+"/reference/logits.npy", bound
					switch format {
					case "hf":
						path = tiny.Folder(t, model)
					case "F16":
						path = tiny.GGUF(t, model, format)
					default:
						path, want, bound = tiny.GGUF(t, model, format), model+"/reference/logits-"+format+".npy", quantized[model][format]
					}
					array, err := npy.ReadFile[float32](testfiles.Model(t, want))
					require.NoError(t, err)
					s := fixture.Session(t, path, device, fixture.Options(t, device, dtype.F16))
					d := compare.Largest(array.Data, fixture.Logits(t, s, ref.Logits.IDs))
					t.Logf("largest difference %.4f, bound %.4f", d, bound)
					require.LessOrEqual(t, d, bound)
				})
			}
		}
	}
}

// TestStepByStep feeds the tokens one at a time: the decode phase gives what the
// prefill phase gives.
func TestStepByStep(t *testing.T) {
	for _, model := range fixture.Trained {
		ref := fixture.ReadReference(t, model)
		array, err := npy.ReadFile[float32](testfiles.Model(t, model+"/reference/logits.npy"))
		require.NoError(t, err)
		for device, bound := range fixture.Bounds {
			t.Run(model+"/"+device, func(t *testing.T) {
				s := fixture.Session(t, testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), device, fixture.Options(t, device, dtype.F16))
				var all []float32
				for _, id := range ref.Logits.IDs {
					l, err := s.Feed(t.Context(), []int32{id})
					require.NoError(t, err)
					all = append(all, l...)
				}
				d := compare.Largest(array.Data, all)
				t.Logf("largest difference %.4f, bound %.4f", d, bound)
				require.LessOrEqual(t, d, bound)
			})
		}
	}
}

// TestPlacedProducts shares the products of plans for Metal out between the GPU and the
// CPU: all to the CPU, and at random.
func TestPlacedProducts(t *testing.T) {
	for _, model := range fixture.Trained {
		ref := fixture.ReadReference(t, model)
		array, err := npy.ReadFile[float32](testfiles.Model(t, model+"/reference/logits.npy"))
		require.NoError(t, err)
		for device, bound := range fixture.Bounds {
			if device == "cpu" {
				continue
			}
			for _, every := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s/one in %d/%s", model, every, device), func(t *testing.T) {
					random := rand.New(rand.NewPCG(5, 6))
					opts := fixture.Options(t, device, dtype.F16)
					compiler.KnobsOf(&opts).Products = func(lower.Product) bool { return random.IntN(every) == 0 }
					s := fixture.Session(t, testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), device, opts)
					d := compare.Largest(array.Data, fixture.Logits(t, s, ref.Logits.IDs))
					t.Logf("largest difference %.4f, bound %.4f", d, bound)
					require.LessOrEqual(t, d, bound)
				})
			}
		}
	}
}

// TestFewTokens feeds a few tokens at a time, which share a pass over the weights, to
// plans for a small and a large chip. Both give what the reference has, and for all
// their tiles the same bits.
func TestFewTokens(t *testing.T) {
	for _, model := range fixture.Trained {
		ref := fixture.ReadReference(t, model)
		array, err := npy.ReadFile[float32](testfiles.Model(t, model+"/reference/logits.npy"))
		require.NoError(t, err)
		for device, bound := range fixture.Bounds {
			t.Run(model+"/"+device, func(t *testing.T) {
				var first []float32
				for _, chip := range []string{"m1", "m4-max"} {
					opts := fixture.Options(t, device, dtype.F16)
					opts.Chip, opts.Prefill = chip, 8
					s := fixture.Session(t, testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), device, opts)
					ids, all := ref.Logits.IDs, []float32(nil)
					for n := 1; len(ids) > 0; n = n%8 + 1 {
						n := min(n, len(ids))
						require.NoError(t, s.Score(t.Context(), ids[:n], func(_ int, l []float32) error {
							all = append(all, l...)
							return nil
						}))
						ids = ids[n:]
					}
					d := compare.Largest(array.Data, all)
					t.Logf("%s: largest difference %.4f, bound %.4f", chip, d, bound)
					require.LessOrEqual(t, d, bound)
					if first == nil {
						first = all
					}
					require.Equal(t, first, all)
				}
			})
		}
	}
}

// TestGreedyText continues every prompt of the reference. The ids are the same up
// to the first step whose two best logits are so close that the arithmetic decides.
func TestGreedyText(t *testing.T) {
	for _, model := range fixture.Trained {
		ref := fixture.ReadReference(t, model)
		for device, bound := range fixture.Bounds {
			t.Run(model+"/"+device, func(t *testing.T) {
				prompts := ref.Prompts
				if device != "cpu" {
					prompts = prompts[:2] // the emulation is slow
				}
				s := fixture.Session(t, testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), device, fixture.Options(t, device, dtype.F16))
				for _, p := range prompts {
					ids, err := s.Encode(p.Text)
					require.NoError(t, err)
					require.Equal(t, p.IDs, ids, p.Text)
					n := len(p.Greedy)
					for i, m := range p.Margins {
						if m < 2*bound {
							n = min(n, i)
						}
					}
					s.Reset()
					out, err := fixture.Generate(t.Context(), s, p.Text, smelt.Generation{N: cmp.Or(n, -1), IgnoreStop: true})
					require.NoError(t, err)
					require.Equal(t, p.Greedy[:n], append([]int32{}, out.Tokens...), p.Text)
				}
			})
		}
	}
}

// TestNextMatchesLogits has the device choose tokens at both levels, with few
// dispatches outside the layers, and compares with the logits.
func TestNextMatchesLogits(t *testing.T) {
	for _, model := range fixture.Trained {
		ids := fixture.ReadReference(t, model).Prompts[0].IDs
		for device := range fixture.Bounds {
			for level := range 2 {
				t.Run(fmt.Sprintf("%s/%s/O%d", model, device, level), func(t *testing.T) {
					opts := fixture.Options(t, device, dtype.F16)
					opts.Level, opts.Context = fixture.Level(level), 128
					m, err := smelt.Open(testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), "")
					require.NoError(t, err)
					t.Cleanup(func() { m.Close() })
					s := fixture.SessionOf(t, m, device, opts)
					require.True(t, s.Chooses())
					feed := ids
					for range 4 {
						next, err := s.Next(t.Context(), feed)
						require.NoError(t, err)
						s.Truncate(s.Length() - len(feed))
						logits, err := s.Feed(t.Context(), feed)
						require.NoError(t, err)
						want, err := smelt.Greedy(logits)
						require.NoError(t, err)
						require.Equal(t, want, next)
						feed = []int32{next}
					}
					p, err := m.Compile(opts)
					require.NoError(t, err)
					for _, phase := range []string{"prefill", "decode"} {
						e, err := p.Explain(phase)
						require.NoError(t, err)
						require.Equal(t, 1, e.Kernels["argmax_f32"], phase)
						require.LessOrEqual(t, e.DispatchesOutsideLayers, 5, phase)
					}
				})
			}
		}
	}
}

// TestStories compares stories260K, made by others, with llama2.c's greedy text
// and with float64 logits.
func TestStories(t *testing.T) {
	path := testfiles.Data(t, "models/stories260K/stories260K.gguf")
	want, err := os.ReadFile(testfiles.Data(t, "expected/stories260K.llama2c_t0_n200.txt"))
	require.NoError(t, err)
	raw, err := os.ReadFile(testfiles.Data(t, "expected/stories260K.f64_logits_f32.bin"))
	require.NoError(t, err)
	logits := make([]float32, len(raw)/4)
	for i := range logits {
		logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	greedy := readIDs(t, testfiles.Data(t, "expected/stories260K.greedy200.ids"))
	for device, bound := range fixture.Bounds {
		t.Run(device, func(t *testing.T) {
			s := fixture.Session(t, path, device, fixture.Options(t, device, dtype.F32))
			rows := len(logits) / s.Vocab()
			ids := greedy[:rows]
			d := compare.Largest(logits, fixture.Logits(t, s, ids))
			t.Logf("largest difference %.4f, bound %.4f", d, bound)
			require.LessOrEqual(t, d, bound)
			if device == "cpu" {
				s.Reset()
				out, err := fixture.Generate(t.Context(), s, "", smelt.Generation{N: 200})
				require.NoError(t, err)
				require.Equal(t, strings.TrimSpace(string(want)), strings.TrimSpace(out.Text))
			}
		})
	}
}

func readIDs(t *testing.T, path string) []int32 {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var ids []int32
	for _, f := range strings.Fields(string(data)) {
		id, err := strconv.Atoi(f)
		require.NoError(t, err)
		ids = append(ids, int32(id))
	}
	return ids
}

// TestEveryPassOff compiles the trained models at -O 0 and with each pass and rule
// off: the logits stay.
func TestEveryPassOff(t *testing.T) {
	const bound = 1e-2
	for _, model := range fixture.Trained {
		ref := fixture.ReadReference(t, model)
		for _, device := range []string{"cpu", "emu"} {
			opts := fixture.Options(t, device, dtype.F32)
			if device == "emu" {
				opts.Act = dtype.F32 // half activations are another matter: see TestLogits
			}
			path := testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf")
			want := fixture.Logits(t, fixture.Session(t, path, device, opts), ref.Logits.IDs)
			check := func(name string, opts smelt.Options) {
				t.Run(fmt.Sprintf("%s/%s/%s", model, device, name), func(t *testing.T) {
					d := compare.Largest(want, fixture.Logits(t, fixture.Session(t, path, device, opts), ref.Logits.IDs))
					t.Logf("largest difference %.2g", d)
					require.LessOrEqual(t, d, bound)
				})
			}
			plain := opts
			plain.Level = smelt.Unoptimised
			check("O0", plain)
			for _, p := range passes.Passes() {
				if p.Required {
					continue
				}
				without := opts
				compiler.KnobsOf(&without).Disabled = []string{p.Name}
				check(p.Name, without)
			}
		}
	}
}

// TestExplainCounts compares what explain says of a step with what a step on the
// emulator executes.
func TestExplainCounts(t *testing.T) {
	for _, model := range fixture.Trained {
		m, err := smelt.Open(testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), "")
		require.NoError(t, err)
		defer m.Close()
		for prefill, perLayer := range map[int]int{9: 6, 64: 6, 70: 8} {
			opts := fixture.Options(t, "emu", dtype.F16)
			opts.Prefill = prefill
			p, err := m.Compile(opts)
			require.NoError(t, err)
			s := fixture.SessionOn(t, p, smelt.Device{Name: "emu"})
			for _, step := range []struct {
				phase    string
				perLayer int
				ids      []int32
			}{{"prefill", perLayer, make([]int32, prefill)}, {"decode", 5, []int32{5}}} {
				_, err := s.Feed(t.Context(), step.ids)
				require.NoError(t, err)
				e, err := p.Explain(step.phase)
				require.NoError(t, err)
				c := s.OnDevice().Counters()
				require.Equal(t, step.perLayer, e.DispatchesPerLayer, step.phase)
				require.Equal(t, e.Dispatches, c.Dispatches, step.phase)
				require.Equal(t, e.Barriers, c.Barriers, step.phase)
				require.Equal(t, e.CommandBuffers, c.CommandBuffers, step.phase)
				ran := map[string]int{}
				for _, k := range c.Kernels {
					ran[k.Kernel] = k.Dispatches
				}
				require.Equal(t, e.Kernels, ran, step.phase)
			}
		}
	}
}

// TestLongContext decodes beyond the length from which the GPU's plan cuts attention
// along the keys: the same logits as in one piece, on device cpu by native kernels.
func TestLongContext(t *testing.T) {
	path := testfiles.Model(t, "tiny-llama/gguf/tiny-llama-F16.gguf")
	ids := make([]int32, 1200)
	for i := range ids {
		ids[i] = int32(3 + i*7%500)
	}
	var want []float32
	for _, run := range []struct{ planFor, device string }{{"cpu", "cpu"}, {"emu", "emu"}, {"emu", "cpu"}} {
		opts := fixture.Options(t, run.planFor, dtype.F32)
		opts.Act, opts.Context = dtype.F32, 2048
		if run.planFor != run.device { // of which the CPU has no kernels of its own
			compiler.KnobsOf(&opts).Disabled = []string{"attention_write", "gather_prologue"}
		}
		m, err := smelt.Open(path, "")
		require.NoError(t, err)
		t.Cleanup(func() { m.Close() })
		p, err := m.Compile(opts)
		require.NoError(t, err)
		p.Plan.Target = fixture.Target(t, run.device) // which would refuse it otherwise
		require.NoError(t, err)
		s := fixture.SessionOn(t, p, smelt.Device{Name: run.device})
		_, err = s.Feed(t.Context(), ids)
		require.NoError(t, err)
		logits, err := s.Feed(t.Context(), []int32{5})
		require.NoError(t, err)
		if run.planFor == "cpu" {
			want = append(want, logits...)
			continue
		}
		ran := map[string]int{}
		for _, k := range s.OnDevice().Counters().Kernels {
			ran[k.Kernel] = k.Dispatches
			if run.device == "cpu" {
				require.Equal(t, k.Dispatches, k.Native, k.Kernel)
			}
		}
		require.Equal(t, 3, ran["attention_reduce_f32"])
		require.LessOrEqual(t, compare.Largest(want, logits), fixture.Bounds["cpu"])
	}
}

// TestFiveDispatches counts what a step of 1 to 64 decoding sequences launches, and one of
// 9 to 64 tokens of a prompt, for both families and every kind of weights that is common.
func TestFiveDispatches(t *testing.T) {
	for arch, write := range map[string]string{"qwen3-0.6b": "head_norm_rope_kv_write", "llama3.2-1b": "rope_qkv_write"} {
		for _, weights := range []string{"f16", "q8_0", "q4_0", "q4_k_m"} {
			m, err := smelt.Open("arch:"+arch, weights)
			require.NoError(t, err)
			for context, perLayer := range map[int]int{512: 5, 8192: 6} {
				for _, sequences := range []int{1, 8, 9, 64} {
					p, err := m.Compile(smelt.Options{Target: "metal", Level: 1, Context: context, Sequences: sequences})
					require.NoError(t, err)
					e, err := p.Explain("decode", sequences)
					require.NoError(t, err)
					const outside = 3
					want := perLayer
					at := fmt.Sprintf("%s %s, %d sequences of %d", arch, weights, sequences, context)
					require.Equal(t, want, e.DispatchesPerLayer, at)
					require.Equal(t, outside, e.DispatchesOutsideLayers, at)
					require.LessOrEqual(t, e.Barriers, want*e.Layers+outside, at)
					for _, rule := range []string{"kv_replication_elimination", write, "attention_write"} {
						require.Equal(t, e.Layers, e.Fusions[rule], "%s: %s", at, rule)
					}
				}
				for _, tokens := range []int{9, 32, 64} {
					p, err := m.Compile(smelt.Options{Target: "metal", Level: 1, Context: context, Prefill: tokens})
					require.NoError(t, err)
					e, err := p.Explain("prefill")
					require.NoError(t, err)
					at := fmt.Sprintf("%s %s, %d tokens of a prompt of %d", arch, weights, tokens, context)
					require.Equal(t, 6, e.DispatchesPerLayer, at)
					require.Equal(t, 3, e.DispatchesOutsideLayers, at)
					require.LessOrEqual(t, e.Barriers, 6*e.Layers+3, at)
					for rule, n := range map[string]int{"kv_replication_elimination": e.Layers, write: e.Layers, "norm_prologue": 2*e.Layers + 1, "gather_prologue": 1} {
						require.Equal(t, n, e.Fusions[rule], "%s: %s", at, rule)
					}
				}
			}
			require.NoError(t, m.Close())
		}
	}
}

// TestGemma4Dispatches counts what a layer of one token launches: in a dense model, with embeddings for each
// layer and shared keys and values, and with experts beside the dense network.
func TestGemma4Dispatches(t *testing.T) {
	for arch, want := range map[string]int{"gemma4-31b": 7, "gemma4-e4b": 10, "gemma4-26b-a4b": 13} {
		p, err := fixture.Open(t, "arch:"+arch).Compile(smelt.Options{Target: "metal", Level: 1, Context: 512})
		require.NoError(t, err)
		e, err := p.Explain("decode")
		require.NoError(t, err)
		require.Equal(t, want, e.DispatchesPerLayer, arch)
	}
}

// TestNamedFusions checks the three fusions that the project is named for on the
// shapes of real models.
func TestNamedFusions(t *testing.T) {
	for _, tt := range []struct {
		arch   string
		layers int
		write  string
	}{
		{"qwen3-0.6b", 28, "head_norm_rope_kv_write"},
		{"llama3.2-1b", 16, "rope_qkv_write"},
	} {
		m, err := smelt.Open("arch:"+tt.arch, "q4_0")
		require.NoError(t, err)
		p, err := m.Compile(smelt.Options{Target: "metal", Level: 1, Context: 8192})
		require.NoError(t, err)
		long, err := p.Explain("decode")
		require.NoError(t, err)
		require.LessOrEqual(t, long.DispatchesPerLayer, 6)
		require.LessOrEqual(t, long.Barriers, 6*tt.layers+long.DispatchesOutsideLayers)
		require.Equal(t, tt.layers, long.Kernels["attention_reduce_f32"])
		p, err = m.Compile(smelt.Options{Target: "metal", Level: 1, Context: 512})
		require.NoError(t, err)
		for _, phase := range []string{"prefill", "decode"} {
			e, err := p.Explain(phase)
			require.NoError(t, err)
			require.Equal(t, tt.layers, e.Fusions["kv_replication_elimination"])
			require.Equal(t, tt.layers, e.Fusions[tt.write])
			require.Equal(t, 2*tt.layers, e.Stages[0].Ops["repeat_kv"])
			require.Zero(t, e.Stages[1].Ops["repeat_kv"])
			require.LessOrEqual(t, e.DispatchesPerLayer, map[string]int{"decode": 5, "prefill": 8}[phase])
			require.LessOrEqual(t, e.DispatchesOutsideLayers, map[string]int{"decode": 3, "prefill": 5}[phase])
			if phase == "decode" {
				require.LessOrEqual(t, e.Barriers, 5*tt.layers+e.DispatchesOutsideLayers)
			}
		}
	}
}

// TestShortPromptBits: prompts of few tokens have the logits, bit for bit, that they have
// where norms and the choice of rows are dispatches of their own, and so do their first tokens
// in a longer piece, which is in another phase.
func TestShortPromptBits(t *testing.T) {
	for _, model := range fixture.Trained {
		ids := make([]int32, 70)
		for i := range ids {
			ids[i] = int32(3 + i*7%500)
		}
		feed := func(lengths []int, off ...string) (all []float32) {
			opts := fixture.Options(t, "emu", dtype.F16)
			compiler.KnobsOf(&opts).Disabled = off
			s := fixture.Session(t, testfiles.Model(t, model+"/gguf/"+model+"-F16.gguf"), "emu", opts)
			at := 0
			for _, n := range lengths {
				logits, err := s.Feed(t.Context(), ids[at:at+n])
				require.NoError(t, err)
				all, at = append(all, logits...), at+n
			}
			return all
		}
		short := feed([]int{9, 33, 20})
		require.Equal(t, feed([]int{9, 33, 20}, "norm_prologue", "gather_prologue"), short, model)
		width := len(short) / 3
		require.Equal(t, feed([]int{66})[:width], feed([]int{64, 2})[width:], "%s: a prompt cut and whole", model)
	}
}
