// Code generated from ir's element types by go test ./kernels -run Types -update. DO NOT EDIT.

package kernels

// layouts are the types of stored weights by their numbers in params.h.
var layouts = map[uint32]layout{
	1:  {1, 4},     // f32
	2:  {1, 2},     // f16
	3:  {1, 2},     // bf16
	6:  {32, 34},   // q8_0
	7:  {32, 18},   // q4_0
	8:  {32, 20},   // q4_1
	9:  {32, 22},   // q5_0
	10: {32, 24},   // q5_1
	11: {256, 84},  // q2_k
	12: {256, 110}, // q3_k
	13: {256, 144}, // q4_k
	14: {256, 176}, // q5_k
	15: {256, 210}, // q6_k
}
