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

// CacheAttr says which layer's cache a state value starts.
type CacheAttr struct{ Layer int }

// StateAttr says which recurrent state of a layer a state value starts. A layer may have
// several, by name.
type StateAttr struct {
	Layer int
	Name  string
}

// CacheReadAttr chooses what cache_read returns.
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

// RepeatAttr says how often repeat_kv and repeat_kv_pair repeat each KV head.
type RepeatAttr struct{ N int }

// MatmulAttr belongs to matmul.
type MatmulAttr struct{ TransB bool } // b is [batch, n, k]

// ScaleAttr belongs to scale and soft_cap.
type ScaleAttr struct{ Value float64 }

// MaskAttr belongs to mask.
type MaskAttr struct {
	Window int // keys that a token sees, its own the last of them; 0 for all up to its own
}

// AttentionAttr belongs to attention.
type AttentionAttr struct {
	Scale   float64 // of the products of query and key
	Window  int     // as MaskAttr has it
	SoftCap float64 // scores become SoftCap · tanh(score / SoftCap) once scaled; 0 for none
	Slopes  bool    // the last operand is what mask has as its slopes
}

// Options returns what an attention's operands end with, or nil.
func (a AttentionAttr) Options(in []*Value) (sinks, slopes *Value) {
	rest := in[6:]
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
	KeyHeads int     // heads of Q and of K; head h of V has those of h modulo KeyHeads
	Eps      float64 // of the lengths of Q and K
}

// TopKAttr says how many elements of each row top_k returns.
type TopKAttr struct{ K int }

// SliceAttr selects columns [Start, End) of the innermost axis.
type SliceAttr struct{ Start, End int }

// SelectAttr takes one element out of a tuple.
type SelectAttr struct{ Index int }

// LinearAttr says what a fused_linear does besides multiplying. Its operands are those of
// [LinearOperands], in that order.
type LinearAttr struct {
	Weights    int        // matrices whose outputs stand side by side, 1 to 3
	Bias       bool       // each weight has one, which is added to its products
	Activation Activation // applied to the products and biases
	Gated      bool       // Activation is the gate of two weights: its x and y are their products
	Norm       NormKind   // x is normalised first
	Eps        float64    // of Norm
	Gain       bool       // what was normalised is multiplied by a vector: always of an RMSNorm
	Shift      bool       // and then added to one: of a LayerNorm
	Narrow     bool       // what was normalised is rounded to the target's type of activations
	Gather     bool       // x is rows of a larger one, which a vector of indices names
	Residual   bool       // the residual is added to the result
}

// LinearOperands are the operands of a fused_linear. Those that it has not are nil.
type LinearOperands struct {
	X               *Value
	Weights, Biases []*Value
	Gain, Shift     *Value
	Rows, Residual  *Value
}

// operands is how many there are.
func (a LinearAttr) operands() int {
	n := 1 + a.Weights
	if a.Bias {
		n += a.Weights
	}
	for _, has := range []bool{a.Gain, a.Shift, a.Gather, a.Residual} {
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
	}{{a.Gain, &o.Gain}, {a.Shift, &o.Shift}, {a.Gather, &o.Rows}, {a.Residual, &o.Residual}} {
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
	for _, v := range []*Value{o.Gain, o.Shift, o.Rows, o.Residual} {
		if v != nil {
			list = append(list, v)
		}
	}
	return list
}

// AsFusedLinear returns what a linear or fused_linear is as a fused_linear.
func AsFusedLinear(v *Value) (LinearAttr, LinearOperands) {
	a, ok := v.Attr.(LinearAttr)
	if !ok {
		a = LinearAttr{Weights: 1, Bias: len(v.Args) > 2}
	}
	return a, a.Operands(v.Args)
}

// RoutedAttr says what a routed_linear does besides multiplying.
type RoutedAttr struct {
	Linear LinearAttr // of one weight, or of two that are a gate; never with Gather
	Mixed  bool       // the results of a token's experts are weighted and added up
}

// RoutedOperands are the operands of a routed_linear. Those that it has not are nil.
type RoutedOperands struct {
	LinearOperands
	Experts, Mix *Value // [T,S]: the experts of each token, and the weights of their results
}

// operands is how many there are.
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

// AsRoutedLinear returns what an expert_linear or routed_linear is as a routed_linear.
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
	Heads int // query heads; the cache's type tells the KV heads
}

// RopeWriteAttr belongs to rope_qkv_write and head_norm_rope_kv_write.
type RopeWriteAttr struct {
	Rope  RopeAttr
	Heads int     // query heads; the cache's type tells the KV heads
	Eps   float64 // of the head norms, 0 for rope_qkv_write
	// AllHeads says that Q is normalised over all its heads at once, and so is K: the norms
	// have weights for each element of each head.
	AllHeads bool
}

// AttentionWriteAttr belongs to rope_qkv_write_attention and
// head_norm_rope_kv_write_attention.
type AttentionWriteAttr struct {
	Write     RopeWriteAttr
	Attention AttentionAttr
	Factors   bool // there is a table of factors
	Sinks     bool // there are sinks
}

// AttentionWriteOperands are the operands of such an op. Those that it has not are nil.
type AttentionWriteOperands struct {
	QKV, Cache, Positions, Slots, CuSeqlens, ContextLens, BlockTable *Value
	QNorm, KNorm, Factors, Sinks, Slopes                             *Value
}

// Operands names the operands of an op that normalises heads, or of one that does not.
func (a AttentionWriteAttr) Operands(in []*Value, norms bool) AttentionWriteOperands {
	o := AttentionWriteOperands{QKV: in[0], Cache: in[1], Positions: in[2], Slots: in[3], CuSeqlens: in[4], ContextLens: in[5], BlockTable: in[6]}
	in = in[7:]
	for _, next := range []struct {
		has bool
		to  **Value
	}{{norms, &o.QNorm}, {norms, &o.KNorm}, {a.Factors, &o.Factors}, {a.Sinks, &o.Sinks}, {a.Attention.Slopes, &o.Slopes}} {
		if next.has {
			*next.to, in = in[0], in[1:]
		}
	}
	return o
}

// operands is how many there are.
func (a AttentionWriteAttr) operands(norms bool) int {
	n := 7
	for _, has := range []bool{norms, norms, a.Factors, a.Sinks, a.Attention.Slopes} {
		if has {
			n++
		}
	}
	return n
}

// List is the inverse of Operands.
func (o AttentionWriteOperands) List() []*Value {
	return present(o.QKV, o.Cache, o.Positions, o.Slots, o.CuSeqlens, o.ContextLens, o.BlockTable, o.QNorm, o.KNorm, o.Factors, o.Sinks, o.Slopes)
}

// Write lists the operands of the write by itself, rope_qkv_write or
// head_norm_rope_kv_write.
func (o AttentionWriteOperands) Write() []*Value {
	return present(o.QKV, o.Cache, o.Positions, o.Slots, o.QNorm, o.KNorm, o.Factors)
}

// Attend lists the operands of the attention by itself, over what the write leaves.
func (o AttentionWriteOperands) Attend(q, cache *Value) []*Value {
	return present(q, cache, o.Positions, o.CuSeqlens, o.ContextLens, o.BlockTable, o.Sinks, o.Slopes)
}

func present(values ...*Value) []*Value {
	return slices.DeleteFunc(values, func(v *Value) bool { return v == nil })
}
