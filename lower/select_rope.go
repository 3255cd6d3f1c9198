package lower

import (
	"fmt"
	"maps"
	"math"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

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

// rotation sets the constants that the rotary kernels share, binds the factors (one tensor or
// none), and returns the parameters of the rotation. With a base of 1 the factors are a table of
// complete divisors.
func rotation(d emitter, a ir.RopeAttr, factors []*ir.Value) words {
	table := len(factors) > 0 && a.Theta == 1
	d.constant("fc_interleaved", bit(a.Interleaved))
	d.constant("fc_factors", bit(len(factors) > 0 && !table))
	d.constant("fc_table", bit(table))
	if len(factors) > 0 {
		d.in("factors", factors[0])
	}
	return words{"rotated": size(int64(a.Rotated)), "first": plan.Number(0),
		"log2_theta": float(math.Log2(a.Theta)), "freq_scale": float(a.FreqScale), "magnitude": float(a.Magnitude)}
}

// qkvWrite lowers qkv_write to the kernel rope_qkv_write with no rotated elements and no positions.
func qkvWrite(p *phase, v *ir.Value) error {
	d := fusedWrite(p, v, "rope_qkv_write")
	d.constant("fc_interleaved", 0)
	d.constant("fc_positions", 0)
	d.in("slots", v.Args[2])
	return d.writeHeads(v, v.Attr.(ir.QKVWriteAttr).Heads, words{"rotated": plan.Number(0), "first": plan.Number(0),
		"log2_theta": float(0), "freq_scale": float(1), "magnitude": float(1), "eps": float(0)})
}

// ropeWrite lowers rope_qkv_write and head_norm_rope_kv_write.
func ropeWrite(p *phase, v *ir.Value) error {
	a := v.Attr.(ir.RopeWriteAttr)
	norms := v.Op == ir.OpHeadNormRopeKVWrite
	factorsAt := 4
	if norms {
		factorsAt = 6
	}
	d := fusedWrite(p, v, v.Op.String())
	given := rotation(d, a.Rope, v.Args[factorsAt:])
	given["eps"] = float(a.Eps)
	d.in("positions", v.Args[2])
	d.in("slots", v.Args[3])
	if norms {
		if a.AllHeads {
			d.constant("fc_all_heads", 1)
		}
		if a.NormValues {
			d.constant("fc_norm_values", 1)
		}
		d.in("q_norm", v.Args[4])
		d.in("k_norm", v.Args[5])
	}
	if longer, spared := p.target.costs.WriteRepeats(&p.target.Target, v, p.bound(Extent(v.Args[0].Type.Shape[0]))); longer > spared && p.out.Longest.Max == 1 && !a.AllHeads {
		p.chose(v, d, fmt.Sprintf("%s × (%d + 2·%d) heads of %d", p.upTo(v.Args[0].Type.Shape[0]), a.Heads, v.Args[1].Type.Cache.KVHeads, v.Args[1].Type.Cache.Head),
			"a dispatch before attention's", fmt.Sprintf("in every head's attention it would take %.1f µs longer, and spare %.1f µs, on %s", longer, spared, &p.chip))
	}
	return d.writeHeads(v, a.Heads, given)
}

// latentWrite lowers latent_write, with a threadgroup for each head of a token and for its row of the
// cache.
func latentWrite(p *phase, v *ir.Value) error {
	a := v.Attr.(ir.LatentWriteAttr)
	o := a.Operands(v.Args)
	c, tokens, heads := o.Cache.Type.Cache, o.Q.Type.Shape[0], o.Q.Type.Shape[1]
	d := p.dispatch("latent_write_"+o.Absorbed.Type.DType.String()+"_"+c.DType.String(), v)
	given := d.latent(a, o)
	d.out("q_out", v)
	d.cache("k_cache", o.Cache, false, true)
	maps.Copy(given, block(c))
	maps.Copy(given, words{"tokens": Extent(tokens), "heads": Extent(heads), "rows": size(number(heads) + 1)})
	d.params(given)
	d.cover()
	return nil
}

// latent binds what a row of a latent cache and queries over it are made of, and returns the parameters.
func (e emitter) latent(a ir.LatentWriteAttr, o ir.LatentWriteOperands) words {
	var factors []*ir.Value
	if o.Factors != nil {
		factors = []*ir.Value{o.Factors}
	}
	given := rotation(e, a.Rope, factors)
	delete(given, "first") // the kernels have positions instead
	for _, x := range []struct {
		name string
		v    *ir.Value
	}{{"absorbed", o.Absorbed}, {"q", o.Q}, {"all", o.All}, {"gain", o.Gain}, {"positions", o.Positions}, {"slots", o.Slots}} {
		e.in(x.name, x.v)
	}
	maps.Copy(given, words{"q_head": size(last(o.Q)), "all_stride": size(last(o.All)), "all_from": size(int64(a.From)), "eps": float(a.Eps)})
	return given
}

func fusedWrite(p *phase, v *ir.Value, family string) emitter {
	return p.dispatch(family+"_"+v.Args[0].Type.DType.String()+"_"+v.Args[1].Type.Cache.DType.String(), v)
}

// writeHeads binds Q, K, V and the cache of a fused write, and launches it.
func (e emitter) writeHeads(v *ir.Value, heads int, given words) error {
	p, qkv, c := e.p, v.Args[0], v.Args[1].Type.Cache
	tokens := qkv.Type.Shape[0]
	if !p.target.TakesHeads(c) {
		return fmt.Errorf("%s: heads of %d elements; the fused writes take multiples of %d up to %d", v, c.Head, p.target.HeadStep, p.target.MaxHead)
	}
	e.in("qkv", qkv)
	e.out("q_out", v)
	e.caches(v.Args[1], true)
	stride := size(last(qkv))
	maps.Copy(given, block(c))
	maps.Copy(given, words{"tokens": Extent(tokens), "heads": size(int64(heads)),
		"q_stride": stride, "k_stride": stride, "v_stride": stride})
	e.params(given)
	rows, each := int64(heads)+2*int64(c.KVHeads), int64(kernels.RopeWriteRows(int(c.Head)))
	e.launch([3]plan.Expr{plan.Number((rows + each - 1) / each), Extent(tokens), one()}, e.kernel.MaxThreads)
	return nil
}
