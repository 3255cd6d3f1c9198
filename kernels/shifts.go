package kernels

// shiftCycles are, by type, the cycles that a lane takes of the pipe that shifts and converts
// for the 16 weights of a run in linear_vec: 4 for each of them that is stored as an integer
// and for each shift of what is stored apart from the rest of a number, and what scales take.
// Values that codes name are loaded, which this pipe has no part in.
// A test compares them with what the emulated kernel does.
var shiftCycles = map[uint32]int64{
	6:  64,  // q8_0
	7:  64,  // q4_0
	8:  64,  // q4_1
	9:  76,  // q5_0
	10: 76,  // q5_1
	11: 84,  // q2_k
	12: 118, // q3_k
	13: 92,  // q4_k
	14: 108, // q5_k
	15: 92,  // q6_k
	16: 8,   // mxfp4
	17: 8,   // iq4_nl
	18: 35,  // iq4_xs
	19: 64,  // mlx4
	20: 64,  // mlx8
}

// ShiftCycles returns how many cycles linear_vec takes of the pipe that shifts and converts,
// of which a GPU core has a quarter of a lane for each that multiplies and adds, to decode so
// many weights of a type.
func ShiftCycles(typ uint32, weights int64) int64 { return weights * shiftCycles[typ&^Lines] / 16 }
