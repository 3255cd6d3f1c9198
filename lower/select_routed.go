package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
)

// expertLinear lowers expert_linear and routed_linear to the kernel for few tokens, whose grid
// has a row for each expert of a token, or for each token whose experts are mixed: how many
// there are is known before which ones.
func expertLinear(p *phase, v *ir.Value) error {
	attr, in := ir.AsRoutedLinear(v)
	call := linearCall{attr.Linear, in.LinearOperands}
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	stack, experts := in.Weights[0].Type.Shape, in.Experts.Type.Shape
	k := last(in.X)
	if attr.Mixed != (len(v.Type.Shape) == 2) {
		return fmt.Errorf("%s: results of shape %s", v.LongString(), v.Type)
	}
	d := p.dispatch(linearVec+"_"+in.X.Type.DType.String()+"_"+v.Type.DType.String(), v)
	d.in("x", in.X)
	d.linear(v, call, rows)
	d.constant("fc_experts", uint32(number(stack[0])))
	d.constant("fc_top", uint32(number(experts[1])))
	d.in("expert", in.Experts)
	if len(in.X.Type.Shape) == 3 {
		d.constant("fc_each", 1)
	}
	if attr.Mixed {
		d.constant("fc_mixed", 1)
		d.in("share", in.Mix)
	}
	d.out("out", v)
	if attr.Linear.Residual {
		d.mayReplace(in.Residual, v)
	}
	at := sizes{
		shape:  fmt.Sprintf("%s × %d → %d, %s, %d of %d experts", p.upTo(rows), k, last(v), in.Weights[0].Type.DType, number(experts[1]), number(stack[0])),
		stored: in.Weights[0].Type.DType, act: in.X.Type.DType, tokens: 1, k: k, n: last(v),
	}
	if !p.target.Launches {
		d.hints(v, at, streams, ahead, piece)
	}
	d.vecLaunch(v, at, rows)
	return nil
}

// number is what a constant extent is.
func number(d ir.Dim) int64 {
	n, _ := d.IsConst()
	return n
}

func weightedSum(p *phase, v *ir.Value) error {
	x := v.Args[0]
	d := p.dispatch("weighted_sum_"+v.Type.DType.String(), v)
	d.in("x", x)
	d.in("weights", v.Args[1])
	d.out("out", v)
	d.params(words{"rows": Extent(v.Type.Shape[0]), "width": size(last(v)), "each": Extent(x.Type.Shape[1])})
	d.cover()
	return nil
}
