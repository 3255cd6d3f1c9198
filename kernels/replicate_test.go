package kernels_test

import (
	"fmt"
	"math/bits"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/published"
)

// replication is a case of ROCmForge's design: K and V of [batch·tokens, kvHeads, head]
// copied for kvHeads·repeats query heads.
type replication struct{ tokens, kvHeads, repeats, head, groups int }

func (r replication) params() kernels.RepeatParams {
	return kernels.RepeatParams{Tokens: uint32(r.tokens), KvHeads: uint32(r.kvHeads), Head: uint32(r.head), Repeats: uint32(r.repeats)}
}

// from is the element of x that element i of the result copies.
func (r replication) from(i int) int { return i/r.head/r.repeats*r.head + i%r.head }

func (r replication) want(x tensor) []float64 {
	out := make([]float64, x.length*r.repeats)
	for i := range out {
		token, h, d := i/r.head/(r.kvHeads*r.repeats), i/r.head%(r.kvHeads*r.repeats), i%r.head
		out[i] = x.at((token*r.kvHeads+h/r.repeats)*r.head + d)
	}
	return out
}

var replications = []replication{
	{tokens: 2 * 16, kvHeads: 1, repeats: 8, head: 64, groups: 64}, // MQA, a batch of 2
	{tokens: 2 * 16, kvHeads: 2, repeats: 4, head: 64, groups: 64}, // GQA
	{tokens: 1, kvHeads: 1, repeats: 1, head: 1, groups: 1},
	{tokens: 1, kvHeads: 1, repeats: 3, head: 1, groups: 1},
	{tokens: 5, kvHeads: 2, repeats: 1, head: 40, groups: 3}, // as many as there are
	{tokens: 3, kvHeads: 1, repeats: 7, head: 33, groups: 3}, // odd
	{tokens: 7, kvHeads: 3, repeats: 3, head: 5, groups: 1},  // fewer threads than elements
	{tokens: 19, kvHeads: 3, repeats: 5, head: 7, groups: 2},
	{tokens: 1, kvHeads: 2, repeats: 300, head: 3, groups: 2}, // more copies than threads in a group
	{tokens: 64, kvHeads: 2, repeats: 16, head: 128, groups: 9},
}

func TestRepeatKV(t *testing.T) {
	cases := few(replications, append(replications, replication{tokens: 2048, kvHeads: 2, repeats: 16, head: 128, groups: 1 << 15}))
	for _, origin := range []string{"mqa_kv_replicate_k_kernel", "mqa_kv_replicate_v_kernel", "mqa_kv_replicate_fused_kernel"} {
		o, ok := published.OriginOf("ROCmForge", origin)
		require.True(t, ok)
		t.Run(origin, func(t *testing.T) {
			instances(t, o.Family, func(t *testing.T, name string, types []kernels.Element) {
				for _, r := range cases {
					t.Run(fmt.Sprint(r), func(t *testing.T) {
						rng := newRand(t.Name())
						pair := o.Family == "repeat_kv_pair"
						n := r.tokens * r.kvHeads * r.head
						in := []tensor{random(rng, types[0], n)}
						if pair {
							in = append(in, random(rng, types[0], n))
						}
						l := launch{kernel: name, constants: o.Constants, buffers: map[string]tensor{}, params: r.params(), grid: [3]int{r.groups, 1, 1}, group: 256}
						from, to := repeatNames(pair)
						for i, x := range in {
							l.buffers[from[i]], l.buffers[to[i]] = x, result(types[0], n*r.repeats)
						}
						out := l.run(t)
						for i, x := range in {
							compare(t, r.want(x), out[to[i]].values(), n*r.repeats, 0)
						}
					})
				}
			})
		})
	}
}

// repeatNames are the operands of repeat_kv or repeat_kv_pair, and their results.
func repeatNames(pair bool) (from, to []string) {
	if pair {
		return []string{"k", "v"}, []string{"k_out", "v_out"}
	}
	return []string{"x"}, []string{"out"}
}

// TestRepeatKVBeyond32Bits runs the first and the last threadgroup of the largest grid
// over results of more than 2^33 elements, and operands of more than 2^32. The memory is mapped and not reserved: a
// few pages of it are ever touched.
func TestRepeatKVBeyond32Bits(t *testing.T) {
	if bits.UintSize < 64 {
		t.Skip("no address space")
	}
	for _, r := range []replication{
		{tokens: 8*131072 + 3, kvHeads: 2, repeats: 32, head: 128, groups: 1 << 20},
		{tokens: 8*131072 + 3, kvHeads: 32, repeats: 2, head: 128, groups: 1 << 20},
	} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			for _, family := range []string{"repeat_kv", "repeat_kv_pair"} {
				instances(t, family, func(t *testing.T, name string, types []kernels.Element) { checkBeyond32Bits(t, r, name, types[0]) })
			}
		})
	}
}

func checkBeyond32Bits(t *testing.T, r replication, name string, element kernels.Element) {
	const group = 256
	k, _ := kernels.Lookup(name)
	n := r.tokens * r.kvHeads * r.head
	count := n * r.repeats
	require.Greater(t, count, 1<<33)
	from, to := repeatNames(k.Family == "repeat_kv_pair")
	pairs := len(from)
	var x, out []tensor
	for range pairs {
		x = append(x, tensor{element, mapped(t, sizeOf(element, n)), n})
		out = append(out, tensor{element, mapped(t, sizeOf(element, count)), count})
	}
	// each calls f for every element that a threadgroup of the grid copies.
	each := func(first int, f func(e int)) {
		for thread := first * group; thread < (first+1)*group; thread++ {
			for e := thread; e < count; e += r.groups * group {
				f(e)
			}
		}
	}
	value := func(tensor, element int) float64 { return float64(1+(element*7+tensor*3)%101) / 128 }
	for _, first := range []int{0, r.groups - 1} {
		each(first, func(e int) {
			for i := range pairs {
				x[i].put(r.from(e), value(i, r.from(e)))
			}
		})
		l := emulated.Launch{Kernel: name, Grid: [3]uint32{uint32(r.groups), 1, 1}, Group: [3]uint32{group, 1, 1},
			Only: [2]uint64{uint64(first), uint64(first + 1)}}
		memory := map[string][]byte{}
		for i := range pairs {
			memory[from[i]], memory[to[i]] = x[i].bytes, out[i].bytes
		}
		var err error
		l.Buffers, _, err = kernels.Bind(name, memory, r.params(), nil)
		require.NoError(t, err)
		require.NoError(t, execute(l, emulated.Options{InPlace: true}))
		beyond := 0
		each(first, func(e int) {
			for i := range pairs {
				require.Equal(t, value(i, r.from(e)), out[i].at(e), "element %d", e)
			}
			if e >= 1<<32 {
				beyond++
			}
		})
		require.Positive(t, beyond)
	}
	for _, e := range []int{group, 1<<32 + group, count - group*r.groups} { // of threadgroups that did not run
		for i := range pairs {
			require.Zero(t, out[i].at(e), "element %d", e)
		}
	}
}

// mapped returns zeros that take no memory until they are touched.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skipf("%d bytes of address space: %v", n, err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(b)) })
	return b
}
