package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

func embed(p *phase, v *ir.Value) error {
	width, vocab := last(v), v.Args[1].Type.Shape[0]
	d := p.dispatch("embed", v)
	d.constant("fc_type", uint32(v.Args[1].Type.DType))
	d.in("tokens", v.Args[0])
	d.in("table", v.Args[1])
	d.out("out", v)
	d.params(words{"tokens": Extent(v.Type.Shape[0]), "width": size(width), "vocab": Extent(vocab)})
	d.cover()
	if rows, ok := vocab.IsConst(); ok && root(v.Args[0]).Name() == sym.Tokens && (p.plan.Vocab == 0 || rows < p.plan.Vocab) {
		p.plan.Vocab = rows
	}
	return nil
}

// linearCall is a linear or fused_linear.
type linearCall struct {
	attr ir.LinearAttr
	in   ir.LinearOperands
}

func linear(p *phase, v *ir.Value) error {
	attr, in := ir.AsFusedLinear(v)
	return product(p, v, linearCall{attr, in})
}

func product(p *phase, v *ir.Value, call linearCall) error {
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	tokens := p.bound(Extent(rows))
	vec := p.isVec(v, call, rows, tokens)
	if call.attr.Norm == ir.LayerNorm && !vec {
		return fmt.Errorf("%s: no mat-mat kernel computes a LayerNorm of its input", v.LongString())
	}
	if p.onCPU(v, call, tokens) {
		return p.cpuProduct(v, call, rows, vec)
	}
	act, name := call.in.X.Type.DType, linearKernel(vec)+call.in.X.Type.DType.String()
	if call.attr.Norm != ir.NoNorm && !vec { // tiles hold normalised elements
		if call.attr.Narrow {
			act = p.target.Act
		}
		name = normLinearMat + "_" + call.in.X.Type.DType.String() + "_" + act.String()
	}
	d := p.dispatch(name+"_"+v.Type.DType.String(), v)
	d.in("x", call.in.X)
	d.linear(v, call, rows)
	d.out("out", v)
	if call.attr.Residual {
		d.mayReplace(call.in.Residual, v)
	}
	d.linearLaunch(v, call, act, rows, vec)
	return nil
}

// isVec reports whether a product of at most tokens tokens runs as mat-vec.
func (p *phase) isVec(v *ir.Value, call linearCall, rows ir.Dim, tokens int64) bool {
	vec := tokens <= p.chip.vecTokens && !p.target.SameBits
	if p.target.SameBits || !p.target.Launches || call.attr.Norm != ir.NoNorm {
		return vec
	}
	d := p.decide(vecOrMat, v, ir.OpLinear.String(), call.inputs(p, v, rows), plan.Setting{"vec": int64(bit(vec))}, "")
	return d.Setting["vec"] == 1
}

// inputs returns the sizes that decide the choices for a product.
func (c linearCall) inputs(p *phase, v *ir.Value, rows ir.Dim) sizes {
	stored := c.in.Weights[0].Type.DType
	return sizes{
		shape:  fmt.Sprintf("%s × %d → %d, %s", p.upTo(rows), last(c.in.Weights[0]), last(v), stored),
		stored: stored, act: c.in.X.Type.DType, tokens: p.bound(Extent(rows)), k: last(c.in.Weights[0]), n: last(v),
	}
}

func linearKernel(vec bool) string {
	if vec {
		return linearVec + "_"
	}
	return linearMat + "_"
}

// linear binds the operands of a product besides x, and sets its constants and parameters.
func (e emitter) linear(v *ir.Value, call linearCall, rows ir.Dim) {
	attr, in := call.attr, call.in
	k, n := last(in.Weights[0]), last(v)
	var heights [4]plan.Expr
	for i, w := range in.Weights {
		heights[i] = Extent(w.Type.Shape[len(w.Type.Shape)-2])
		e.in(fmt.Sprintf("w%d", i), w)
	}
	for i := range max(3, len(in.Weights)) {
		var code uint32
		if i < len(in.Weights) {
			code = uint32(in.Weights[i].Type.DType)
		}
		e.constant(fmt.Sprintf("fc_type%d", i), code)
	}
	e.constant("fc_residual", bit(attr.Residual))
	e.constant("fc_activation", uint32(attr.Activation))
	if attr.Gated {
		e.constant("fc_gated", 1)
	}
	if e.kernel.Family == linearVec {
		e.constant("fc_norm", uint32(attr.Norm))
	}
	given := words{"tokens": Extent(rows), "k": size(k), "n0": heights[0], "n1": heights[1], "n2": heights[2], "n3": heights[3],
		"x_stride": size(last(in.X)), "out_stride": size(n), "eps": float(attr.Eps), "gate_stride": size(0), "gate_from": size(0)}
	if attr.HasGate() {
		if attr.ColumnGate {
			e.constant("fc_column_gate", 1)
		} else {
			e.constant("fc_row_gate", uint32(attr.RowGate))
		}
		e.in("gate", in.Gate)
		given["gate_stride"], given["gate_from"] = size(last(in.Gate)), size(int64(attr.GateColumn))
	}
	e.params(given)
	if attr.Bias {
		e.constant("fc_bias", 1)
		for i, bias := range in.Biases {
			e.in(fmt.Sprintf("bias%d", i), bias)
		}
	}
	if attr.Gather {
		e.constant("fc_gather", 1)
		e.in("rows", in.Rows)
	}
	if attr.Residual {
		e.in("residual", in.Residual)
	}
	if attr.Gain {
		e.in("gain", in.Gain)
	}
	if attr.Norm == ir.LayerNorm { // an RMSNorm always has a gain and no shift
		e.constant("fc_gain", bit(attr.Gain))
		e.constant("fc_shift", bit(attr.Shift))
	}
	if attr.Shift {
		e.in("shift", in.Shift)
	}
}

// linearLaunch chooses the grid of a product with activations of type act.
func (e emitter) linearLaunch(v *ir.Value, call linearCall, act dtype.Type, rows ir.Dim, vec bool) {
	p, at := e.p, call.inputs(e.p, v, rows)
	at.act = act
	if !p.target.Launches {
		e.hints(v, at, streams, ahead, piece, pairs)
	}
	if vec {
		e.launchVec(v, at, rows)
		return
	}
	e.launchMat(v, at, call.attr.Gated, rows, 0)
}

// launchMat chooses the grid of linear_mat for rows rows of results, and adds more tiles for the
// partial last tiles of experts.
func (e emitter) launchMat(v *ir.Value, at sizes, gated bool, rows ir.Dim, more int64) {
	width := int64(kernels.MatColumns)
	if gated {
		width /= 2
	}
	columns := ceilDiv(at.n, width)
	tile, why := e.p.chip.tile(at.act, columns*max(more, 1), at.tokens)
	d := e.p.launch(matTile, v, e, at, plan.Setting{"tile": tile}, why)
	tile = d.Setting["tile"]
	e.constant("fc_tile", uint32(tile))
	e.launch([3]plan.Expr{over(rows, tile).Plus(plan.Number(more)), plan.Number(columns), one()}, e.kernel.MaxThreads)
	e.p.choseBy(v, e, at.shape, fmt.Sprintf("tiles of %d tokens × %d rows", tile, kernels.MatColumns), d)
}

// launchVec chooses the grid of linear_vec for rows rows of results.
func (e emitter) launchVec(v *ir.Value, at sizes, rows ir.Dim) {
	s, why := e.p.chip.vec(at.stored, at.n, at.tokens)
	d := e.p.launch(vecLaunch, v, e, at, plan.Setting{"rows": s.rows, "simdgroups": s.simdgroups}, why)
	s.rows, s.simdgroups = d.Setting["rows"], d.Setting["simdgroups"]
	e.constant("fc_rows", uint32(s.rows))
	e.constant("fc_tokens", uint32(s.tokens))
	e.launch([3]plan.Expr{plan.Number(ceilDiv(at.n, s.rows*s.simdgroups)), over(rows, s.tokens), one()}, int(32*s.simdgroups))
	e.p.choseBy(v, e, at.shape, s.String(), d)
}

// onCPU reports whether the placement gives a product to the CPU.
func (p *phase) onCPU(v *ir.Value, call linearCall, tokens int64) bool {
	if p.products == nil || !p.target.GPU {
		return false
	}
	w := Product{Phase: p.out.Name, Layer: v.Layer, Tokens: tokens, K: last(call.in.X), N: last(v)}
	for _, t := range call.in.Weights {
		n, _ := t.Type.Shape.Elements()
		elements, _ := n.IsConst()
		w.Bytes += t.Type.DType.Bytes(elements)
	}
	return p.products(w)
}

// cpuProduct lowers a product for the CPU, whose kernels read and write F32. Activations of another
// type are cast through scratch memory before and after.
func (p *phase) cpuProduct(v *ir.Value, call linearCall, rows ir.Dim, vec bool) error {
	first := len(p.out.Dispatches)
	var x, y place
	var xBytes, yBytes plan.Expr
	narrow, narrows := call.in.X.Type.DType != dtype.F32, v.Type.DType != dtype.F32
	if narrow {
		x, xBytes = p.floats(rows, last(call.in.X))
		d := p.dispatch("cast_"+call.in.X.Type.DType.String()+"_f32", v)
		d.in("x", call.in.X)
		d.bind("out", x, plan.Binding{Bytes: xBytes, Write: true})
		d.params(elements(rows, lastDim(call.in.X)))
		d.cover()
	}
	d := p.dispatch(linearKernel(vec)+"f32_f32", v)
	if narrow {
		d.bind("x", x, plan.Binding{Bytes: xBytes, Read: true})
	} else {
		d.in("x", call.in.X)
	}
	d.linear(v, call, rows)
	d.panelScratch(call, rows)
	if narrows {
		y, yBytes = p.floats(rows, last(v))
		d.bind("out", y, plan.Binding{Bytes: yBytes, Write: true})
	} else {
		d.out("out", v)
		if call.attr.Residual {
			d.mayReplace(call.in.Residual, v)
		}
	}
	d.linearLaunch(v, call, dtype.F32, rows, vec)
	if narrows {
		c := p.dispatch("cast_f32_"+v.Type.DType.String(), v)
		c.bind("x", y, plan.Binding{Bytes: yBytes, Read: true})
		c.out("out", v)
		c.params(elements(rows, lastDim(v)))
		c.cover()
	}
	for i := first; i < len(p.out.Dispatches); i++ {
		p.out.Dispatches[i].OnCPU = true
	}
	return nil
}

// panelScratch binds memory in which a BLAS widens weights, where it can compute the product: float
// weights and several tokens.
func (e emitter) panelScratch(call linearCall, rows ir.Dim) {
	tokens := e.p.bound(Extent(rows))
	var heights []int64
	for _, w := range call.in.Weights {
		if tokens == 1 || !w.Type.DType.IsFloat() {
			return
		}
		n, _ := w.Type.Shape[0].IsConst()
		heights = append(heights, n)
	}
	bytes := plan.Number(kernels.PanelScratch(tokens, last(call.in.X), heights, call.attr.Gated))
	e.bindAt(kernels.HostScratch, e.p.scratch(bytes), plan.Binding{Bytes: bytes, Write: true})
}

// floats returns scratch memory for rows of width floats, and its bytes.
func (p *phase) floats(rows ir.Dim, width int64) (place, plan.Expr) {
	bytes := Extent(rows).Times(4 * width)
	return p.scratch(bytes), bytes
}
