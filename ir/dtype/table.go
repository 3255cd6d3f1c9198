package dtype

// The element types. Activations are F32, F16 or BF16; indices are I32; the
// quantized types occur on weights and, for Q8_0, on caches.
const (
	Invalid Type = iota
	F32
	F16
	BF16
	I32
	Bool
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	MXFP4
	IQ4_NL
	IQ4_XS
	MLX4
	MLX8
)

// Row holds the data of a type. Its decoders are functions in models/quant, kernels/quant.h
// and kernels/native/src, which tests compare with the row.
type Row struct {
	Name         string // lower case
	Elems, Bytes int    // of a block, by ggml-common.h or quant.h
	GGUF         int    // ggml_type, or NoGGUF

	// Mixture is the common name of files whose matrices have this type, "" if there are none,
	// and FileType the number of such files (general.file_type, llama.cpp's llama_ftype).
	// Package models defines the types of their other tensors.
	Mixture  string
	FileType uint32

	// Narrower replaces the type where rows are not whole blocks (llama.cpp's
	// tensor_type_fallback). If its blocks do not fit either, or it is Invalid, F16 does.
	Narrower Type

	// Halves lists the byte offsets of a block's half-precision scales: d, and m of the formats
	// whose elements are d·q + m·minimum, where minimum is a whole number up to Minimum. It is
	// nil if scales are not halves.
	Halves  []int
	Minimum int

	// The rest is for the .metal kernels (quant.h).

	// Codes is the byte range of a block that kernels.Lines stores apart from the rest, a
	// multiple of 16 bytes; empty if no kernel reads the type in lines.
	Codes Span

	// Offset reports that the decoder computes scale·q + offset instead of scale·q.
	Offset bool

	// Up is the distance in bits between the codes of the first and of the second group of a
	// run within a byte.
	Up int

	// Cycles is the number of cycles of the shift-and-convert pipe that a lane of linear_vec
	// uses for the 16 weights of a run: 4 for each weight stored as an integer, 4 for each
	// shift of bits stored apart from the rest of a number, and those of the scales. Codebook
	// values are loaded and cost none.
	Cycles int64

	// VecRows is the number of rows per simdgroup of linear_vec for large matrices: ggml's
	// measured N_R0 for Metal, at least 2.
	VecRows int64
}

// Span is bytes From to To of a block.
type Span struct{ From, To int }

// Len returns the length in bytes.
func (s Span) Len() int { return s.To - s.From }

// NoGGUF is the Row.GGUF of a type that GGUF files do not have.
const NoGGUF = -1

// rows is indexed by Type, which is the type's number in kernels and in Plans.
var rows = []Row{
	Invalid: {Name: "invalid", Elems: 1, GGUF: NoGGUF},

	F32: {Name: "f32", Elems: 1, Bytes: 4, GGUF: 0, Mixture: "f32", FileType: 0,
		VecRows: 4},
	F16: {Name: "f16", Elems: 1, Bytes: 2, GGUF: 1, Mixture: "f16", FileType: 1,
		VecRows: 4},
	BF16: {Name: "bf16", Elems: 1, Bytes: 2, GGUF: 30, Mixture: "bf16", FileType: 32,
		VecRows: 4},
	I32:  {Name: "i32", Elems: 1, Bytes: 4, GGUF: 26},
	Bool: {Name: "bool", Elems: 1, Bytes: 1, GGUF: NoGGUF},

	Q8_0: {Name: "q8_0", Elems: 32, Bytes: 34, GGUF: 8, Mixture: "q8_0", FileType: 7, Halves: []int{0},
		Codes: Span{2, 34}, Cycles: 64, VecRows: 2},
	Q4_0: {Name: "q4_0", Elems: 32, Bytes: 18, GGUF: 2, Mixture: "q4_0", FileType: 2, Halves: []int{0},
		Codes: Span{2, 18}, Offset: true, Up: 4, Cycles: 64, VecRows: 4},
	Q4_1: {Name: "q4_1", Elems: 32, Bytes: 20, GGUF: 3, Mixture: "q4_1", FileType: 3, Halves: []int{0, 2}, Minimum: 1,
		Offset: true, Up: 4, Cycles: 64, VecRows: 4},
	Q5_0: {Name: "q5_0", Elems: 32, Bytes: 22, GGUF: 6, Mixture: "q5_0", FileType: 8, Halves: []int{0},
		Offset: true, Cycles: 76, VecRows: 4},
	Q5_1: {Name: "q5_1", Elems: 32, Bytes: 24, GGUF: 7, Mixture: "q5_1", FileType: 9, Halves: []int{0, 2}, Minimum: 1,
		Offset: true, Cycles: 76, VecRows: 4},

	Q2_K: {Name: "q2_k", Elems: 256, Bytes: 84, GGUF: 10, Mixture: "q2_k", FileType: 10, Narrower: Q4_0, Halves: []int{80, 82}, Minimum: 15,
		Codes: Span{16, 80}, Offset: true, Up: 2, Cycles: 84, VecRows: 4},
	Q3_K: {Name: "q3_k", Elems: 256, Bytes: 110, GGUF: 11, Mixture: "q3_k_s", FileType: 11, Narrower: Q4_0, Halves: []int{108},
		Codes: Span{0, 96}, Offset: true, Up: 1, Cycles: 118, VecRows: 2},
	Q4_K: {Name: "q4_k", Elems: 256, Bytes: 144, GGUF: 12, Mixture: "q4_k_s", FileType: 14, Narrower: Q5_0, Halves: []int{0, 2}, Minimum: 63,
		Codes: Span{16, 144}, Offset: true, Up: 4, Cycles: 92, VecRows: 2},
	Q5_K: {Name: "q5_k", Elems: 256, Bytes: 176, GGUF: 13, Mixture: "q5_k_s", FileType: 16, Narrower: Q5_1, Halves: []int{0, 2}, Minimum: 63,
		Codes: Span{16, 176}, Offset: true, Up: 1, Cycles: 108, VecRows: 2},
	Q6_K: {Name: "q6_k", Elems: 256, Bytes: 210, GGUF: 14, Mixture: "q6_k", FileType: 18, Narrower: Q8_0, Halves: []int{208},
		Codes: Span{0, 192}, Offset: true, Up: 2, Cycles: 92, VecRows: 2},

	MXFP4: {Name: "mxfp4", Elems: 32, Bytes: 17, GGUF: 39, Mixture: "mxfp4", FileType: 38,
		Codes: Span{1, 17}, Cycles: 8, VecRows: 2},
	IQ4_NL: {Name: "iq4_nl", Elems: 32, Bytes: 18, GGUF: 20, Mixture: "iq4_nl", FileType: 25, Halves: []int{0},
		Codes: Span{2, 18}, Cycles: 8, VecRows: 2},
	IQ4_XS: {Name: "iq4_xs", Elems: 256, Bytes: 136, GGUF: 23, Mixture: "iq4_xs", FileType: 30, Narrower: IQ4_NL, Halves: []int{0},
		Cycles: 35, VecRows: 2},

	// Weights of folders that MLX packed, in groups of 64 elements; no GGUF file has them.
	MLX4: {Name: "mlx4", Elems: 64, Bytes: 36, GGUF: NoGGUF, Mixture: "mlx4", Halves: []int{0, 2}, Minimum: 1,
		Offset: true, Up: 4, Cycles: 64, VecRows: 4},
	MLX8: {Name: "mlx8", Elems: 64, Bytes: 68, GGUF: NoGGUF, Mixture: "mlx8", Halves: []int{0, 2}, Minimum: 1,
		Offset: true, Cycles: 64, VecRows: 2},
}

// Row returns the type's row.
func (t Type) Row() Row { return rows[t] }

// Add appends a type at run time and returns a function that removes it, for tests. Nothing
// else may use the package meanwhile.
func Add(r Row) (t Type, remove func()) {
	before := rows
	rows = append(rows[:len(rows):len(rows)], r)
	return Type(len(before)), func() { rows = before }
}
