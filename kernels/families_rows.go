package kernels

const (
	unaryArgs  = "0 a read $0; 1 out write $0"
	binaryArgs = "0 a read $0; 1 b read $0; 2 out write $0"
)

// rowFamilies work on rows and elements of activations.
var rowFamilies = []family{
	{name: "rms_norm", file: "norm.metal", summary: "x · weight / sqrt(mean(x²) + eps) over rows",
		instances: []string{"f32_f32", "f32_f16", "f16_f16"},
		args:      "0 x read $0; 1 weight read float; 2 out write $1", params: NormParams{}, paramsIndex: 3,
		threadgroup: floats(8), maxThreads: 256},
	{name: "silu", file: "elementwise.metal", summary: "a / (1 + exp(-a))", instances: single, args: unaryArgs,
		params: ElementParams{}, paramsIndex: 2, maxThreads: 256},
	{name: "scale", file: "elementwise.metal", summary: "a · value", instances: single, args: unaryArgs,
		params: ElementParams{}, paramsIndex: 2, maxThreads: 256},
	{name: "mul", file: "elementwise.metal", summary: "a · b", instances: single, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "add", file: "elementwise.metal", summary: "a + b", instances: single, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "silu_mul", file: "elementwise.metal", summary: "silu(a) · b", instances: single, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "cast", file: "elementwise.metal", summary: "rows in the other type", instances: []string{"f32_f16", "f16_f32"},
		args: "0 x read $0; 1 out write $1", params: ElementParams{}, paramsIndex: 2, maxThreads: 256},
	{name: "gather_rows", file: "elementwise.metal", summary: "the rows that an index names", instances: single,
		args: "0 x read $0; 1 index read int; 2 out write $0", params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "softmax", file: "source.metal", summary: "exp(x - max) / Σ over rows", instances: single,
		args: "0 x read $0; 1 out write $0", params: ElementParams{}, paramsIndex: 2, threadgroup: floats(16), maxThreads: 256},
	{name: "argmax", file: "argmax.metal", summary: "index of the largest element of each row", instances: []string{"f32"},
		args: "0 x read $0; 1 out write int", params: ElementParams{}, paramsIndex: 2, threadgroup: floats(16), maxThreads: 256},
}
