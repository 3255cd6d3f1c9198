package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// sound is a launch that Check accepts, with buffers of minimum size.
type sound struct {
	kernel    string
	params    kernels.Params
	constants map[string]uint32
	elements  map[string]int // of each buffer: bytes of weights, elements of a cache
	grid      [3]uint32
	threads   uint32
	loose     string // axes of the grid that may be larger
	fewer     string // axes of the grid that may be smaller
	freely    string // parameters that the kernel does not read
	// mistakes are "name=value" of a parameter or function constant that the error must
	// name, or "name=value other" if it may name another field instead.
	mistakes []string
}

// sounds has one launch per family, or one per variant of a family.
var sounds = []sound{
	{kernel: "embed", params: kernels.EmbedParams{Tokens: 3, Width: 1056, Vocab: 5}, constants: map[string]uint32{"fc_type": uint32(dtype.Q4_0)},
		elements: map[string]int{"tokens": 3, "table": 5 * 33 * 18, "out": 3 * 1056}, grid: [3]uint32{2, 3, 1}, threads: 32,
		mistakes: []string{"fc_type=0", "fc_type=4", "fc_type=31", "fc_type=13", "width=1040 fc_type", "vocab=6 table"}},
	{kernel: "linear_vec_f16_f32", params: kernels.LinearParams{Tokens: 3, K: 96, N0: 10, N1: 5, N2: 2, XStride: 100, OutStride: 20, GateStride: 4, GateFrom: 1},
		constants: map[string]uint32{"fc_type0": uint32(dtype.Q4_0), "fc_type1": uint32(dtype.F16), "fc_type2": uint32(dtype.Q8_0), "fc_residual": 1, "fc_norm": 1, "fc_tokens": 2, "fc_bias": 1, "fc_row_gate": 6},
		elements:  map[string]int{"gate": 10, "x": 296, "w0": 10 * 54, "w1": 5 * 192, "w2": 2 * 102, "out": 57, "residual": 57, "gain": 96, "bias0": 10, "bias1": 5, "bias2": 2}, grid: [3]uint32{2, 2, 1}, threads: 160,
		mistakes: []string{"fc_type0=0", "fc_type1=31", "fc_type2=0 n2", "k=80 fc_type0", "k=97 fc_type0", "fc_gated=1 n1", "fc_activation=5", "fc_activation=8", "fc_norm=3", "fc_shift=1 shift", "out_stride=16", "out_stride=21 out",
			"x_stride=101 x", "n1=6 w1", "fc_rows=3", "fc_rows=0", "fc_tokens=0", "fc_tokens=3", "fc_tokens=16", "fc_residual=2", "fc_row_gate=5", "fc_row_gate=8", "gate_from=2 gate", "gate_stride=5 gate", "fc_column_gate=1 gate"}},
	{kernel: "linear_mat_f32_f16", params: kernels.LinearParams{Tokens: 3, K: 32, N0: 10, N1: 5, N2: 2, N3: 3, XStride: 32, OutStride: 20},
		constants: map[string]uint32{"fc_type0": uint32(dtype.Q4_0), "fc_type1": uint32(dtype.F16), "fc_type2": uint32(dtype.Q8_0), "fc_type3": uint32(dtype.F32), "fc_bias": 1},
		elements:  map[string]int{"x": 96, "w0": 180, "w1": 320, "w2": 68, "w3": 384, "out": 60, "bias0": 10, "bias1": 5, "bias2": 2, "bias3": 3}, grid: [3]uint32{1, 1, 1}, threads: 128,
		mistakes: []string{"fc_type3=0 n3", "n3=4 w3", "fc_gated=1 n1", "out_stride=19", "fc_type3=31"}},
	{kernel: "linear_vec_f32_f32", params: kernels.LinearParams{Tokens: 1, K: 256, N0: 10, N1: 10, XStride: 0, OutStride: 0},
		constants: map[string]uint32{"fc_type0": uint32(dtype.Q6_K), "fc_type1": uint32(dtype.Q4_K), "fc_activation": 5, "fc_gated": 1, "fc_rows": 2},
		elements:  map[string]int{"x": 256, "w0": 2100, "w1": 1440, "out": 10}, grid: [3]uint32{5, 1, 1}, threads: 32,
		mistakes: []string{"k=288 fc_type0", "fc_gather=1 rows", "fc_norm=1 gain", "fc_gain=1 gain", "fc_residual=1 residual", "fc_bias=1 bias0", "fc_gated=0 fc_activation", "n2=1"}},
	{kernel: "linear_mat_f16_f16", params: kernels.LinearParams{Tokens: 70, K: 20, N0: 65, XStride: 20, OutStride: 65}, constants: map[string]uint32{"fc_type0": uint32(dtype.BF16), "fc_tile": 64},
		elements: map[string]int{"x": 1400, "w0": 2600, "out": 4550}, grid: [3]uint32{2, 2, 1}, threads: 128,
		mistakes: []string{"fc_type0=0", "fc_tile=48", "fc_type1=1 n1", "fc_type0=6"}},
	{kernel: "linear_mat_f32_f32", params: kernels.LinearParams{Tokens: 33, K: 32, N0: 40, N1: 40, XStride: 32, OutStride: 40},
		constants: map[string]uint32{"fc_type0": uint32(dtype.Q5_0), "fc_type1": uint32(dtype.Q5_1), "fc_activation": 1, "fc_gated": 1, "fc_tile": 64},
		elements:  map[string]int{"x": 33 * 32, "w0": 40 * 22, "w1": 40 * 24, "out": 33 * 40}, grid: [3]uint32{2, 2, 1}, threads: 128},
	{kernel: "linear_mat_f16_f32", params: kernels.LinearParams{Tokens: 66, K: 32, N0: 40, XStride: 36, OutStride: 40},
		constants: map[string]uint32{"fc_type0": uint32(dtype.Q8_0), "fc_bias": 1, "fc_experts": 5, "fc_top": 3},
		elements:  map[string]int{"x": 21*36 + 32, "w0": 5 * 40 * 34, "bias0": 5 * 40, "rows": 66, "starts": 7, "out": 66 * 40}, grid: [3]uint32{9, 1, 1}, threads: 128,
		mistakes: []string{"fc_each=1 x", "fc_experts=6 w0", "fc_top=4 tokens", "fc_top=6", "fc_top=0", "tokens=69 rows", "fc_gather=1 fc_gather", "fc_residual=1", "fc_type1=2 n1", "fc_tile=64 grid"}},
	{kernel: "group_by_expert", params: kernels.GroupByExpertParams{Rows: 66, Groups: 6},
		elements: map[string]int{"expert": 66, "order": 66, "starts": 7}, grid: [3]uint32{6, 1, 1}, threads: 256,
		mistakes: []string{"rows=67 expert", "groups=7 starts", "groups=1", "rows=2147483648"}},
	{kernel: "norm_linear_mat_f32_f16_f32", params: kernels.LinearParams{Tokens: 33, K: 32, N0: 40, N1: 40, XStride: 32, OutStride: 40, Eps: 1e-5},
		constants: map[string]uint32{"fc_type0": uint32(dtype.F16), "fc_type1": uint32(dtype.F32), "fc_gated": 1, "fc_activation": 1, "fc_tile": 64},
		elements:  map[string]int{"x": 1056, "w0": 2560, "w1": 5120, "gain": 32, "out": 1320}, grid: [3]uint32{1, 2, 1}, threads: 128,
		mistakes: []string{"fc_gather=1 rows", "fc_tile=32 grid", "fc_tile=16", "k=64 w0"}},
	{kernel: "layer_norm_f32_f16", params: kernels.NormParams{Rows: 3, Width: 40, XStride: 48, Eps: 1e-5, Groups: 1}, constants: map[string]uint32{"fc_weight": 1, "fc_bias": 1},
		elements: map[string]int{"x": 2*48 + 40, "weight": 40, "bias": 40, "out": 3 * 40}, grid: [3]uint32{3, 1, 1}, threads: 64},
	{kernel: "layer_norm_f32_f32", params: kernels.NormParams{Rows: 1, Width: 5, XStride: 0, Groups: 1},
		elements: map[string]int{"x": 5, "out": 5}, grid: [3]uint32{1, 1, 1}, threads: 32, mistakes: []string{"fc_weight=1 weight", "fc_bias=1 bias", "fc_bias=2"}},
	{kernel: "router_f32", params: kernels.RouterParams{Rows: 3, Experts: 40, Stride: 44, Chosen: 6, Groups: 5, UsedGroups: 2, Scale: 1, Sharpness: 1}, constants: map[string]uint32{"fc_score": 2, "fc_bias": 1, "fc_gains": 1},
		elements: map[string]int{"logits": 128, "weights": 18, "experts": 18, "bias": 40, "gains": 40}, grid: [3]uint32{3, 1, 1}, threads: 32, freely: "groups floor",
		mistakes: []string{"chosen=33", "chosen=17", "chosen=7 weights", "experts=2000", "experts=39 groups", "groups=3", "groups=40", "used_groups=0", "used_groups=6", "fc_score=5", "rows=4 logits", "stride=45 logits"}},
	{kernel: "rms_norm_f16_f16", params: kernels.NormParams{Rows: 3, Width: 40, XStride: 48, Eps: 1e-5, Groups: 1},
		elements: map[string]int{"x": 2*48 + 40, "weight": 40, "out": 3 * 40}, grid: [3]uint32{3, 1, 1}, threads: 64,
		mistakes: []string{"x_stride=49 x", "x_stride=4294967295 x", "width=4294967295", "groups=2 weight", "groups=0"}},
	{kernel: "norm_residual_f32", params: kernels.NormParams{Rows: 3, Width: 40, XStride: 48, Eps: 1e-5, Groups: 1},
		elements: map[string]int{"x": 2*48 + 40, "weight": 40, "residual": 120, "out": 3 * 40}, grid: [3]uint32{3, 1, 1}, threads: 64,
		mistakes: []string{"x_stride=49 x", "rows=4 x", "width=2147483648", "groups=2", "fc_gain=1 gain"}},
	{kernel: "concat_f16", params: kernels.ConcatParams{Rows: 3, Width: 350, N0: 300, N1: 40, N2: 10}, constants: map[string]uint32{"fc_parts": 3},
		elements: map[string]int{"x0": 900, "x1": 120, "x2": 30, "out": 1050}, grid: [3]uint32{2, 3, 1}, threads: 256,
		mistakes: []string{"n0=301 x0", "n1=39 width", "n2=0", "n3=1", "fc_parts=2 n2", "fc_parts=4 n3", "fc_parts=5", "rows=4 x0"}},
	{kernel: "weighted_sum_f32", params: kernels.WeightedSumParams{Rows: 3, Width: 40, Each: 2},
		elements: map[string]int{"x": 240, "weights": 6, "out": 120}, grid: [3]uint32{1, 3, 1}, threads: 256, mistakes: []string{"each=3 x", "rows=4 x", "each=0"}},
	{kernel: "scale_f16", params: kernels.ElementParams{Rows: 3, Width: 300, AStride: 310},
		elements: map[string]int{"a": 2*310 + 300, "out": 900}, grid: [3]uint32{2, 3, 1}, threads: 256, mistakes: []string{"a_stride=311 a"}},
	{kernel: "add_f32", params: kernels.ElementParams{Rows: 3, Width: 300, AStride: 310, BStride: 0},
		elements: map[string]int{"a": 2*310 + 300, "b": 300, "out": 900}, grid: [3]uint32{2, 3, 1}, threads: 256, mistakes: []string{"b_stride=1 b"}},
	{kernel: "cast_f32_f16", params: kernels.ElementParams{Rows: 2, Width: 256, AStride: 256},
		elements: map[string]int{"x": 512, "out": 512}, grid: [3]uint32{1, 2, 1}, threads: 256},
	{kernel: "gather_rows_f32", params: kernels.ElementParams{Rows: 2, Width: 256, AStride: 256},
		elements: map[string]int{"x": 256, "index": 2, "out": 512}, grid: [3]uint32{1, 2, 1}, threads: 32},
	{kernel: "softmax_f32", params: kernels.ElementParams{Rows: 2, Width: 7, AStride: 9},
		elements: map[string]int{"x": 16, "out": 14}, grid: [3]uint32{2, 1, 1}, threads: 256, mistakes: []string{"fc_sinks=1 b_stride"}},
	{kernel: "softmax_f16", params: kernels.ElementParams{Rows: 5, Width: 7, AStride: 7, BStride: 2}, constants: map[string]uint32{"fc_sinks": 1},
		elements: map[string]int{"x": 35, "out": 35, "sinks": 3}, grid: [3]uint32{5, 1, 1}, threads: 256, mistakes: []string{"b_stride=1 sinks"}},
	{kernel: "argmax_f32", params: kernels.ElementParams{Rows: 2, Width: 7, AStride: 9},
		elements: map[string]int{"x": 16, "out": 2}, grid: [3]uint32{2, 1, 1}, threads: 256, mistakes: []string{"width=2147483648"}},
	{kernel: "rope_f16", params: kernels.RopeParams{Tokens: 3, Heads: 2, Head: 72, Rotated: 40, XStride: 150},
		constants: map[string]uint32{"fc_interleaved": 0, "fc_factors": 1},
		elements:  map[string]int{"x": 2*150 + 144, "positions": 3, "factors": 20, "out": 3 * 144}, grid: [3]uint32{2, 2, 3}, threads: 32,
		mistakes: []string{"rotated=41", "rotated=74", "head=73", "fc_interleaved=2", "rotated=42 factors"}},
	{kernel: "rope_f32", params: kernels.RopeParams{Tokens: 3, Heads: 2, Head: 64, Rotated: 64, XStride: 128, First: 100},
		constants: map[string]uint32{"fc_interleaved": 1, "fc_positions": 0},
		elements:  map[string]int{"x": 384, "out": 384}, grid: [3]uint32{1, 2, 3}, threads: 32,
		mistakes: []string{"first=2147483647", "fc_positions=1 positions", "fc_table=1 factors"}},
	{kernel: "rope_qkv_write_f16_f32", params: kernels.RopeWriteParams{Tokens: 3, Heads: 4, KvHeads: 2, Head: 72, Rotated: 72, QStride: 600, KStride: 600, VStride: 600, Block: 4},
		constants: map[string]uint32{"fc_interleaved": 0},
		elements:  map[string]int{"qkv": 1200 + 8*72, "positions": 3, "slots": 3, "q_out": 3 * 288, "k_cache": 2 * 4 * 144, "v_cache": 2 * 4 * 144},
		grid:      [3]uint32{1, 3, 1}, threads: 32,
		mistakes: []string{"head=76", "head=520", "heads=5", "kv_heads=3 heads", "block=3 k_cache", "block=0", "q_stride=800 qkv", "v_stride=601 qkv", "rotated=80", "fc_separate=1 k", "fc_factors=1 factors"}},
	{kernel: "rope_qkv_write_f32_q8_0", params: kernels.RopeWriteParams{Tokens: 3, Heads: 4, KvHeads: 2, Head: 96, Rotated: 64, QStride: 384, KStride: 192, VStride: 192, Block: 4, First: 1},
		constants: map[string]uint32{"fc_interleaved": 0, "fc_separate": 1, "fc_positions": 0, "fc_slots": 0},
		elements:  map[string]int{"qkv": 3 * 384, "k": 3 * 192, "v": 3 * 192, "q_out": 3 * 384, "k_cache": 4 * 192, "v_cache": 4 * 192},
		grid:      [3]uint32{1, 3, 1}, threads: 32, mistakes: []string{"head=72", "first=2", "fc_slots=1 slots", "k_stride=193 k", "v_stride=193 v"}},
	{kernel: "head_norm_rope_kv_write_f32_f32", params: kernels.RopeWriteParams{Tokens: 3, Heads: 4, KvHeads: 2, Head: 136, Rotated: 64, QStride: 1088, KStride: 1088, VStride: 1088, Block: 4},
		constants: map[string]uint32{"fc_interleaved": 0},
		elements:  map[string]int{"qkv": 3 * 1088, "positions": 3, "slots": 3, "q_out": 3 * 544, "k_cache": 4 * 272, "v_cache": 4 * 272, "q_norm": 136, "k_norm": 136},
		grid:      [3]uint32{2, 3, 1}, threads: 32, mistakes: []string{"head=140", "rotated=138", "heads=3"}},
	{kernel: "latent_write_f32_q8_0", params: kernels.LatentWriteParams{Tokens: 3, Heads: 4, KvHeads: 1, Head: 96, Block: 4, QHead: 48, AllStride: 140, AllFrom: 40, Rotated: 32, Rows: 5},
		constants: map[string]uint32{"fc_interleaved": 0, "fc_factors": 1},
		elements:  map[string]int{"absorbed": 3 * 4 * 64, "q": 3 * 4 * 48, "all": 40 + 2*140 + 96, "gain": 64, "positions": 3, "slots": 3, "factors": 16, "q_out": 3 * 4 * 96, "k_cache": 4 * 96},
		grid:      [3]uint32{5, 3, 1}, threads: 32,
		mistakes: []string{"head=608", "rotated=33", "rotated=96", "rotated=64", "rotated=16 absorbed", "kv_heads=2", "rows=4", "block=3 k_cache", "all_stride=141 all", "all_from=41 all", "q_head=49 q"}},
	{kernel: "latent_attention_f32_q8_0", params: kernels.LatentAttentionParams{Tokens: 3, Seqs: 3, Heads: 4, KvHeads: 1, Head: 96, Block: 4, TableStride: 2, BlockStride: 384, HeadStride: 384, RowStride: 96, QHead: 48, AllStride: 140, AllFrom: 40, Rotated: 32},
		constants: map[string]uint32{"fc_interleaved": 0, "fc_factors": 1},
		elements: map[string]int{"absorbed": 3 * 4 * 64, "q": 3 * 4 * 48, "all": 40 + 2*140 + 96, "gain": 64, "positions": 3, "slots": 3, "factors": 16, "out": 3 * 4 * 96, "k_cache": 4 * 96, "v_cache": 4 * 96, "k_slots": 4 * 96,
			"cu_seqlens": 4, "context_lens": 3, "block_table": 6},
		grid: [3]uint32{4, 3, 1}, threads: 256,
		mistakes: []string{"head=608", "rotated=33", "rotated=96", "kv_heads=2 k_cache", "all_stride=141 all", "q_head=49 q", "fc_heads=3", "fc_split=12", "table_stride=3 block_table", "row_stride=97"}},
	{kernel: "indices", params: kernels.IndicesParams{Rows: 3, Width: 300},
		elements: map[string]int{"positions": 3, "out": 900}, grid: [3]uint32{2, 3, 1}, threads: 256, mistakes: []string{"width=0", "rows=4 positions", "width=301 out"}},
	{kernel: "attention_vec_f16_f16", params: attentionParams(3, 2, 4, 2, 72, 8, 3),
		elements: attentionElements(3, 2, 4, 2, 72, 8, 3, "out", 3*4*72), grid: [3]uint32{4, 3, 1}, threads: 256, loose: "y",
		mistakes: []string{"head=76", "head=584", "heads=5", "kv_heads=3 heads", "block=0", "block=9 k_cache", "row_stride=73", "head_stride=584 k_cache", "table_stride=4 block_table", "fc_head=80", "fc_split=12", "fc_split=0", "fc_rows=9", "fc_rows=3", "fc_rows=0", "fc_sinks=1 sinks", "fc_map=1 map", "fc_slopes=1 slopes", "fc_split=16 part"}},
	{kernel: "attention_vec_f32_q8_0", params: attentionParams(3, 2, 4, 2, 96, 8, 3), constants: map[string]uint32{"fc_split": 16},
		elements: attentionElements(3, 2, 4, 2, 96, 8, 3, "part", 3*4*2*96, "statistics", 3*4*2*2), grid: [3]uint32{4, 3, 2}, threads: 256, loose: "y", fewer: "z",
		mistakes: []string{"head=72", "row_stride=104"}},
	{kernel: "attention_vec_f32_f32", params: attentionParams(5, 2, 4, 2, 64, 8, 3), constants: map[string]uint32{"fc_rows": 4, "fc_map": 1, "fc_sinks": 1},
		elements: attentionElements(5, 2, 4, 2, 64, 8, 3, "out", 5*4*64, "map", 3, "sinks", 4), grid: [3]uint32{4, 3, 1}, threads: 256, loose: "y"},
	{kernel: "attention_vec_f16_f32", params: attentionParams(5, 2, 14, 2, 64, 8, 3), constants: map[string]uint32{"fc_rows": 2, "fc_heads": 4},
		elements: attentionElements(5, 2, 14, 2, 64, 8, 3, "out", 5*14*64), grid: [3]uint32{4, 4, 1}, threads: 256, loose: "y",
		mistakes: []string{"fc_heads=8", "fc_heads=3", "fc_heads=2 grid", "fc_rows=4 fc_heads"}},
	{kernel: "attention_vec_f16_f16", params: gatedParams(attentionParams(3, 2, 4, 2, 72, 8, 3), 300, 12), constants: map[string]uint32{"fc_gate": uint32(ir.Sigmoid)},
		elements: attentionElements(3, 2, 4, 2, 72, 8, 3, "out", 3*4*72, "gate", 12+2*300+288), grid: [3]uint32{4, 3, 1}, threads: 256, loose: "y",
		mistakes: []string{"fc_gate=5", "fc_gate=8", "gate_stride=304 gate", "gate_stride=298", "gate_from=16 gate", "gate_from=10 gate_stride"}},
	{kernel: "attention_tile_f32_f32", params: gatedParams(attentionParams(35, 2, 4, 2, 72, 8, 3), 7, 1), constants: map[string]uint32{"fc_gate": uint32(ir.Softplus), "fc_head_gate": 1},
		elements: attentionElements(35, 2, 4, 2, 72, 8, 3, "out", 35*4*72, "gate", 1+34*7+4), grid: [3]uint32{4, 4, 1}, threads: 128, loose: "x",
		mistakes: []string{"gate_stride=8 gate", "gate_from=2 gate", "fc_head_gate=0 gate_stride"}},
	{kernel: "attention_write_f16_f16", params: attentionWriteParams(3, 2, 14, 2, 128, 8, 3, 128), constants: map[string]uint32{"fc_interleaved": 1, "fc_heads": 4},
		elements: attentionWriteElements(3, 2, 14, 2, 128, 8, 3, "out", 3*14*128), grid: [3]uint32{4, 3, 1}, threads: 256,
		mistakes: []string{"fc_heads=8", "fc_heads=3", "fc_heads=2 grid"}},
	{kernel: "attention_write_f32_f32", params: attentionWriteParams(3, 2, 6, 2, 256, 8, 3, 128), constants: map[string]uint32{"fc_interleaved": 1, "fc_heads": 2},
		elements: attentionWriteElements(3, 2, 6, 2, 256, 8, 3, "out", 3*6*256), grid: [3]uint32{4, 3, 1}, threads: 256,
		mistakes: []string{"fc_heads=4"}},
	{kernel: "attention_write_f16_f16", params: attentionWriteParams(3, 2, 4, 2, 72, 8, 3, 64), constants: map[string]uint32{"fc_interleaved": 1, "fc_norms": 1, "fc_table": 1},
		elements: attentionWriteElements(3, 2, 4, 2, 72, 8, 3, "out", 3*4*72, "q_norm", 72, "k_norm", 72, "factors", 32), grid: [3]uint32{4, 3, 1}, threads: 256,
		mistakes: []string{"head=76", "head=520", "heads=5", "kv_heads=3 heads", "block=0", "block=9 k_cache", "row_stride=73", "head_stride=584 k_cache", "table_stride=4 block_table", "fc_head=80",
			"fc_split=12", "fc_sinks=1 sinks", "fc_slopes=1 slopes", "fc_split=16 part", "fc_queries=2", "rotated=80", "rotated=66 factors", "tokens=4 positions"}},
	{kernel: "attention_write_f32_q8_0", params: attentionWriteParams(3, 2, 4, 2, 96, 8, 3, 96), constants: map[string]uint32{"fc_interleaved": 0, "fc_split": 16},
		elements: attentionWriteElements(3, 2, 4, 2, 96, 8, 3, "part", 3*4*2*96, "statistics", 3*4*2*2), grid: [3]uint32{4, 3, 2}, threads: 256, fewer: "z",
		mistakes: []string{"head=72", "row_stride=104", "fc_norms=1 q_norm", "fc_factors=1 factors"}},
	{kernel: "attention_tile_bf16_bf16", params: attentionParams(35, 2, 4, 2, 72, 8, 3), constants: map[string]uint32{"fc_map": 1, "fc_sinks": 1, "fc_slopes": 1},
		elements: attentionElements(35, 2, 4, 2, 72, 8, 3, "out", 35*4*72, "map", 4, "sinks", 4, "slopes", 4), grid: [3]uint32{4, 4, 1}, threads: 128,
		mistakes: []string{"head=0", "head=584", "heads=7", "block=0", "fc_head=64", "table_stride=0"}},
	{kernel: "attention_reduce_f16", params: kernels.ReduceParams{Tokens: 3, Heads: 4, Head: 136, Partitions: 2}, constants: map[string]uint32{"fc_sinks": 1},
		elements: map[string]int{"part": 3 * 4 * 2 * 136, "statistics": 48, "out": 3 * 4 * 136, "sinks": 4}, grid: [3]uint32{4, 3, 1}, threads: 64,
		mistakes: []string{"head=12", "partitions=3 part"}},
	{kernel: "flash_attention_f16", params: kernels.FlashParams{Batch: 2, Heads: 4, KvHeads: 2, SeqQ: 33, SeqKv: 5, Head: 40, QHeadStride: 33 * 40, QRowStride: 40, KvHeadStride: 40, KvRowStride: 80},
		elements: map[string]int{"q": 2 * 4 * 33 * 40, "k": 2 * 2 * 5 * 40, "v": 2 * 2 * 5 * 40, "out": 2 * 4 * 33 * 40}, grid: [3]uint32{2, 4, 2}, threads: 128,
		mistakes: []string{"head=44", "heads=5", "q_row_stride=42", "q_row_stride=32", "q_head_stride=8", "kv_row_stride=84 k", "seq_kv=6 k", "fc_head=48"}},
	{kernel: "cache_write_f32_f16", params: kernels.CacheWriteParams{Tokens: 3, KvHeads: 2, Head: 40, Block: 4, KStride: 90, VStride: 80},
		elements: map[string]int{"k": 180 + 80, "v": 240, "slots": 3, "k_cache": 320, "v_cache": 320}, grid: [3]uint32{2, 3, 1}, threads: 64,
		mistakes: []string{"block=5 k_cache", "k_stride=91 k", "v_stride=81 v", "head=4294967295 kv_heads·head"}},
	{kernel: "cache_write_f32_q8_0", params: kernels.CacheWriteParams{Tokens: 3, KvHeads: 2, Head: 32, Block: 4, KStride: 64, VStride: 64},
		elements: map[string]int{"k": 192, "v": 192, "slots": 3, "k_cache": 256, "v_cache": 256}, grid: [3]uint32{1, 3, 1}, threads: 64, mistakes: []string{"head=40"}},
	{kernel: "cache_read_f16", params: kernels.CacheReadParams{Seqs: 2, Context: 9, KvHeads: 2, Head: 40, Block: 4, TableStride: 3},
		elements: map[string]int{"cache": 320, "context_lens": 2, "block_table": 6, "out": 2 * 9 * 80}, grid: [3]uint32{2, 18, 1}, threads: 64,
		mistakes: []string{"block=0", "table_stride=4 block_table", "context=10 out"}},
	{kernel: "paged_attention_v1_f16", params: kernels.PagedAttentionParams{Heads: 4, KvHeads: 2, Head: 72, Block: 16, TableStride: 3, QStride: 300, BlockStride: 2304, HeadStride: 1152, Partitions: 1}, freely: "partitions",
		constants: map[string]uint32{"fc_alibi": 1},
		elements:  map[string]int{"q": 588, "k_cache": 2304, "v_cache": 2304, "block_table": 6, "context_lens": 2, "out": 576, "alibi_slopes": 4}, grid: [3]uint32{4, 2, 1}, threads: 256, fewer: "y",
		mistakes: []string{"head=76", "heads=5", "block=24", "block=32 k_cache", "fc_block=8", "fc_head=64", "table_stride=4 block_table", "head_stride=1156", "head_stride=1160 k_cache", "q_stride=301 q"}},
	{kernel: "paged_attention_v2_f32", params: kernels.PagedAttentionParams{Heads: 4, KvHeads: 2, Head: 64, Block: 8, TableStride: 3, QStride: 256, BlockStride: 1024, HeadStride: 512, Partitions: 3},
		elements: map[string]int{"q": 512, "k_cache": 1024, "v_cache": 1024, "block_table": 6, "context_lens": 2, "part": 2 * 4 * 3 * 64, "exp_sums": 24, "max_logits": 24}, grid: [3]uint32{4, 2, 3}, threads: 256,
		mistakes: []string{"partitions=4 part", "fc_alibi=1 alibi_slopes"}, fewer: "y"},
	{kernel: "paged_attention_reduce_f16", params: kernels.PagedAttentionParams{Heads: 4, KvHeads: 2, Head: 72, Partitions: 3}, freely: "kv_heads block table_stride",
		elements: map[string]int{"part": 2 * 4 * 3 * 72, "exp_sums": 24, "max_logits": 24, "context_lens": 2, "out": 576}, grid: [3]uint32{4, 2, 1}, threads: 96,
		mistakes: []string{"head=76", "partitions=4 part"}, fewer: "y"},
	{kernel: "reshape_and_cache_f16", params: kernels.PagedWriteParams{Tokens: 3, KvHeads: 2, Head: 72, Block: 16, KStride: 150, VStride: 144, BlockStride: 2304, HeadStride: 1152},
		elements: map[string]int{"k": 444, "v": 432, "slots": 3, "k_cache": 2304, "v_cache": 2304}, grid: [3]uint32{1, 3, 1}, threads: 256,
		mistakes: []string{"head=76", "block=12", "k_stride=151 k", "v_stride=145 v"}},
	{kernel: "copy_blocks_f32", params: kernels.CopyBlocksParams{Pairs: 3, Width: 1028, BlockStride: 1028},
		elements: map[string]int{"k_from": 1028, "v_from": 1028, "pairs": 6, "k_cache": 1028, "v_cache": 1028}, grid: [3]uint32{2, 3, 1}, threads: 256,
		mistakes: []string{"width=1026", "block_stride=1024"}},
	{kernel: "copy_blocks_q8_0", params: kernels.CopyBlocksParams{Pairs: 3, Width: 1056, BlockStride: 1056},
		elements: map[string]int{"k_from": 1056, "v_from": 1056, "pairs": 6, "k_cache": 1056, "v_cache": 1056}, grid: [3]uint32{2, 3, 1}, threads: 256,
		mistakes: []string{"width=1052", "block_stride=1024", "block_stride=1060"}},
	{kernel: "short_conv_f16", params: kernels.ShortConvParams{Tokens: 3, Seqs: 2, Width: 300, Taps: 4, XStride: 302},
		elements: map[string]int{"x": 904, "w": 1200, "state": 900, "state_out": 900, "cu_seqlens": 3, "states": 4, "out": 900}, grid: [3]uint32{2, 3, 1}, threads: 256,
		mistakes: []string{"taps=1", "taps=9", "seqs=3 cu_seqlens", "x_stride=303 x", "fc_gated=1 in_gate", "fc_bias=1 bias"}},
	{kernel: "delta_net_f16", params: kernels.DeltaNetParams{Tokens: 3, Seqs: 2, Heads: 4, KeyHeads: 2, Head: 40, Share: 2, GateStride: 5, BetaFrom: 1, ZStride: 162, ZFrom: 2}, freely: "beta_from z_from",
		constants: map[string]uint32{"fc_gated": 1},
		elements:  map[string]int{"qkv": 960, "alpha": 14, "beta": 15, "gain": 40, "z": 486, "decay": 4, "bias": 4, "state": 6400, "state_out": 6400, "cu_seqlens": 3, "states": 4, "out": 480},
		grid:      [3]uint32{4, 2, 1}, threads: 64,
		mistakes: []string{"heads=3", "head=257", "share=0", "share=3", "gate_stride=6 alpha", "beta_from=2 beta", "z_stride=163 z", "z_from=3 z"}},
	{kernel: "delta_net_pieces_f32", params: kernels.DeltaNetParams{Tokens: 3, Seqs: 2, Heads: 4, KeyHeads: 2, Head: 40, Share: 1, GateStride: 4}, freely: "beta_from z_from",
		elements: map[string]int{"qkv": 960, "alpha": 12, "beta": 12, "decay": 4, "bias": 4, "state": 6400, "state_out": 6400, "cu_seqlens": 3, "states": 4, "out": 480},
		grid:     [3]uint32{4, 2, 1}, threads: 128, mistakes: []string{"head=36", "head=136", "fc_gated=1 gain"}},
	{kernel: "mamba2_f16", params: kernels.Mamba2Params{Tokens: 3, Seqs: 2, Heads: 4, Groups: 2, Head: 40, States: 20, DtStride: 6, DtFrom: 1, ZStride: 162}, freely: "dt_from",
		constants: map[string]uint32{"fc_gated": 1},
		elements:  map[string]int{"xbc": 720, "dt": 17, "z": 484, "decay": 4, "bias": 4, "skip": 4, "state": 3200, "state_out": 3200, "cu_seqlens": 3, "states": 4, "out": 480},
		grid:      [3]uint32{4, 2, 1}, threads: 256,
		mistakes: []string{"heads=3", "groups=3 heads", "groups=4 xbc", "head=257", "states=257", "states=0", "dt_stride=7 dt", "dt_from=2 dt", "z_stride=163 z"}},
	{kernel: "mamba2_pieces_f32", params: kernels.Mamba2Params{Tokens: 3, Seqs: 2, Heads: 4, Groups: 2, Head: 40, States: 24, DtStride: 4}, freely: "dt_from z_stride",
		elements: map[string]int{"xbc": 768, "dt": 12, "decay": 4, "bias": 4, "skip": 4, "state": 3840, "state_out": 3840, "cu_seqlens": 3, "states": 4, "out": 480},
		grid:     [3]uint32{4, 2, 1}, threads: 128, mistakes: []string{"head=36", "head=136", "states=20", "states=136", "fc_gated=1 z"}},
	{kernel: "repeat_kv_f32", params: kernels.RepeatParams{Tokens: 3, KvHeads: 2, Head: 40, Repeats: 3},
		elements: map[string]int{"x": 240, "out": 720}, grid: [3]uint32{1, 1, 1}, threads: 256, loose: "x"},
	{kernel: "repeat_kv_pair_f16", params: kernels.RepeatParams{Tokens: 3, KvHeads: 2, Head: 40, Repeats: 3},
		elements: map[string]int{"k": 240, "v": 240, "k_out": 720, "v_out": 720}, grid: [3]uint32{1, 1, 1}, threads: 256, loose: "x"},
	{kernel: "transpose_f32", params: kernels.TransposeParams{Size: [3]uint32{2, 70, 5}, Stride: [3]uint32{350, 1, 70}},
		elements: map[string]int{"x": 700, "out": 700}, grid: [3]uint32{1, 70, 2}, threads: 64, mistakes: []string{"stride[0]=351 x", "stride[2]=4294967295 x"}},
	{kernel: "matmul_f32", params: kernels.MatmulParams{Batch: 2, M: 3, N: 33, K: 40},
		elements: map[string]int{"a": 240, "b": 2640, "out": 198}, grid: [3]uint32{2, 1, 2}, threads: 128, mistakes: []string{"k=41 a", "fc_transposed=2"}},
	{kernel: "mask_f32", params: kernels.MaskParams{Heads: 2, Tokens: 3, Seqs: 2, Context: 40},
		elements: map[string]int{"scores": 480, "positions": 3, "cu_seqlens": 3, "context_lens": 2, "out": 480}, grid: [3]uint32{2, 3, 2}, threads: 64,
		mistakes: []string{"seqs=3 scores", "context=4294967295 seqs·context", "fc_slopes=1 slopes"}},
	{kernel: "activate_f32", params: kernels.ElementParams{Rows: 3, Width: 300, AStride: 310}, constants: map[string]uint32{"fc_activation": uint32(ir.GELU)},
		elements: map[string]int{"a": 2*310 + 300, "out": 900}, grid: [3]uint32{2, 3, 1}, threads: 256,
		mistakes: []string{"fc_activation=5", "fc_activation=8", "a_stride=311 a"}},
	{kernel: "gate_f32", params: kernels.ElementParams{Rows: 3, Width: 300, AStride: 310, BStride: 305}, constants: map[string]uint32{"fc_activation": uint32(ir.ClampedSwiGLU)},
		elements: map[string]int{"a": 2*310 + 300, "b": 2*305 + 300, "out": 900}, grid: [3]uint32{2, 3, 1}, threads: 256,
		mistakes: []string{"fc_activation=8", "b_stride=306 b"}},
}

func init() {
	for _, family := range []string{"soft_cap", "mul"} {
		s := sound{kernel: family + "_f32", params: kernels.ElementParams{Rows: 3, Width: 300, AStride: 310, BStride: 305},
			elements: map[string]int{"a": 2*310 + 300, "out": 900}, grid: [3]uint32{2, 3, 1}, threads: 256}
		if family == "mul" {
			s.elements["b"] = 2*305 + 300
		}
		sounds = append(sounds, s)
	}
}

func attentionParams(tokens, seqs, heads, kvHeads, head, block, pages uint32) kernels.AttentionParams {
	return kernels.AttentionParams{Tokens: tokens, Seqs: seqs, Heads: heads, KvHeads: kvHeads, Head: head, Block: block, TableStride: pages,
		BlockStride: kvHeads * block * head, HeadStride: block * head, RowStride: head, Scale: 1}
}

func gatedParams(p kernels.AttentionParams, stride, from uint32) kernels.AttentionParams {
	p.GateStride, p.GateFrom = stride, from
	return p
}

func attentionElements(tokens, seqs, heads, kvHeads, head, block, pages int, more ...any) map[string]int {
	m := map[string]int{"q": tokens * heads * head, "k_cache": kvHeads * block * head, "v_cache": kvHeads * block * head,
		"positions": tokens, "cu_seqlens": seqs + 1, "context_lens": seqs, "block_table": seqs * pages}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1].(int)
	}
	return m
}

func attentionWriteParams(tokens, seqs, heads, kvHeads, head, block, pages, rotated uint32) kernels.AttentionWriteParams {
	return kernels.AttentionWriteParams{Tokens: tokens, Seqs: seqs, Heads: heads, KvHeads: kvHeads, Head: head, Block: block, TableStride: pages,
		BlockStride: kvHeads * block * head, HeadStride: block * head, RowStride: head, Scale: 1, Rotated: rotated, QkvStride: (heads + 2*kvHeads) * head}
}

func attentionWriteElements(tokens, seqs, heads, kvHeads, head, block, pages int, more ...any) map[string]int {
	m := attentionElements(tokens, seqs, heads, kvHeads, head, block, pages, more...)
	delete(m, "q")
	m["qkv"], m["slots"], m["k_slots"], m["v_slots"] = tokens*(heads+2*kvHeads)*head, tokens, m["k_cache"], m["v_cache"]
	return m
}

func (s sound) table(t *testing.T) *kernels.Kernel {
	k, ok := kernels.Lookup(s.kernel)
	require.True(t, ok, s.kernel)
	return k
}

func (s sound) launch(t *testing.T) *kernels.Launch {
	k := s.table(t)
	l := &kernels.Launch{Kernel: s.kernel, Constants: map[uint32]uint32{}, Params: kernels.Words(s.params), Grid: s.grid,
		Group: [3]uint32{s.threads, 1, 1}, Buffers: slices.Repeat([]int64{kernels.Unbound}, 21)}
	for name, v := range s.constants {
		l.Constants[constantNamed(t, k, name)] = v
	}
	for name, n := range s.elements {
		a, ok := k.Named(name)
		require.True(t, ok, "%s has no buffer %s", s.kernel, name)
		l.Buffers[a.Index] = int64(sizeOf(a.Element, n))
	}
	return l
}

func constantNamed(t *testing.T, k *kernels.Kernel, name string) uint32 {
	c, ok := k.Constant(name)
	require.True(t, ok, "%s has no constant %s", k.Name, name)
	return uint32(c.Index)
}

// TestCheck changes a correct launch by every general mistake and by those of its family.
func TestCheck(t *testing.T) {
	families := map[string]bool{}
	for n, s := range sounds {
		k := s.table(t)
		families[k.Family] = true
		t.Run(fmt.Sprintf("%s/%d", s.kernel, n), func(t *testing.T) {
			require.NoError(t, kernels.Check(s.launch(t)))
			refused := func(field, mistake string, change func(l *kernels.Launch)) {
				t.Helper()
				l := s.launch(t)
				change(l)
				err := kernels.Check(l)
				require.ErrorIs(t, err, kernels.ErrLaunch, mistake)
				var named *kernels.LaunchError
				require.ErrorAs(t, err, &named)
				require.Equal(t, s.kernel, named.Kernel)
				if field != "" {
					require.Equal(t, field, named.Field, "%s: %v", mistake, err)
				}
			}
			for _, a := range k.Args {
				n := s.launch(t).Buffers[a.Index]
				if n == kernels.Unbound {
					continue
				}
				refused(a.Name, "unbound", func(l *kernels.Launch) { l.Buffers[a.Index] = kernels.Unbound })
				refused(a.Name, "empty", func(l *kernels.Launch) { l.Buffers[a.Index] = 0 })
				refused(a.Name, "a byte short", func(l *kernels.Launch) { l.Buffers[a.Index] = n - 1 })
				refused(a.Name, "negative", func(l *kernels.Launch) { l.Buffers[a.Index] = math.MinInt64 })
			}
			refused("function constant 31", "no such constant", func(l *kernels.Launch) { l.Constants[31] = 1 })
			refused("buffer 20", "no such buffer", func(l *kernels.Launch) { l.Buffers[20] = 4 })
			for _, c := range k.Constants {
				if !c.Optional {
					refused(c.Name, "not set", func(l *kernels.Launch) { delete(l.Constants, uint32(c.Index)) })
				}
			}
			for axis := range 3 {
				loose := strings.Contains(s.loose, "xyz"[axis:axis+1])
				refused("grid", "empty", func(l *kernels.Launch) { l.Grid[axis] = 0 })
				refused("grid", "positions", func(l *kernels.Launch) { l.Grid[axis], l.Group[axis] = math.MaxUint32, 2 })
				if !loose {
					refused("", "one too many", func(l *kernels.Launch) { l.Grid[axis]++ })
				}
				if s.grid[axis] > 1 && !strings.Contains(s.fewer, "xyz"[axis:axis+1]) {
					refused("", "one too few", func(l *kernels.Launch) { l.Grid[axis]-- })
				}
				refused("threadgroup", "no threads", func(l *kernels.Launch) { l.Group[axis] = 0 })
			}
			refused("threadgroup", "two rows", func(l *kernels.Launch) { l.Group[1] = 2 })
			refused("threadgroup", "half a simdgroup", func(l *kernels.Launch) { l.Group[0] += 16 })
			refused("threadgroup", "too many", func(l *kernels.Launch) { l.Group[0] = uint32(k.MaxThreads) + 32 })
			refused("threadgroup memory", "too much", func(l *kernels.Launch) {
				l.ThreadgroupBytes = []uint32{uint32(kernels.MaxThreadgroupBytes-k.ThreadgroupBytes) - 8, 9}
			})
			refused("parameters", "too few", func(l *kernels.Launch) { l.Params = l.Params[1:] })
			refused("parameters", "too many", func(l *kernels.Launch) { l.Params = append(l.Params, 0) })

			for i, name := range k.ParamNames {
				if free(name) || slices.Contains(strings.Fields(s.freely), name) {
					continue
				}
				if !(name == "seq_kv" || name == "rotated" || name == "all_from" || (name == "n1" || name == "n2" || name == "n3") && s.launch(t).Params[i] == 0) {
					refused("", name+" of 0", func(l *kernels.Launch) { l.Params[i] = 0 })
				}
				refused("", name+" of 2³²-1", func(l *kernels.Launch) { l.Params[i] = math.MaxUint32 })
			}
			for _, m := range s.mistakes {
				assignment, field, _ := strings.Cut(m, " ")
				name, number, _ := strings.Cut(assignment, "=")
				value, err := strconv.ParseUint(number, 10, 32)
				require.NoError(t, err)
				if field == "" {
					field = name
				}
				refused(field, m, func(l *kernels.Launch) {
					if i, ok := k.Param(name); ok {
						l.Params[i] = uint32(value)
					} else {
						l.Constants[constantNamed(t, k, name)] = uint32(value)
					}
				})
			}
		})
	}
	if everything() {
		for _, k := range kernels.All() {
			assert.True(t, families[k.Family], "no launch of %s", k.Family)
		}
	}
	err := kernels.Check(&kernels.Launch{Kernel: "brain"})
	require.ErrorIs(t, err, kernels.ErrLaunch)
	require.ErrorContains(t, err, "brain")
}

// TestEveryFamilyIsChecked launches every kernel with sizes of zero, which only the family's
// check refuses.
func TestEveryFamilyIsChecked(t *testing.T) {
	for _, k := range kernels.All() {
		l := &kernels.Launch{Kernel: k.Name, Constants: map[uint32]uint32{}, Params: make([]uint32, k.ParamWords),
			Grid: [3]uint32{1, 1, 1}, Group: [3]uint32{32, 1, 1}, Buffers: slices.Repeat([]int64{kernels.Unbound}, 20)}
		for _, a := range k.Args {
			l.Buffers[a.Index] = 1 << 40
		}
		for _, c := range k.Constants {
			if !c.Optional {
				l.Constants[uint32(c.Index)] = 1
			}
		}
		require.ErrorIs(t, kernels.Check(l), kernels.ErrLaunch, "the row of %s in the table has no check", k.Family)
	}
}

// floatParams are the parameters that are not counts.
var floatParams = []string{"eps", "scale", "value", "soft_cap", "log2_theta", "freq_scale", "magnitude", "norm_eps"}

// free reports whether a parameter may have any value, or its bounds are among the family's
// mistakes.
func free(name string) bool {
	return slices.Contains(floatParams, name) || name == "first" || name == "offset" || name == "gate_from" || name == "window" || strings.Contains(name, "stride")
}

// TestCheckKnowsTypes compares the weight types that Check accepts with package quant.
func TestCheckKnowsTypes(t *testing.T) {
	for typ := range uint32(400) {
		d, inLines := dtype.Type(typ&^kernels.Lines), typ&kernels.Lines != 0
		s := sounds[0]
		require.Equal(t, "embed", s.kernel)
		width := 256
		s.params, s.grid = kernels.EmbedParams{Tokens: 1, Width: uint32(width), Vocab: 3}, [3]uint32{1, 1, 1}
		s.constants = map[string]uint32{"fc_type": typ}
		stored := typ < 2*kernels.Lines && (!inLines || kernels.HasLines(uint32(d))) && slices.Contains(weightTypes, d)
		bytes := 1 << 20
		if stored {
			bytes = int(d.Bytes(int64(3 * width)))
		}
		s.elements = map[string]int{"tokens": 1, "table": bytes, "out": width}
		err := kernels.Check(s.launch(t))
		if !stored {
			require.ErrorIs(t, err, kernels.ErrLaunch, "%d", typ)
			continue
		}
		require.NoError(t, err, typ)
		s.elements["table"]--
		require.ErrorIs(t, kernels.Check(s.launch(t)), kernels.ErrLaunch)
	}
}
