package ref

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
)

func (r *run) siluMul(v *ir.Value) (result, error) {
	return r.binary(v, func(x, y float64) float64 { return silu(x) * y })
}

func (r *run) fusedLinear(v *ir.Value) (result, error) {
	a, x := v.Attr.(ir.LinearAttr), r.tensor(v, 0)
	if r.Device != nil {
		return r.deviceProduct(v, a)
	}
	rows, k := x.rows(), x.last()
	next := 1 + a.Weights
	input := x.Data
	if a.Norm {
		input = make([]float64, len(x.Data))
		for i := range rows {
			normalise(input[i*k:(i+1)*k], x.row(i), r.tensor(v, next).Data, a.Eps)
		}
		next++
	}
	return r.each(v, func(out *Tensor) error {
		if a.SiLUPair {
			up := make([]float64, len(out.Data))
			product2D(out.Data, out.last(), 0, input, rows, r.tensor(v, 1).Data, out.last(), k)
			product2D(up, out.last(), 0, input, rows, r.tensor(v, 2).Data, out.last(), k)
			for i, gate := range out.Data {
				out.Data[i] = silu(gate) * up[i]
			}
		} else {
			column := 0
			for i := range a.Weights {
				w := r.tensor(v, 1+i)
				product2D(out.Data, out.last(), column, input, rows, w.Data, w.Shape[0], k)
				column += w.Shape[0]
			}
		}
		if a.Residual {
			for i, x := range r.tensor(v, next).Data {
				out.Data[i] += x
			}
		}
		return nil
	})
}

func (r *run) attention(v *ir.Value) (result, error) {
	q, cache, a, sinks := r.tensor(v, 0), r.cache(v, 1), v.Attr.(ir.AttentionAttr), r.optional(v, 6)
	c, err := r.context(v, 2)
	if err != nil {
		return result{}, err
	}
	p, err := r.pages(cache, r.tensor(v, 4), r.tensor(v, 5))
	if err != nil {
		return result{}, err
	}
	heads := q.Shape[1]
	perKV := heads / cache.KVHeads
	return r.each(v, func(out *Tensor) error {
		for i := range q.rows() {
			t, h := i/heads, i%heads
			b := c.sequence[t]
			visible := max(0, min(int(c.positions[t])+1, int(c.lens[b])))
			scores := make([]float64, visible)
			for j := range scores {
				if scores[j] = negInf; !c.sees(t, b, j, a.Window) {
					continue
				}
				from, to := p.key(b, j, h/perKV)
				if scores[j] = a.Scale * dot(q.row(i), cache.K[from:to]); a.SoftCap != 0 {
					scores[j] = softCap(scores[j], a.SoftCap)
				}
			}
			softmax(scores, sinkOf(sinks, h))
			for j, weight := range scores {
				if !c.sees(t, b, j, a.Window) {
					continue
				}
				from, to := p.key(b, j, h/perKV)
				addScaled(out.row(i), weight, cache.V[from:to])
			}
		}
		return nil
	})
}

func (r *run) ropeQKVWrite(v *ir.Value) (result, error) {
	a := v.Attr.(ir.RopeWriteAttr)
	return r.rotateAndWrite(v, newAngles(a.Rope, r.optional(v, 4)), func(head []float64, _ int) []float64 { return head })
}

func (r *run) headNormRopeKVWrite(v *ir.Value) (result, error) {
	a := v.Attr.(ir.RopeWriteAttr)
	norms := [2][]float64{r.tensor(v, 4).Data, r.tensor(v, 5).Data}
	return r.rotateAndWrite(v, newAngles(a.Rope, r.optional(v, 6)), func(head []float64, which int) []float64 {
		normed := make([]float64, len(head))
		normalise(normed, head, norms[which], a.Eps)
		return normed
	})
}

// rotateAndWrite takes the rows of qkv apart; norm is applied to each head of Q
// (0) and K (1) before it is rotated.
func (r *run) rotateAndWrite(v *ir.Value, rope angles, norm func(head []float64, which int) []float64) (result, error) {
	qkv, cache, positions, slots := r.tensor(v, 0), r.cache(v, 1), r.tensor(v, 2).Ints, r.tensor(v, 3).Ints
	heads, d := v.Attr.(ir.RopeWriteAttr).Heads, cache.Head
	q, err := r.empty(v.Type.Elems[0])
	if err != nil {
		return result{}, err
	}
	for t, slot := range slots {
		row := qkv.row(t)
		head := func(i int) []float64 { return row[i*d : (i+1)*d] }
		for h := range heads {
			rope.rotate(q.row(t*heads+h), norm(head(h), 0), positions[t])
		}
		for h := range cache.KVHeads {
			k := make([]float64, d)
			rope.rotate(k, norm(head(heads+h), 1), positions[t])
			if err := cache.write(slot, h, k, head(heads+cache.KVHeads+h), r.RoundCache); err != nil {
				return result{}, fmt.Errorf("token %d: %w", t, err)
			}
		}
	}
	return result{elems: []result{{tensor: q}, {cache: cache}}}, nil
}

func (r *run) repeatKVPair(v *ir.Value) (result, error) {
	n := v.Attr.(ir.RepeatAttr).N
	var out result
	for i, t := range v.Type.Elems {
		x := r.tensor(v, i)
		to, err := r.empty(t)
		if err != nil {
			return result{}, err
		}
		heads, d := x.Shape[1], x.Shape[2]
		for s := range x.Shape[0] {
			for h := range heads * n {
				copy(to.row(s*heads*n+h), x.Data[(s*heads+h/n)*d:][:d])
			}
		}
		out.elems = append(out.elems, result{tensor: to})
	}
	return out, nil
}
