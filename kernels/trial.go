package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Trial is a small launch whose result is known. Devices run it when they are opened, because
// GPUs of some virtual machines accept kernels but compute nothing.
type Trial struct {
	Kernel      string
	Buffers     [][]byte // by [[buffer(i)]], parameters included
	Grid, Group [3]uint32

	result int
	want   []float32
}

// NewTrial returns an RMSNorm of a row of equal magnitudes by two simdgroups, which sums
// through threadgroup memory and a barrier.
func NewTrial() Trial {
	const width, kernel = 8, "rms_norm_f32_f32"
	var x, weight []byte
	var want []float32
	for i := range width {
		v, w := float32(3), float32(i+1)
		if i%2 != 0 {
			v = -v
		}
		x, weight = appendFloat(x, v), appendFloat(weight, w)
		want = append(want, v/3*w)
	}
	args := map[string][]byte{"x": x, "weight": weight, "out": make([]byte, 4*width)}
	buffers, _, err := Bind(kernel, args, NormParams{Rows: 1, Width: width, XStride: width, Groups: 1}, nil)
	if err != nil {
		panic(err)
	}
	k, _ := Lookup(kernel)
	out, _ := k.Named("out")
	return Trial{Kernel: kernel, Buffers: buffers, Grid: [3]uint32{1, 1, 1}, Group: [3]uint32{64, 1, 1}, result: out.Index, want: want}
}

func appendFloat(to []byte, v float32) []byte {
	return binary.NativeEndian.AppendUint32(to, math.Float32bits(v))
}

// Verify returns an error if the launch has not written the known result.
func (t *Trial) Verify() error {
	for i, want := range t.want {
		got := math.Float32frombits(binary.NativeEndian.Uint32(t.Buffers[t.result][4*i:]))
		if !(math.Abs(float64(got-want)) < 1e-3) {
			return fmt.Errorf("the GPU computes nothing: a trial kernel wrote %g instead of %g", got, want)
		}
	}
	return nil
}
