package ir

import "fmt"

// Op is the operation of a value.
type Op uint8

// The ops. Each row of opTable documents an op's operands and result.
const (
	OpInvalid Op = iota

	OpInput
	OpWeight
	OpConst
	OpCache
	OpState

	OpEmbed
	OpLinear
	OpRMSNorm
	OpGroupNorm
	OpLayerNorm
	OpReshape
	OpTranspose
	OpSlice
	OpConcat
	OpIndices
	OpRope
	OpCacheWrite
	OpCacheRead
	OpCopyBlocks
	OpShortConv
	OpDeltaNet
	OpMamba2
	OpRepeatKV
	OpMatmul
	OpScale
	OpSoftCap
	OpMask
	OpSoftmax
	OpActivate
	OpGate
	OpMul
	OpAdd
	OpGain
	OpShift
	OpGatherRows
	OpArgmax
	OpRouter
	OpCast
	OpSelect
	OpExpertLinear
	OpWeightedSum

	OpFusedLinear
	OpRoutedLinear
	OpNormResidual
	OpGatedShortConv
	OpSiLUShortConv
	OpGatedDeltaNet
	OpGatedMamba2
	OpAttention
	OpQKVWrite
	OpRopeQKVWrite
	OpHeadNormRopeKVWrite
	OpLatentWrite
	OpRopeQKVWriteAttention
	OpHeadNormRopeKVWriteAttention
	OpHeadNormRopeAttention
	OpLatentAttention
	OpRepeatKVPair

	numOps
)

// NumOps is an exclusive upper bound of the ops, for tables indexed by Op.
const NumOps = int(numOps)

// opInfo is one row of the op table.
type opInfo struct {
	name     string
	min, max int   // number of operands
	attr     any   // zero value of the attribute's type; nil where the op has none
	stage    Stage // the first stage that may hold the op
	free     bool  // the result may have any floating-point type
	explicit bool  // the caller gives the type, and infer checks it
	writes   int   // 1 + the operand whose state the op replaces; 0: writes no state
	alias    bool  // the result shares the first operand's memory
	swaps    bool  // the op is commutative
	rows     uint8 // bit i: see [Op.KeepsRows]
	shares   uint8 // bit i: operand i has the element type of the result, see [Op.SharesType]
	float    bool  // see [Op.StaysFloat]
	category Category
	work     func(attr any) int64 // see [Op.Work]; nil: no arithmetic, or that of the op's decomposition
	infer    func(in []*Value, attr any, given Type) (Type, error)
	doc      string
}

// opTable is indexed by Op. Its docs give operands and results with their shapes: K is the length
// of the innermost axis; S is the number of experts per token in routed ops, and of cached positions in
// ops that repeat heads.
var opTable [numOps]opInfo

func init() {
	opTable = [numOps]opInfo{
		OpInput:  {name: "input", category: InputOps, attr: NameAttr{}, stage: Source, explicit: true, infer: inferGiven, doc: "a per-step input"},
		OpWeight: {name: "weight", category: InputOps, float: true, attr: NameAttr{}, stage: Source, explicit: true, infer: inferGiven, doc: "a tensor of the model file"},
		OpConst:  {name: "const", category: InputOps, float: true, attr: ConstAttr{}, stage: Source, explicit: true, infer: inferConst, doc: "a tensor that the compiler knows"},
		OpCache:  {name: "cache", category: CacheOps, attr: CacheAttr{}, stage: Source, explicit: true, infer: inferCache, doc: "a layer's KV cache before the step"},

		OpState: {name: "state", category: CacheOps, attr: StateAttr{}, stage: Source, explicit: true, infer: inferState, doc: "a layer's recurrent state before the step"},

		OpEmbed:   {name: "embed", category: RowOps, float: true, min: 2, max: 2, stage: Source, free: true, infer: inferEmbed, doc: "tokens[T], table[V,E] → [T,E]: rows of the table"},
		OpLinear:  {name: "linear", category: ProductOps, rows: 1, work: flops(2), min: 2, max: 3, stage: Source, free: true, infer: inferLinear, doc: "x[…,K], w[N,K], b[N]? → […,N]: x·wᵀ + b"},
		OpRMSNorm: {name: "rms_norm", category: NormOps, rows: 1, work: flops(4), min: 2, max: 2, attr: NormAttr{}, stage: Source, free: true, infer: inferNorm, doc: "x[…,K], w[K] → […,K]: x / √(mean(x²)+eps) · w"},
		OpGroupNorm: {name: "group_norm", category: NormOps, rows: 1, work: flops(4), shares: 1, min: 2, max: 2, attr: NormAttr{}, stage: Source, free: true, infer: inferGroupNorm,
			doc: "x[…,G,K], w[G,K] → […,G,K]: x / √(mean(x²)+eps) · w over each group of K"},
		OpLayerNorm: {name: "layer_norm", category: NormOps, rows: 1, work: flops(11), min: 1, max: 3, attr: NormAttr{}, stage: Source, free: true, infer: inferLayerNorm,
			doc: "x[…,K], w[K]?, b[K]? → […,K]: (x − mean(x)) / √(var(x)+eps) · w + b"},
		OpReshape:   {name: "reshape", category: MoveOps, rows: 1, alias: true, shares: 1, min: 1, max: 1, stage: Source, free: true, explicit: true, infer: inferReshape, doc: "the same elements in another shape"},
		OpTranspose: {name: "transpose", category: MoveOps, shares: 1, min: 1, max: 1, attr: TransposeAttr{}, stage: Source, free: true, infer: inferTranspose, doc: "x[a,b,c] with its axes in another order"},
		OpSlice:     {name: "slice", category: MoveOps, rows: 1, shares: 1, min: 1, max: 1, attr: SliceAttr{}, stage: Source, free: true, infer: inferSlice, doc: "x[…,K] → […,End−Start]: columns of the innermost axis"},
		OpConcat:    {name: "concat", category: MoveOps, rows: 15, shares: 15, min: 1, max: 4, stage: Source, free: true, infer: inferConcat, doc: "x[…,K], y[…,L] → […,K+L]: columns side by side"},
		OpIndices:   {name: "indices", category: MoveOps, min: 1, max: 1, attr: IndicesAttr{}, stage: Source, infer: inferIndices, doc: "positions[T] → i32[T,N]: 0 … N−1 for each token, −1 for one at a position below 0"},
		OpRope:      {name: "rope", category: CacheOps, work: flops(3), shares: 1, min: 2, max: 3, attr: RopeAttr{}, stage: Source, free: true, infer: inferRope, doc: "x[T,H,D], positions[T], factors[Rotated/2]? → [T,H,D]: rotary position embedding"},
		OpCacheWrite: {name: "cache_write", category: CacheOps, shares: 6, min: 4, max: 4, stage: Source, writes: 1, infer: inferCacheWrite,
			doc: "cache, k[T,KV,D], v[T,KV,D], slots[T] → cache: stores k[t] and v[t] at slot slots[t]"},
		OpCacheRead: {name: "cache_read", category: CacheOps, float: true, min: 3, max: 3, attr: CacheReadAttr{}, stage: Source, free: true, infer: inferCacheRead,
			doc: "cache, context_lens[B], block_table[B,NB] → [B*Smax,KV,D]: row b·Smax+j is key j of sequence b, zero from context_lens[b] on"},
		OpCopyBlocks: {name: "copy_blocks", category: CacheOps, min: 2, max: 2, stage: Source, writes: 1, infer: inferCopyBlocks,
			doc: "cache, copies[C,2] → cache: copies block copies[i,0] onto block copies[i,1]; no block is in both columns, or twice in the second"},
		OpShortConv: {name: "short_conv", category: ActivationOps, work: flops(2), shares: 1, min: 5, max: 5, stage: Source, free: true, writes: 3, infer: inferShortConv,
			doc: "x[T,E], w[E,K], state, cu_seqlens[B+1], states[B,2] → (y[T,E], state): y[t] = Σ w[·,K−1−j] · x[t−j] over j < K; the state holds x of the tokens before the step"},
		OpDeltaNet: {name: "delta_net", category: AttentionOps, work: flops(7), shares: 7, min: 8, max: 8, attr: DeltaNetAttr{}, stage: Source, free: true, writes: 6, infer: inferDeltaNet,
			doc: "qkv[T,(2·KeyHeads+H)·D], alpha[T,H], beta[T,H], decay[H], bias[H], state, cu_seqlens[B+1], states[B,2] → (y[T,H,D], state): the gated delta rule, with each head of Q and K normalised to length 1"},
		OpMamba2: {name: "mamba2", category: AttentionOps, work: flops(5), shares: 3, min: 8, max: 8, attr: Mamba2Attr{}, stage: Source, free: true, writes: 6, infer: inferMamba2,
			doc: "xbc[T,H·D+2·Groups·N], dt[T,H], decay[H], bias[H], skip[H], state, cu_seqlens[B+1], states[B,2] → (y[T,H,D], state): the state space of Mamba-2; decay and skip may be columns [H,1]"},
		OpRepeatKV: {name: "repeat_kv", category: AttentionOps, shares: 1, min: 1, max: 1, attr: RepeatAttr{}, stage: Source, free: true, infer: inferRepeat, doc: "x[S,KV,D] → [S,KV·N,D]: N adjacent copies of each head"},
		OpMatmul:   {name: "matmul", category: ProductOps, work: flops(2), shares: 3, float: true, min: 2, max: 2, attr: MatmulAttr{}, stage: Source, free: true, infer: inferMatmul, doc: "a[H,m,k], b[H,k,n] (or [H,n,k] if TransB) → [H,m,n]"},
		OpScale:    {name: "scale", rows: 1, work: flops(1), shares: 1, min: 1, max: 1, attr: ScaleAttr{}, stage: Source, free: true, infer: inferScale, doc: "x · Value"},
		OpSoftCap:  {name: "soft_cap", category: AttentionOps, rows: 1, work: flops(3), shares: 1, min: 1, max: 1, attr: ScaleAttr{}, stage: Source, free: true, infer: inferSoftCap, doc: "Value · tanh(x / Value)"},
		OpMask: {name: "mask", category: AttentionOps, work: flops(1), shares: 1, float: true, min: 4, max: 5, attr: MaskAttr{}, stage: Source, free: true, infer: inferMask,
			doc: "scores[H,T,B*Smax], positions[T], cu_seqlens[B+1], context_lens[B], slopes[H]? → scores + slope · (key − position), −∞ at keys that the token does not attend to"},
		OpSoftmax:    {name: "softmax", category: AttentionOps, rows: 1, work: flops(4), shares: 1, float: true, min: 1, max: 2, stage: Source, free: true, infer: inferSoftmax, doc: "x[…,K] or x[H,T,K], sinks[H] → softmax over the innermost axis, with sinks[h] as one more element of the sum; a row of −∞ only gives zeros"},
		OpActivate:   {name: "activate", category: ActivationOps, rows: 1, work: activationFlops, shares: 1, min: 1, max: 1, attr: ActivationAttr{}, stage: Source, free: true, infer: inferActivate, doc: "Activation(x), element by element"},
		OpGate:       {name: "gate", category: ActivationOps, rows: 3, work: gateFlops, shares: 3, min: 2, max: 2, attr: ActivationAttr{}, stage: Source, free: true, infer: inferGate, doc: "Activation(x) · y, or the formula in x and y of an activation that exists as a gate only"},
		OpMul:        {name: "mul", rows: 3, work: flops(1), swaps: true, shares: 3, min: 2, max: 2, stage: Source, free: true, infer: inferBinary, doc: "x · y, element by element"},
		OpAdd:        {name: "add", rows: 3, work: flops(1), swaps: true, shares: 3, float: true, min: 2, max: 2, stage: Source, free: true, infer: inferBinary, doc: "x + y, element by element"},
		OpGain:       {name: "gain", rows: 1, work: flops(1), shares: 1, float: true, min: 2, max: 2, stage: Source, free: true, infer: inferGain, doc: "x[T,…], w[…] → [T,…]: x[t] · w for each token t, element by element; w[1]: one number for all"},
		OpShift:      {name: "shift", rows: 1, work: flops(1), shares: 1, float: true, min: 2, max: 2, stage: Source, free: true, infer: inferGain, doc: "x[T,…], w[…] → [T,…]: x[t] + w for each token t, element by element; w[1]: one number for all"},
		OpGatherRows: {name: "gather_rows", category: RowOps, shares: 1, min: 2, max: 2, stage: Source, free: true, infer: inferGather, doc: "x[T,E], rows[R] → [R,E]: row r of the result is row rows[r] of x"},
		OpArgmax:     {name: "argmax", category: RowOps, work: flops(1), shares: 1, float: true, min: 1, max: 1, stage: Source, infer: inferArgmax, doc: "x[R,V] → i32[R]: index of the largest element of each row, the first among equals; −1 for a row with a NaN"},
		OpRouter: {name: "router", category: RowOps, rows: 1, work: flops(6), shares: 1, float: true, min: 1, max: 3, attr: RouterAttr{}, stage: Source, infer: inferRouter,
			doc: "logits[T,E+Others], bias[E]?, gains[E]? → (weights[T,S], experts i32[T,S]): the S experts with the largest Score(logit) + bias, and their weights by Score alone, the largest first, equals by the smaller index; NaN and −1 for a row with a NaN"},
		OpCast:   {name: "cast", category: MoveOps, rows: 1, min: 1, max: 1, stage: Source, free: true, explicit: true, infer: inferCast, doc: "the same elements in another floating-point type"},
		OpSelect: {name: "select", category: MoveOps, rows: 1, alias: true, shares: 1, min: 1, max: 1, attr: SelectAttr{}, stage: Source, infer: inferSelect, doc: "one element of a tuple"},

		OpExpertLinear: {name: "expert_linear", category: ProductOps, rows: 5, work: flops(2), min: 3, max: 4, stage: Source, free: true, infer: inferExpertLinear,
			doc: "x[T,K] or x[T,S,K], w[E,N,K], experts[T,S], b[E,N]? → [T,S,N]: x·w[e]ᵀ + b[e] for each expert e = experts[t,s] of a token; NaN where no expert has the index e"},
		OpWeightedSum: {name: "weighted_sum", category: RowOps, rows: 3, work: flops(2), shares: 3, float: true, min: 2, max: 2, stage: Source, free: true, infer: inferWeightedSum,
			doc: "x[T,S,N], weights[T,S] → [T,N]: Σ weights[t,s] · x[t,s]"},

		OpFusedLinear: {name: "fused_linear", category: ProductOps, min: 2, max: 14, attr: LinearAttr{}, stage: Fused, free: true, infer: inferFusedLinear,
			doc: "x[…,K], w…, b…?, gain[K]?, shift[K]?, rows[R]?, gate[…,G]?, residual[…,N]? → […,N]: one to four products side by side, with the prologue and epilogue of the attribute"},
		OpRoutedLinear: {name: "routed_linear", category: ProductOps, min: 3, max: 10, attr: RoutedAttr{}, stage: Fused, free: true, infer: inferRoutedLinear,
			doc: "x[T,K] or x[T,S,K], w…[E,N,K], b…[E,N]?, gain[K]?, shift[K]?, residual[T,N]?, experts[T,S], weights[T,S]? → [T,S,N], or [T,N] with weights: expert_linear of one w, or a gate of two, with the prologue and epilogue of the attribute; weights add a weighted_sum"},
		OpNormResidual: {name: "norm_residual", category: NormOps, shares: 5, float: true, min: 3, max: 4, attr: NormAttr{}, stage: Fused, free: true, infer: inferNormResidual,
			doc: "x[…,K], w[K], residual[…,K], [gain[1]] → […,K]: (residual + x / √(mean(x²)+eps) · w) · gain"},
		OpGatedShortConv: {name: "gated_short_conv", category: ActivationOps, shares: 1, min: 5, max: 5, stage: Fused, free: true, writes: 3, infer: inferGatedShortConv,
			doc: "all[T,3·E], w[E,K], state, cu_seqlens[B+1], states[B,2] → (y[T,E], state): c · short_conv(b · u), where all holds b, c and u side by side"},
		OpSiLUShortConv: {name: "silu_short_conv", category: ActivationOps, shares: 1, min: 5, max: 6, attr: ConvAttr{}, stage: Fused, free: true, writes: 3, infer: inferSiLUShortConv,
			doc: "all[T,N], w[E,K], state, cu_seqlens[B+1], states[B,2], bias[E]? → (y[T,E], state): SiLU(short_conv(x) + bias), where x is E columns of all, those from From on"},
		OpGatedDeltaNet: {name: "gated_delta_net", category: AttentionOps, shares: 35, min: 9, max: 9, attr: GatedDeltaNetAttr{}, stage: Fused, free: true, writes: 7, infer: inferGatedDeltaNet,
			doc: "qkv[T,(2·KeyHeads+H)·D], gates[T,2·H], decay[H], bias[H], gain[D], all[T,N], state, cu_seqlens[B+1], states[B,2] → (y[T,H,D], state): rms_norm(delta_net(qkv, alpha, beta, …), gain) · SiLU(z), where gates holds alpha and beta side by side and z is the last H·D columns of all"},
		OpGatedMamba2: {name: "gated_mamba2", category: AttentionOps, shares: 3, min: 8, max: 8, attr: Mamba2Attr{}, stage: Fused, free: true, writes: 6, infer: inferGatedMamba2,
			doc: "xbc[T,H·D+2·Groups·N], all[T,M], decay[H], bias[H], skip[H], state, cu_seqlens[B+1], states[B,2] → (y[T,H,D], state): mamba2(xbc, dt, …) · SiLU(z), where z is the first H·D columns of all and dt the last H"},
		OpAttention: {name: "attention", category: AttentionOps, shares: 1, min: 6, max: 9, attr: AttentionAttr{}, stage: Fused, free: true, infer: inferAttention,
			doc: "q[T,H,D], cache, positions[T], cu_seqlens[B+1], context_lens[B], block_table[B,NB], gate[T,G]?, sinks[H]?, slopes[H]? → [T,H,D]: query head h reads KV head h·KV/H; the result is multiplied by the activation of a gate in columns of G"},
		OpQKVWrite: {name: "qkv_write", category: CacheOps, shares: 1, min: 3, max: 3, attr: QKVWriteAttr{}, stage: Fused, free: true, writes: 2, infer: inferQKVWrite,
			doc: "qkv[T,(H+2·KV)·D or more], cache, slots[T] → (q[T,H,D], cache): returns Q, stores K and V"},
		OpRopeQKVWrite: {name: "rope_qkv_write", category: CacheOps, shares: 1, min: 4, max: 5, attr: RopeWriteAttr{}, stage: Fused, free: true, writes: 2, infer: inferRopeWrite,
			doc: "qkv[T,(H+2·KV)·D or more], cache, positions[T], slots[T], factors? → (q[T,H,D], cache): rotates Q and K, returns Q, stores K and V"},
		OpHeadNormRopeKVWrite: {name: "head_norm_rope_kv_write", category: CacheOps, shares: 1, min: 6, max: 7, attr: RopeWriteAttr{}, stage: Fused, free: true, writes: 2, infer: inferHeadNormWrite,
			doc: "qkv[T,(H+2·KV)·D or more], cache, positions[T], slots[T], qnorm[D], knorm[D], factors? → (q[T,H,D], cache): RMSNorm of every Q and K head, then as rope_qkv_write"},
		OpLatentWrite: {name: "latent_write", category: CacheOps, shares: 7, min: 7, max: 8, attr: LatentWriteAttr{}, stage: Fused, free: true, writes: 5, infer: inferLatentWrite,
			doc: "absorbed[T,H,K], q[T,H,D], all[T,N], gain[K], cache, positions[T], slots[T], factors? → (q[T,H,K+R], cache): puts the last R elements of each head of q, rotated, behind the absorbed ones; stores rms_norm of K columns of all, and the R columns behind them, rotated"},
		OpRopeQKVWriteAttention: {name: "rope_qkv_write_attention", category: AttentionOps, shares: 1, min: 7, max: 11, attr: AttentionWriteAttr{}, stage: Fused, free: true, writes: 2, infer: inferAttentionWrite(OpRopeQKVWriteAttention),
			doc: "qkv[T,(H+2·KV)·D or more], cache, positions[T], slots[T], cu_seqlens[B+1], context_lens[B], block_table[B,NB], gate?, factors?, sinks[H]?, slopes[H]? → (out[T,H,D], cache): rope_qkv_write, then attention over its results"},
		OpHeadNormRopeKVWriteAttention: {name: "head_norm_rope_kv_write_attention", category: AttentionOps, shares: 1, min: 9, max: 13, attr: AttentionWriteAttr{}, stage: Fused, free: true, writes: 2, infer: inferAttentionWrite(OpHeadNormRopeKVWriteAttention),
			doc: "qkv, cache, positions, slots, cu_seqlens, context_lens, block_table, gate?, qnorm[D], knorm[D], factors?, sinks?, slopes? → (out[T,H,D], cache): head_norm_rope_kv_write, then attention over its results"},
		OpHeadNormRopeAttention: {name: "head_norm_rope_attention", category: AttentionOps, shares: 1, min: 7, max: 11, attr: AttentionWriteAttr{}, stage: Fused, free: true, infer: inferQueryAttention,
			doc: "q[T,H·D], cache, positions[T], cu_seqlens[B+1], context_lens[B], block_table[B,NB], gate?, qnorm[D], factors?, sinks?, slopes? → [T,H,D]: RMSNorm and RoPE of every head of Q, then attention over a cache that has the keys and values"},
		OpLatentAttention: {name: "latent_attention", category: AttentionOps, shares: 7, min: 10, max: 11, attr: LatentAttentionAttr{}, stage: Fused, free: true, writes: 5, infer: inferLatentAttention,
			doc: "absorbed, q, all, gain, cache, positions, slots, factors?, cu_seqlens[B+1], context_lens[B], block_table[B,NB] → (out[T,H,K+R], cache): latent_write, then attention over its results"},
		OpRepeatKVPair: {name: "repeat_kv_pair", category: AttentionOps, shares: 3, min: 2, max: 2, attr: RepeatAttr{}, stage: Fused, free: true, infer: inferRepeatPair,
			doc: "k[S,KV,D], v[S,KV,D] → (k[S,KV·N,D], v[S,KV·N,D]): repeat_kv of both"},
	}
}

func flops(n int64) func(any) int64 { return func(any) int64 { return n } }

func activationFlops(attr any) int64 {
	a, _ := attr.(ActivationAttr)
	return a.Activation.Work()
}

// gateFlops adds the gate's product to the activation's work; the work of an activation that
// exists as a gate only includes it.
func gateFlops(attr any) int64 {
	a, _ := attr.(ActivationAttr)
	if a.Activation.OnlyGated() {
		return a.Activation.Work()
	}
	return a.Activation.Work() + 1
}

// String returns the op's name in the text form.
func (op Op) String() string {
	if op > OpInvalid && op < numOps {
		return opTable[op].name
	}
	return fmt.Sprintf("op(%d)", uint8(op))
}

// Doc returns one line: the op's operands, result and formula.
func (op Op) Doc() string { return opTable[op].doc }

// Stage returns the first stage whose graphs may hold the op.
func (op Op) Stage() Stage { return opTable[op].stage }

// ParseOp is the inverse of String.
func ParseOp(name string) (Op, bool) {
	for op := OpInput; op < numOps; op++ {
		if opTable[op].name == name {
			return op, true
		}
	}
	return OpInvalid, false
}

// Writes returns the index of the operand whose state the op replaces, or -1.
func (op Op) Writes() int { return opTable[op].writes - 1 }

// IsLeaf reports whether the op has no operands: an input, weight, constant, cache or state.
func (op Op) IsLeaf() bool { return opTable[op].max == 0 }

// IsAlias reports whether the result shares the memory of the first operand.
func (op Op) IsAlias() bool { return opTable[op].alias }

// IsCommutative reports whether the op's two operands may be swapped.
func (op Op) IsCommutative() bool { return opTable[op].swaps }

// SharesType reports whether operand i must have the element type of the result when a pass
// changes it. Where the result is a state, the operands that share must have one common type.
func (op Op) SharesType(i int) bool { return opTable[op].shares>>i&1 == 1 }

// KeepsRows reports whether row r of the result reads row r of operand i and no other row of it.
// Rows lie along the outermost axis, of which both have equally many.
func (op Op) KeepsRows(i int) bool { return opTable[op].rows>>i&1 == 1 }

// StaysFloat reports whether the result, and operands that share its type, are F32 on every
// target.
func (op Op) StaysFloat() bool { return opTable[op].float }

// Work returns the floating-point operations of an op per element read or, for products, per
// term of their sums. Additions, multiplications, comparisons, exponentials, roots and tanh
// count one each; the work of a fused op is that of its decomposition, and Work returns 0.
//
// RMSNorm squares, adds and multiplies by two factors. LayerNorm takes two for the mean,
// four for the variance and five to finish. Softmax compares, exponentiates, adds and
// divides. RoPE takes four products and two sums for a pair.
func (op Op) Work(attr any) int64 {
	if work := opTable[op].work; work != nil {
		return work(attr)
	}
	return 0
}

// Infer returns the type of a value from its operands and attribute. Ops whose
// type is explicit (inputs, weights, reshape, cast) cannot be inferred.
func (op Op) Infer(in []*Value, attr any) (Type, error) {
	if opTable[op].explicit {
		return Type{}, fmt.Errorf("%s: the type must be given", op)
	}
	return op.check(in, attr, Type{})
}

func (op Op) check(in []*Value, attr any, given Type) (Type, error) {
	row := &opTable[op]
	if len(in) < row.min || len(in) > row.max {
		return Type{}, fmt.Errorf("%s takes %s, not %d", op, operands(row.min, row.max), len(in))
	}
	if !sameAttrType(attr, row.attr) {
		return Type{}, fmt.Errorf("%s: attribute is %T, want %T", op, attr, row.attr)
	}
	t, err := row.infer(in, attr, given)
	if err != nil {
		return Type{}, fmt.Errorf("%s: %w", op, err)
	}
	return t, nil
}

func operands(min, max int) string {
	if min == max {
		return fmt.Sprintf("%d operands", min)
	}
	return fmt.Sprintf("%d to %d operands", min, max)
}
