package emulated_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/emulated/mslgen"
)

func root(t testing.TB) string {
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no go.mod above")
		dir = filepath.Dir(dir)
	}
}

func TestGeneratedFilesAreFresh(t *testing.T) {
	for _, p := range []mslgen.Package{
		{Sources: []string{"kernels", "kernels/published"}, Output: "kernels/emulated"},
		{Sources: []string{"kernels/emulated/testdata"}, Output: "kernels/emulated/internal/testkernels"},
	} {
		p.Root, p.Runtime = root(t), "kernels/emulated/runtime"
		stale, err := mslgen.Stale(p)
		require.NoError(t, err)
		require.Empty(t, stale, "run go generate ./kernels/emulated/...")
	}
}

// The tool links one build of the kernels: a second would cost every user minutes of compiling
// and megabytes.
func TestProgramsHoldOneBuild(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f", "{{if .CXXFiles}}{{.ImportPath}} {{join .CXXFiles \" \"}}{{end}}", "./cmd/smelt")
	list.Dir = root(t)
	list.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := list.Output()
	require.NoError(t, err)
	var builds []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, ".gen.cc") {
			builds = append(builds, strings.Fields(line)[0])
		}
	}
	require.Equal(t, []string{"github.com/smelt-ml/smelt/kernels/emulated"}, builds)
}

func TestNamesComeFromTheSources(t *testing.T) {
	var want []string
	for _, file := range kernels.Files() {
		u, err := mslgen.Parse("kernels/"+file, mslgen.ReadFile(root(t)))
		require.NoError(t, err)
		for _, k := range u.Kernels {
			want = append(want, k.Name)
		}
	}
	require.Equal(t, want, emulated.Names())
	require.NotNil(t, emulated.Provider())
}

// ---- bytes of buffers

func floats(v ...float32) []byte {
	b := make([]byte, 0, len(v)*4)
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func toFloats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[i*4:]))
	}
	return v
}

func halves(v ...float32) []byte {
	b := make([]byte, 0, len(v)*2)
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, float16.Fromfloat32(x).Bits())
	}
	return b
}

func toHalves(b []byte) []float32 {
	v := make([]float32, len(b)/2)
	for i := range v {
		v[i] = float16.Frombits(binary.LittleEndian.Uint16(b[i*2:])).Float32()
	}
	return v
}

func bfloats(v ...float32) []byte {
	b := make([]byte, 0, len(v)*2)
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(x)>>16))
	}
	return b
}

// words packs a parameter struct of uint32, int and float32 fields.
func words(v ...any) []byte {
	var b []byte
	for _, x := range v {
		switch x := x.(type) {
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, x)
		case float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		default:
			panic(fmt.Sprintf("words: %T", x))
		}
	}
	return b
}

func uniform(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = r.Float32()*2 - 1
	}
	return v
}

func rounded(v []float32) []float32 {
	return toHalves(halves(v...))
}

func requireClose(t *testing.T, want []float64, got []float32, bound float64) {
	t.Helper()
	require.Len(t, got, len(want))
	largest, worst := 1e-30, 0.0
	for i := range want {
		require.False(t, math.IsNaN(float64(got[i])), "element %d is NaN", i)
		largest = max(largest, math.Abs(want[i]))
		worst = max(worst, math.Abs(want[i]-float64(got[i])))
	}
	require.Less(t, worst/largest, bound)
}

// everyway runs a launch of a test kernel in every order of lanes and on several numbers of
// threads, requires the same bits from all, and returns the buffers.
func everyway(t *testing.T, l emulated.Launch) [][]byte {
	t.Helper()
	var first [][]byte
	for _, o := range []emulated.Options{
		{},
		{Poison: true, Threads: 2},
		{Order: emulated.Descending, Poison: true},
		{Order: emulated.Shuffled, Seed: 1, Poison: true},
		{Order: emulated.Shuffled, Seed: 2, Poison: true, Threads: 3},
	} {
		run := l
		run.Buffers = make([][]byte, len(l.Buffers))
		for i, b := range l.Buffers {
			if b != nil {
				run.Buffers[i] = append([]byte{}, b...)
			}
		}
		require.NoError(t, library.Run(run, o), "%+v", o)
		if first == nil {
			first = run.Buffers
		}
		require.Equal(t, first, run.Buffers, "%+v", o)
	}
	return first
}

// ---- kernels that compute something

func TestRope(t *testing.T) {
	const heads, d, tokens = 3, 64, 5
	r := rand.New(rand.NewPCG(1, 1))
	x := uniform(r, heads*d*tokens)
	pos := []int{0, 7, 14, 100, 3}
	for _, neox := range []uint32{0, 1} {
		t.Run(fmt.Sprintf("neox=%d", neox), func(t *testing.T) {
			want := make([]float64, len(x))
			for i, v := range x {
				want[i] = float64(v)
			}
			for tok := range tokens {
				for h := range heads {
					q := want[(tok*heads+h)*d:]
					for i := range d / 2 {
						a := float64(pos[tok]) * math.Pow(1e6, -2*float64(i)/d) * 0.5
						c, s := math.Cos(a), math.Sin(a)
						i0, i1 := 2*i, 2*i+1
						if neox == 1 {
							i0, i1 = i, i+d/2
						}
						v0, v1 := q[i0], q[i1]
						q[i0], q[i1] = v0*c-v1*s, v0*s+v1*c
					}
				}
			}
			out := everyway(t, emulated.Launch{
				Kernel:    "rope",
				Buffers:   [][]byte{floats(x...), words(0, 7, 14, 100, 3), words(heads, d, float32(1e6))},
				Constants: map[uint32]uint32{0: neox, 1: math.Float32bits(0.5)},
				Grid:      [3]uint32{1, heads, tokens}, Group: [3]uint32{d / 2},
			})
			requireClose(t, want, toFloats(out[0]), 2e-6)
		})
	}
}

func TestRMSNorm(t *testing.T) {
	const rows, n = 3, 512
	r := rand.New(rand.NewPCG(2, 1))
	x, w := uniform(r, rows*n), uniform(r, n)
	want := make([]float64, rows*n)
	for row := range rows {
		sum := 0.0
		for _, v := range x[row*n : (row+1)*n] {
			sum += float64(v) * float64(v)
		}
		for i := range n {
			want[row*n+i] = float64(x[row*n+i]) / math.Sqrt(sum/n+1e-6) * float64(w[i])
		}
	}
	out := everyway(t, emulated.Launch{
		Kernel:  "rms_norm",
		Buffers: [][]byte{floats(x...), floats(w...), make([]byte, rows*n*4), words(n, float32(1e-6))},
		Grid:    [3]uint32{rows}, Group: [3]uint32{128}, ThreadgroupBytes: []uint32{512},
	})
	requireClose(t, want, toFloats(out[2]), 1e-6)
}

func TestNormRopeWrite(t *testing.T) {
	const heads, d, pos, stride = 2, 128, 5, 256
	r := rand.New(rand.NewPCG(3, 1))
	k, w := uniform(r, heads*d), uniform(r, d)
	want := make([]float64, 6*stride)
	for h := range heads {
		sum := 0.0
		for _, v := range k[h*d : (h+1)*d] {
			sum += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(sum/d+1e-6)
		for i := range d / 2 {
			a := pos * math.Pow(1e6, -2*float64(i)/d)
			c, s := math.Cos(a), math.Sin(a)
			u, v := float64(k[h*d+i])*scale*float64(w[i]), float64(k[h*d+i+d/2])*scale*float64(w[i+d/2])
			want[pos*stride+h*d+i], want[pos*stride+h*d+i+d/2] = u*c-v*s, u*s+v*c
		}
	}
	out := everyway(t, emulated.Launch{
		Kernel:  "qk_norm_rope_kv",
		Buffers: [][]byte{floats(k...), floats(w...), make([]byte, 6*stride*2), words(d, pos, stride, float32(1e-6), float32(1e6))},
		Grid:    [3]uint32{heads}, Group: [3]uint32{d},
	})
	requireClose(t, want, toHalves(out[2]), 5e-4)
}

// q4_0 returns random Q4_0 rows and their values.
func q4_0(r *rand.Rand, rows, k int) ([]byte, []float32) {
	var b []byte
	v := make([]float32, rows*k)
	for block := range rows * k / 32 {
		d := rounded([]float32{r.Float32() * 0.1})[0]
		b = append(b, halves(d)...)
		for j := range 16 {
			q := byte(r.UintN(256))
			b = append(b, q)
			v[block*32+j] = d * float32(int(q&15)-8)
			v[block*32+16+j] = d * float32(int(q>>4)-8)
		}
	}
	return b, v
}

func TestQ4Gemv(t *testing.T) {
	const n, k = 24, 1024
	r := rand.New(rand.NewPCG(4, 1))
	w, values := q4_0(r, n, k)
	x := uniform(r, k)
	want := make([]float64, n)
	for i := range want {
		for j := range k {
			want[i] += float64(values[i*k+j]) * float64(x[j])
		}
	}
	for _, kernel := range []string{"gemv_q4_0", "gemv_q4_0_simple", "gemv_q4_0_vec", "gemv_q4_0_vec2"} {
		t.Run(kernel, func(t *testing.T) {
			out := everyway(t, emulated.Launch{
				Kernel:  kernel,
				Buffers: [][]byte{w, floats(x...), make([]byte, n*4), words(k, n)},
				Grid:    [3]uint32{n / 8}, Group: [3]uint32{64},
			})
			requireClose(t, want, toFloats(out[2]), 5e-6)
		})
	}
}

func TestMatrixMultiply(t *testing.T) {
	const m, n, k = 64, 96, 64
	r := rand.New(rand.NewPCG(5, 1))
	a, b := rounded(uniform(r, m*k)), rounded(uniform(r, n*k))
	want := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for x := range k {
				want[i*n+j] += float64(a[i*k+x]) * float64(b[j*k+x])
			}
		}
	}
	out := everyway(t, emulated.Launch{
		Kernel:  "gemm_f16",
		Buffers: [][]byte{halves(a...), halves(b...), make([]byte, m*n*4), words(m, n, k)},
		Grid:    [3]uint32{n / 32, m / 32}, Group: [3]uint32{128},
	})
	requireClose(t, want, toFloats(out[2]), 1e-6)
}

func TestFlashDecode(t *testing.T) {
	const heads, kv, d, n = 4, 2, 128, 37
	r := rand.New(rand.NewPCG(6, 1))
	q := uniform(r, heads*d)
	keys, values := rounded(uniform(r, n*kv*d)), rounded(uniform(r, n*kv*d))
	scale := float32(1 / math.Sqrt(d))
	want := make([]float64, heads*d)
	for h := range heads {
		g := h / (heads / kv)
		sum := 0.0
		for i := range n {
			s := 0.0
			for j := range d {
				s += float64(q[h*d+j]) * float64(keys[(i*kv+g)*d+j])
			}
			e := math.Exp(s * float64(scale))
			sum += e
			for j := range d {
				want[h*d+j] += e * float64(values[(i*kv+g)*d+j])
			}
		}
		for j := range d {
			want[h*d+j] /= sum
		}
	}
	for kernel, encode := range map[string]func(...float32) []byte{"flash_decode_f16": halves, "flash_decode_f32": floats} {
		t.Run(kernel, func(t *testing.T) {
			out := everyway(t, emulated.Launch{
				Kernel:  kernel,
				Buffers: [][]byte{floats(q...), encode(keys...), encode(values...), make([]byte, heads*d*4), words(n, d, kv*d, heads/kv, scale)},
				Grid:    [3]uint32{heads}, Group: [3]uint32{128},
			})
			requireClose(t, want, toFloats(out[3]), 2e-6)
		})
	}
}

func TestAwkwardFeatures(t *testing.T) {
	l := emulated.Launch{
		Kernel:  "misc",
		Buffers: [][]byte{make([]byte, 64*4), words(0), words(40)},
		Group:   [3]uint32{64}, ThreadgroupBytes: []uint32{256},
	}
	out := everyway(t, l)
	require.Equal(t, words(40), out[1])
	got := toFloats(out[0])
	lut := []float32{0, 0.25, 0.5, 1}
	s := func(lane int) float32 { return float32(lane) + lut[lane&3] }
	// h is (2,1,3,8); u is the bits of 1.0f plus those of 1.0h, 16 bits set in all.
	u := uint32(0x3f800000 + 0x3c00)
	bits := 0
	for v := u; v > 0; v >>= 1 {
		bits += int(v & 1)
	}
	for i := range 64 {
		want := float32(0)
		if i < 40 {
			lane := i % 32
			down := s(min(lane+1, 31))
			want = down + s(lane^16) + s(3) + s(31) + (2 + 8) + float32(u>>24) + 1 + float32(min(lane, 2)) + 1 + float32(bits)
		}
		require.Equal(t, want, got[i], "thread %d", i)
	}
	l.Constants = map[uint32]uint32{2: 7}
	require.Equal(t, got[0]+1, toFloats(everyway(t, l)[0])[0])
}

// TestInPlaceBesideTheCollector runs launches on Go memory during garbage collections: stale
// pointers that a launch leaves in C memory must not reach the collector's write barrier.
func TestInPlaceBesideTheCollector(t *testing.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan struct{})
	defer close(ended)
	wg.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				runtime.GC()
			}
		}
	})
	params := words(1, 4000, 4000, 4000, float32(0))
	for range 3000 {
		a, out := make([]byte, 16000), make([]byte, 16000)
		require.NoError(t, emulated.Run(emulated.Launch{Kernel: "add_f32", Buffers: [][]byte{a, a, out, params}, Grid: [3]uint32{1, 1}, Group: [3]uint32{1}},
			emulated.Options{InPlace: true}))
	}
}
