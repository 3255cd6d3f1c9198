package ir

import "slices"

// Attributes are comparable structs, so that two values compute the same thing
// if and only if op, type, arguments and attribute are equal. Every field is a
// string, bool, int, float64, a named number such as Activation, or a struct of such;
// text.go prints them by name.

// NameAttr names an input or a weight.
type NameAttr struct{ Name string }

// ConstAttr holds the little-endian bytes of a constant's elements.
type ConstAttr struct{ Data string }

// CacheAttr names the layer whose KV cache a state value starts.
type CacheAttr struct{ Layer int }

// StateAttr names the recurrent state that a state value starts. A layer may have several,
// under different names.
type StateAttr struct {
	Layer int
	Name  string
}

// CacheReadAttr selects whether cache_read returns K or V.
type CacheReadAttr struct{ Values bool } // V instead of K

// NormAttr belongs to rms_norm, norm_residual and layer_norm.
type NormAttr struct{ Eps float64 }

// TransposeAttr gives, for each axis of the result, the axis of the operand.
type TransposeAttr struct{ A, B, C int }

// RopeAttr describes a rotary position embedding. The angle of pair i at
// position p is p · FreqScale · Theta^(−2i/Rotated), divided by factor i where
// the op has a table of factors.
type RopeAttr struct {
	Interleaved bool // pairs (2i, 2i+1); otherwise NeoX pairs (i, i+Rotated/2)
	Rotated     int  // leading elements of a head that rotate
	Theta       float64
	FreqScale   float64
	Magnitude   float64 // multiplies cosine and sine; 1 but for YaRN
}

// RepeatAttr is the number of times that repeat_kv and repeat_kv_pair repeat each KV head.
type RepeatAttr struct{ N int }

// MatmulAttr belongs to matmul.
type MatmulAttr struct{ TransB bool } // b is [batch, n, k]

// ScaleAttr belongs to scale and soft_cap.
type ScaleAttr struct{ Value float64 }

// MaskAttr belongs to mask.
type MaskAttr struct {
	Window int // keys visible to a token, its own being the last; 0: all up to its own
}

// AttentionAttr belongs to attention.
type AttentionAttr struct {
	Scale   float64 // factor of the products of query and key
	Window  int     // see MaskAttr
	SoftCap float64 // scaled scores become SoftCap · tanh(score / SoftCap); 0: no cap
	Slopes  bool    // the last operand is the slopes of ALiBi, see mask
	Gate    GateAttr
}

// GateAttr describes a gate whose activation multiplies the result of an attention. It lies in the
// columns of an operand from From on: one for each element of each head, or for each head.
type GateAttr struct {
	Activation Activation // NoActivation: there is no gate
	ByHead     bool       // a column for each head
	From       int
}

// Width returns the number of the gate's columns for heads of head elements.
func (a GateAttr) Width(heads, head int64) int64 {
	if a.ByHead {
		return heads
	}
	return heads * head
}

// Gated returns the operand of an attention that holds its gate, or nil.
func (a AttentionAttr) Gated(in []*Value) *Value {
	if a.Gate.Activation == NoActivation {
		return nil
	}
	return in[6]
}

// Optional returns the optional operands of an attention besides the gate, nil where absent.
func (a AttentionAttr) Optional(in []*Value) (sinks, slopes *Value) {
	rest := in[6:]
	if a.Gated(in) != nil {
		rest = rest[1:]
	}
	if a.Slopes {
		slopes, rest = rest[len(rest)-1], rest[:len(rest)-1]
	}
	if len(rest) > 0 {
		sinks = rest[0]
	}
	return sinks, slopes
}

// ActivationAttr belongs to activate and gate.
type ActivationAttr struct{ Activation Activation }

// DeltaNetAttr belongs to delta_net.
type DeltaNetAttr struct {
	KeyHeads int     // heads of Q and of K
	Adjacent bool    // heads of V that share one of Q and K are adjacent; if not, they are KeyHeads apart
	Eps      float64 // added under the root when Q and K are normalised to length 1
}

// Share returns the number of adjacent heads of V, of so many, that have the same head of Q and K:
// head h of V has Q and K of head h / Share modulo KeyHeads.
func (a DeltaNetAttr) Share(heads int) int {
	if a.Adjacent {
		return heads / a.KeyHeads
	}
	return 1
}

// GatedDeltaNetAttr belongs to gated_delta_net.
type GatedDeltaNetAttr struct {
	Delta   DeltaNetAttr
	NormEps float64 // eps of the norm of each head of the result
}

// Mamba2Attr belongs to mamba2 and gated_mamba2.
type Mamba2Attr struct {
	Groups int // number of groups of B and C; adjacent heads share one, and each has the same number of heads
}

// ConvAttr belongs to silu_short_conv.
type ConvAttr struct {
	From int // the first column that is convolved
}

// RouterAttr describes how router chooses experts and weights them. Its operands are the logits,
// then the bias and the gains where the attribute has them.
type RouterAttr struct {
	Score      RouterScore
	Chosen     int     // experts of a token
	Groups     int     // equal ranges of experts; 0: no groups
	UsedGroups int     // groups that a token chooses from: those with the largest sums of their two best scores
	Bias       bool    // a vector is added to the scores for the choice, not to the weights
	Normalised bool    // weights are divided by their sum
	Floor      float64 // what they are divided by is at least Floor
	Scale      float64 // factor of the weights; 0: 1
	Sharpness  float64 // factor of the logits; 0: 1
	Gains      bool    // the weight of expert e is multiplied by gains[e]
	Others     int     // columns behind the logits, which are not for the router
}

// SliceAttr selects columns [Start, End) of the innermost axis.
type SliceAttr struct{ Start, End int }

// IndicesAttr is the number of columns of indices.
type IndicesAttr struct{ N int }

// SelectAttr is the index of the tuple's element that select returns.
type SelectAttr struct{ Index int }

// LinearAttr describes the prologue and epilogue of a fused_linear. Its operands are those of
// [LinearOperands], in that order.
type LinearAttr struct {
	Weights    int        // matrices whose outputs are concatenated along columns, 1 to 4
	Bias       bool       // each weight has a bias, which is added to its products
	Activation Activation // applied to the products and biases
	Gated      bool       // Activation gates two weights: its x and y are their products
	Norm       NormKind   // normalisation of x before the product
	Eps        float64    // eps of Norm
	Gain       bool       // the norm multiplies by a vector; always set for RMSNorm
	Shift      bool       // the norm then adds a vector; LayerNorm only
	Narrow     bool       // the norm's result is rounded to the target's activation type
	Gather     bool       // the product gathers rows of X by index
	Leading    bool       // X may have more columns than a weight has: the first ones are read
	RowGate    Activation // of one element of each row of Gate, which multiplies that row of products; NoActivation: none does
	ColumnGate bool       // elements of Gate multiply those of the products, column by column
	GateColumn int        // which element, or the first one
	Residual   bool       // a residual is added to the result
}

// LinearOperands are the operands of a fused_linear; absent ones are nil.
type LinearOperands struct {
	X               *Value
	Weights, Biases []*Value
	Gain, Shift     *Value
	Rows            *Value
	Gate, Residual  *Value
}

// HasGate reports whether an operand multiplies the products.
func (a LinearAttr) HasGate() bool { return a.RowGate != NoActivation || a.ColumnGate }

// operands returns the number of operands.
func (a LinearAttr) operands() int {
	n := 1 + a.Weights
	if a.Bias {
		n += a.Weights
	}
	for _, has := range []bool{a.Gain, a.Shift, a.Gather, a.HasGate(), a.Residual} {
		if has {
			n++
		}
	}
	return n
}

// Operands names a fused_linear's operands.
func (a LinearAttr) Operands(in []*Value) LinearOperands {
	o := LinearOperands{X: in[0], Weights: in[1 : 1+a.Weights]}
	in = in[1+a.Weights:]
	if a.Bias {
		o.Biases, in = in[:a.Weights], in[a.Weights:]
	}
	for _, next := range []struct {
		has bool
		to  **Value
	}{{a.Gain, &o.Gain}, {a.Shift, &o.Shift}, {a.Gather, &o.Rows}, {a.HasGate(), &o.Gate}, {a.Residual, &o.Residual}} {
		if next.has {
			*next.to, in = in[0], in[1:]
		}
	}
	return o
}

// List is the inverse of Operands.
func (o LinearOperands) List() []*Value {
	list := append([]*Value{o.X}, o.Weights...)
	list = append(list, o.Biases...)
	for _, v := range []*Value{o.Gain, o.Shift, o.Rows, o.Gate, o.Residual} {
		if v != nil {
			list = append(list, v)
		}
	}
	return list
}

// AsFusedLinear returns the attribute and operands of v, a linear or fused_linear, as those of
// a fused_linear.
func AsFusedLinear(v *Value) (LinearAttr, LinearOperands) {
	a, ok := v.Attr.(LinearAttr)
	if !ok {
		a = LinearAttr{Weights: 1, Bias: len(v.Args) > 2}
	}
	return a, a.Operands(v.Args)
}

// RoutedAttr describes the prologue and epilogue of a routed_linear.
type RoutedAttr struct {
	Linear LinearAttr // one weight, or two that form a gate; never with Gather
	Mixed  bool       // the result is the weighted sum over a token's experts
}

// RoutedOperands are the operands of a routed_linear; absent ones are nil.
type RoutedOperands struct {
	LinearOperands
	Experts, Mix *Value // [T,S]: the expert ids of each token, and the weights of their results
}

// operands returns the number of operands.
func (a RoutedAttr) operands() int {
	n := a.Linear.operands() + 1
	if a.Mixed {
		n++
	}
	return n
}

// Operands names a routed_linear's operands.
func (a RoutedAttr) Operands(in []*Value) RoutedOperands {
	n := a.Linear.operands()
	o := RoutedOperands{LinearOperands: a.Linear.Operands(in[:n]), Experts: in[n]}
	if a.Mixed {
		o.Mix = in[n+1]
	}
	return o
}

// List is the inverse of Operands.
func (o RoutedOperands) List() []*Value {
	return append(o.LinearOperands.List(), present(o.Experts, o.Mix)...)
}

// AsRoutedLinear returns the attribute and operands of v, an expert_linear or routed_linear, as
// those of a routed_linear.
func AsRoutedLinear(v *Value) (RoutedAttr, RoutedOperands) {
	if a, ok := v.Attr.(RoutedAttr); ok {
		return a, a.Operands(v.Args)
	}
	a := RoutedAttr{Linear: LinearAttr{Weights: 1, Bias: len(v.Args) > 3}}
	o := RoutedOperands{LinearOperands: LinearOperands{X: v.Args[0], Weights: v.Args[1:2]}, Experts: v.Args[2]}
	if a.Linear.Bias {
		o.Biases = v.Args[3:]
	}
	return a, o
}

// QKVWriteAttr belongs to qkv_write.
type QKVWriteAttr struct {
	Heads int // query heads; the cache's type holds the number of KV heads
}

// RopeWriteAttr belongs to rope_qkv_write and head_norm_rope_kv_write.
type RopeWriteAttr struct {
	Rope  RopeAttr
	Heads int     // query heads; the cache's type holds the number of KV heads
	Eps   float64 // eps of the head norms; 0 for rope_qkv_write
	// AllHeads normalises Q over all its heads as one row, and K likewise: the norms have a
	// weight for each element of each head.
	AllHeads bool
	// NormValues divides each head of V by its root mean square, with the same eps and no weights.
	NormValues bool
}

// LatentWriteAttr belongs to latent_write.
type LatentWriteAttr struct {
	Rope RopeAttr
	Eps  float64 // of the norm of the latent vector
	From int     // the column of All where the latent vector begins, followed by the shared elements of the key
}

// LatentWriteOperands are the operands of a latent_write; Factors may be nil.
type LatentWriteOperands struct {
	Absorbed, Q, All, Gain, Cache, Positions, Slots, Factors *Value
}

// Operands names a latent_write's operands.
func (LatentWriteAttr) Operands(in []*Value) LatentWriteOperands {
	o := LatentWriteOperands{in[0], in[1], in[2], in[3], in[4], in[5], in[6], nil}
	if len(in) > 7 {
		o.Factors = in[7]
	}
	return o
}

// LatentAttentionAttr belongs to latent_attention.
type LatentAttentionAttr struct {
	Write     LatentWriteAttr
	Attention AttentionAttr
}

// Parts returns the operands of the write, and those of the attention over q and the cache that the write
// returned. The last operands of a latent_attention are those of attention behind the cache.
func (LatentAttentionAttr) Parts(in []*Value, q, cache *Value) (write, attend []*Value) {
	n := len(in) - 3
	return in[:n], append([]*Value{q, cache, in[5]}, in[n:]...)
}

// AttentionWriteAttr belongs to rope_qkv_write_attention, head_norm_rope_kv_write_attention and
// head_norm_rope_attention.
type AttentionWriteAttr struct {
	Write     RopeWriteAttr // head_norm_rope_attention writes nothing
	Attention AttentionAttr
	Factors   bool // RoPE has a table of factors
	Sinks     bool // attention has sinks
}

// AttentionWriteOperands are the operands of an op with an [AttentionWriteAttr]; absent ones are nil.
type AttentionWriteOperands struct {
	QKV, Cache, Positions, Slots, CuSeqlens, ContextLens, BlockTable *Value
	Gate, QNorm, KNorm, Factors, Sinks, Slopes                       *Value
}

// Operands names the operands of an op.
func (a AttentionWriteAttr) Operands(in []*Value, op Op) (o AttentionWriteOperands) {
	for i, to := range a.fields(op, &o) {
		*to = in[i]
	}
	return o
}

// fields returns where the operands of an op stand in o, in order.
func (a AttentionWriteAttr) fields(op Op, o *AttentionWriteOperands) (fields []**Value) {
	writes, norms := op != OpHeadNormRopeAttention, op != OpRopeQKVWriteAttention
	for _, f := range []struct {
		has bool
		to  **Value
	}{{true, &o.QKV}, {true, &o.Cache}, {true, &o.Positions}, {writes, &o.Slots}, {true, &o.CuSeqlens}, {true, &o.ContextLens}, {true, &o.BlockTable},
		{a.Attention.Gate.Activation != NoActivation, &o.Gate}, {norms, &o.QNorm}, {norms && writes, &o.KNorm}, {a.Factors, &o.Factors},
		{a.Sinks, &o.Sinks}, {a.Attention.Slopes, &o.Slopes}} {
		if f.has {
			fields = append(fields, f.to)
		}
	}
	return fields
}

// List is the inverse of Operands.
func (o AttentionWriteOperands) List() []*Value {
	return present(o.QKV, o.Cache, o.Positions, o.Slots, o.CuSeqlens, o.ContextLens, o.BlockTable, o.Gate, o.QNorm, o.KNorm, o.Factors, o.Sinks, o.Slopes)
}

// Write returns the operands of the write alone, a rope_qkv_write or
// head_norm_rope_kv_write.
func (o AttentionWriteOperands) Write() []*Value {
	return present(o.QKV, o.Cache, o.Positions, o.Slots, o.QNorm, o.KNorm, o.Factors)
}

// Attend returns the operands of the attention alone, over q and the cache that the write
// returned.
func (o AttentionWriteOperands) Attend(q, cache *Value) []*Value {
	return present(q, cache, o.Positions, o.CuSeqlens, o.ContextLens, o.BlockTable, o.Gate, o.Sinks, o.Slopes)
}

func present(values ...*Value) []*Value {
	return slices.DeleteFunc(values, func(v *Value) bool { return v == nil })
}
