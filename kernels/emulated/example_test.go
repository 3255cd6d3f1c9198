package emulated_test

import (
	"fmt"

	"github.com/smelt-ml/smelt/kernels/emulated"
)

// Two rows of three floats are added in shuffled lane order.
func ExampleRun() {
	a, b, out := floats(1, 2, 3, 4, 5, 6), floats(10, 20, 30, 40, 50, 60), make([]byte, 24)
	params := words(2, 3, 3, 3, float32(0)) // ElementParams: rows, width, strides of a and b, value
	err := emulated.Run(emulated.Launch{
		Kernel:  "add_f32",
		Buffers: [][]byte{a, b, out, params},
		Grid:    [3]uint32{1, 2},
		Group:   [3]uint32{256},
	}, emulated.Options{Order: emulated.Shuffled, Seed: 7, Poison: true})
	fmt.Println(toFloats(out), err)

	err = emulated.Run(emulated.Launch{Kernel: "add_f32", Buffers: [][]byte{a, b, out}, Group: [3]uint32{256}}, emulated.Options{})
	fmt.Println(err)
	// Output:
	// [11 22 33 44 55 66] <nil>
	// kernel add_f32: buffer 3 (p) is not bound
}
