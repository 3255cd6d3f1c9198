package kernels

const deltaArgs = "0 qkv read $0; 1 alpha read $0; 2 beta read $0; 3 decay read float; 4 bias read float; 5 state read float; " +
	"6 cu_seqlens read int; 7 states read int; 8 out write $0; 9 state_out write float; 11 gain read float?; 12 z read $0?"

const mambaArgs = "0 xbc read $0; 1 dt read $0; 2 decay read float; 3 bias read float; 4 skip read float; 5 state read float; " +
	"6 cu_seqlens read int; 7 states read int; 8 out write $0; 9 state_out write float; 11 z read $0?"

// recurrentFamilies advance recurrent states by the tokens of a step, which names the states that each
// sequence reads and writes.
var recurrentFamilies = []family{
	{name: "short_conv", scalar: true, check: checkShortConv, file: "short_conv.metal", summary: "a convolution along the tokens of every sequence, gated or with SiLU or neither, with a bias or without",
		instances: rowTypes, args: "0 x read $0; 1 w read float; 2 state read float; 3 cu_seqlens read int; 4 states read int; " +
			"5 out write $0; 6 state_out write float; 8 in_gate read $0?; 9 out_gate read $0?; 10 bias read float?", params: ShortConvParams{}, paramsIndex: 7,
		constants: "0 fc_gated bool?; 1 fc_silu bool?; 2 fc_bias bool?", grid: "width/256, tokens", maxThreads: 256},
	{name: "delta_net", check: checkDeltaNet, file: "delta_net.metal", summary: "the gated delta rule along the tokens of every sequence, with a norm and a gate or without", instances: rowTypes,
		args: deltaArgs, params: DeltaNetParams{}, paramsIndex: 10, constants: "0 fc_gated bool?", threadgroup: floats(2*MaxSmallHead + 3*8), grid: "heads, seqs", maxThreads: 256},
	{name: "delta_net_pieces", check: checkDeltaNetPieces, file: "delta_net.metal", summary: "the gated delta rule over several tokens of a sequence at once, with a norm and a gate or without",
		instances: rowTypes, args: deltaArgs, params: DeltaNetParams{}, paramsIndex: 10, constants: "0 fc_gated bool?",
		threadgroup: floats(2*16*MaxPieceHead + 2*16*16 + 4*16*32 + 16*4 + 3*16 + 64), grid: "heads, seqs", maxThreads: 128},
	{name: "mamba2", check: checkMamba2, file: "mamba2.metal", summary: "the state space of Mamba-2 along the tokens of every sequence, with a gate or without", instances: rowTypes,
		args: mambaArgs, params: Mamba2Params{}, paramsIndex: 10, constants: "0 fc_gated bool?", threadgroup: floats(3 * MaxSmallHead), grid: "heads, seqs", maxThreads: 256},
	{name: "mamba2_pieces", check: checkMamba2Pieces, file: "mamba2.metal", summary: "the state space of Mamba-2 over several tokens of a sequence at once, with a gate or without", instances: rowTypes,
		args: mambaArgs, params: Mamba2Params{}, paramsIndex: 10, constants: "0 fc_gated bool?",
		threadgroup: floats(3*16*MaxPieceHead + 16*16 + 2*16 + 64), grid: "heads, seqs", maxThreads: 128},
}

// MaxPieceHead is the largest head of delta_net_pieces, and the largest head and state of mamba2_pieces.
const MaxPieceHead = 128

// Mamba2Threads returns the threads of a threadgroup of mamba2 over heads of `across` columns, in whole
// simdgroups.
func Mamba2Threads(across uint32) uint32 { return MaxSmallHead / across * across }
