package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// expertLinear lowers expert_linear and routed_linear. For few tokens, linear_vec has a row of its
// grid for each expert of a token, or for each token if it mixes the experts' results. For many,
// linear_mat has tiles of rows of one expert, after a dispatch that groups the rows by expert.
func expertLinear(p *phase, v *ir.Value) error {
	attr, in := ir.AsRoutedLinear(v)
	call := linearCall{attr.Linear, in.LinearOperands}
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	stack, experts := in.Weights[0].Type.Shape, in.Experts.Type.Shape
	k := last(in.Weights[0])
	if attr.Mixed != (len(v.Type.Shape) == 2) {
		return fmt.Errorf("%s: results of shape %s", v.LongString(), v.Type)
	}
	at := sizes{
		shape:  fmt.Sprintf("%s × %d → %d, %s, %d of %d experts", p.upTo(rows), k, last(v), in.Weights[0].Type.DType, number(experts[1]), number(stack[0])),
		stored: in.Weights[0].Type.DType, act: in.X.Type.DType, tokens: 1, k: k, n: last(v),
	}
	grouped := p.target.costs.GroupsExperts(&p.target.Target, v, p.out.Bounds[sym.T])
	var order, starts place
	if grouped {
		order, starts = p.expertOrder(v, in.Experts, stack[0])
	}
	d := p.dispatch(linearKernel(!grouped)+in.X.Type.DType.String()+"_"+v.Type.DType.String(), v)
	d.in("x", in.X)
	d.linear(v, call, rows)
	d.constant("fc_experts", uint32(number(stack[0])))
	d.constant("fc_top", uint32(number(experts[1])))
	if len(in.X.Type.Shape) == 3 {
		d.constant("fc_each", 1)
	}
	if grouped {
		d.bind("rows", order, plan.Binding{Bytes: orderBytes(rows), Read: true})
		d.bind("starts", starts, plan.Binding{Bytes: startsBytes(stack[0]), Read: true})
		d.out("out", v)
		at.tokens = ceilDiv(p.bound(Extent(rows)), number(stack[0]))
		d.launchMat(v, at, attr.Linear.Gated, rows, number(stack[0])+1)
		return nil
	}
	d.in("expert", in.Experts)
	if attr.Mixed {
		d.constant("fc_mixed", 1)
		d.in("share", in.Mix)
	}
	d.out("out", v)
	if attr.Linear.Residual {
		d.mayReplace(in.Residual, v)
	}
	if !p.target.Launches {
		d.hints(v, at, streams, ahead, piece)
	}
	d.launchVec(v, at, rows)
	return nil
}

// expertOrder groups the rows by expert, once for all products with the same choice of experts. It
// returns the order of the rows, and where each expert's rows start in it.
func (p *phase) expertOrder(v, experts *ir.Value, stack ir.Dim) (order, starts place) {
	choice := part{root(experts).ID, partOf(experts)}
	if known, ok := p.orders[choice]; ok {
		return known[0], known[1]
	}
	rows, ok := experts.Type.Shape.Elements()
	if !ok {
		p.fail(fmt.Errorf("%s is no simple size", experts.Type))
	}
	order, starts = p.scratch(orderBytes(rows)), p.scratch(startsBytes(stack))
	p.orders[choice] = [2]place{order, starts}
	d := p.dispatch("group_by_expert", v)
	d.in("expert", experts)
	d.bind("order", order, plan.Binding{Bytes: orderBytes(rows), Write: true})
	d.bind("starts", starts, plan.Binding{Bytes: startsBytes(stack), Write: true})
	d.params(words{"rows": Extent(rows), "groups": plan.Number(number(stack) + 1)})
	d.cover()
	return order, starts
}

func orderBytes(rows ir.Dim) plan.Expr { return Extent(rows).Times(dtype.I32.Bytes(1)) }

// startsBytes returns the bytes of one integer for each expert, one for the rows without an expert,
// and one for the end.
func startsBytes(stack ir.Dim) plan.Expr { return plan.Number(dtype.I32.Bytes(number(stack) + 2)) }

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
