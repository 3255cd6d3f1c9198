package native

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// beyondCaches is the memory in bytes that a bandwidth benchmark reads: more than any cache
// holds.
const beyondCaches = 768 << 20

var benchThreads = []int{1, 2}

// BenchmarkRead measures the memory bandwidth of a plain loop, the reference for the others.
func BenchmarkRead(b *testing.B) {
	memory := make([]byte, beyondCaches)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	for _, threads := range benchThreads {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			b.SetBytes(int64(len(memory)))
			measure(b, float64(len(memory)), "GB/s", func(int) {
				var wait sync.WaitGroup
				share := len(memory) / threads
				for i := range threads {
					wait.Go(func() {
						if bytes.IndexByte(memory[i*share:(i+1)*share], 2) >= 0 {
							panic("found what is not there")
						}
					})
				}
				wait.Wait()
			})
		})
	}
}

// bigWeight returns memory with whole copies of a weight, at least `least` bytes and at
// least one copy.
func bigWeight(elem dtype.Type, elements, least int) (memory []byte, size int) {
	size = int(elem.Bytes(int64(elements)))
	memory = make([]byte, max(1, least/size)*size)
	rng := rand.New(rand.NewPCG(1, 2))
	piece := randomBlocks(rng, elem, 1<<16)
	if !elem.IsQuantized() {
		for i := 1; i < len(piece); i += 2 {
			piece[i] = piece[i]&0x83 | 0x28 // no NaN, no infinity, nothing large
		}
	}
	for at := 0; at < len(memory); at += len(piece) {
		copy(memory[at:], piece)
	}
	return memory, size
}

// largePages returns a copy in large pages if the system has them, as devices allocate
// rearranged weights.
func largePages(b *testing.B, data []byte) []byte {
	memory, err := syscall.Mmap(-1, 0, len(data), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(b, err)
	b.Cleanup(func() { _ = syscall.Munmap(memory) })
	if runtime.GOOS == "linux" {
		const hugePage = 14 // MADV_HUGEPAGE, which package syscall does not have everywhere
		_ = syscall.Madvise(memory, hugePage)
	}
	copy(memory, data)
	return memory
}

func linearLaunch(elem dtype.Type, tokens, k, n int, weight []byte) Launch {
	rng := newRand("bench")
	return dispatch{
		kernel:    "linear_mat_f32_f32",
		args:      map[string][]byte{"x": floatBytes(normals(rng, tokens*k)), "w0": weight, "out": make([]byte, 4*tokens*n)},
		params:    kernels.LinearParams{Tokens: uint32(tokens), K: uint32(k), N0: uint32(n), XStride: uint32(k), OutStride: uint32(n)},
		constants: map[string]uint32{"fc_type0": uint32(elem)},
	}.launch()
}

// BenchmarkMatVec reports the weight's bytes. Each call reads another copy of it.
func BenchmarkMatVec(b *testing.B) {
	for _, elem := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.Q8_0, dtype.Q4_0, dtype.Q4_K, dtype.Q5_K, dtype.Q6_K, dtype.MXFP4, dtype.IQ4_NL, dtype.IQ4_XS, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q2_K, dtype.Q3_K, dtype.MLX4, dtype.MLX8} {
		for _, shape := range [][2]int{{1024, 3072}, {3072, 1024}, {2048, 8192}, {1024, 151936}} {
			// The copies of one shape and type are freed before the next.
			b.Run(fmt.Sprintf("%v/%dx%d", elem, shape[0], shape[1]), func(b *testing.B) { benchmarkMatVec(b, elem, shape[0], shape[1]) })
		}
	}
}

func benchmarkMatVec(b *testing.B, elem dtype.Type, k, n int) {
	memory, size := bigWeight(elem, k*n, beyondCaches)
	for _, layout := range []string{"rows", "interleaved"} {
		if layout == "interleaved" {
			moved := best().Interleave(uint32(elem), len(memory)/size*n, k, memory)
			if moved == nil {
				continue
			}
			size = size * len(moved) / len(memory)
			memory = largePages(b, moved)
		}
		for _, threads := range benchThreads {
			b.Run(fmt.Sprintf("%s/threads=%d", layout, threads), func(b *testing.B) {
				var calls []*call
				for at := 0; at < len(memory); at += size {
					launch := linearLaunch(elem, 1, k, n, memory[at:at+size])
					if layout == "interleaved" {
						launch.Interleaved = 1 << index(launch.Kernel, "w0")
					}
					c, err := best().prepare(launch)
					require.NoError(b, err)
					defer c.free()
					calls = append(calls, c)
				}
				b.SetBytes(int64(size))
				measure(b, float64(size), "GB/s", func(i int) { calls[i%len(calls)].run(Options{Threads: threads}) })
			})
		}
	}
}

// measure runs f in the benchmark's loop. Besides Go's mean it reports the median and the best
// of all calls, in 1e9 units (bytes, or operations: a multiply-add is two) per second, and units
// per processor time, because the mean of a shared machine depends on its other users.
func measure(b *testing.B, units float64, unit string, f func(i int)) {
	var times []float64
	start := processorTime()
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		f(i)
		times = append(times, time.Since(start).Seconds())
	}
	b.ReportMetric(units*float64(len(times))/(processorTime()-start)/1e9, "cpu-"+unit)
	slices.Sort(times)
	b.ReportMetric(units/times[len(times)/2]/1e9, "median-"+unit)
	b.ReportMetric(units/times[0]/1e9, "best-"+unit)
}

// processorTime returns the processor time of this process in seconds.
func processorTime() float64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		panic(err)
	}
	return float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9
}

func BenchmarkMatMat(b *testing.B) {
	for _, elem := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.Q8_0, dtype.Q4_0, dtype.Q4_K, dtype.Q6_K, dtype.MXFP4, dtype.IQ4_NL, dtype.IQ4_XS, dtype.Q4_1, dtype.Q2_K, dtype.Q3_K, dtype.MLX4, dtype.MLX8} {
		for _, shape := range [][2]int{{1024, 3072}, {3072, 1024}} {
			k, n := shape[0], shape[1]
			rows, _ := bigWeight(elem, k*n, 0)
			for _, layout := range []string{"rows", "interleaved"} {
				weight := rows
				if layout == "interleaved" {
					if weight = best().Interleave(uint32(elem), n, k, rows); weight == nil {
						continue
					}
				}
				for _, tokens := range []int{1, 2, 4, 8, 32, 128, 512} {
					launch := linearLaunch(elem, tokens, k, n, weight)
					if layout == "interleaved" {
						launch.Interleaved = 1 << index(launch.Kernel, "w0")
					}
					for _, threads := range benchThreads {
						b.Run(fmt.Sprintf("%v/%dx%d/%s/tokens=%d/threads=%d", elem, k, n, layout, tokens, threads), func(b *testing.B) {
							c, err := best().prepare(launch)
							require.NoError(b, err)
							defer c.free()
							measure(b, 2*float64(k)*float64(n)*float64(tokens), "GOP/s", func(int) { c.run(Options{Threads: threads}) })
						})
					}
				}
			}
		}
	}
}

func attentionDispatch(family string, cached dtype.Type, heads, kvHeads, head, tokens, length int) dispatch {
	rng := newRand("bench")
	positions := make([]int32, tokens)
	for i := range positions {
		positions[i] = int32(length - tokens + i)
	}
	cache, _ := bigWeight(cached, kvHeads*length*head, 0)
	return dispatch{
		kernel: family + "_f32_" + cached.String(),
		args: map[string][]byte{"q": floatBytes(normals(rng, tokens*heads*head)), "k_cache": cache, "v_cache": bytes.Clone(cache),
			"positions": intBytes(positions...), "cu_seqlens": intBytes(0, int32(tokens)), "context_lens": intBytes(int32(length)),
			"block_table": intBytes(0), "out": make([]byte, 4*tokens*heads*head)},
		params: kernels.AttentionParams{Tokens: uint32(tokens), Seqs: 1, Heads: uint32(heads), KvHeads: uint32(kvHeads),
			Head: uint32(head), Block: uint32(length), TableStride: 1, BlockStride: uint32(kvHeads * length * head),
			HeadStride: uint32(length * head), RowStride: uint32(head), Scale: 0.1},
	}
}

// BenchmarkAttentionVec has the shapes of Qwen3-0.6B and Llama-3.2-1B and reports the bytes of
// keys and values. Consecutive calls read different caches, as the 16 layers of a model do.
func BenchmarkAttentionVec(b *testing.B) {
	for _, shape := range [][3]int{{16, 8, 128}, {32, 8, 64}} {
		for _, depth := range []int{512, 4096} {
			for _, cached := range []dtype.Type{dtype.F16, dtype.Q8_0} {
				for _, threads := range benchThreads {
					b.Run(fmt.Sprintf("%d-%dx%d/depth=%d/%v/threads=%d", shape[0], shape[1], shape[2], depth, cached, threads), func(b *testing.B) {
						var calls []*call
						for range 16 {
							c, err := best().prepare(attentionDispatch("attention_vec", cached, shape[0], shape[1], shape[2], 1, depth).launch())
							require.NoError(b, err)
							defer c.free()
							calls = append(calls, c)
						}
						bytes := 2 * cached.Bytes(int64(shape[1]*shape[2]*depth))
						b.SetBytes(int64(bytes))
						measure(b, float64(bytes), "GB/s", func(i int) { calls[i%len(calls)].run(Options{Threads: threads}) })
					})
				}
			}
		}
	}
}

// BenchmarkAttentionPages has sixteen sequences with few keys each, in shuffled blocks.
func BenchmarkAttentionPages(b *testing.B) {
	const sequences, length, block = 16, 192, 64
	var step []span
	for i := range sequences {
		step = append(step, span{i, length - 1, 1})
	}
	for _, cached := range []dtype.Type{dtype.F16, dtype.Q8_0} {
		shape := featured{attention: attention{heads: 16, kvHeads: 8, head: 128, cache: cached}}
		x := newAttended(b, shape, sequences, length, [2]int{})
		for _, threads := range benchThreads {
			b.Run(fmt.Sprintf("%v/threads=%d", cached, threads), func(b *testing.B) {
				var calls []*call
				for range 28 {
					c, err := best().prepare(x.dispatch(false, block, step...).launch())
					require.NoError(b, err)
					defer c.free()
					calls = append(calls, c)
				}
				bytes := 2 * cached.Bytes(int64(shape.kvHeads*shape.head*sequences*length))
				b.SetBytes(int64(bytes))
				measure(b, float64(bytes), "GB/s", func(i int) { calls[i%len(calls)].run(Options{Threads: threads}) })
			})
		}
	}
}

func BenchmarkAttentionTile(b *testing.B) {
	for _, shape := range [][3]int{{16, 8, 128}, {32, 8, 64}} {
		for _, depth := range []int{512, 4096} {
			for _, cached := range []dtype.Type{dtype.F16, dtype.Q8_0} {
				for _, threads := range benchThreads {
					b.Run(fmt.Sprintf("%d-%dx%d/depth=%d/%v/threads=%d", shape[0], shape[1], shape[2], depth, cached, threads), func(b *testing.B) {
						c, err := best().prepare(attentionDispatch("attention_tile", cached, shape[0], shape[1], shape[2], 512, depth).launch())
						require.NoError(b, err)
						defer c.free()
						keys := float64(depth) - 256 // on average
						measure(b, 4*float64(shape[0]*shape[2])*512*keys, "GOP/s", func(int) { c.run(Options{Threads: threads}) })
					})
				}
			}
		}
	}
}

// BenchmarkReplication compares attention that maps query heads to KV heads with attention over
// keys and values copied for every query head first, in the shape of ROCmForge's benchmark: 2 KV
// heads for 32 query heads, 2,048 keys, heads of 128. Both alternate in one run and give the same
// result. The cache is head-major, so that a KV head is copied as a whole.
func BenchmarkReplication(b *testing.B) {
	const heads, kvHeads, head, keys = 32, 2, 128, 2048
	for _, c := range []struct {
		name, kernel string
		tokens       int
	}{{"decode", "attention_vec", 1}, {"prefill", "attention_tile", keys}} {
		for _, threads := range benchThreads {
			b.Run(fmt.Sprintf("%s/threads=%d", c.name, threads), func(b *testing.B) {
				shared := attentionDispatch(c.kernel, dtype.F32, heads, kvHeads, head, c.tokens, keys)
				copied := attentionDispatch(c.kernel, dtype.F32, heads, heads, head, c.tokens, keys)
				copied.args["q"] = shared.args["q"]
				copying := dispatch{kernel: "repeat_kv_pair_f32", args: map[string][]byte{"k": shared.args["k_cache"], "v": shared.args["v_cache"],
					"k_out": copied.args["k_cache"], "v_out": copied.args["v_cache"]},
					params: kernels.RepeatParams{Tokens: kvHeads, KvHeads: 1, Head: keys * head, Repeats: heads / kvHeads}}
				launches := []dispatch{shared, copying, copied}
				calls := make([]*call, len(launches))
				for i, d := range launches {
					var err error
					calls[i], err = best().prepare(d.launch())
					require.NoError(b, err)
					defer calls[i].free()
				}
				wall, used := make([][]float64, len(calls)), make([][]float64, len(calls))
				for b.Loop() {
					for i, c := range calls {
						start, before := time.Now(), processorTime()
						c.run(Options{Threads: threads})
						used[i] = append(used[i], processorTime()-before)
						wall[i] = append(wall[i], time.Since(start).Seconds())
					}
				}
				near(b, widened(floats(shared.args["out"])), floats(copied.args["out"]), 1, 1e-5)
				for i, name := range []string{"mapped", "copying", "copied"} {
					slices.Sort(wall[i])
					slices.Sort(used[i])
					b.ReportMetric(wall[i][len(wall[i])/2]*1e3, name+"-median-ms")
					b.ReportMetric(used[i][len(used[i])/2]*1e3, name+"-cpu-ms")
				}
			})
		}
	}
}

func BenchmarkRopeWrite(b *testing.B) {
	const heads, kvHeads, head, tokens = 16, 8, 128, 512
	rng := newRand("bench")
	var positions []int32
	for i := range tokens {
		positions = append(positions, int32(i))
	}
	cache := make([]byte, 2*kvHeads*head*tokens)
	c, err := best().prepare(dispatch{
		kernel: "head_norm_rope_kv_write_f32_f16",
		args: map[string][]byte{"qkv": floatBytes(normals(rng, tokens*(heads+2*kvHeads)*head)), "positions": intBytes(positions...), "slots": intBytes(positions...),
			"q_out": make([]byte, 4*tokens*heads*head), "k_cache": cache, "v_cache": bytes.Clone(cache),
			"q_norm": floatBytes(normals(rng, head)), "k_norm": floatBytes(normals(rng, head))},
		params: kernels.RopeWriteParams{Tokens: tokens, Heads: heads, KvHeads: kvHeads, Head: head, Rotated: head,
			QStride: (heads + 2*kvHeads) * head, KStride: (heads + 2*kvHeads) * head, VStride: (heads + 2*kvHeads) * head, Block: tokens, Log2Theta: 20, FreqScale: 1, Magnitude: 1, Eps: eps},
	}.launch())
	require.NoError(b, err)
	defer c.free()
	measure(b, tokens, "Gtoken/s", func(int) { c.run(Options{Threads: 1}) })
}

// BenchmarkDeltaNet compares the gated delta rule over a step's tokens of one sequence, in the
// shape of a layer of Qwen3.5-0.8B (16 heads of 128), with plain loops that make one pass over the
// state per term of the formula. Both alternate in one run, on one thread.
func BenchmarkDeltaNet(b *testing.B) {
	const heads, head = 16, 128
	for _, tokens := range []int{1, 64} {
		b.Run(fmt.Sprintf("tokens=%d", tokens), func(b *testing.B) {
			rng := newRand("bench")
			qkv, gates := normals(rng, tokens*3*heads*head), normals(rng, tokens*heads)
			decay, state := slices.Repeat([]float32{-0.1}, heads), floatBytes(make([]float32, heads*head*head))
			d := dispatch{kernel: "delta_net_f32",
				args: map[string][]byte{"qkv": floatBytes(qkv), "alpha": floatBytes(gates), "beta": floatBytes(gates), "decay": floatBytes(decay),
					"bias": floatBytes(make([]float32, heads)), "cu_seqlens": intBytes(0, int32(tokens)),
					"states": intBytes(0, 0), "state": state, "state_out": state, "out": make([]byte, 4*tokens*heads*head)},
				params: kernels.DeltaNetParams{Tokens: uint32(tokens), Seqs: 1, Heads: heads, KeyHeads: heads, Head: head,
					Share: 1, GateStride: heads, Eps: 1e-6}}
			c, err := best().prepare(d.launch())
			require.NoError(b, err)
			defer c.free()
			own, out := make([]float32, heads*head*head), make([]float32, head)
			var native, plain []float64
			for b.Loop() {
				start := time.Now()
				c.run(Options{Threads: 1})
				native = append(native, time.Since(start).Seconds())
				start = time.Now()
				for t := range tokens {
					row := qkv[t*3*heads*head:]
					for h := range heads {
						keep, learn := float32(0.9), float32(0.5)
						deltaRule(own[h*head*head:][:head*head], row[h*head:][:head], row[(heads+h)*head:][:head], row[(2*heads+h)*head:][:head], keep, learn, out)
					}
				}
				plain = append(plain, time.Since(start).Seconds())
			}
			slices.Sort(native)
			slices.Sort(plain)
			b.ReportMetric(plain[len(plain)/2]/native[len(native)/2], "times-as-fast")
			b.ReportMetric(native[len(native)/2]*1e6, "µs-native")
		})
	}
}

// BenchmarkMamba2 computes the state space over a step's tokens of one sequence, in the shape of a layer
// of Granite 4 H Tiny (48 heads of 64, 128 states).
func BenchmarkMamba2(b *testing.B) {
	const heads, head, states = 48, 64, 128
	for _, tokens := range []int{1, 64} {
		b.Run(fmt.Sprintf("tokens=%d", tokens), func(b *testing.B) {
			rng, state := newRand("bench"), floatBytes(make([]float32, heads*head*states))
			c, err := best().prepare(dispatch{kernel: "mamba2_f32",
				args: map[string][]byte{"xbc": floatBytes(normals(rng, tokens*(heads*head+2*states))), "dt": floatBytes(normals(rng, tokens*heads)), "decay": floatBytes(slices.Repeat([]float32{-0.1}, heads)),
					"bias": floatBytes(make([]float32, heads)), "skip": floatBytes(make([]float32, heads)), "cu_seqlens": intBytes(0, int32(tokens)),
					"states": intBytes(0, 0), "state": state, "state_out": state, "out": make([]byte, 4*tokens*heads*head)},
				params: kernels.Mamba2Params{Tokens: uint32(tokens), Seqs: 1, Heads: heads, Groups: 1, Head: head, States: states, DtStride: heads}}.launch())
			require.NoError(b, err)
			defer c.free()
			measure(b, float64(tokens), "Gtoken/s", func(int) { c.run(Options{Threads: 1}) })
		})
	}
}

// deltaRule computes S ← keep·S + k ⊗ learn·(v − keep·Sᵀk) and out = Sᵀq; S has len(q) rows.
func deltaRule(s, q, k, v []float32, keep, learn float32, out []float32) {
	n := len(q)
	for i := range s {
		s[i] *= keep
	}
	clear(out)
	for i := range n {
		for j, x := range s[i*n:][:n] {
			out[j] += x * k[i]
		}
	}
	for j := range out {
		out[j] = learn * (v[j] - out[j])
	}
	for i := range n {
		for j := range out {
			s[i*n+j] += k[i] * out[j]
		}
	}
	clear(out)
	for i := range n {
		for j, x := range s[i*n:][:n] {
			out[j] += x * q[i]
		}
	}
}
