package lower

import (
	"maps"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// shortConv lowers a convolution, alone, with gates or with SiLU.
func shortConv(p *phase, v *ir.Value) error {
	x, w, out := v.Args[0], v.Args[1], tensorOf(v)
	d := p.dispatch("short_conv_"+out.DType.String(), v)
	width, gated := out.Shape.Last(), v.Op == ir.OpGatedShortConv
	d.constant("fc_gated", bit(gated))
	d.constant("fc_silu", bit(v.Op == ir.OpSiLUShortConv))
	if len(v.Args) > 5 {
		d.constant("fc_bias", 1)
		d.in("bias", v.Args[5])
	}
	if gated {
		third := out.DType.Bytes(width)
		d.inFrom("in_gate", x, 0)
		d.inFrom("out_gate", x, third)
		d.inFrom("x", x, 2*third)
	} else {
		from := 0
		if a, ok := v.Attr.(ir.ConvAttr); ok {
			from = a.From
		}
		d.inFrom("x", x, out.DType.Bytes(int64(from)))
	}
	d.in("w", w)
	d.recurrent(v, 2)
	d.out("out", v)
	d.params(words{"tokens": Extent(ir.Var(sym.T)), "seqs": Extent(ir.Var(sym.B)), "width": size(width), "taps": size(last(w)), "x_stride": size(last(x))})
	d.cover()
	return nil
}

func deltaNet(p *phase, v *ir.Value) error {
	out := tensorOf(v)
	d := p.dispatch(p.deltaKernel(out), v)
	d.in("qkv", v.Args[0])
	d.constant("fc_gated", 0)
	for i, name := range []string{"alpha", "beta", "decay", "bias"} {
		d.in(name, v.Args[1+i])
	}
	heads, _ := out.Shape[1].IsConst()
	d.deltaRule(v, v.Attr.(ir.DeltaNetAttr), 5, words{"gate_stride": size(heads), "beta_from": size(0), "z_stride": size(0), "z_from": size(0), "norm_eps": float(0)})
	return nil
}

// gatedDeltaNet lowers the rule with what follows it.
func gatedDeltaNet(p *phase, v *ir.Value) error {
	a, out, gates, all := v.Attr.(ir.GatedDeltaNetAttr), tensorOf(v), v.Args[1], v.Args[5]
	d := p.dispatch(p.deltaKernel(out), v)
	d.in("qkv", v.Args[0])
	d.constant("fc_gated", 1)
	heads, _ := out.Shape[1].IsConst()
	d.in("alpha", gates)
	d.in("beta", gates)
	for i, name := range []string{"decay", "bias", "gain"} {
		d.in(name, v.Args[2+i])
	}
	d.in("z", all)
	d.deltaRule(v, a.Delta, 6, words{"gate_stride": size(2 * heads), "beta_from": size(heads), "z_stride": size(last(all)),
		"z_from": size(last(all) - heads*out.Shape.Last()), "norm_eps": float(a.NormEps)})
	return nil
}

// deltaKernel returns the kernel of the gated delta rule.
func (p *phase) deltaKernel(out ir.Type) string {
	if head := out.Shape.Last(); p.stepwise(head%8 == 0 && head <= kernels.MaxPieceHead) {
		return "delta_net_" + out.DType.String()
	}
	return "delta_net_pieces_" + out.DType.String()
}

// stepwise reports whether a recurrence takes one token after the other. On a GPU prompts go by pieces
// where the shape fits them, unless a token's bits may not depend on where a piece begins.
func (p *phase) stepwise(fits bool) bool {
	few := p.out.Longest.Max == 1 || p.bound(Extent(ir.Var(sym.T))) <= p.chip.vecTokens
	return few || p.target.SameBits || !p.target.GPU || !fits
}

// deltaRule binds the result and the state, operand i of v, and adds the parameters that more lacks.
func (d emitter) deltaRule(v *ir.Value, a ir.DeltaNetAttr, i int, more words) {
	out := tensorOf(v)
	d.recurrent(v, i)
	d.out("out", v)
	head := out.Shape.Last()
	heads, _ := out.Shape[1].IsConst()
	maps.Copy(more, words{"tokens": Extent(ir.Var(sym.T)), "seqs": Extent(ir.Var(sym.B)), "heads": Extent(out.Shape[1]), "key_heads": size(int64(a.KeyHeads)),
		"head":  size(head),
		"share": size(int64(a.Share(int(heads)))), "eps": float(a.Eps)})
	d.params(more)
	if d.kernel.Family == "delta_net" {
		d.coverBy(int(roundUp(head, 32)))
	} else {
		d.cover()
	}
}

// mamba2 lowers the state space of Mamba-2, with a gate or without: on a GPU by pieces, as the delta
// rule.
func mamba2(p *phase, v *ir.Value) error {
	out, r, gated := tensorOf(v), v.Args[5].Type.Recurrent, v.Op == ir.OpGatedMamba2
	heads := v.Args[3].Type.Shape.Last()
	head, states := int64(r.Width), int64(r.Rows)/heads
	name := "mamba2_pieces_"
	if p.stepwise(head%8 == 0 && states%8 == 0 && max(head, states) <= kernels.MaxPieceHead) {
		name = "mamba2_"
	}
	d := p.dispatch(name+out.DType.String(), v)
	d.constant("fc_gated", bit(gated))
	for i, name := range []string{"xbc", "dt", "decay", "bias", "skip"} {
		d.in(name, v.Args[i])
	}
	width := last(v.Args[1]) // of dt, or of all
	zStride := int64(0)
	if gated {
		d.in("z", v.Args[1])
		zStride = width
	}
	d.recurrent(v, 5)
	d.out("out", v)
	d.params(words{"tokens": Extent(ir.Var(sym.T)), "seqs": Extent(ir.Var(sym.B)), "heads": size(heads), "groups": size(int64(v.Attr.(ir.Mamba2Attr).Groups)),
		"head": size(head), "states": size(states),
		"dt_stride": size(width), "dt_from": size(width - heads), "z_stride": size(zStride)})
	if d.kernel.Family == "mamba2" {
		d.coverBy(int(kernels.Mamba2Threads(uint32(roundUp(head, 32)))))
	} else {
		d.cover()
	}
	return nil
}

// recurrent binds the recurrent state that v updates, operand i of v, and the inputs that locate it
// in a step. The session determines the number of states, so the bindings declare one.
func (e emitter) recurrent(v *ir.Value, i int) {
	state := v.Args[i]
	at := place{buffer: e.p.state(first(state).Attr.(ir.StateAttr), plan.Recurrent(state.Type.Recurrent)), slot: -1}
	bytes := e.p.plan.Buffers[at.buffer].Bytes
	e.bind("state", at, plan.Binding{Bytes: bytes, Read: true})
	e.bind("state_out", at, plan.Binding{Bytes: bytes, Write: true})
	for k, name := range []string{"cu_seqlens", "states"} {
		e.in(name, v.Args[i+1+k])
	}
}
