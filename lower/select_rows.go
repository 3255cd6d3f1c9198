package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

func rmsNorm(p *phase, v *ir.Value) error {
	d, err := norm(p, v, v.Args[0].Type.DType, v.Type.DType)
	if err != nil {
		return err
	}
	d.in("weight", v.Args[1])
	p.normApart(v, d)
	return nil
}

func normResidual(p *phase, v *ir.Value) error {
	d, err := norm(p, v, v.Type.DType)
	if err != nil {
		return err
	}
	d.in("weight", v.Args[1])
	d.in("residual", v.Args[2])
	if len(v.Args) > 3 {
		d.constant("fc_gain", 1)
		d.in("gain", v.Args[3])
	}
	return nil
}

// normApart notes why a norm is a separate dispatch, where the product that reads it could compute
// it.
func (p *phase) normApart(v *ir.Value, d emitter) {
	if p.out.Bounds[sym.T] > p.target.NormTokens {
		return
	}
	for _, reader := range p.f.Values {
		if reader.Op != ir.OpLinear && reader.Op != ir.OpFusedLinear || reader.Args[0] != v {
			continue
		}
		if longer, spared := p.target.costs.NormRepeats(&p.target.Target, v, reader, p.out.Bounds[sym.T], p.out.Bounds[sym.B]); longer > spared {
			p.chose(v, d, fmt.Sprintf("%s × %d, for %d columns", p.upTo(v.Type.Shape[0]), last(v), last(reader)), "a dispatch before the product",
				fmt.Sprintf("in every tile of the product it would take %.1f µs longer, and spare %.1f µs, on %s", longer, spared, &p.chip))
		}
	}
}

func layerNorm(p *phase, v *ir.Value) error {
	d, err := norm(p, v, v.Args[0].Type.DType, v.Type.DType)
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

// norm starts a dispatch of a norm's kernel for the given types. The caller binds the operands
// besides x.
func norm(p *phase, v *ir.Value, types ...dtype.Type) (emitter, error) {
	x, width := v.Args[0], last(v)
	rows, err := rowsOf(v)
	if err != nil {
		return emitter{}, err
	}
	name, groups := v.Op.String(), int64(1)
	if v.Op == ir.OpGroupNorm {
		name = ir.OpRMSNorm.String()
		groups, _ = v.Args[1].Type.Shape[0].IsConst()
	}
	for _, t := range types {
		name += "_" + t.String()
	}
	d := p.dispatch(name, v)
	d.in("x", x)
	d.out("out", v)
	d.params(words{"rows": Extent(rows), "width": size(width), "x_stride": size(width), "eps": float(v.Attr.(ir.NormAttr).Eps), "groups": size(groups)})
	d.coverBy(min(d.kernel.MaxThreads, int(roundUp((width+3)/4, 32))))
	return d, nil
}

// elementwiseOps are the element-wise ops; their kernels have the same names.
var elementwiseOps = map[ir.Op]bool{
	ir.OpScale: true, ir.OpSoftCap: true, ir.OpMul: true, ir.OpAdd: true, ir.OpActivate: true, ir.OpGate: true,
}

// elementwise lowers ops that read each operand only at the element that they write, so that the
// result may overwrite an operand.
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
	if a, ok := v.Attr.(ir.ActivationAttr); ok {
		d.constant("fc_activation", uint32(a.Activation))
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

// gain lowers a product with one row of weights, which all rows share, shift a sum.
func gain(p *phase, v *ir.Value) error  { return byToken(p, v, "mul") }
func shift(p *phase, v *ir.Value) error { return byToken(p, v, "add") }

func byToken(p *phase, v *ir.Value, family string) error {
	x, weights := v.Args[0], v.Args[1]
	width, ok := weights.Type.Shape.Elements()
	if !ok || weights.Type.DType != v.Type.DType {
		return fmt.Errorf("%s: no kernel takes weights of %s", v.LongString(), weights.Type)
	}
	rows := v.Type.Shape[0]
	if width == ir.Const(1) { // one number for all elements
		rows, _ = v.Type.Shape.Elements()
	}
	given := elements(rows, width)
	given["b_stride"] = plan.Number(0)
	d := p.dispatch(family+"_"+v.Type.DType.String(), v)
	d.in("a", x)
	d.in("b", weights)
	d.out("out", v)
	d.params(given)
	d.mayReplace(x, v)
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

func concat(p *phase, v *ir.Value) error {
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	d := p.dispatch("concat_"+v.Type.DType.String(), v)
	given := words{"rows": Extent(rows), "width": size(last(v))}
	for i := range kernels.MaxParts {
		n := int64(0)
		if i < len(v.Args) {
			n = last(v.Args[i])
			d.in(fmt.Sprint("x", i), v.Args[i])
		}
		given[fmt.Sprint("n", i)] = size(n)
	}
	d.out("out", v)
	d.constant("fc_parts", uint32(len(v.Args)))
	d.params(given)
	d.cover()
	return nil
}

func indices(p *phase, v *ir.Value) error {
	d := p.dispatch("indices", v)
	d.in("positions", v.Args[0])
	d.out("out", v)
	d.params(words{"rows": Extent(v.Type.Shape[0]), "width": size(last(v))})
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

func softmax(p *phase, v *ir.Value) error {
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	d := p.dispatch("softmax_"+v.Type.DType.String(), v)
	d.in("x", v.Args[0])
	d.out("out", v)
	given := elements(rows, lastDim(v))
	given["b_stride"] = plan.Number(0)
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

func router(p *phase, v *ir.Value) error {
	logits, a := v.Args[0], v.Attr.(ir.RouterAttr)
	experts := last(logits) - int64(a.Others)
	if experts > kernels.MaxExperts || a.Chosen > kernels.MaxChosen || a.Groups > kernels.MaxChosen {
		return fmt.Errorf("%s: the kernel chooses %d of %d experts at most, in %d groups", v.LongString(), kernels.MaxChosen, kernels.MaxExperts, kernels.MaxChosen)
	}
	d := p.dispatch("router_"+logits.Type.DType.String(), v)
	d.in("logits", logits)
	d.outPart("weights", v, 0)
	d.outPart("experts", v, 1)
	d.constant("fc_score", uint32(a.Score))
	d.constant("fc_normalised", bit(a.Normalised))
	bias, gains := a.Vectors(v.Args)
	d.constant("fc_bias", bit(a.Bias))
	d.constant("fc_gains", bit(a.Gains))
	if a.Bias {
		d.in("bias", bias)
	}
	if a.Gains {
		d.in("gains", gains)
	}
	d.params(words{"rows": Extent(logits.Type.Shape[0]), "experts": size(experts), "stride": size(last(logits)), "chosen": size(int64(a.Chosen)),
		"groups": size(int64(a.Groups)), "used_groups": size(int64(a.UsedGroups)), "scale": float(a.Factor()), "floor": float(a.Floor), "sharpness": float(a.LogitFactor())})
	d.cover()
	return nil
}
