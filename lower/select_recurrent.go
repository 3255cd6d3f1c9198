package lower

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// shortConv lowers a convolution, gated or not.
func shortConv(p *phase, v *ir.Value) error {
	x, w, state, out := v.Args[0], v.Args[1], v.Args[2], tensorOf(v)
	d := p.dispatch("short_conv_"+out.DType.String(), v)
	width, gated := out.Shape.Last(), v.Op == ir.OpGatedShortConv
	d.constant("fc_gated", bit(gated))
	if gated {
		third := out.DType.Bytes(width)
		d.inFrom("in_gate", x, 0)
		d.inFrom("out_gate", x, third)
		d.inFrom("x", x, 2*third)
	} else {
		d.in("x", x)
	}
	d.in("w", w)
	d.recurrent(v, 2)
	d.out("out", v)
	d.params(words{"tokens": Extent(ir.Var(sym.T)), "seqs": Extent(ir.Var(sym.B)), "width": size(width), "taps": size(last(w)), "x_stride": size(last(x)),
		"block": size(int64(state.Type.Recurrent.Block)), "table_stride": Extent(ir.Var(sym.NB))})
	d.cover()
	return nil
}

func deltaNet(p *phase, v *ir.Value) error {
	a, out, state := v.Attr.(ir.DeltaNetAttr), tensorOf(v), v.Args[5]
	d := p.dispatch("delta_net_"+out.DType.String(), v)
	for i, name := range []string{"qkv", "alpha", "beta", "decay", "bias"} {
		d.in(name, v.Args[i])
	}
	d.recurrent(v, 5)
	d.out("out", v)
	head := out.Shape.Last()
	d.params(words{"tokens": Extent(ir.Var(sym.T)), "seqs": Extent(ir.Var(sym.B)), "heads": Extent(out.Shape[1]), "key_heads": size(int64(a.KeyHeads)),
		"head": size(head), "block": size(int64(state.Type.Recurrent.Block)), "table_stride": Extent(ir.Var(sym.NB)), "eps": float(a.Eps)})
	d.coverBy(int(roundUp(head, 32)))
	return nil
}

// recurrent binds the recurrent state that v updates, operand i of v, and the inputs that locate it
// in a step. The session determines the number of blocks, so the bindings declare one.
func (e emitter) recurrent(v *ir.Value, i int) {
	state := v.Args[i]
	at := place{buffer: e.p.state(first(state).Attr.(ir.StateAttr), plan.Recurrent(state.Type.Recurrent)), slot: -1}
	bytes := e.p.plan.Buffers[at.buffer].Bytes
	e.bind("state", at, plan.Binding{Bytes: bytes, Read: true})
	e.bind("state_out", at, plan.Binding{Bytes: bytes, Write: true})
	for k, name := range []string{"positions", "cu_seqlens", "block_table"} {
		e.in(name, v.Args[i+1+k])
	}
}
