package lower

import (
	"fmt"
	"maps"
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
	d.constant("fc_type", uint32(v.Args[1].Type.DType))
	d.in("tokens", v.Args[0])
	d.in("table", v.Args[1])
	d.out("out", v)
	d.params(words{"tokens": Extent(v.Type.Shape[0]), "width": size(width), "vocab": Extent(vocab)})
	d.cover()
	if rows, ok := vocab.IsConst(); ok && root(v.Args[0]).Name() == ir.Tokens && (p.plan.Vocab == 0 || rows < p.plan.Vocab) {
		p.plan.Vocab = rows
	}
	return nil
}

func rmsNorm(p *phase, v *ir.Value) error {
	d, err := norm(p, v)
	if err != nil {
		return err
	}
	d.in("weight", v.Args[1])
	return nil
}

func layerNorm(p *phase, v *ir.Value) error {
	d, err := norm(p, v)
	if err != nil {
		return err
	}
	for i, name := range []string{"weight", "bias"} {
		given := i+1 < len(v.Args)
		d.constant("fc_"+name, bit(given))
		if given {
			d.in(name, v.Args[i+1])
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
	d.in("x", x)
	d.out("out", v)
	d.params(words{"rows": Extent(rows), "width": size(width), "x_stride": size(width), "eps": float(v.Attr.(ir.NormAttr).Eps)})
	d.coverBy(min(d.kernel.MaxThreads, int(roundUp((width+3)/4, 32))))
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
	d.in("x", call.x)
	d.linear(v, call, rows)
	d.out("out", v)
	if call.residual != nil {
		d.mayReplace(call.residual, v)
	}
	d.linearLaunch(v, call, call.x.Type.DType, rows, vec)
	return nil
}

// The families of products.
const (
	linearVec = "linear_vec"
	linearMat = "linear_mat"
)

func linearKernel(vec bool) string {
	if vec {
		return linearVec + "_"
	}
	return linearMat + "_"
}

// linear binds what a product reads besides x, and its parameters.
func (e emitter) linear(v *ir.Value, call linearCall, rows ir.Dim) {
	k, n := last(call.x), last(v)
	var heights [3]Expr
	for i, w := range call.weights {
		heights[i] = Extent(w.Type.Shape[0])
		e.in(fmt.Sprintf("w%d", i), w)
	}
	for i := range heights {
		var code uint32
		if i < len(call.weights) {
			code = uint32(call.weights[i].Type.DType)
		}
		e.constant(fmt.Sprintf("fc_type%d", i), code)
	}
	e.constant("fc_residual", bit(call.residual != nil))
	e.constant("fc_activation", bit(call.pair))
	if e.kernel.Family == linearVec {
		e.constant("fc_norm", bit(call.norm != nil))
	}
	e.params(words{"tokens": Extent(rows), "k": size(k), "n0": heights[0], "n1": heights[1], "n2": heights[2],
		"x_stride": size(k), "out_stride": size(n), "eps": float(call.eps)})
	if call.residual != nil {
		e.in("residual", call.residual)
	}
	if call.norm != nil {
		e.in("gain", call.norm)
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
		e.constant("fc_rows", uint32(s.rows))
		e.constant("fc_tokens", uint32(s.tokens))
		e.launch([3]Expr{Number(ceilDiv(n, s.rows*s.simdgroups)), over(rows, s.tokens), one()}, int(32*s.simdgroups))
		p.chose(v, e, shape, s.String(), why)
		return
	}
	width := int64(kernels.MatColumns)
	if call.pair {
		width /= 2
	}
	tile, why := p.chip.tile(act, ceilDiv(n, width), tokens)
	e.constant("fc_tile", uint32(tile))
	e.launch([3]Expr{over(rows, tile), Number(ceilDiv(n, width)), one()}, e.kernel.MaxThreads)
	p.chose(v, e, shape, fmt.Sprintf("tiles of %d tokens × %d rows", tile, kernels.MatColumns), why)
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
	d.inFrom("x", x, offset)
	d.out("out", v)
	d.params(words{"size[0]": Extent(shape[0]), "size[1]": Extent(shape[1]), "size[2]": Extent(shape[2]),
		"stride[0]": strides[0], "stride[1]": strides[1], "stride[2]": strides[2]})
	d.cover()
	return nil
}

func rope(p *phase, v *ir.Value) error {
	x, a := v.Args[0], v.Attr.(ir.RopeAttr)
	tokens, heads, head := v.Type.Shape[0], v.Type.Shape[1], last(v)
	stride, _ := heads.Times(ir.Const(int(head)))
	d := p.dispatch("rope_"+v.Type.DType.String(), v)
	given := rotation(d, a, v.Args[2:])
	d.in("x", x)
	d.in("positions", v.Args[1])
	d.out("out", v)
	maps.Copy(given, words{"tokens": Extent(tokens), "heads": Extent(heads), "head": size(head), "x_stride": Extent(stride)})
	d.params(given)
	d.cover()
	return nil
}

// rotation sets the constants that the rotary kernels share and binds the factors, of
// which there are one or none. With a base of 1 they are whole divisors: a table. It
// returns the parameters of the rotation.
func rotation(d emitter, a ir.RopeAttr, factors []*ir.Value) words {
	table := len(factors) > 0 && a.Theta == 1
	d.constant("fc_interleaved", bit(a.Interleaved))
	d.constant("fc_factors", bit(len(factors) > 0 && !table))
	d.constant("fc_table", bit(table))
	if len(factors) > 0 {
		d.in("factors", factors[0])
	}
	return words{"rotated": size(int64(a.Rotated)), "first": Number(0),
		"log2_theta": float(math.Log2(a.Theta)), "freq_scale": float(a.FreqScale), "magnitude": float(a.Magnitude)}
}

func cacheWrite(p *phase, v *ir.Value) error {
	k, c := v.Args[1], v.Type.Cache
	width := int64(c.KVHeads * c.Head)
	d := p.dispatch("cache_write_"+k.Type.DType.String()+"_"+c.DType.String(), v)
	d.in("k", k)
	d.in("v", v.Args[2])
	d.in("slots", v.Args[3])
	d.caches(v.Args[0], true)
	given := block(c)
	maps.Copy(given, words{"tokens": Extent(k.Type.Shape[0]), "k_stride": size(width), "v_stride": size(width)})
	d.params(given)
	d.cover()
	return nil
}

func cacheRead(p *phase, v *ir.Value) error {
	c := v.Args[0].Type.Cache
	d := p.dispatch("cache_read_"+c.DType.String(), v)
	d.cache("cache", v.Args[0], v.Attr.(ir.CacheReadAttr).Values, false)
	d.in("context_lens", v.Args[1])
	d.in("block_table", v.Args[2])
	d.out("out", v)
	given := block(c)
	maps.Copy(given, words{"seqs": Extent(ir.Var(ir.B)), "context": Extent(ir.Var(ir.Smax)), "table_stride": Extent(ir.Var(ir.NB))})
	d.params(given)
	d.cover()
	return nil
}

// block is the extents of a block of a cache, as parameters.
func block(c ir.Cache) words {
	return words{"kv_heads": size(int64(c.KVHeads)), "head": size(int64(c.Head)), "block": size(int64(c.Block))}
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
	d := p.dispatch(v.Op.String()+"_"+out.DType.String(), v)
	groups := over(n, int64(kernels.RepeatThreads))
	if p.bound(groups) > repeatGroups {
		groups = Number(repeatGroups)
	}
	names := [][2]string{{"x", "out"}}
	if len(v.Args) > 1 {
		names = [][2]string{{"k", "k_out"}, {"v", "v_out"}}
	}
	for i, a := range v.Args {
		d.in(names[i][0], a)
		d.outPart(names[i][1], v, i)
	}
	d.params(words{"tokens": Extent(x.Type.Shape[0]), "kv_heads": Extent(x.Type.Shape[1]), "head": size(last(x)),
		"repeats": size(int64(v.Attr.(ir.RepeatAttr).N))})
	d.launch([3]Expr{groups, one(), one()}, kernels.RepeatThreads)
	return nil
}

func matmul(p *phase, v *ir.Value) error {
	a := v.Args[0].Type.Shape
	out := v.Type.Shape
	d := p.dispatch("matmul_"+v.Type.DType.String(), v)
	d.constant("fc_transposed", bit(v.Attr.(ir.MatmulAttr).TransB))
	d.in("a", v.Args[0])
	d.in("b", v.Args[1])
	d.out("out", v)
	d.params(words{"batch": Extent(out[0]), "m": Extent(out[1]), "n": Extent(out[2]), "k": Extent(a[2])})
	d.cover()
	return nil
}

func mask(p *phase, v *ir.Value) error {
	s := v.Type.Shape
	d := p.dispatch("mask_"+v.Type.DType.String(), v)
	for i, name := range []string{"scores", "positions", "cu_seqlens", "context_lens"} {
		d.in(name, v.Args[i])
	}
	d.out("out", v)
	d.params(words{"heads": Extent(s[0]), "tokens": Extent(s[1]), "seqs": Extent(ir.Var(ir.B)), "context": Extent(ir.Var(ir.Smax)),
		"window": size(int64(v.Attr.(ir.MaskAttr).Window))})
	d.mayReplace(v.Args[0], v)
	d.cover()
	return nil
}

func softmax(p *phase, v *ir.Value) error {
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	d := p.dispatch("softmax_"+v.Type.DType.String(), v)
	d.in("x", v.Args[0])
	d.out("out", v)
	given := elements(rows, lastDim(v))
	given["b_stride"] = Number(0)
	if len(v.Args) > 1 {
		d.constant("fc_sinks", 1)
		d.in("sinks", v.Args[1])
		given["b_stride"] = Extent(v.Type.Shape[1])
	}
	d.params(given)
	d.cover()
	return nil
}

func argmax(p *phase, v *ir.Value) error {
	x := v.Args[0]
	d := p.dispatch("argmax_"+x.Type.DType.String(), v)
	d.in("x", x)
	d.out("out", v)
	d.params(elements(v.Type.Shape[0], lastDim(x)))
	d.cover()
	return nil
}

func topK(p *phase, v *ir.Value) error {
	x, k := v.Args[0], int64(v.Attr.(ir.TopKAttr).K)
	if k > kernels.MaxTopK {
		return fmt.Errorf("%s: the kernel finds the %d largest at most", v.LongString(), kernels.MaxTopK)
	}
	width := Extent(lastDim(x))
	d := p.dispatch("top_k_"+x.Type.DType.String(), v)
	d.in("x", x)
	d.outPart("values", v, 0)
	d.outPart("indices", v, 1)
	d.params(words{"rows": Extent(x.Type.Shape[0]), "width": width, "x_stride": width, "k": size(k)})
	d.cover()
	return nil
}

// elements are the parameters of kernels on dense rows.
func elements(rows, width ir.Dim) words {
	w := Extent(width)
	return words{"rows": Extent(rows), "width": w, "a_stride": w, "b_stride": w, "value": Number(0)}
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
	given := elements(rows, lastDim(v))
	if a, ok := v.Attr.(ir.ScaleAttr); ok {
		given["value"] = float(a.Value)
	}
	d := p.dispatch(v.Op.String()+"_"+v.Type.DType.String(), v)
	if a, ok := v.Attr.(ir.GELUAttr); ok {
		d.constant("fc_tanh", bit(a.Tanh))
	}
	for i, a := range v.Args {
		d.in([]string{"a", "b"}[i], a)
	}
	d.out("out", v)
	d.params(given)
	for _, a := range v.Args {
		d.mayReplace(a, v)
	}
	d.cover()
	return nil
}

func cast(p *phase, v *ir.Value) error {
	x := v.Args[0]
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	d := p.dispatch("cast_"+x.Type.DType.String()+"_"+v.Type.DType.String(), v)
	d.in("x", x)
	d.out("out", v)
	d.params(elements(rows, lastDim(v)))
	d.cover()
	return nil
}

func gatherRows(p *phase, v *ir.Value) error {
	d := p.dispatch("gather_rows_"+v.Type.DType.String(), v)
	d.in("x", v.Args[0])
	d.in("index", v.Args[1])
	d.out("out", v)
	d.params(elements(v.Type.Shape[0], lastDim(v)))
	d.cover()
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
	d.constant("fc_head", uint32(c.Head))
	d.in("q", q)
	d.caches(v.Args[1], false)
	for i, name := range []string{"positions", "cu_seqlens", "context_lens", "block_table"} {
		d.in(name, v.Args[2+i])
	}
	row := int64(c.Head)
	plane := int64(c.Block) * row // a block of one KV head
	if stride := int64(c.KVHeads) * plane; stride > math.MaxUint32 {
		return fmt.Errorf("%s: cache blocks of %d elements; the attention kernels count them in 32 bits", v, stride)
	}
	a := v.Attr.(ir.AttentionAttr)
	if a.Window != 0 {
		d.constant("fc_window", 1)
	}
	if a.SoftCap != 0 {
		d.constant("fc_soft_cap", 1)
	}
	if sinks := v.Args[6:]; len(sinks) > 0 && !split {
		d.constant("fc_sinks", 1)
		d.in("sinks", sinks[0])
	}
	given := block(c)
	maps.Copy(given, words{"tokens": Extent(tokens), "seqs": Extent(ir.Var(ir.B)), "heads": Extent(heads), "table_stride": Extent(ir.Var(ir.NB)),
		"block_stride": size(int64(c.KVHeads) * plane), "head_stride": size(plane), "row_stride": size(row),
		"scale": float(a.Scale), "window": size(int64(a.Window)), "soft_cap": float(a.SoftCap)})
	d.params(given)
	n, _ := heads.IsConst()
	shape := fmt.Sprintf("%s × %d heads of %d, Smax ≤ %d", p.upTo(tokens), n, c.Head, p.out.MaxContext)
	switch {
	case split:
		p.chose(v, d, shape, fmt.Sprintf("partitions of %d keys", p.chip.partitionKeys()),
			fmt.Sprintf("contexts over %d keys leave %s idle", p.target.SplitContext, &p.chip))
		return splitAttention(p, v, d)
	case vec:
		p.chose(v, d, shape, "a threadgroup for a head and token", "contexts are short or steps wide enough")
		d.launch([3]Expr{Extent(heads), Extent(tokens), one()}, d.kernel.MaxThreads)
	default:
		p.chose(v, d, shape, fmt.Sprintf("tiles of %d queries", kernels.AttentionTile), fmt.Sprintf("more than %d tokens", p.chip.vecTokens))
		tiles := over(tokens, kernels.AttentionTile).Plus(Extent(ir.Var(ir.B)))
		d.launch([3]Expr{tiles, Extent(heads), one()}, d.kernel.MaxThreads)
	}
	d.out("out", v)
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
	d.constant("fc_split", uint32(partition))
	d.bind("part", sums, Binding{Bytes: sumBytes, Write: true})
	d.bind("statistics", statistics, Binding{Bytes: statisticBytes, Write: true})
	d.launch([3]Expr{Extent(heads), Extent(v.Type.Shape[0]), parts}, d.kernel.MaxThreads)

	r := p.dispatch("attention_reduce_"+v.Type.DType.String(), v)
	r.bind("part", sums, Binding{Bytes: sumBytes, Read: true})
	r.bind("statistics", statistics, Binding{Bytes: statisticBytes, Read: true})
	r.out("out", v)
	if sinks := v.Args[6:]; len(sinks) > 0 { // once, not in every partition
		r.constant("fc_sinks", 1)
		r.in("sinks", sinks[0])
	}
	r.params(words{"tokens": Extent(v.Type.Shape[0]), "heads": Extent(heads), "head": size(head), "partitions": parts})
	r.coverBy(int(roundUp((head+3)/4, 32)))
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
	given := rotation(d, a.Rope, v.Args[factorsAt:])
	d.in("qkv", qkv)
	d.in("positions", v.Args[2])
	d.in("slots", v.Args[3])
	d.out("q_out", v)
	d.caches(v.Args[1], true)
	if norms {
		d.in("q_norm", v.Args[4])
		d.in("k_norm", v.Args[5])
	}
	stride := size(last(qkv))
	maps.Copy(given, block(c))
	maps.Copy(given, words{"tokens": Extent(tokens), "heads": size(int64(a.Heads)),
		"q_stride": stride, "k_stride": stride, "v_stride": stride, "eps": float(a.Eps)})
	d.params(given)
	rows, each := int64(a.Heads)+2*int64(c.KVHeads), int64(kernels.RopeWriteRows(int(c.Head)))
	d.launch([3]Expr{Number((rows + each - 1) / each), Extent(tokens), one()}, d.kernel.MaxThreads)
	return nil
}
