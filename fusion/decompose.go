package fusion

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// The decompositions of fused ops. Products keep the precision of the fused op;
// attention is computed in float, the type in which cache_read returns keys and
// values.
func init() {
	for op, build := range map[ir.Op]func(e *Emitter, v *ir.Value) []*ir.Value{
		ir.OpFusedLinear:         decomposeFusedLinear,
		ir.OpRoutedLinear:        decomposeRouted,
		ir.OpNormResidual:        decomposeNormResidual,
		ir.OpAttention:           decomposeAttention,
		ir.OpQKVWrite:            decomposeQKVWrite,
		ir.OpGatedShortConv:      decomposeGatedShortConv,
		ir.OpSiLUShortConv:       decomposeSiLUShortConv,
		ir.OpGatedDeltaNet:       decomposeGatedDeltaNet,
		ir.OpGatedMamba2:         decomposeGatedMamba2,
		ir.OpRopeQKVWrite:        decomposeRopeWrite,
		ir.OpHeadNormRopeKVWrite: decomposeRopeWrite,
		ir.OpLatentWrite:         decomposeLatentWrite,
		ir.OpRepeatKVPair:        decomposeRepeatPair,

		ir.OpRopeQKVWriteAttention:        decomposeAttentionWrite,
		ir.OpHeadNormRopeKVWriteAttention: decomposeAttentionWrite,
		ir.OpHeadNormRopeAttention:        decomposeQueryAttention,
		ir.OpLatentAttention:              decomposeLatentAttention,
	} {
		ir.RegisterDecompose(op, func(f *ir.Func, v *ir.Value) ([]*ir.Value, error) {
			return emit(f, v.Layer, func(e *Emitter) []*ir.Value { return build(e, v) })
		})
	}
}

// Decompose replaces the values for which pick returns true by their source ops and
// returns their number. The graph is in program order afterwards.
func Decompose(f *ir.Func, pick func(v *ir.Value) bool) (int, error) {
	with := make(map[*ir.Value]*ir.Value)
	elements := make(map[*ir.Value][]*ir.Value)
	n := 0
	for _, v := range slices.Clone(f.Values) {
		if parts, ok := elements[first(v.Args)]; ok && v.Op == ir.OpSelect {
			with[v] = parts[v.Attr.(ir.SelectAttr).Index]
			continue
		}
		if !pick(v) {
			continue
		}
		n++
		parts, err := v.Op.Decompose(f, v)
		if err != nil {
			return n, err
		}
		if elements[v] = parts; v.Type.Kind != ir.Tuple {
			with[v] = parts[0]
		}
	}
	if n == 0 {
		return 0, nil
	}
	f.Values = slices.DeleteFunc(f.Values, func(v *ir.Value) bool { return with[v] != nil || elements[v] != nil })
	f.Replace(with)
	return n, f.Sort()
}

func first(args []*ir.Value) *ir.Value {
	if len(args) == 0 {
		return nil
	}
	return args[0]
}

func decomposeNormResidual(e *Emitter, v *ir.Value) []*ir.Value {
	norm := e.EmitAs(v.Type.DType, ir.OpRMSNorm, v.Attr, v.Args[0], v.Args[1])
	sum := e.Emit(ir.OpAdd, nil, v.Args[2], norm)
	if len(v.Args) > 3 {
		sum = e.Emit(ir.OpGain, nil, sum, v.Args[3])
	}
	return []*ir.Value{sum}
}

func decomposeFusedLinear(e *Emitter, v *ir.Value) []*ir.Value {
	a, t := v.Attr.(ir.LinearAttr), v.Type.DType
	o := a.Operands(v.Args)
	x := o.X
	if a.Gather {
		x = e.Emit(ir.OpGatherRows, nil, x, o.Rows)
	}
	x = normed(e, a, o, leading(e, a, o, x))
	parts := make([]*ir.Value, a.Weights)
	for i, w := range o.Weights {
		var bias *ir.Value
		if a.Bias {
			bias = o.Biases[i]
		}
		parts[i] = e.EmitAs(t, ir.OpLinear, nil, x, w, bias)
	}
	if a.Weights > 1 && !a.Gated {
		parts = []*ir.Value{e.EmitAs(t, ir.OpConcat, nil, parts...)}
	}
	out := activated(e, a, t, parts)
	if a.RowGate != ir.NoActivation {
		gate, rows := o.Gate, v.Type.Shape
		if gate.Type.Shape.Last() > 1 {
			gate = e.Emit(ir.OpSlice, ir.SliceAttr{Start: a.GateColumn, End: a.GateColumn + 1}, gate)
		}
		gate = e.Emit(ir.OpActivate, ir.ActivationAttr{Activation: a.RowGate}, e.Cast(gate, dtype.F32))
		products := e.Reshape(e.Cast(out, dtype.F32), rows[0], ir.Const(1), rows[1])
		out = e.Cast(e.Emit(ir.OpWeightedSum, nil, products, gate), t)
	}
	if a.ColumnGate {
		gate, n := o.Gate, int(v.Type.Shape.Last())
		if gate.Type.Shape.Last() != int64(n) {
			gate = e.Emit(ir.OpSlice, ir.SliceAttr{Start: a.GateColumn, End: a.GateColumn + n}, gate)
		}
		out = e.Emit(ir.OpMul, nil, out, e.Cast(gate, t))
	}
	if a.Residual {
		out = e.EmitAs(t, ir.OpAdd, nil, o.Residual, out)
	}
	return []*ir.Value{out}
}

// leading emits the columns of x that a product reads.
func leading(e *Emitter, a ir.LinearAttr, o ir.LinearOperands, x *ir.Value) *ir.Value {
	if n := o.Weights[0].Type.Shape.Last(); a.Leading && n < x.Type.Shape.Last() {
		return e.Emit(ir.OpSlice, ir.SliceAttr{End: int(n)}, x)
	}
	return x
}

// normed emits a product's norm of x.
func normed(e *Emitter, a ir.LinearAttr, o ir.LinearOperands, x *ir.Value) *ir.Value {
	switch a.Norm {
	case ir.RMSNorm:
		return e.Emit(ir.OpRMSNorm, ir.NormAttr{Eps: a.Eps}, x, o.Gain)
	case ir.LayerNorm:
		return e.Emit(ir.OpLayerNorm, ir.NormAttr{Eps: a.Eps}, x, o.Gain, o.Shift)
	}
	return x
}

// activated emits the activation of a product, or the gate of two.
func activated(e *Emitter, a ir.LinearAttr, t dtype.Type, parts []*ir.Value) *ir.Value {
	out := parts[0]
	activation := ir.ActivationAttr{Activation: a.Activation}
	if a.Activation != ir.NoActivation && !a.Activation.OnlyGated() {
		out = e.EmitAs(t, ir.OpActivate, activation, out)
	}
	switch {
	case a.Activation.OnlyGated():
		out = e.EmitAs(t, ir.OpGate, activation, out, parts[1])
	case a.Gated:
		out = e.EmitAs(t, ir.OpMul, nil, out, parts[1])
	}
	return out
}

func decomposeAttention(e *Emitter, v *ir.Value) []*ir.Value {
	return []*ir.Value{attend(e, v.Attr.(ir.AttentionAttr), v.Args, v.Type.DType)}
}

// attend emits attention over the operands in, and a cast of its result to a type.
func attend(e *Emitter, a ir.AttentionAttr, in []*ir.Value, to dtype.Type) *ir.Value {
	q, cache, positions, seqlens, lens, table := in[0], in[1], in[2], in[3], in[4], in[5]
	sinks, slopes := a.Optional(in)
	heads, _ := q.Type.Shape[1].IsConst()
	headsFirst := ir.TransposeAttr{A: 1, B: 0, C: 2}
	read := func(values bool) *ir.Value {
		x := e.Emit(ir.OpCacheRead, ir.CacheReadAttr{Values: values}, cache, lens, table)
		if n := int(heads) / cache.Type.Cache.KVHeads; n > 1 {
			x = e.Emit(ir.OpRepeatKV, ir.RepeatAttr{N: n}, x)
		}
		return e.Emit(ir.OpTranspose, headsFirst, x)
	}
	keys, values := read(false), read(true)
	query := e.Emit(ir.OpTranspose, headsFirst, e.Cast(q, dtype.F32))
	scores := e.Emit(ir.OpMatmul, ir.MatmulAttr{TransB: true}, query, keys)
	if a.Scale != 1 {
		scores = e.Emit(ir.OpScale, ir.ScaleAttr{Value: a.Scale}, scores)
	}
	if a.SoftCap != 0 {
		scores = e.Emit(ir.OpSoftCap, ir.ScaleAttr{Value: a.SoftCap}, scores)
	}
	masked := e.Emit(ir.OpMask, ir.MaskAttr{Window: a.Window}, scores, positions, seqlens, lens, slopes)
	weights := e.Emit(ir.OpSoftmax, nil, masked, sinks)
	out := e.Emit(ir.OpTranspose, headsFirst, e.Emit(ir.OpMatmul, ir.MatmulAttr{}, weights, values))
	if gate := a.Gated(in); gate != nil {
		out = gateHeads(e, a.Gate, out, gate)
	}
	return e.Cast(out, to)
}

// gateHeads emits the product of x, [T,heads,D] in float, and the activation of a gate.
func gateHeads(e *Emitter, a ir.GateAttr, x, in *ir.Value) *ir.Value {
	shape := x.Type.Shape
	heads, _ := shape[1].IsConst()
	if n := a.Width(heads, shape.Last()); n != in.Type.Shape.Last() {
		in = e.Emit(ir.OpSlice, ir.SliceAttr{Start: a.From, End: a.From + int(n)}, in)
	}
	gate := e.Emit(ir.OpActivate, ir.ActivationAttr{Activation: a.Activation}, e.Cast(in, dtype.F32))
	if !a.ByHead {
		return e.Emit(ir.OpMul, nil, x, e.Reshape(gate, shape...))
	}
	all, _ := shape[0].Times(shape[1]) // heads of all tokens, each a sum of one
	return e.Reshape(e.Emit(ir.OpWeightedSum, nil, e.Reshape(x, all, ir.Const(1), shape[2]), e.Reshape(gate, all, ir.Const(1))), shape...)
}

func decomposeRepeatPair(e *Emitter, v *ir.Value) []*ir.Value {
	out := make([]*ir.Value, len(v.Args))
	for i, x := range v.Args {
		out[i] = e.EmitAs(v.Type.Elems[i].DType, ir.OpRepeatKV, v.Attr, x)
	}
	return out
}

// splitQKV splits qkv, [T,(heads+2·KV)·D], into the heads of Q, K and V.
func splitQKV(e *Emitter, qkv *ir.Value, heads int, c ir.Cache) (q, k, v *ir.Value) {
	start := 0
	take := func(heads int) *ir.Value {
		end := start + heads*c.Head
		x := e.Emit(ir.OpSlice, ir.SliceAttr{Start: start, End: end}, qkv)
		start = end
		return e.Reshape(x, ir.Var(sym.T), ir.Const(heads), ir.Const(c.Head))
	}
	return take(heads), take(c.KVHeads), take(c.KVHeads)
}

func decomposeGatedShortConv(e *Emitter, v *ir.Value) []*ir.Value {
	t, width := v.Type.Elems[0].DType, int(v.Type.Elems[0].Shape.Last())
	third := func(i int) *ir.Value {
		return e.Emit(ir.OpSlice, ir.SliceAttr{Start: i * width, End: (i + 1) * width}, v.Args[0])
	}
	in := e.EmitAs(t, ir.OpMul, nil, third(0), third(2))
	both := e.Emit(ir.OpShortConv, nil, append([]*ir.Value{in}, v.Args[1:]...)...)
	return []*ir.Value{e.EmitAs(t, ir.OpMul, nil, third(1), e.Select(both, 0)), e.Select(both, 1)}
}

func decomposeSiLUShortConv(e *Emitter, v *ir.Value) []*ir.Value {
	t := v.Type.Elems[0]
	from := v.Attr.(ir.ConvAttr).From
	x := e.Emit(ir.OpSlice, ir.SliceAttr{Start: from, End: from + int(t.Shape.Last())}, v.Args[0])
	both := e.Emit(ir.OpShortConv, nil, append([]*ir.Value{x}, v.Args[1:5]...)...)
	sum := e.Select(both, 0)
	if len(v.Args) > 5 {
		sum = e.EmitAs(t.DType, ir.OpShift, nil, sum, v.Args[5])
	}
	return []*ir.Value{e.EmitAs(t.DType, ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, sum), e.Select(both, 1)}
}

func decomposeGatedMamba2(e *Emitter, v *ir.Value) []*ir.Value {
	y, all := v.Type.Elems[0], v.Args[1]
	heads, end := int(v.Args[3].Type.Shape.Last()), int(all.Type.Shape.Last())
	dt := e.Emit(ir.OpSlice, ir.SliceAttr{Start: end - heads, End: end}, all)
	both := e.Emit(ir.OpMamba2, v.Attr, append([]*ir.Value{v.Args[0], dt}, v.Args[2:]...)...)
	z := e.Reshape(e.Emit(ir.OpSlice, ir.SliceAttr{End: heads * int(y.Shape.Last())}, all), y.Shape...)
	return []*ir.Value{e.EmitAs(y.DType, ir.OpMul, nil, e.Select(both, 0), e.EmitAs(y.DType, ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, z)), e.Select(both, 1)}
}

func decomposeGatedDeltaNet(e *Emitter, v *ir.Value) []*ir.Value {
	a, y, in := v.Attr.(ir.GatedDeltaNetAttr), v.Type.Elems[0], v.Args
	gates, decay, bias, gain, all := in[1], in[2], in[3], in[4], in[5]
	heads, size := int(decay.Type.Shape.Last()), int(decay.Type.Shape.Last()*y.Shape.Last())
	alpha := e.Emit(ir.OpSlice, ir.SliceAttr{End: heads}, gates)
	beta := e.Emit(ir.OpSlice, ir.SliceAttr{Start: heads, End: 2 * heads}, gates)
	both := e.Emit(ir.OpDeltaNet, a.Delta, append([]*ir.Value{in[0], alpha, beta, decay, bias}, in[6:]...)...)
	norm := e.EmitAs(y.DType, ir.OpRMSNorm, ir.NormAttr{Eps: a.NormEps}, e.Select(both, 0), gain)
	end := int(all.Type.Shape.Last())
	z := e.Reshape(e.Emit(ir.OpSlice, ir.SliceAttr{Start: end - size, End: end}, all), y.Shape...)
	return []*ir.Value{e.EmitAs(y.DType, ir.OpMul, nil, norm, e.EmitAs(y.DType, ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, z)), e.Select(both, 1)}
}

func decomposeQKVWrite(e *Emitter, v *ir.Value) []*ir.Value {
	cache, slots := v.Args[1], v.Args[2]
	q, k, value := splitQKV(e, v.Args[0], v.Attr.(ir.QKVWriteAttr).Heads, cache.Type.Cache)
	return []*ir.Value{q, e.Emit(ir.OpCacheWrite, nil, cache, k, value, slots)}
}

// decomposeRopeWrite decomposes rope_qkv_write and head_norm_rope_kv_write.
func decomposeRopeWrite(e *Emitter, v *ir.Value) []*ir.Value {
	q, cache := ropeWrite(e, v.Attr.(ir.RopeWriteAttr), v.Args, v.Op == ir.OpHeadNormRopeKVWrite)
	return []*ir.Value{q, cache}
}

func decomposeLatentWrite(e *Emitter, v *ir.Value) []*ir.Value {
	q, cache := latentWrite(e, v.Attr.(ir.LatentWriteAttr), v.Args, v.Type.Elems[0].DType)
	return []*ir.Value{q, cache}
}

func decomposeLatentAttention(e *Emitter, v *ir.Value) []*ir.Value {
	a, t := v.Attr.(ir.LatentAttentionAttr), v.Type.Elems[0].DType
	write, _ := a.Parts(v.Args, nil, nil)
	q, cache := latentWrite(e, a.Write, write, t)
	_, in := a.Parts(v.Args, q, cache)
	return []*ir.Value{attend(e, a.Attention, in, t), cache}
}

// latentWrite emits the source ops of a latent_write, with activations of type t.
func latentWrite(e *Emitter, a ir.LatentWriteAttr, in []*ir.Value, t dtype.Type) (q, written *ir.Value) {
	o, row := a.Operands(in), in[4].Type.Cache.Head
	latent := row - a.Rope.Rotated
	rope := func(x *ir.Value) *ir.Value { return e.Emit(ir.OpRope, a.Rope, x, o.Positions, o.Factors) }
	columns := func(x *ir.Value, first, end int) *ir.Value {
		return e.Emit(ir.OpSlice, ir.SliceAttr{Start: first, End: end}, x)
	}
	d := int(o.Q.Type.Shape.Last())
	q = e.Emit(ir.OpConcat, nil, o.Absorbed, rope(columns(o.Q, d-a.Rope.Rotated, d)))
	c := e.EmitAs(t, ir.OpRMSNorm, ir.NormAttr{Eps: a.Eps}, columns(o.All, a.From, a.From+latent), o.Gain)
	k := e.Emit(ir.OpConcat, nil, e.oneHead(c), rope(e.oneHead(columns(o.All, a.From+latent, a.From+row))))
	return q, e.Emit(ir.OpCacheWrite, nil, o.Cache, k, k, o.Slots)
}

// ropeWrite emits the source ops of a cache write with RoPE and, if norms, head norms.
func ropeWrite(e *Emitter, a ir.RopeWriteAttr, in []*ir.Value, norms bool) (q, written *ir.Value) {
	cache, positions, slots, rest := in[1], in[2], in[3], in[4:]
	q, k, value := splitQKV(e, in[0], a.Heads, cache.Type.Cache)
	if norms {
		if a.NormValues {
			value = e.Emit(ir.OpRMSNorm, ir.NormAttr{Eps: a.Eps}, value, e.ones(cache.Type.Cache.Head))
		}
		q, k = headNorm(e, a, q, rest[0]), headNorm(e, a, k, rest[1])
		rest = rest[2:]
	}
	q = e.Emit(ir.OpRope, a.Rope, append([]*ir.Value{q, positions}, rest...)...)
	k = e.Emit(ir.OpRope, a.Rope, append([]*ir.Value{k, positions}, rest...)...)
	return q, e.Emit(ir.OpCacheWrite, nil, cache, k, value, slots)
}

// headNorm emits the RMSNorm of each head, or of all heads of a token as one row.
func headNorm(e *Emitter, a ir.RopeWriteAttr, heads, weight *ir.Value) *ir.Value {
	attr := ir.NormAttr{Eps: a.Eps}
	if !a.AllHeads {
		return e.Emit(ir.OpRMSNorm, attr, heads, weight)
	}
	shape := heads.Type.Shape
	row := e.Reshape(heads, shape[0], weight.Type.Shape[0])
	return e.Reshape(e.Emit(ir.OpRMSNorm, attr, row, weight), shape...)
}

func decomposeAttentionWrite(e *Emitter, v *ir.Value) []*ir.Value {
	a, norms := v.Attr.(ir.AttentionWriteAttr), v.Op == ir.OpHeadNormRopeKVWriteAttention
	o := a.Operands(v.Args, v.Op)
	q, cache := ropeWrite(e, a.Write, o.Write(), norms)
	return []*ir.Value{attend(e, a.Attention, o.Attend(q, cache), v.Type.Elems[0].DType), cache}
}

func decomposeQueryAttention(e *Emitter, v *ir.Value) []*ir.Value {
	a := v.Attr.(ir.AttentionWriteAttr)
	o := a.Operands(v.Args, v.Op)
	q := headNorm(e, a.Write, e.Reshape(o.QKV, v.Type.Shape...), o.QNorm)
	q = e.Emit(ir.OpRope, a.Write.Rope, q, o.Positions, o.Factors)
	return []*ir.Value{attend(e, a.Attention, o.Attend(q, o.Cache), v.Type.DType)}
}
