package lower

import (
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// selectors give each op its kernel: one row an op. An op without a row has no
// kernel on any target; leaves and aliases need none.
var selectors map[ir.Op]func(*phase, *ir.Value) error

func init() {
	selectors = map[ir.Op]func(*phase, *ir.Value) error{
		ir.OpInput: leaf, ir.OpWeight: leaf, ir.OpConst: leaf, ir.OpCache: leaf,
		ir.OpReshape: leaf, ir.OpSelect: leaf,

		ir.OpEmbed:      embed,
		ir.OpLinear:     linear,
		ir.OpRMSNorm:    rmsNorm,
		ir.OpLayerNorm:  layerNorm,
		ir.OpTranspose:  transpose,
		ir.OpSlice:      slice,
		ir.OpRope:       rope,
		ir.OpCacheWrite: cacheWrite,
		ir.OpCacheRead:  cacheRead,
		ir.OpRepeatKV:   repeatKV,
		ir.OpMatmul:     matmul,
		ir.OpMask:       mask,
		ir.OpSoftmax:    softmax,
		ir.OpScale:      elementwise,
		ir.OpSoftCap:    elementwise,
		ir.OpSiLU:       elementwise,
		ir.OpGELU:       elementwise,
		ir.OpMul:        elementwise,
		ir.OpAdd:        elementwise,
		ir.OpSiLUMul:    elementwise,
		ir.OpCast:       cast,
		ir.OpGatherRows: gatherRows,
		ir.OpArgmax:     argmax,
		ir.OpTopK:       topK,

		ir.OpFusedLinear:         fusedLinear,
		ir.OpAttention:           attention,
		ir.OpRopeQKVWrite:        ropeWrite,
		ir.OpHeadNormRopeKVWrite: ropeWrite,
		ir.OpRepeatKVPair:        repeatKV,
	}
}

func leaf(*phase, *ir.Value) error { return nil }

// Rows that a threadgroup of each kernel covers; the kernels' own constants.
const (
	matRows       = 64 // linear_mat: rows of W of a tile
	matTile       = 32 // matmul: rows and columns of a tile
	attentionTile = 32 // attention_tile: query rows of a tile
	embedRun      = 1024
	gatherRun     = 512
)

func one() Expr { return Number(1) }

func size(n int64) Expr { return Number(n) }

func float(x float64) Expr { return Number(int64(math.Float32bits(float32(x)))) }

// over returns the number of groups of n that cover the extent.
func over(d ir.Dim, n int64) Expr { return CeilDiv(d, n) }

func last(v *ir.Value) int64 { return v.Type.Shape.Last() }

func lastDim(v *ir.Value) ir.Dim { return v.Type.Shape[len(v.Type.Shape)-1] }

// rowsOf is the product of all extents but the innermost.
func rowsOf(v *ir.Value) (ir.Dim, error) {
	d, ok := v.Type.Shape.Rows()
	if !ok {
		return d, fmt.Errorf("%s: the rows of %s are no simple size", v, v.Type)
	}
	return d, nil
}

func embed(p *phase, v *ir.Value) error {
	width, vocab := last(v), v.Args[1].Type.Shape[0]
	d := p.dispatch("embed", v)
	d.constant(0, uint32(v.Args[1].Type.DType))
	d.in(0, v.Args[0])
	d.in(1, v.Args[1])
	d.out(2, v)
	d.params(3, Extent(v.Type.Shape[0]), size(width), Extent(vocab))
	d.launch([3]Expr{Number((width + embedRun - 1) / embedRun), Extent(v.Type.Shape[0]), one()}, 32)
	return nil
}

func rmsNorm(p *phase, v *ir.Value) error {
	d, err := norm(p, v)
	if err != nil {
		return err
	}
	d.in(1, v.Args[1])
	return nil
}

func layerNorm(p *phase, v *ir.Value) error {
	d, err := norm(p, v)
	if err != nil {
		return err
	}
	for i, index := range []uint32{1, 4} { // weight and bias
		given := i+1 < len(v.Args)
		d.constant(uint32(i), bit(given))
		if given {
			d.in(index, v.Args[i+1])
		}
	}
	return nil
}

// norm is what the norms have in common.
func norm(p *phase, v *ir.Value) (emitter, error) {
	x, width := v.Args[0], last(v)
	rows, err := rowsOf(v)
	if err != nil {
		return emitter{}, err
	}
	d := p.dispatch(v.Op.String()+"_"+x.Type.DType.String()+"_"+v.Type.DType.String(), v)
	d.in(0, x)
	d.out(2, v)
	d.params(3, Extent(rows), size(width), size(width), float(v.Attr.(ir.NormAttr).Eps))
	d.launch([3]Expr{Extent(rows), one(), one()}, uint32(min(256, roundUp((width+3)/4, 32))))
	return d, nil
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// linearCall is what linear and fused_linear have in common.
type linearCall struct {
	x        *ir.Value
	weights  []*ir.Value
	norm     *ir.Value
	residual *ir.Value
	pair     bool
	eps      float64
}

func linear(p *phase, v *ir.Value) error {
	return product(p, v, linearCall{x: v.Args[0], weights: v.Args[1:2]})
}

func fusedLinear(p *phase, v *ir.Value) error {
	a := v.Attr.(ir.LinearAttr)
	call := linearCall{x: v.Args[0], weights: v.Args[1 : 1+a.Weights], pair: a.SiLUPair, eps: a.Eps}
	rest := v.Args[1+a.Weights:]
	if a.Norm {
		call.norm, rest = rest[0], rest[1:]
	}
	if a.Residual {
		call.residual = rest[0]
	}
	return product(p, v, call)
}

func product(p *phase, v *ir.Value, call linearCall) error {
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	tokens := p.bound(Extent(rows))
	vec := tokens <= p.chip.vecTokens
	if call.norm != nil && !vec {
		return fmt.Errorf("%s: no mat-mat kernel normalises its input", v.LongString())
	}
	if p.onCPU(v, call, tokens) {
		return p.cpuProduct(v, call, rows, vec)
	}
	d := p.dispatch(linearKernel(vec)+call.x.Type.DType.String()+"_"+v.Type.DType.String(), v)
	d.in(0, call.x)
	d.linear(v, call, rows)
	d.out(4, v)
	if call.residual != nil {
		d.mayReplace(call.residual, v)
	}
	d.linearLaunch(v, call, call.x.Type.DType, rows, vec)
	return nil
}

func linearKernel(vec bool) string {
	if vec {
		return "linear_vec_"
	}
	return "linear_mat_"
}

// linear binds what a product reads besides x, and its parameters.
func (e emitter) linear(v *ir.Value, call linearCall, rows ir.Dim) {
	k, n := last(call.x), last(v)
	var heights [3]Expr
	for i, w := range call.weights {
		heights[i] = Extent(w.Type.Shape[0])
		e.in(uint32(1+i), w)
	}
	for i := range heights {
		var code uint32
		if i < len(call.weights) {
			code = uint32(call.weights[i].Type.DType)
		}
		e.constant(uint32(i), code)
	}
	e.constant(3, bit(call.residual != nil))
	e.constant(4, bit(call.pair))
	e.constant(5, bit(call.norm != nil))
	e.params(5, Extent(rows), size(k), heights[0], heights[1], heights[2], size(k), size(n), float(call.eps))
	if call.residual != nil {
		e.in(6, call.residual)
	}
	if call.norm != nil {
		e.in(7, call.norm)
	}
}

// linearLaunch chooses the grid of a product of activations of a type.
func (e emitter) linearLaunch(v *ir.Value, call linearCall, act ir.DType, rows ir.Dim, vec bool) {
	p, n := e.p, last(v)
	tokens := p.bound(Extent(rows))
	stored := call.weights[0].Type.DType
	shape := fmt.Sprintf("%s × %d → %d, %s", p.upTo(rows), last(call.x), n, stored)
	if vec {
		s, why := p.chip.vec(stored, n, tokens)
		e.constant(6, uint32(s.rows))
		e.constant(7, uint32(s.tokens))
		e.launch([3]Expr{Number(ceilDiv(n, s.rows*s.simdgroups)), over(rows, s.tokens), one()}, uint32(32*s.simdgroups))
		p.chose(v, e, shape, s.String(), why)
		return
	}
	width := int64(matRows)
	if call.pair {
		width /= 2
	}
	tile, why := p.chip.tile(act, ceilDiv(n, width), tokens)
	e.constant(6, uint32(tile))
	e.launch([3]Expr{over(rows, tile), Number(ceilDiv(n, width)), one()}, 128)
	p.chose(v, e, shape, fmt.Sprintf("tiles of %d tokens × %d rows", tile, matRows), why)
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func transpose(p *phase, v *ir.Value) error {
	x, a := v.Args[0], v.Attr.(ir.TransposeAttr)
	in := x.Type.Shape
	inner, ok := in[1].Times(in[2])
	if !ok {
		return fmt.Errorf("%s: strides of %s are no simple size", v, x.Type)
	}
	strides := [3]Expr{Extent(inner), Extent(in[2]), one()}
	return copyStrided(p, v, x, 0, v.Type.Shape, [3]Expr{strides[a.A], strides[a.B], strides[a.C]})
}

func slice(p *phase, v *ir.Value) error {
	x, a := v.Args[0], v.Attr.(ir.SliceAttr)
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	shape := ir.Shape{ir.Const(1), rows, lastDim(v)}
	offset := x.Type.DType.Bytes(int64(a.Start))
	return copyStrided(p, v, x, offset, shape, [3]Expr{Number(0), size(last(x)), one()})
}

// copyStrided gathers x, from an offset in bytes, into the dense result.
func copyStrided(p *phase, v, x *ir.Value, offset int64, shape ir.Shape, strides [3]Expr) error {
	d := p.dispatch("transpose_"+v.Type.DType.String(), v)
	d.inAt(0, x, offset)
	d.out(1, v)
	d.params(2, Extent(shape[0]), Extent(shape[1]), Extent(shape[2]), strides[0], strides[1], strides[2])
	d.launch([3]Expr{over(shape[2], 64), Extent(shape[1]), Extent(shape[0])}, 64)
	return nil
}

func rope(p *phase, v *ir.Value) error {
	x, a := v.Args[0], v.Attr.(ir.RopeAttr)
	tokens, heads, head := v.Type.Shape[0], v.Type.Shape[1], last(v)
	stride, _ := heads.Times(ir.Const(int(head)))
	d := p.dispatch("rope_"+v.Type.DType.String(), v)
	rotation(d, a, v.Args[2:], 2)
	d.in(0, x)
	d.in(1, v.Args[1])
	d.out(3, v)
	d.params(4, Extent(tokens), Extent(heads), size(head), size(int64(a.Rotated)), Extent(stride), Number(0),
		float(math.Log2(a.Theta)), float(a.FreqScale), float(a.Magnitude))
	d.launch([3]Expr{Number((head + 63) / 64), Extent(heads), Extent(tokens)}, 32)
	return nil
}

// rotation sets the constants that the rotary kernels share and binds the factors, of
// which there are one or none. With a base of 1 they are whole divisors: a table.
func rotation(d emitter, a ir.RopeAttr, factors []*ir.Value, at uint32) {
	table := len(factors) > 0 && a.Theta == 1
	d.constant(0, bit(a.Interleaved))
	d.constant(1, bit(len(factors) > 0 && !table))
	d.constant(2, bit(table))
	if len(factors) > 0 {
		d.in(at, factors[0])
	}
}

func cacheWrite(p *phase, v *ir.Value) error {
	k, c := v.Args[1], v.Type.Cache
	width := int64(c.KVHeads * c.Head)
	d := p.dispatch("cache_write_"+k.Type.DType.String()+"_"+c.DType.String(), v)
	d.in(0, k)
	d.in(1, v.Args[2])
	d.in(2, v.Args[3])
	d.cache(3, v.Args[0], false, true)
	d.cache(4, v.Args[0], true, true)
	d.params(5, Extent(k.Type.Shape[0]), size(int64(c.KVHeads)), size(int64(c.Head)), size(int64(c.Block)), size(width), size(width))
	d.launch([3]Expr{Number((width + 63) / 64), Extent(k.Type.Shape[0]), one()}, 64)
	return nil
}

func cacheRead(p *phase, v *ir.Value) error {
	c := v.Args[0].Type.Cache
	width := int64(c.KVHeads * c.Head)
	d := p.dispatch("cache_read_"+c.DType.String(), v)
	d.cache(0, v.Args[0], v.Attr.(ir.CacheReadAttr).Values, false)
	d.in(1, v.Args[1])
	d.in(2, v.Args[2])
	d.out(3, v)
	d.params(4, Extent(ir.Var(ir.B)), Extent(ir.Var(ir.Smax)), size(int64(c.KVHeads)), size(int64(c.Head)), size(int64(c.Block)), Extent(ir.Var(ir.NB)))
	d.launch([3]Expr{Number((width + 63) / 64), Extent(v.Type.Shape[0]), one()}, 64)
	return nil
}

// repeatGroups bounds the 1-D grid of repeat_kv: its threads loop with a 64-bit
// stride, since positions in a grid have only 32 bits.
const repeatGroups = 1 << 20

// repeatKV lowers repeat_kv, and repeat_kv_pair, whose K and V have one shape.
func repeatKV(p *phase, v *ir.Value) error {
	x, out := v.Args[0], tensorOf(v)
	n, ok := out.Shape.Elements()
	if !ok {
		return fmt.Errorf("%s: %s is no simple size", v, v.Type)
	}
	groups := over(n, 256)
	if p.bound(groups) > repeatGroups {
		groups = Number(repeatGroups)
	}
	d := p.dispatch(v.Op.String()+"_"+out.DType.String(), v)
	operands := uint32(len(v.Args))
	for i, a := range v.Args {
		d.in(uint32(i), a)
		d.outPart(operands+uint32(i), v, i)
	}
	d.params(2*operands, Extent(x.Type.Shape[0]), Extent(x.Type.Shape[1]), size(last(x)), size(int64(v.Attr.(ir.RepeatAttr).N)))
	d.launch([3]Expr{groups, one(), one()}, 256)
	return nil
}

func matmul(p *phase, v *ir.Value) error {
	a := v.Args[0].Type.Shape
	out := v.Type.Shape
	d := p.dispatch("matmul_"+v.Type.DType.String(), v)
	d.constant(0, bit(v.Attr.(ir.MatmulAttr).TransB))
	d.in(0, v.Args[0])
	d.in(1, v.Args[1])
	d.out(2, v)
	d.params(3, Extent(out[0]), Extent(out[1]), Extent(out[2]), Extent(a[2]))
	d.launch([3]Expr{over(out[2], matTile), over(out[1], matTile), Extent(out[0])}, 128)
	return nil
}

func mask(p *phase, v *ir.Value) error {
	s := v.Type.Shape
	d := p.dispatch("mask_"+v.Type.DType.String(), v)
	for i := range 4 {
		d.in(uint32(i), v.Args[i])
	}
	d.out(4, v)
	d.params(5, Extent(s[0]), Extent(s[1]), Extent(ir.Var(ir.B)), Extent(ir.Var(ir.Smax)), size(int64(v.Attr.(ir.MaskAttr).Window)))
	d.mayReplace(v.Args[0], v)
	d.launch([3]Expr{over(s[2], 64), Extent(s[1]), Extent(s[0])}, 64)
	return nil
}

func softmax(p *phase, v *ir.Value) error {
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	width := Extent(lastDim(v))
	d := p.dispatch("softmax_"+v.Type.DType.String(), v)
	d.in(0, v.Args[0])
	d.out(1, v)
	perSink := Number(0)
	if len(v.Args) > 1 {
		d.constant(1, 1)
		d.in(3, v.Args[1])
		perSink = Extent(v.Type.Shape[1])
	}
	d.params(2, Extent(rows), width, width, perSink, Number(0))
	d.launch([3]Expr{Extent(rows), one(), one()}, 256)
	return nil
}

func argmax(p *phase, v *ir.Value) error {
	x := v.Args[0]
	width := Extent(lastDim(x))
	d := p.dispatch("argmax_"+x.Type.DType.String(), v)
	d.in(0, x)
	d.out(1, v)
	d.params(2, Extent(v.Type.Shape[0]), width, width, width, Number(0))
	d.launch([3]Expr{Extent(v.Type.Shape[0]), one(), one()}, 256)
	return nil
}

func topK(p *phase, v *ir.Value) error {
	x, k := v.Args[0], int64(v.Attr.(ir.TopKAttr).K)
	if k > kernels.MaxTopK {
		return fmt.Errorf("%s: the kernel finds the %d largest at most", v.LongString(), kernels.MaxTopK)
	}
	rows, width := Extent(x.Type.Shape[0]), Extent(lastDim(x))
	d := p.dispatch("top_k_"+x.Type.DType.String(), v)
	d.in(0, x)
	d.outPart(1, v, 0)
	d.outPart(2, v, 1)
	d.params(3, rows, width, width, size(k))
	d.launch([3]Expr{rows, one(), one()}, 256)
	return nil
}

// elementwise lowers ops that read the same element of each operand that they
// write, so that the result may take an operand's place.
func elementwise(p *phase, v *ir.Value) error {
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	for _, a := range v.Args {
		if a.Type.DType != v.Type.DType {
			return fmt.Errorf("%s: no kernel mixes %s and %s", v.LongString(), a.Type.DType, v.Type.DType)
		}
	}
	width := lastDim(v)
	value := Number(0)
	if a, ok := v.Attr.(ir.ScaleAttr); ok {
		value = float(a.Value)
	}
	d := p.dispatch(v.Op.String()+"_"+v.Type.DType.String(), v)
	if a, ok := v.Attr.(ir.GELUAttr); ok {
		d.constant(0, bit(a.Tanh))
	}
	for i, a := range v.Args {
		d.in(uint32(i), a)
	}
	at := uint32(len(v.Args))
	d.out(at, v)
	d.params(at+1, Extent(rows), Extent(width), Extent(width), Extent(width), value)
	for _, a := range v.Args {
		d.mayReplace(a, v)
	}
	d.launch([3]Expr{over(width, 256), Extent(rows), one()}, 256)
	return nil
}

func cast(p *phase, v *ir.Value) error {
	x := v.Args[0]
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	width := lastDim(v)
	d := p.dispatch("cast_"+x.Type.DType.String()+"_"+v.Type.DType.String(), v)
	d.in(0, x)
	d.out(1, v)
	d.castLaunch(rows, width)
	return nil
}

func (e emitter) castLaunch(rows, width ir.Dim) {
	e.params(2, Extent(rows), Extent(width), Extent(width), Extent(width), Number(0))
	e.launch([3]Expr{over(width, 256), Extent(rows), one()}, 256)
}

func gatherRows(p *phase, v *ir.Value) error {
	width := lastDim(v)
	d := p.dispatch("gather_rows_"+v.Type.DType.String(), v)
	d.in(0, v.Args[0])
	d.in(1, v.Args[1])
	d.out(2, v)
	d.params(3, Extent(v.Type.Shape[0]), Extent(width), Extent(width), Extent(width), Number(0))
	d.launch([3]Expr{over(width, gatherRun), Extent(v.Type.Shape[0]), one()}, 32)
	return nil
}

func attention(p *phase, v *ir.Value) error {
	q, c := v.Args[0], v.Args[1].Type.Cache
	tokens, heads := q.Type.Shape[0], q.Type.Shape[1]
	if c.Head%8 != 0 || int64(c.Head) > int64(p.target.MaxHead) {
		return fmt.Errorf("%s: heads of %d elements; the attention kernels take multiples of 8 up to %d", v, c.Head, p.target.MaxHead)
	}
	vec := p.bound(Extent(tokens)) <= p.chip.vecTokens
	split := vec && p.target.SplitContext > 0 && p.out.MaxContext > p.target.SplitContext
	kernel := "attention_tile_"
	if vec {
		kernel = "attention_vec_"
	}
	d := p.dispatch(kernel+v.Type.DType.String()+"_"+c.DType.String(), v)
	d.constant(0, uint32(c.Head))
	d.in(0, q)
	d.cache(1, v.Args[1], false, false)
	d.cache(2, v.Args[1], true, false)
	for i := range uint32(4) {
		d.in(3+i, v.Args[2+i])
	}
	row := int64(c.Head)
	plane := int64(c.Block) * row // a block of one KV head
	if stride := int64(c.KVHeads) * plane; stride > math.MaxUint32 {
		return fmt.Errorf("%s: cache blocks of %d elements; the attention kernels count them in 32 bits", v, stride)
	}
	a := v.Attr.(ir.AttentionAttr)
	if a.Window != 0 {
		d.constant(2, 1)
	}
	if a.SoftCap != 0 {
		d.constant(3, 1)
	}
	if sinks := v.Args[6:]; len(sinks) > 0 && !split {
		d.constant(4, 1)
		d.in(11, sinks[0])
	}
	d.params(8, Extent(tokens), Extent(ir.Var(ir.B)), Extent(heads), size(int64(c.KVHeads)), size(int64(c.Head)),
		size(int64(c.Block)), Extent(ir.Var(ir.NB)), size(int64(c.KVHeads)*plane), size(plane), size(row),
		float(a.Scale), size(int64(a.Window)), float(a.SoftCap))
	n, _ := heads.IsConst()
	shape := fmt.Sprintf("%s × %d heads of %d, Smax ≤ %d", p.upTo(tokens), n, c.Head, p.out.MaxContext)
	switch {
	case split:
		p.chose(v, d, shape, fmt.Sprintf("partitions of %d keys", p.chip.partitionKeys()),
			fmt.Sprintf("contexts over %d keys leave %s idle", p.target.SplitContext, &p.chip))
		return splitAttention(p, v, d)
	case vec:
		p.chose(v, d, shape, "a threadgroup for a head and token", "contexts are short or steps wide enough")
		d.launch([3]Expr{Extent(heads), Extent(tokens), one()}, 256)
	default:
		p.chose(v, d, shape, fmt.Sprintf("tiles of %d queries", attentionTile), fmt.Sprintf("more than %d tokens", p.chip.vecTokens))
		tiles := over(tokens, attentionTile).Plus(Extent(ir.Var(ir.B)))
		d.launch([3]Expr{tiles, Extent(heads), one()}, 128)
	}
	d.out(7, v)
	return nil
}

// splitAttention cuts the keys of attention_vec into partitions, whose results a
// second dispatch puts together. Partitions beyond a token's keys say so in their
// statistics and cost nothing.
func splitAttention(p *phase, v *ir.Value, d emitter) error {
	heads, head := v.Type.Shape[1], last(v)
	n, _ := heads.IsConst()
	rows := n * p.bound(Extent(v.Type.Shape[0])) // of one partition
	partition := p.chip.partitionKeys()
	parts := over(ir.Var(ir.Smax), partition)
	scratch := func(width int64) (place, Expr) {
		smax, _ := ir.Var(ir.Smax).Times(ir.Const(int(4 * rows * width)))
		bytes := over(smax, partition).Plus(Number(4 * rows * width))
		return p.scratch(bytes), bytes
	}
	sums, sumBytes := scratch(head)
	statistics, statisticBytes := scratch(2)
	d.constant(1, uint32(partition))
	d.bind(9, sums, Binding{Bytes: sumBytes, Write: true})
	d.bind(10, statistics, Binding{Bytes: statisticBytes, Write: true})
	d.launch([3]Expr{Extent(heads), Extent(v.Type.Shape[0]), parts}, 256)

	r := p.dispatch("attention_reduce_"+v.Type.DType.String(), v)
	r.bind(0, sums, Binding{Bytes: sumBytes, Read: true})
	r.bind(1, statistics, Binding{Bytes: statisticBytes, Read: true})
	r.out(2, v)
	if sinks := v.Args[6:]; len(sinks) > 0 { // once, not in every partition
		r.constant(4, 1)
		r.in(4, sinks[0])
	}
	r.params(3, Extent(v.Type.Shape[0]), Extent(heads), size(head), parts)
	r.launch([3]Expr{Extent(heads), Extent(v.Type.Shape[0]), one()}, uint32(roundUp((head+3)/4, 32)))
	return nil
}

// ropeWrite lowers rope_qkv_write and head_norm_rope_kv_write.
func ropeWrite(p *phase, v *ir.Value) error {
	a := v.Attr.(ir.RopeWriteAttr)
	qkv, c := v.Args[0], v.Args[1].Type.Cache
	tokens := qkv.Type.Shape[0]
	norms := v.Op == ir.OpHeadNormRopeKVWrite
	if int64(c.Head) > int64(p.target.MaxHead) {
		return fmt.Errorf("%s: heads of %d elements; the fused writes take up to %d", v, c.Head, p.target.MaxHead)
	}
	factorsAt := 4
	if norms {
		factorsAt = 6
	}
	d := p.dispatch(v.Op.String()+"_"+qkv.Type.DType.String()+"_"+c.DType.String(), v)
	rotation(d, a.Rope, v.Args[factorsAt:], 3)
	d.in(0, qkv)
	d.in(1, v.Args[2])
	d.in(2, v.Args[3])
	d.out(4, v)
	d.cache(5, v.Args[1], false, true)
	d.cache(6, v.Args[1], true, true)
	if norms {
		d.in(8, v.Args[4])
		d.in(9, v.Args[5])
	}
	d.params(7, Extent(tokens), size(int64(a.Heads)), size(int64(c.KVHeads)), size(int64(c.Head)), size(int64(a.Rope.Rotated)),
		size(last(qkv)), size(last(qkv)), size(last(qkv)), size(int64(c.Block)), Number(0),
		float(math.Log2(a.Rope.Theta)), float(a.Rope.FreqScale), float(a.Rope.Magnitude), float(a.Eps))
	rows, each := int64(a.Heads)+2*int64(c.KVHeads), int64(kernels.RopeWriteRows(int(c.Head)))
	d.launch([3]Expr{Number((rows + each - 1) / each), Extent(tokens), one()}, 32)
	return nil
}
