package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

func transpose(p *phase, v *ir.Value) error {
	x, a := v.Args[0], v.Attr.(ir.TransposeAttr)
	in := x.Type.Shape
	inner, ok := in[1].Times(in[2])
	if !ok {
		return fmt.Errorf("%s: strides of %s are no simple size", v, x.Type)
	}
	strides := [3]plan.Expr{Extent(inner), Extent(in[2]), one()}
	return copyStrided(p, v, x, 0, v.Type.Shape, [3]plan.Expr{strides[a.A], strides[a.B], strides[a.C]})
}

func slice(p *phase, v *ir.Value) error {
	x, a := v.Args[0], v.Attr.(ir.SliceAttr)
	rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	shape := ir.Shape{ir.Const(1), rows, lastDim(v)}
	offset := x.Type.DType.Bytes(int64(a.Start))
	return copyStrided(p, v, x, offset, shape, [3]plan.Expr{plan.Number(0), size(last(x)), one()})
}

// copyStrided gathers x, from an offset in bytes, into the dense result.
func copyStrided(p *phase, v, x *ir.Value, offset int64, shape ir.Shape, strides [3]plan.Expr) error {
	d := p.dispatch("transpose_"+v.Type.DType.String(), v)
	d.inFrom("x", x, offset)
	d.out("out", v)
	d.params(words{"size[0]": Extent(shape[0]), "size[1]": Extent(shape[1]), "size[2]": Extent(shape[2]),
		"stride[0]": strides[0], "stride[1]": strides[1], "stride[2]": strides[2]})
	d.cover()
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
	for i, name := range []string{"scores", "positions", "cu_seqlens", "context_lens", "slopes"}[:len(v.Args)] {
		d.in(name, v.Args[i])
	}
	d.constant("fc_slopes", bit(len(v.Args) > 4))
	d.out("out", v)
	d.params(words{"heads": Extent(s[0]), "tokens": Extent(s[1]), "seqs": Extent(ir.Var(sym.B)), "context": Extent(ir.Var(sym.Smax)),
		"window": size(int64(v.Attr.(ir.MaskAttr).Window))})
	d.mayReplace(v.Args[0], v)
	d.cover()
	return nil
}

// repeatGroups bounds the 1-D grid of repeat_kv: its threads loop with a 64-bit
// stride, since positions in a grid have only 32 bits.
const repeatGroups = 1 << 20

// repeatKV lowers repeat_kv, and repeat_kv_pair, whose K and V have the same shape.
func repeatKV(p *phase, v *ir.Value) error {
	x, out := v.Args[0], tensorOf(v)
	n, ok := out.Shape.Elements()
	if !ok {
		return fmt.Errorf("%s: %s is no simple size", v, v.Type)
	}
	d := p.dispatch(v.Op.String()+"_"+out.DType.String(), v)
	groups := over(n, int64(kernels.RepeatThreads))
	if p.bound(groups) > repeatGroups {
		groups = plan.Number(repeatGroups)
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
	d.launch([3]plan.Expr{groups, one(), one()}, kernels.RepeatThreads)
	return nil
}
