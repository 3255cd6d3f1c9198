package kernels

const (
	unaryArgs  = "0 a read $0; 1 out write $0"
	binaryArgs = "0 a read $0; 1 b read $0; 2 out write $0"
)

// MaxParts bounds what concat puts side by side.
const MaxParts = 4

// Bounds of router: the experts of a layer, and those of a token; groups are bounded by the latter too.
const (
	MaxExperts = 1024
	MaxChosen  = 32
)

// Instances of row kernels, in all three types.
var (
	rowTypes  = []string{"f32", "f16", "bf16"}
	normTypes = []string{"f32_f32", "f32_f16", "f16_f16", "f32_bf16", "bf16_bf16"}
	castTypes = []string{"f32_f16", "f32_bf16", "f16_f32", "bf16_f32"}
	// Sums, logits and sampled values are float in every plan.
	floatOnly = []string{"f32"}
)

// rowFamilies compute on rows and elements of activations.
var rowFamilies = []family{
	{name: "rms_norm", check: checkNorm, file: "norm.metal", summary: "x · weight / sqrt(mean(x²) + eps) over rows",
		instances: normTypes, args: "0 x read $0; 1 weight read float; 2 out write $1", params: NormParams{}, paramsIndex: 3,
		threadgroup: floats(8), grid: "rows", maxThreads: 256},
	{name: "norm_residual", check: checkNorm, file: "norm.metal", summary: "residual + x · weight / sqrt(mean(x²) + eps) over rows, times a number",
		instances: floatOnly, args: "0 x read $0; 1 weight read float; 2 residual read $0; 3 out write $0; 5 gain read float?", params: NormParams{}, paramsIndex: 4,
		constants: "2 fc_gain bool?", threadgroup: floats(8), grid: "rows", maxThreads: 256},
	{name: "layer_norm", check: checkNorm, file: "norm.metal", summary: "(x - mean) / sqrt(variance + eps) · weight + bias over rows",
		instances: normTypes, args: "0 x read $0; 1 weight read float?; 2 out write $1; 4 bias read float?", params: NormParams{},
		paramsIndex: 3, constants: "0 fc_weight bool?; 1 fc_bias bool?", threadgroup: floats(32), grid: "rows", maxThreads: 256},
	{name: "activate", check: checkActivate, file: "elementwise.metal", summary: "activation(a)", instances: rowTypes, args: unaryArgs,
		params: ElementParams{}, paramsIndex: 2, constants: "0 fc_activation uint", grid: "width/256, rows", maxThreads: 256},
	{name: "scale", check: checkElements, file: "elementwise.metal", summary: "a · value", instances: rowTypes, args: unaryArgs,
		params: ElementParams{}, paramsIndex: 2, grid: "width/256, rows", maxThreads: 256},
	{name: "soft_cap", check: checkElements, file: "elementwise.metal", summary: "value · tanh(a / value)", instances: rowTypes, args: unaryArgs,
		params: ElementParams{}, paramsIndex: 2, grid: "width/256, rows", maxThreads: 256},
	{name: "mul", check: checkElements, file: "elementwise.metal", summary: "a · b", instances: rowTypes, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, grid: "width/256, rows", maxThreads: 256},
	{name: "add", check: checkElements, file: "elementwise.metal", summary: "a + b", instances: floatOnly, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, grid: "width/256, rows", maxThreads: 256},
	{name: "gate", check: checkGate, file: "elementwise.metal", summary: "activation(a) · b", instances: rowTypes, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, constants: "0 fc_activation uint", grid: "width/256, rows", maxThreads: 256},
	{name: "cast", check: checkElements, file: "elementwise.metal", summary: "rows in another type", instances: castTypes,
		args: "0 x read $0; 1 out write $1", params: ElementParams{}, paramsIndex: 2, grid: "width/256, rows", maxThreads: 256},
	{name: "gather_rows", check: checkGather, file: "elementwise.metal", summary: "the rows that an index names", instances: rowTypes,
		args: "0 x read $0; 1 index read int; 2 out write $0", params: ElementParams{}, paramsIndex: 3, grid: "width/512, rows", maxThreads: 32},
	{name: "softmax", check: checkRows, file: "source.metal", summary: "exp(x - max) / Σ over rows", instances: rowTypes,
		args: "0 x read $0; 1 out write $0; 3 sinks read float?", params: ElementParams{}, paramsIndex: 2,
		constants: "1 fc_sinks bool?", threadgroup: floats(16), grid: "rows", maxThreads: 256},
	{name: "concat", check: checkConcat, file: "elementwise.metal", summary: "columns side by side", instances: rowTypes,
		args: "0 x0 read $0; 1 x1 read $0; 2 x2 read $0?; 3 x3 read $0?; 4 out write $0", params: ConcatParams{}, paramsIndex: 5, constants: "1 fc_parts uint",
		grid: "width/256, rows", maxThreads: 256},
	{name: "weighted_sum", check: checkWeightedSum, file: "elementwise.metal", summary: "weighted sums of consecutive rows", instances: floatOnly,
		args: "0 x read $0; 1 weights read float; 2 out write $0", params: WeightedSumParams{}, paramsIndex: 3, grid: "width/256, rows", maxThreads: 256},
	{name: "argmax", check: checkRows, file: "argmax.metal", summary: "index of the largest element of each row", instances: floatOnly,
		args: "0 x read $0; 1 out write int", params: ElementParams{}, paramsIndex: 2, threadgroup: floats(16), grid: "rows", maxThreads: 256},
	{name: "router", check: checkRouter, file: "router.metal", summary: "the experts of each token and their weights", instances: floatOnly,
		args: "0 logits read $0; 1 weights write $0; 2 experts write int; 4 bias read float?; 5 gains read float?", params: RouterParams{}, paramsIndex: 3,
		constants:   "0 fc_score uint; 1 fc_bias bool?; 2 fc_gains bool?; 3 fc_normalised bool?",
		threadgroup: func([]Element) int { return MaxExperts * 4 }, grid: "rows", maxThreads: 32},
}
