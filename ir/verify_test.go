package ir_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/ir"
)

// start holds values that the graphs of the tables here begin with.
const start = `
  v1 = input {name="tokens"} : i32[T]
  v2 = input {name="positions"} : i32[T]
  v3 = input {name="slots"} : i32[T]
  v4 = input {name="cu_seqlens"} : i32[B+1]
  v5 = input {name="context_lens"} : i32[B]
  v6 = input {name="block_table"} : i32[B,NB]
  v7 = input {name="logit_rows"} : i32[R]
  v8 = weight {name="table"} : q8_0[100,64]
  v9 = embed v1 v8 : f32[T,64]
  v10 = weight {name="w"} : f16[64,64]
  v11 = weight {name="n64"} : f32[64]
  v12 = weight {name="n16"} : f32[16]
  v13 = reshape v9 : f32[T,4,16]
  v14 = input {name="scores"} : f32[4,T,B*Smax]
  v15 = cache {layer=0} : cache<f16,2,16,32> @0
  v16 = reshape v9 : f32[T,2,32]
  v17 = weight {name="qkv"} : q4_0[128,64]
  v18 = linear v9 v17 : f32[T,128]
  v19 = weight {name="factors"} : f32[8]
  v20 = weight {name="kv"} : f32[32,64]
  v21 = linear v9 v20 : f32[T,32]
  v22 = reshape v21 : f32[T,2,16]
  v23 = weight {name="slopes"} : f32[4]
  v24 = input {name="copies"} : i32[C,2]
  v25 = weight {name="taps"} : f16[64,3]
  v26 = state {layer=0 name="conv"} : state<2,64,32> @0
  v27 = input {name="all"} : f32[T,192]
  v28 = input {name="alpha"} : f32[T,4]
  v29 = weight {name="decay"} : f32[4]
  v30 = state {layer=0 name="delta"} : state<128,32,32> @0
  v31 = input {name="heads"} : f32[T,192]
  v32 = input {name="gates"} : f32[T,8]
  v33 = weight {name="n32"} : f32[32]
  v34 = cache {layer=5} : cache<f16,2,16,32,100> @5
  v37 = state {layer=0 name="ssm"} : state<64,32,32> @0
  v35 = weight {name="column"} : f32[4,1]
  v36 = weight {name="groups"} : f32[4,16]
  v38 = input {name="states"} : i32[B,2]
  v91 = cache {layer=6} : cache<f16,1,24,32,latent> @6
  v92 = input {name="absorbed"} : f32[T,4,16]
  v93 = input {name="row"} : f32[T,1,24]
`

// rope is an attribute that fits heads of 16.
const rope = "rotated=16 theta=10000 freqscale=1 magnitude=1"

func parse(stage, lines string) (*ir.Func, error) {
	return ir.Parse("func t " + stage + " {" + start + lines + "\n}\n")
}

// TestInfer gives every op operands that fit, with the type that follows, and
// operands that do not, with what the error says.
func TestInfer(t *testing.T) {
	for _, c := range []struct{ line, typ, fails string }{
		{line: `embed v1 v8`, typ: "f32[T,64]"},
		{line: `embed v1 v8`, typ: "f16[T,64]"}, // any floating-point type will do
		{line: `embed v1 v8`, typ: "i32[T,64]", fails: "the type should be f32[T,64]"},
		{line: `embed v1 v8`, typ: "f32[T,65]", fails: "the type should be f32[T,64]"},
		{line: `embed v7 v8`, typ: "f32[R,64]", fails: "tokens (v7) is i32[R], want i32[T]"},
		{line: `embed v1 v11`, typ: "f32[T,64]", fails: "table (v11) is f32[64], want rank 2"},
		{line: `embed v1 v6`, typ: "f32[T,NB]", fails: "table (v6) is i32[B,NB], want a matrix of weights"},
		{line: `embed v1 v15`, typ: "f32[T,64]", fails: "table (v15) is cache<f16,2,16,32>, not a tensor"},
		{line: `embed v1`, typ: "f32[T,64]", fails: "embed takes 2 operands, not 1"},

		{line: `linear v9 v10`, typ: "f32[T,64]"},
		{line: `linear v13 v12`, typ: "f32[T,4,16]", fails: "weight (v12) is f32[16], want rank 2"},
		{line: `linear v13 v10`, typ: "f32[T,4,64]", fails: "x (v13) is f32[T,4,16] but the weight (v10) is f16[64,64]"},
		{line: `linear v1 v10`, typ: "f32[T,64]", fails: "x (v1) is i32[T], want floating point"},
		{line: `linear v9 v9`, typ: "f32[T,T]", fails: "want a matrix of weights"},

		{line: `rms_norm v9 v11 {eps=1e-05}`, typ: "f32[T,64]"},
		{line: `rms_norm v13 v12 {eps=1e-05}`, typ: "f32[T,4,16]"},
		{line: `rms_norm v9 v12 {eps=1e-05}`, typ: "f32[T,64]", fails: "weight (v12) is f32[16], want shape [64]"},
		{line: `rms_norm v9 v2 {eps=1e-05}`, typ: "f32[T,64]", fails: "weight (v2) is i32[T], want floating point"},
		{line: `rms_norm v9 v11 {eps=-1}`, typ: "f32[T,64]", fails: "eps is -1"},

		{line: `group_norm v13 v36 {eps=1e-05}`, typ: "f32[T,4,16]"},
		{line: `group_norm v13 v12 {eps=1e-05}`, typ: "f32[T,4,16]", fails: "weight (v12) is f32[16], want rank 2"},
		{line: `group_norm v16 v36 {eps=1e-05}`, typ: "f32[T,2,32]", fails: "weight (v36) is f32[4,16], want shape [2,32]"},
		{line: `group_norm v11 v36 {eps=1e-05}`, typ: "f32[64]", fails: "x (v11) is f32[64], want groups"},
		{line: `group_norm v13 v36 {eps=-1}`, typ: "f32[T,4,16]", fails: "eps is -1"},

		{line: `layer_norm v9 {eps=1e-05}`, typ: "f32[T,64]"},
		{line: `layer_norm v9 v11 {eps=1e-05}`, typ: "f16[T,64]"},
		{line: `layer_norm v13 v12 v12 {eps=1e-05}`, typ: "f32[T,4,16]"},
		{line: `layer_norm v9 v11 v12 {eps=1e-05}`, typ: "f32[T,64]", fails: "bias (v12) is f32[16], want shape [64]"},
		{line: `layer_norm v9 v2 {eps=1e-05}`, typ: "f32[T,64]", fails: "weight (v2) is i32[T], want floating point"},
		{line: `layer_norm v9 {eps=-1}`, typ: "f32[T,64]", fails: "eps is -1"},
		{line: `layer_norm v9 v11 v11 v11 {eps=1}`, typ: "f32[T,64]", fails: "layer_norm takes 1 to 3 operands, not 4"},

		{line: `reshape v9`, typ: "f32[4*T,16]"},
		{line: `reshape v9`, typ: "f32[T,63]", fails: "f32[T,64] has 64*T elements, f32[T,63] has 63*T"},
		{line: `reshape v9`, typ: "i32[T,64]", fails: "to i32[T,64]"},
		{line: `reshape v14`, typ: "f32[4,T,B*Smax]"},
		{line: `cast v9`, typ: "f16[T,64]"},
		{line: `cast v9`, typ: "f16[64,T]", fails: "f32[T,64] to f16[64,T]"},
		{line: `cast v9`, typ: "i32[T,64]", fails: "f32[T,64] to i32[T,64]"},

		{line: `transpose v13 {a=1 b=0 c=2}`, typ: "f32[4,T,16]"},
		{line: `transpose v13 {a=2 b=1 c=0}`, typ: "f32[16,4,T]"},
		{line: `transpose v13 {a=1 b=1 c=2}`, typ: "f32[4,4,16]", fails: "axes 1,1,2 are no permutation"},
		{line: `transpose v13 {a=1 b=-1 c=2}`, typ: "f32[4,4,16]", fails: "axes 1,-1,2 are no permutation"},
		{line: `transpose v9 {a=1 b=0 c=2}`, typ: "f32[64,T]", fails: "x (v9) is f32[T,64], want rank 3"},

		{line: `slice v9 {start=8 end=24}`, typ: "f32[T,16]"},
		{line: `slice v9 {start=8 end=65}`, typ: "f32[T,57]", fails: "columns [8,65) of f32[T,64]"},
		{line: `slice v9 {start=8 end=8}`, typ: "f32[T,0]", fails: "columns [8,8) of f32[T,64]"},
		{line: `slice v9 {start=-1 end=8}`, typ: "f32[T,9]", fails: "columns [-1,8) of f32[T,64]"},

		{line: `concat v9 v18 v9`, typ: "f32[T,256]"},
		{line: `concat v9 v13`, typ: "f32[T,80]", fails: "x (v13) is f32[T,4,16], want rank 2"},
		{line: `concat v9 v9 v9 v9 v9`, typ: "f32[T,320]", fails: "concat takes 1 to 4 operands, not 5"},
		{line: `concat v13 v16`, typ: "f32[T,4,48]", fails: "f32[T,2,32] beside f32[T,4,16]"},

		{line: `indices v2 {n=3}`, typ: "i32[T,3]"},
		{line: `indices v2 {n=0}`, typ: "i32[T,0]", fails: "0 columns"},
		{line: `indices v9 {n=3}`, typ: "i32[T,3]", fails: "positions (v9) is f32[T,64], want i32[T]"},

		{line: `rope v13 v2 {` + rope + `}`, typ: "f32[T,4,16]"},
		{line: `rope v13 v2 v19 {interleaved=true ` + rope + `}`, typ: "f32[T,4,16]"},
		{line: `rope v13 v2 {rotated=8 theta=1 freqscale=1 magnitude=1}`, typ: "f32[T,4,16]"},
		{line: `rope v13 v2 v12 {` + rope + `}`, typ: "f32[T,4,16]", fails: "factors (v12) is f32[16], want shape [8]"},
		{line: `rope v13 v7 {` + rope + `}`, typ: "f32[T,4,16]", fails: "positions (v7) is i32[R], want i32[T]"},
		{line: `rope v13 v2 {rotated=18 theta=1 freqscale=1 magnitude=1}`, typ: "f32[T,4,16]", fails: "18 rotated elements of a head of 16"},
		{line: `rope v13 v2 {rotated=7 theta=1 freqscale=1 magnitude=1}`, typ: "f32[T,4,16]", fails: "7 rotated elements of a head of 16"},
		{line: `rope v13 v2 {rotated=8 freqscale=1 magnitude=1}`, typ: "f32[T,4,16]", fails: "theta 0, frequency scale 1, magnitude 1: all must be positive"},
		{line: `rope v13 v2 {rotated=8 theta=1e308 freqscale=1e308 magnitude=1}`, typ: "f32[T,4,16]", fails: "is +Inf"},

		{line: `cache_write v15 v22 v22 v3`, typ: "cache<f16,2,16,32>"},
		{line: `cache_write v15 v22 v22 v3`, typ: "cache<f32,2,16,32>", fails: "the type should be cache<f16,2,16,32>"},
		{line: `cache_write v15 v22 v13 v3`, typ: "cache<f16,2,16,32>", fails: "v (v13) is f32[T,4,16], want shape [T,2,16]"},
		{line: `cache_write v15 v1 v22 v3`, typ: "cache<f16,2,16,32>", fails: "k (v1) is i32[T], want rank 3"},
		{line: `cache_write v15 v22 v22 v7`, typ: "cache<f16,2,16,32>", fails: "slots (v7) is i32[R], want i32[T]"},
		{line: `cache_write v91 v93 v93 v3`, typ: "cache<f16,1,24,32,latent>"},
		{line: `cache_write v91 v93 v92 v3`, typ: "cache<f16,1,24,32,latent>", fails: "v (v92) is f32[T,4,16], want shape [T,1,24]"},
		{line: `cache_write v9 v22 v22 v3`, typ: "cache<f16,2,16,32>", fails: "operand 0 (v9) is f32[T,64], not a cache"},

		{line: `copy_blocks v15 v24`, typ: "cache<f16,2,16,32>"},
		{line: `copy_blocks v15 v24`, typ: "cache<f16,2,16,16>", fails: "the type should be cache<f16,2,16,32>"},
		{line: `copy_blocks v15 v6`, typ: "cache<f16,2,16,32>", fails: "copies (v6) is i32[B,NB], want i32[C,2]"},
		{line: `copy_blocks v24 v24`, typ: "cache<f16,2,16,32>", fails: "operand 0 (v24) is i32[C,2], not a cache"},

		{line: `short_conv v9 v25 v26 v4 v38`, typ: "(f32[T,64], state<2,64,32>)"},
		{line: `short_conv v9 v25 v26 v4 v38`, typ: "(f16[T,64], state<2,64,32>)"},
		{line: `short_conv v9 v25 v26 v4 v38`, typ: "(f32[T,64], state<2,64,16>)", fails: "the type should be (f32[T,64], state<2,64,32>)"},
		{line: `short_conv v21 v25 v26 v4 v38`, typ: "(f32[T,32], state<2,64,32>)", fails: "w (v25) is f16[64,3], want shape [32,3]"},
		{line: `short_conv v9 v10 v26 v4 v38`, typ: "(f32[T,64], state<2,64,32>)", fails: "w (v10) is f16[64,64]: want 2 to 8 taps"},
		{line: `short_conv v9 v17 v26 v4 v38`, typ: "(f32[T,64], state<2,64,32>)", fails: "w (v17) is q4_0[128,64], want floating point"},
		{line: `short_conv v9 v25 v15 v4 v38`, typ: "(f32[T,64], state<2,64,32>)", fails: "operand 2 (v15) is cache<f16,2,16,32>, want a state of 2 rows of 64"},
		{line: `short_conv v9 v25 v26 v5 v38`, typ: "(f32[T,64], state<2,64,32>)", fails: "cu_seqlens (v5) is i32[B], want i32[B+1]"},
		{line: `short_conv v9 v25 v26 v4 v5`, typ: "(f32[T,64], state<2,64,32>)", fails: "states (v5) is i32[B], want i32[B,2]"},
		{line: `gated_short_conv v27 v25 v26 v4 v38`, typ: "(f32[T,64], state<2,64,32>)"},
		{line: `gated_short_conv v9 v25 v26 v4 v38`, typ: "(f32[T,64], state<2,64,32>)", fails: "all (v9) is f32[T,64], want shape [T,63]"},
		{line: `silu_short_conv v27 v25 v26 v4 v38 {}`, typ: "(f32[T,64], state<2,64,32>)"},
		{line: `silu_short_conv v9 v25 v26 v4 v38 {}`, typ: "(f32[T,64], state<2,64,32>)"},
		{line: `silu_short_conv v21 v25 v26 v4 v38 {}`, typ: "(f32[T,64], state<2,64,32>)", fails: "w (v25) is f16[64,3]: want at most 32 rows"},
		{line: `silu_short_conv v27 v10 v26 v4 v38 {}`, typ: "(f32[T,64], state<2,64,32>)", fails: "w (v10) is f16[64,64]: want 2 to 8 taps"},
		{line: `silu_short_conv v27 v25 v26 v4 v38 v11 {from=128}`, typ: "(f32[T,64], state<2,64,32>)"},
		{line: `silu_short_conv v27 v25 v26 v4 v38 v11 {from=129}`, typ: "(f32[T,64], state<2,64,32>)", fails: "want at most 63 rows"},
		{line: `silu_short_conv v27 v25 v26 v4 v38 v11 {from=-1}`, typ: "(f32[T,64], state<2,64,32>)", fails: "w (v25) is f16[64,3]"},
		{line: `silu_short_conv v27 v25 v26 v4 v38 v12 {}`, typ: "(f32[T,64], state<2,64,32>)", fails: "bias (v12) is f32[16], want shape [64]"},
		{line: `mamba2 v31 v28 v29 v29 v29 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)"},
		{line: `mamba2 v31 v28 v35 v29 v35 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)"},
		{line: `mamba2 v31 v28 v29 v29 v29 v37 v4 v38 {groups=1}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "want a state of 128 rows of 32"},
		{line: `mamba2 v31 v28 v29 v29 v29 v37 v4 v38 {groups=3}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "xbc (v31) is f32[T,192]: want 4 heads of 32 elements, and B and C of 3 groups"},
		{line: `mamba2 v31 v28 v29 v29 v29 v37 v4 v38 {}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "B and C of 0 groups"},
		{line: `mamba2 v31 v32 v29 v29 v29 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "want 8 heads of 32 elements"},
		{line: `mamba2 v31 v28 v33 v29 v29 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "decay (v33) is f32[32], want shape [4]"},
		{line: `mamba2 v31 v28 v29 v35 v29 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "bias (v35) is f32[4,1], want rank 1"},
		{line: `mamba2 v31 v28 v29 v29 v20 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "skip (v20) is f32[32,64], want shape [4,1]"},
		{line: `mamba2 v31 v28 v29 v29 v29 v15 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "want 4 heads of 0 elements"},
		{line: `gated_mamba2 v31 v27 v29 v29 v35 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)"},
		{line: `gated_mamba2 v31 v18 v29 v29 v29 v37 v4 v38 {groups=2}`, typ: "(f32[T,4,32], state<64,32,32>)", fails: "all (v18) is f32[T,128]: want the gates of 4 heads of 32 as its first columns, and dt as its last"},
		{line: `delta_net v31 v28 v28 v29 v29 v30 v4 v38 {keyheads=1 adjacent=true eps=1e-06}`, typ: "(f32[T,4,32], state<128,32,32>)"},
		{line: `gated_delta_net v31 v32 v29 v29 v33 v27 v30 v4 v38 {keyheads=1 eps=1e-06 normeps=1e-06}`, typ: "(f32[T,4,32], state<128,32,32>)"},
		{line: `gated_delta_net v31 v32 v29 v29 v33 v27 v30 v4 v38 {keyheads=1 normeps=-1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "eps is -1"},
		{line: `gated_delta_net v31 v32 v29 v29 v33 v27 v30 v4 v38 {keyheads=3}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "want 3 heads of Q, as many of K, and 4 of V"},
		{line: `gated_delta_net v31 v28 v29 v29 v33 v27 v30 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "gates (v28) is f32[T,4], want shape [T,8]"},
		{line: `gated_delta_net v31 v32 v29 v33 v33 v27 v30 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "bias (v33) is f32[32], want shape [4]"},
		{line: `gated_delta_net v31 v32 v29 v29 v12 v27 v30 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "gain (v12) is f32[16], want shape [32]"},
		{line: `gated_delta_net v31 v32 v29 v29 v33 v9 v30 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "all (v9) is f32[T,64]: want the gates of 4 heads of 32"},
		{line: `gated_delta_net v31 v32 v29 v29 v33 v27 v26 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "want a state of 128 rows of 32"},
		{line: `delta_net v31 v28 v28 v29 v29 v30 v4 v38 {keyheads=1 eps=1e-06}`, typ: "(f32[T,4,32], state<128,32,32>)"},
		{line: `delta_net v31 v28 v28 v29 v29 v30 v4 v38 {keyheads=3}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "want 3 heads of Q, as many of K, and 4 of V"},
		{line: `delta_net v31 v28 v28 v29 v29 v30 v4 v38 {}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "want 0 heads of Q"},
		{line: `delta_net v31 v28 v28 v29 v29 v30 v4 v38 {keyheads=1 eps=-1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "eps is -1"},
		{line: `delta_net v31 v28 v9 v29 v29 v30 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "beta (v9) is f32[T,64], want shape [T,4]"},
		{line: `delta_net v31 v28 v28 v29 v11 v30 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "bias (v11) is f32[64], want shape [4]"},
		{line: `delta_net v31 v28 v28 v29 v29 v26 v4 v38 {keyheads=1}`, typ: "(f32[T,4,32], state<128,32,32>)", fails: "want a state of 128 rows of 32"},
		{line: `cache_write v26 v22 v22 v3`, typ: "cache<f16,2,16,32>", fails: "operand 0 (v26) is state<2,64,32>, not a cache"},
		{line: `state {layer=1 name="x"}`, typ: "cache<f16,2,16,32>", fails: "cache<f16,2,16,32> is no recurrent state"},
		{line: `state {layer=1 name="x"}`, typ: "state<0,2,2>", fails: "state<0,2,2> has an extent of 0"},
		{line: `state {layer=1 name="x"}`, typ: "state<2,0,2>", fails: "state<2,0,2> has an extent of 0"},
		{line: `state {layer=1}`, typ: "state<2,3,2>", fails: "state \"\" of layer 1"},
		{line: `state {layer=0 name="conv"}`, typ: "state<2,3,2>", fails: `state "conv" of layer 0 is v26`},

		{line: `cache_read v15 v5 v6 {values=true}`, typ: "f32[B*Smax,2,16]"},
		{line: `cache_read v15 v6 v6 {}`, typ: "f32[B*Smax,2,16]", fails: "context_lens (v6) is i32[B,NB], want i32[B]"},
		{line: `cache_read v15 v5 v5 {}`, typ: "f32[B*Smax,2,16]", fails: "block_table (v5) is i32[B], want i32[B,NB]"},

		{line: `repeat_kv v22 {n=3}`, typ: "f32[T,6,16]"},
		{line: `repeat_kv v22 {n=0}`, typ: "f32[T,0,16]", fails: "0 times f32[T,2,16]"},

		{line: `matmul v14 v13 {}`, typ: "f32[4,T,16]", fails: "f32[4,T,B*Smax] by f32[T,4,16]"},
		{line: `matmul v13 v13 {transb=true}`, typ: "f32[T,4,4]"},
		{line: `matmul v13 v13 {}`, typ: "f32[T,4,16]", fails: "f32[T,4,16] by f32[T,4,16]"},

		{line: `scale v9 {value=0.5}`, typ: "f32[T,64]"},
		{line: `mask v14 v2 v4 v5 {}`, typ: "f32[4,T,B*Smax]"},
		{line: `mask v13 v2 v4 v5 {}`, typ: "f32[T,4,16]", fails: "scores (v13) is f32[T,4,16], want shape [T,T,B*Smax]"},
		{line: `mask v14 v7 v4 v5 {}`, typ: "f32[4,T,B*Smax]", fails: "positions (v7) is i32[R], want i32[T]"},
		{line: `mask v14 v2 v5 v5 {}`, typ: "f32[4,T,B*Smax]", fails: "cu_seqlens (v5) is i32[B], want i32[B+1]"},
		{line: `mask v14 v2 v4 v4 {}`, typ: "f32[4,T,B*Smax]", fails: "context_lens (v4) is i32[B+1], want i32[B]"},
		{line: `mask v14 v2 v4 v5 {window=128}`, typ: "f32[4,T,B*Smax]"},
		{line: `mask v14 v2 v4 v5 {window=-1}`, typ: "f32[4,T,B*Smax]", fails: "a window of -1 keys"},
		{line: `mask v14 v2 v4 v5 v23 {}`, typ: "f32[4,T,B*Smax]"},
		{line: `mask v14 v2 v4 v5 v12 {}`, typ: "f32[4,T,B*Smax]", fails: "slopes (v12) is f32[16], want shape [4]"},
		{line: `softmax v14`, typ: "f32[4,T,B*Smax]"},
		{line: `softmax v13 v12`, typ: "f32[T,4,16]", fails: "sinks (v12) is f32[16], want shape [T]"},
		{line: `softmax v9 v11`, typ: "f32[T,64]", fails: "x (v9) is f32[T,64], want rank 3"},
		{line: `soft_cap v9 {value=50}`, typ: "f32[T,64]"},
		{line: `soft_cap v9 {value=0}`, typ: "f32[T,64]", fails: "the cap is 0"},
		{line: `soft_cap v9 {value=-1}`, typ: "f32[T,64]", fails: "the cap is -1"},
		{line: `activate v9 {activation=silu}`, typ: "f32[T,64]"},
		{line: `activate v1 {activation=silu}`, typ: "i32[T]", fails: "x (v1) is i32[T], want floating point"},
		{line: `activate v9 {activation=gelu}`, typ: "f32[T,64]"},
		{line: `activate v13 {activation=gelu_tanh}`, typ: "f16[T,4,16]"},
		{line: `activate v9 {}`, typ: "f32[T,64]", fails: "no activation"},
		{line: `activate v9 {activation=clamped_swiglu}`, typ: "f32[T,64]", fails: "clamped_swiglu exists as a gate only"},
		{line: `gate v9 v9 {activation=clamped_swiglu}`, typ: "f32[T,64]"},
		{line: `gate v9 v9 {}`, typ: "f32[T,64]"},
		{line: `linear v9 v10 v11`, typ: "f32[T,64]"},
		{line: `linear v9 v10 v12`, typ: "f32[T,64]", fails: "bias (v12) is f32[16], want shape [64]"},
		{line: `mul v9 v9`, typ: "f32[T,64]"},
		{line: `add v9 v9`, typ: "f32[T,64]"},
		{line: `add v9 v18`, typ: "f32[T,64]", fails: "y (v18) is f32[T,128], want shape [T,64]"},
		{line: `add v9 v1`, typ: "f32[T,64]", fails: "y (v1) is i32[T], want floating point"},
		{line: `gather_rows v9 v7`, typ: "f32[R,64]"},
		{line: `gather_rows v9 v1`, typ: "f32[R,64]", fails: "rows (v1) is i32[T], want i32[R]"},
		{line: `argmax v9`, typ: "i32[T]"},
		{line: `argmax v9`, typ: "f32[T]", fails: "the type should be i32[T]"},
		{line: `argmax v13`, typ: "i32[T,4]", fails: "x (v13) is f32[T,4,16], want rank 2"},
		{line: `argmax v6`, typ: "i32[B]", fails: "x (v6) is i32[B,NB], want floating point"},
		{line: `head_norm_rope_attention v9 v15 v2 v4 v5 v6 v12 {rotated=16 theta=10000 freqscale=1 magnitude=1 heads=4 eps=1e-06 scale=1}`, typ: "f32[T,4,16]"},
		{line: `head_norm_rope_attention v9 v15 v2 v4 v5 v6 v12 {rotated=16 theta=10000 freqscale=1 magnitude=1 heads=2 eps=1e-06 scale=1}`, typ: "f32[T,2,16]", fails: "q (v9) is f32[T,64]"},
		{line: `router v9 {score=softmax chosen=3}`, typ: "(f32[T,3], i32[T,3])"},
		{line: `router v9 {score=sigmoid chosen=3 groups=8 usedgroups=2 normalised=true floor=0.5 scale=2}`, typ: "(f32[T,3], i32[T,3])"},
		{line: `router v9 {score=softmax chosen=3}`, typ: "(f16[T,3], i32[T,3])", fails: "the type should be (f32[T,3], i32[T,3])"},
		{line: `router v9 {chosen=3}`, typ: "(f32[T,3], i32[T,3])", fails: "none is no score"},
		{line: `router v9 {}`, typ: "(f32[T,0], i32[T,0])", fails: "0 of 64 experts"},
		{line: `router v9 {score=softmax chosen=65}`, typ: "(f32[T,65], i32[T,65])", fails: "65 of 64 experts"},
		{line: `router v9 {score=softmax chosen=3 groups=3 usedgroups=1}`, typ: "(f32[T,3], i32[T,3])", fails: "1 of 3 groups of 64 experts"},
		{line: `router v9 {score=softmax chosen=9 groups=8 usedgroups=1}`, typ: "(f32[T,9], i32[T,9])", fails: "9 of 64 experts"},
		{line: `router v9 {score=softmax chosen=3 floor=-1}`, typ: "(f32[T,3], i32[T,3])", fails: "floor -1"},
		{line: `router v9 {score=softmax chosen=3 sharpness=0.5}`, typ: "(f32[T,3], i32[T,3])"},
		{line: `router v9 {score=softmax chosen=3 sharpness=-1}`, typ: "(f32[T,3], i32[T,3])", fails: "sharpness -1"},
		{line: `router v9 {score=softmax chosen=3 bias=true}`, typ: "(f32[T,3], i32[T,3])", fails: "1 operands"},
		{line: `router v13 {score=softmax chosen=3}`, typ: "(f32[T,3], i32[T,3])", fails: "logits (v13) is f32[T,4,16], want rank 2"},
		{line: `select v9 {index=0}`, typ: "f32[T,64]", fails: "element 0 of f32[T,64]"},

		{line: `const {data="AACAPwAAAEA="}`, typ: "f32[2]"},
		{line: `const {data="AACAPwAAAEA="}`, typ: "f32[3]", fails: "8 bytes of data for f32[3]"},
		{line: `const {data="AACAPwAAAEA="}`, typ: "f32[T]", fails: "8 bytes of data for f32[T]"},
		{line: `const {data="AACAPwAAAEA="}`, typ: "cache<f16,2,16,32>", fails: "is not a tensor"},
		{line: `weight {name=""}`, typ: "f32[3]", fails: "no name"},
		{line: `weight {name="x"}`, typ: "q4_0[3,33]", fails: `"x": q4_0[3,33]: rows of 33 elements are not whole blocks of 32`},
		{line: `weight {name="x"}`, typ: "f32[3,0]", fails: `"x": f32[3,0] has an extent of 0`},
		{line: `weight {name="x"}`, typ: "cache<f16,2,16,32>", fails: `"x" is cache<f16,2,16,32>, want a tensor`},
		{line: `cache {layer=1}`, typ: "cache<q8_0,2,32,1>"},
		{line: `cache {layer=1}`, typ: "cache<q8_0,2,16,1>", fails: "heads of 16 elements are not whole q8_0 blocks"},
		{line: `cache {layer=1}`, typ: "cache<q4_0,2,32,1>", fails: "no usable cache"},
		{line: `cache {layer=1}`, typ: "f32[2]", fails: "f32[2] is no usable cache"},
		{line: `cache {layer=1}`, typ: "cache<f16,2,32,0>", fails: "has an extent of 0"},
		{line: `cache {layer=1}`, typ: "cache<f16,2,32,999999999>", fails: "has an extent of 999999999"},
		{line: `cache {layer=-1}`, typ: "cache<f16,2,32,1>", fails: "layer -1"},

		{line: `gate v9 v9 {activation=silu}`, typ: "f32[T,64]"},
		{line: `gate v9 v18 {activation=silu}`, typ: "f32[T,64]", fails: "y (v18) is f32[T,128], want shape [T,64]"},
		{line: `fused_linear v9 v10 v17 {weights=2}`, typ: "f32[T,192]"},
		{line: `fused_linear v9 v10 v10 v10 v11 {weights=3 norm=rms eps=1e-06 gain=true}`, typ: "f32[T,192]"},
		{line: `fused_linear v9 v10 v10 {weights=2 activation=silu gated=true}`, typ: "f32[T,64]"},
		{line: `fused_linear v9 v10 v10 v17 v10 {weights=4}`, typ: "f32[T,320]"},
		{line: `fused_linear v9 v10 v10 v10 v10 v10 {weights=5}`, typ: "f32[T,320]", fails: "6 operands for"},
		{line: `fused_linear v9 v10 v11 v9 {weights=1 norm=rms eps=1e-06 gain=true residual=true}`, typ: "f32[T,64]"},
		{line: `fused_linear v9 v10 v18 {weights=1 activation=gelu columngate=true gatecolumn=64}`, typ: "f32[T,64]"},
		{line: `fused_linear v9 v10 v18 {weights=1 activation=gelu columngate=true gatecolumn=65}`, typ: "f32[T,64]", fails: "column 65 of the gate"},
		{line: `fused_linear v9 v10 v9 {weights=1 rowgate=sigmoid gatecolumn=63}`, typ: "f32[T,64]"},
		{line: `fused_linear v9 v10 v9 v9 {weights=1 rowgate=softplus residual=true}`, typ: "f32[T,64]"},
		{line: `fused_linear v9 v10 v9 {weights=1 rowgate=sigmoid gatecolumn=64}`, typ: "f32[T,64]", fails: "column 64 of the gate"},
		{line: `fused_linear v9 v10 v9 {weights=1 rowgate=clamped_swiglu}`, typ: "f32[T,64]", fails: "exists as a gate only"},
		{line: `fused_linear v9 v10 v11 v9 {weights=1 bias=true rowgate=sigmoid}`, typ: "f32[T,64]", fails: "a gate of rows of"},
		{line: `fused_linear v9 v10 {weights=1 gatecolumn=1}`, typ: "f32[T,64]", fails: "column 1 of no gate"},
		{line: `fused_linear v9 v10 v7 {weights=1 gather=true}`, typ: "f32[R,64]"},
		{line: `fused_linear v9 v10 v11 v7 {weights=1 norm=rms eps=1e-06 gain=true gather=true}`, typ: "f32[R,64]"},
		{line: `fused_linear v9 v10 v7 {weights=1 gather=true}`, typ: "f32[T,64]", fails: "the type should be f32[R,64]"},
		{line: `fused_linear v9 v10 v1 {weights=1 gather=true}`, typ: "f32[R,64]", fails: "rows (v1) is i32[T], want i32[R]"},
		{line: `fused_linear v9 v10 {weights=1 gather=true}`, typ: "f32[R,64]", fails: "2 operands for"},
		{line: `fused_linear v9 v10 {weights=2}`, typ: "f32[T,128]", fails: "2 operands for"},
		{line: `fused_linear v9 v10 {weights=0}`, typ: "f32[T,128]", fails: "2 operands for"},
		{line: `fused_linear v9 v10 v17 {weights=2 activation=silu gated=true}`, typ: "f32[T,64]", fails: "a gate of 2 weights of unequal height"},
		{line: `fused_linear v9 v10 {weights=1 activation=silu gated=true}`, typ: "f32[T,64]", fails: "a gate of 1 weights"},
		{line: `fused_linear v9 v10 v12 {weights=1 norm=rms gain=true}`, typ: "f32[T,64]", fails: "gain (v12) is f32[16], want shape [64]"},
		{line: `fused_linear v9 v10 v18 {weights=1 residual=true}`, typ: "f32[T,64]", fails: "residual (v18) is f32[T,128], want shape [T,64]"},
		{line: `fused_linear v9 v10 v1 {weights=1 residual=true}`, typ: "f32[T,64]", fails: "residual (v1) is i32[T], want floating point"},
		{line: `fused_linear v13 v10 {weights=1}`, typ: "f32[T,64]", fails: "but the weight (v10) is f16[64,64]"},
		{line: `fused_linear v9 v10 {weights=1 eps=-1}`, typ: "f32[T,64]", fails: "eps is -1"},
		{line: `fused_linear v9 v10 v10 v11 v11 v11 v11 v9 {weights=2 bias=true activation=gelu gated=true norm=layer gain=true shift=true residual=true}`, typ: "f32[T,64]"},
		{line: `fused_linear v9 v10 {weights=1 activation=relu2 norm=layer}`, typ: "f32[T,64]"},
		{line: `fused_linear v9 v10 v12 {weights=1 bias=true}`, typ: "f32[T,64]", fails: "bias (v12) is f32[16], want shape [64]"},
		{line: `fused_linear v9 v10 {weights=1 activation=clamped_swiglu}`, typ: "f32[T,64]", fails: "exists as a gate only"},
		{line: `fused_linear v9 v10 {weights=1 norm=rms}`, typ: "f32[T,64]", fails: "a norm of kind rms with gain false"},
		{line: `fused_linear v9 v10 v11 {weights=1 gain=true}`, typ: "f32[T,64]", fails: "a norm of kind none with gain true"},
		{line: `fused_linear v9 v10 {weights=1 narrow=true}`, typ: "f32[T,64]", fails: "a norm of kind none"},
		{line: `fused_linear v9 v10 v11 {weights=1 norm=layer shift=true}`, typ: "f32[T,64]", fails: "gain false, shift true"},
		{line: `fused_linear v9 v10 v11 v12 {weights=1 norm=layer gain=true shift=true}`, typ: "f32[T,64]", fails: "shift (v12) is f32[16], want shape [64]"},

		{line: `attention v13 v15 v2 v4 v5 v6 {scale=0.25}`, typ: "f32[T,4,16]"},
		{line: `attention v13 v15 v2 v4 v5 v6 {scale=0.25 window=128 softcap=50}`, typ: "f32[T,4,16]"},
		{line: `attention v13 v15 v2 v4 v5 v6 v12 {scale=0.25}`, typ: "f32[T,4,16]", fails: "sinks (v12) is f32[16], want shape [4]"},
		{line: `attention v13 v15 v2 v4 v5 v6 v23 {scale=0.25 slopes=true}`, typ: "f32[T,4,16]"},
		{line: `attention v13 v15 v2 v4 v5 v6 v23 v23 {scale=0.25 slopes=true}`, typ: "f32[T,4,16]"},
		{line: `attention v13 v15 v2 v4 v5 v6 v23 v12 {scale=0.25 slopes=true}`, typ: "f32[T,4,16]", fails: "slopes (v12) is f32[16], want shape [4]"},
		{line: `attention v13 v15 v2 v4 v5 v6 {scale=0.25 slopes=true}`, typ: "f32[T,4,16]", fails: "6 operands, slopes true"},
		{line: `attention v13 v15 v2 v4 v5 v6 v23 v23 {scale=0.25}`, typ: "f32[T,4,16]", fails: "8 operands, slopes false"},
		{line: `attention v13 v15 v2 v4 v5 v6 v9 {scale=0.25 activation=sigmoid}`, typ: "f32[T,4,16]"},
		{line: `attention v13 v15 v2 v4 v5 v6 v9 v23 v23 {scale=0.25 slopes=true activation=softplus byhead=true from=60}`, typ: "f32[T,4,16]"},
		{line: `attention v13 v15 v2 v4 v5 v6 v9 {scale=0.25 activation=softplus byhead=true from=61}`, typ: "f32[T,4,16]", fails: "gate of 4 columns from 61 in f32[T,64]"},
		{line: `attention v13 v15 v2 v4 v5 v6 v9 {scale=0.25 activation=sigmoid from=-1}`, typ: "f32[T,4,16]", fails: "gate of 64 columns from -1"},
		{line: `attention v13 v15 v2 v4 v5 v6 v9 {scale=0.25 activation=clamped_swiglu}`, typ: "f32[T,4,16]", fails: "exists as a gate only"},
		{line: `attention v13 v15 v2 v4 v5 v6 {scale=0.25 activation=sigmoid}`, typ: "f32[T,4,16]", fails: "6 operands"},
		{line: `attention v13 v15 v2 v4 v5 v6 {scale=0.25 byhead=true}`, typ: "f32[T,4,16]", fails: "columns of no gate"},
		{line: `attention v13 v15 v2 v4 v5 v6 {scale=0.25 window=-3}`, typ: "f32[T,4,16]", fails: "a window of -3 keys"},
		{line: `attention v13 v34 v2 v4 v5 v6 {scale=0.25 window=100}`, typ: "f32[T,4,16]"},
		{line: `attention v13 v34 v2 v4 v5 v6 {scale=0.25 window=101}`, typ: "f32[T,4,16]", fails: "a window of 101 keys, of which v34 keeps 100"},
		{line: `attention v13 v34 v2 v4 v5 v6 {scale=0.25}`, typ: "f32[T,4,16]", fails: "a window of 0 keys, of which v34 keeps 100"},
		{line: `cache {layer=1}`, typ: "cache<f16,2,16,32,4294967296>", fails: "a window of 4294967296"},
		{line: `attention v13 v15 v2 v4 v5 v6 {scale=0.25 softcap=-3}`, typ: "f32[T,4,16]", fails: "the cap is -3"},
		{line: `attention v16 v15 v2 v4 v5 v6 {scale=0.25}`, typ: "f32[T,2,32]", fails: "q (v16) is f32[T,2,32], want shape [T,2,16]"},
		{line: `attention v13 v9 v2 v4 v5 v6 {scale=0.25}`, typ: "f32[T,4,16]", fails: "operand 1 (v9) is f32[T,64], not a cache"},
		{line: `attention v13 v15 v7 v4 v5 v6 {scale=0.25}`, typ: "f32[T,4,16]", fails: "positions (v7)"},
		{line: `attention v13 v15 v2 v5 v5 v6 {scale=0.25}`, typ: "f32[T,4,16]", fails: "cu_seqlens (v5)"},
		{line: `attention v13 v15 v2 v4 v4 v6 {scale=0.25}`, typ: "f32[T,4,16]", fails: "context_lens (v4)"},
		{line: `attention v13 v15 v2 v4 v5 v5 {scale=0.25}`, typ: "f32[T,4,16]", fails: "block_table (v5)"},

		{line: `qkv_write v18 v15 v3 {heads=4}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `qkv_write v18 v15 v7 {heads=4}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "slots (v7)"},
		{line: `qkv_write v18 v15 v3 {heads=3}`, typ: "(f32[T,3,16], cache<f16,2,16,32>)", fails: "3 query heads over 2 KV heads"},
		{line: `rope_qkv_write v18 v15 v2 v3 {heads=4 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `rope_qkv_write v18 v15 v2 v3 v19 {heads=4 ` + rope + `}`, typ: "(f16[T,4,16], cache<f16,2,16,32>)"},
		{line: `rope_qkv_write v18 v15 v2 v3 {heads=4 ` + rope + `}`, typ: "f32[T,4,16]", fails: "the type should be (f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `rope_qkv_write v18 v15 v2 v3 {heads=3 ` + rope + `}`, typ: "(f32[T,3,16], cache<f16,2,16,32>)", fails: "3 query heads over 2 KV heads"},
		{line: `rope_qkv_write v18 v15 v2 v3 {heads=6 ` + rope + `}`, typ: "(f32[T,6,16], cache<f16,2,16,32>)", fails: "qkv (v18) is f32[T,128], want shape [T,160]"},
		{line: `rope_qkv_write v18 v15 v2 v3 v12 {heads=4 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "factors (v12) is f32[16], want shape [8]"},
		{line: `rope_qkv_write v18 v15 v7 v3 {heads=4 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "positions (v7)"},
		{line: `rope_qkv_write v18 v15 v2 v7 {heads=4 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "slots (v7)"},
		{line: `head_norm_rope_kv_write v18 v15 v2 v3 v12 v12 {heads=4 eps=1e-06 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `head_norm_rope_kv_write v18 v15 v2 v3 v12 v12 v19 {heads=4 eps=1e-06 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `head_norm_rope_kv_write v18 v15 v2 v3 v11 v12 {heads=4 eps=1e-06 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "query norm (v11) is f32[64], want shape [16]"},
		{line: `head_norm_rope_kv_write v18 v15 v2 v3 v12 v11 {heads=4 eps=1e-06 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "key norm (v11) is f32[64], want shape [16]"},
		{line: `head_norm_rope_kv_write v18 v15 v2 v3 v12 v12 {heads=4 eps=-1 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "eps is -1"},

		{line: `latent_write v92 v13 v27 v12 v91 v2 v3 {eps=1e-06 from=168 rotated=8 theta=10000 freqscale=1 magnitude=1}`, typ: "(f32[T,4,24], cache<f16,1,24,32,latent>)"},
		{line: `latent_write v92 v13 v27 v12 v91 v2 v3 {eps=1e-06 from=169 rotated=8 theta=10000 freqscale=1 magnitude=1}`, typ: "(f32[T,4,24], cache<f16,1,24,32,latent>)", fails: "columns [169,193) of all (v27), f32[T,192]"},
		{line: `latent_write v92 v13 v27 v12 v91 v2 v3 {rotated=6 theta=10000 freqscale=1 magnitude=1}`, typ: "(f32[T,4,24], cache<f16,1,24,32,latent>)", fails: "absorbed (v92) is f32[T,4,16], want shape [T,4,18]"},
		{line: `latent_write v92 v13 v27 v12 v15 v2 v3 {rotated=8 theta=10000 freqscale=1 magnitude=1}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "8 rotated elements in rows of v15"},
		{line: `latent_write v92 v16 v27 v12 v91 v2 v3 {rotated=8 theta=10000 freqscale=1 magnitude=1}`, typ: "(f32[T,4,24], cache<f16,1,24,32,latent>)", fails: "q (v16) is f32[T,2,32]"},
		{line: `latent_write v92 v13 v27 v11 v91 v2 v3 {rotated=8 theta=10000 freqscale=1 magnitude=1}`, typ: "(f32[T,4,24], cache<f16,1,24,32,latent>)", fails: "gain (v11) is f32[64], want shape [16]"},

		{line: `latent_attention v92 v13 v27 v12 v91 v2 v3 v4 v5 v6 {eps=1e-06 rotated=8 theta=10000 freqscale=1 magnitude=1 scale=1}`, typ: "(f32[T,4,24], cache<f16,1,24,32,latent>)"},
		{line: `latent_attention v92 v13 v27 v12 v91 v2 v3 v4 v5 v5 {eps=1e-06 rotated=8 theta=10000 freqscale=1 magnitude=1 scale=1}`, typ: "(f32[T,4,24], cache<f16,1,24,32,latent>)", fails: "block_table (v5)"},
		{line: `latent_attention v92 v13 v27 v12 v15 v2 v3 v4 v5 v6 {eps=1e-06 rotated=8 theta=10000 freqscale=1 magnitude=1 scale=1}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "8 rotated elements in rows of v15"},

		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 {heads=4 scale=0.25 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 v19 {heads=4 scale=0.25 factors=true ` + rope + `}`, typ: "(f16[T,4,16], cache<f16,2,16,32>)"},
		{line: `head_norm_rope_kv_write_attention v18 v15 v2 v3 v4 v5 v6 v12 v12 v19 {heads=4 scale=0.25 factors=true ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 {heads=4 scale=0.25 ` + rope + `}`, typ: "f32[T,4,16]", fails: "the type should be (f32[T,4,16], cache<f16,2,16,32>)"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 v19 {heads=4 scale=0.25 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "8 operands"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 {heads=4 scale=0.25 sinks=true ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "7 operands"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 v12 {heads=4 scale=0.25 sinks=true ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "sinks (v12) is f32[16], want shape [4]"},
		{line: `rope_qkv_write_attention v18 v15 v2 v7 v4 v5 v6 {heads=4 scale=0.25 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "slots (v7)"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v5 v5 v6 {heads=4 scale=0.25 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "cu_seqlens (v5)"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 {heads=3 scale=0.25 ` + rope + `}`, typ: "(f32[T,3,16], cache<f16,2,16,32>)", fails: "3 query heads over 2 KV heads"},
		{line: `rope_qkv_write_attention v18 v15 v2 v3 v4 v5 v6 {heads=4 scale=0.25 softcap=-1 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "the cap is -1"},
		{line: `head_norm_rope_kv_write_attention v18 v15 v2 v3 v4 v5 v6 v12 v11 {heads=4 scale=0.25 ` + rope + `}`, typ: "(f32[T,4,16], cache<f16,2,16,32>)", fails: "key norm (v11)"},
	} {
		name := c.line + " : " + c.typ
		_, err := parse("fused", "  v50 = "+name+"\n  return \"x\" v50")
		if c.fails == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, ir.ErrInvalid, name)
			require.ErrorContains(t, err, c.fails, name)
			require.ErrorContains(t, err, "v50 = ", name)
		}
	}
}

// TestVerify breaks each law of a graph that a text can break.
func TestVerify(t *testing.T) {
	for name, c := range map[string]struct{ stage, lines, want string }{
		"no results":       {"source", "", "no results"},
		"fused op":         {"source", "v50 = fused_linear v9 v10 {weights=1} : f32[T,64]\n return \"x\" v50", "fused_linear belongs to the fused stage"},
		"weight twice":     {"source", "v50 = weight {name=\"w\"} : f16[64,64]\n return \"x\" v50", "weight w is v10 = weight"},
		"input twice":      {"source", "v50 = input {name=\"slots\"} : i32[R]\n return \"x\" v9", "input slots is v3 = input"},
		"cache twice":      {"source", "v50 = cache {layer=0} : cache<f16,2,16,32>\n return \"x\" v9", "cache of layer 0 is v15 = cache"},
		"layer":            {"source", "v50 = activate v9 {activation=silu} : f32[T,64] @70000\n return \"x\" v50", "layer 70000"},
		"written twice":    {"source", "v50 = cache_write v15 v22 v22 v3 : cache<f16,2,16,32>\n v51 = cache_write v15 v22 v22 v3 : cache<f16,2,16,32>\n return \"x\" v51", "uses v15, which v50 has replaced"},
		"read when old":    {"source", "v50 = cache_write v15 v22 v22 v3 : cache<f16,2,16,32>\n v51 = cache_read v15 v5 v6 {} : f32[B*Smax,2,16]\n return \"x\" v51", "uses v15, which v50 has replaced"},
		"read and written": {"source", "v50 = cache_read v15 v5 v6 {} : f32[B*Smax,2,16]\n v51 = cache_write v15 v22 v22 v3 : cache<f16,2,16,32>\n return \"x\" v51", "replaces v15, which v50 reads"},
		"old result":       {"source", "v50 = cache_write v15 v22 v22 v3 : cache<f16,2,16,32>\n return \"x\" v15", `result "x" is v15, which v50 has replaced`},
		"results alike":    {"source", "return \"x\" v9\n return \"x\" v9", `two results are named "x"`},
		"nameless result":  {"source", "return \"\" v9", `two results are named "", or one has no name`},
	} {
		_, err := parse(c.stage, c.lines)
		require.ErrorIs(t, err, ir.ErrInvalid, name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// TestVerifyBroken breaks the laws that only code can break.
func TestVerifyBroken(t *testing.T) {
	other := buildTiny(t)
	for name, c := range map[string]struct {
		damage func(f *ir.Func)
		want   string
	}{
		"stage":            {func(f *ir.Func) { f.Stage = 7 }, "stage 7"},
		"name":             {func(f *ir.Func) { f.Name = "two words" }, `"two words" cannot be a graph's name`},
		"no name":          {func(f *ir.Func) { f.Name = "" }, `"" cannot be a graph's name`},
		"ID 0":             {func(f *ir.Func) { f.Values[2].ID = 0 }, "v0 = embed v1 v2 : f32[T,32]: the ID is outside [1,40)"},
		"ID too large":     {func(f *ir.Func) { f.Values[2].ID = 40 }, "the ID is outside [1,40)"},
		"ID taken":         {func(f *ir.Func) { f.Values[1].ID = 1 }, `v1 = weight {name="embd"} : f32[16,32]: the ID is taken by v1 = input {name="tokens"} : i32[T]`},
		"nil operand":      {func(f *ir.Func) { f.Values[2].Args[1] = nil }, "v3 = embed v1 nil : f32[T,32]: an operand is missing"},
		"late operand":     {func(f *ir.Func) { f.Values[0], f.Values[2] = f.Values[2], f.Values[0] }, "v3 = embed v1 v2 : f32[T,32]: uses v1 before it is defined"},
		"stray operand":    {func(f *ir.Func) { f.Values[2].Args[0] = other.Values[0] }, "uses v1, which is no value of the graph"},
		"cycle":            {func(f *ir.Func) { f.Values[4].Args[0] = f.Values[36] }, "these values form a cycle: v5 = linear v37 v4"},
		"own operand":      {func(f *ir.Func) { f.Values[36].Args[0] = f.Values[36] }, "v37 = add v37 v36 : f32[T,32] @0 uses itself"},
		"no op":            {func(f *ir.Func) { f.Values[2].Op = 200 }, "no such op"},
		"attribute":        {func(f *ir.Func) { f.Values[2].Attr = ir.NormAttr{} }, "embed: attribute is ir.NormAttr, want <nil>"},
		"no attribute":     {func(f *ir.Func) { f.Values[29].Attr = nil }, "scale: attribute is <nil>, want ir.ScaleAttr"},
		"not a number":     {func(f *ir.Func) { f.Values[29].Attr = ir.ScaleAttr{Value: math.NaN()} }, "the factor is NaN"},
		"layer":            {func(f *ir.Func) { f.Values[2].Layer = -2 }, "layer -2"},
		"no such result":   {func(f *ir.Func) { f.Results[0].Value = other.Values[0] }, `result "logits" is no value of the graph`},
		"type of no kind":  {func(f *ir.Func) { f.Values[0].Type = ir.Type{} }, `"tokens" is invalid, want a tensor`},
		"type of no dtype": {func(f *ir.Func) { f.Values[0].Type = ir.TensorOf(99, ir.Const(1)) }, `has no element type`},
	} {
		f := buildTiny(t)
		c.damage(f)
		err := f.Verify()
		require.ErrorIs(t, err, ir.ErrInvalid, name)
		require.ErrorContains(t, err, c.want, name)
	}
}
